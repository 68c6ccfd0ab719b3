// A plugin of qemu (TCG): every block of instructions that was executed, how often, and its bytes,
// as lines `times instructions address bytes` of the file that the variable BLOCKS names. Debian's
// qemu has no header for plugins, so the functions that are used are declared here (version 1).
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
                                           void (*fn)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *at,
                                              uint64_t by);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*fn)(plugin_id, void *), void *data);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;

typedef struct block {
  uint64_t times, address;
  size_t instructions, size;
  struct block *next;
  uint8_t bytes[];
} block;

enum { BUCKETS = 1 << 14, MOST_BYTES = 16, ADD = 0 };  // MOST_BYTES: of an instruction
static block *buckets[BUCKETS];

static void translated(plugin_id id, struct qemu_plugin_tb *tb) {
  (void)id;
  const uint64_t address = qemu_plugin_tb_vaddr(tb);
  const size_t n = qemu_plugin_tb_n_insns(tb);
  block **list = &buckets[address / 4 % BUCKETS], *b = *list;
  while (b && (b->address != address || b->instructions != n)) b = b->next;
  if (!b) {
    b = calloc(1, sizeof *b + n * MOST_BYTES);
    if (!b) abort();
    b->address = address;
    b->instructions = n;
    for (size_t i = 0; i < n; i++) {
      const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
      const size_t size = qemu_plugin_insn_size(insn);
      memcpy(b->bytes + b->size, qemu_plugin_insn_data(insn), size);
      b->size += size;
    }
    b->next = *list;
    *list = b;
  }
  qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD, &b->times, 1);
}

static void finished(plugin_id id, void *data) {
  (void)id;
  (void)data;
  const char *path = getenv("BLOCKS");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  for (int i = 0; i < BUCKETS; i++)
    for (const block *b = buckets[i]; b; b = b->next) {
      if (!b->times) continue;
      fprintf(file, "%llu %zu %llx ", (unsigned long long)b->times, b->instructions,
              (unsigned long long)b->address);
      for (size_t k = 0; k < b->size; k++) fprintf(file, "%02x", b->bytes[k]);
      fputc('\n', file);
    }
  fclose(file);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
  (void)info;
  (void)argc;
  (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, finished, NULL);
  return 0;
}
