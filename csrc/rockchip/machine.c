// Registers, and the order of the blocks.
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  START = 0x81,  // target of the word that starts blocks
  ELEMENTWISE = 0x18,
  POOL = 0x60,
  LUT_ACCESS_CFG = 0x4100,
  LUT_ACCESS_DATA = 0x4104,
  S_POINTER = 0x004,  // of each block
  SETS_IN_TURN = 0xE,
  CLEAR = 0x30,
};

int rk_fail(rk_machine *m, rk_result result, const char *form, ...) {
  va_list given;
  va_start(given, form);
  vsnprintf(m->message, sizeof m->message, form, given);
  va_end(given);
  return result;
}

static const rk_chip CHIPS[] = {
    {"rk3588", RK_3588, 16, 12, 32 << 10, 64, 32, 8, 0, 0x1D},
    {"rk3566", RK_356X, 8, 8, 32 << 10, 32, 16, 4, 0, 0x1F},
    {"rk3568", RK_356X, 8, 8, 32 << 10, 32, 16, 4, 0, 0x1F},
    {"rk3562", RK_3562, 16, 8, 32 << 10, 64, 16, 4, 2, 0x1D},
    {"rk3576", RK_3576, 16, 8, 64 << 10, 64, 32, 8, 2, 0x1D},
    {"rv1103", RV_110X, 16, 8, 32 << 10, 32, 16, 4, 1, 0x1D},
    {"rv1106", RV_110X, 16, 8, 32 << 10, 32, 16, 4, 1, 0x1D},
};

uint64_t itg_rk_machine_bytes(void) { return sizeof(rk_machine); }

const char *itg_rk_message(const rk_machine *m) { return m->message; }

void itg_rk_start(rk_machine *m, rk_memory memory, void *context) {
  memset(m, 0, sizeof *m);
  m->memory = memory;
  m->context = context;
  m->chip = CHIPS;
}

int itg_rk_choose(rk_machine *m, const char *chip) {
  for (size_t i = 0; i < sizeof CHIPS / sizeof *CHIPS; i++)
    if (!strcmp(CHIPS[i].name, chip)) {
      m->chip = &CHIPS[i];
      return RK_DONE;
    }
  return rk_fail(m, RK_BAD, "the chip '%s' is not simulated", chip);
}

uint32_t rk_get(rk_machine *m, uint32_t address, int *missing) {
  const int set = m->set[address >> 12];
  if (!m->known[set][address / 4] && !*missing) {
    *missing = (int)address;
    rk_fail(m, RK_BAD, "a task does not set register %#x", (unsigned)address);
  }
  return m->value[set][address / 4];
}

static int write_table(rk_machine *m, uint32_t address, uint32_t value) {
  if (address == LUT_ACCESS_CFG) {
    m->table_id = value >> 16 & 1;
    m->table_at = value & 0x3FF;
    m->table_writes = value >> 17 & 1;
    return RK_DONE;
  }
  if (!m->table_writes) return RK_DONE;
  // the vendor writes one more on an RK356x
  if (m->table_at == RK_TABLE && m->chip->family == RK_356X) return RK_DONE;
  if (m->table_at >= RK_TABLE)
    return rk_fail(m, RK_BAD, "entry %u of a table; there are %d", m->table_at, RK_TABLE);
  m->table[m->table_id][m->table_at++] = (int16_t)(uint16_t)value;
  return RK_DONE;
}

static int start(rk_machine *m, uint32_t mask) {
  int result;
  if (mask == m->chip->convolution) result = rk_convolution(m);
  else if (mask == ELEMENTWISE) result = rk_elementwise(m);
  else if (mask == POOL) result = rk_pool(m);
  else return rk_fail(m, RK_UNSUPPORTED, "a task starts the blocks %#x", (unsigned)mask);
  static const uint8_t block_of[] = {1, 2, 3, 4, 5, 6, 7};  // by bit of the mask
  for (int bit = 0; bit < 7; bit++)
    if ((mask >> bit & 1) && !m->fixed[block_of[bit]]) m->set[block_of[bit]] ^= 1;
  return result;
}

int itg_rk_task(rk_machine *m, const uint64_t *words, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    const uint32_t target = (uint32_t)(words[i] >> 48), value = (uint32_t)(words[i] >> 16);
    const uint32_t address = words[i] & 0xFFFF;
    if (target == START) return start(m, value);
    if (address < 0x1000 || address >= 0x8000) continue;  // the PC's own, and barriers
    if (address == LUT_ACCESS_CFG || address == LUT_ACCESS_DATA) {
      const int result = write_table(m, address, value);
      if (result) return result;
    }
    if ((address & 0xFFF) == S_POINTER) {
      m->fixed[address >> 12] = !(value & SETS_IN_TURN);
      if (value & CLEAR) m->set[address >> 12] = 0;
      continue;
    }
    const int set = m->set[address >> 12];
    m->value[set][address / 4] = value;
    m->known[set][address / 4] = 1;
  }
  return rk_fail(m, RK_BAD, "a task of %llu words starts no block", (unsigned long long)count);
}

typedef struct flat {
  uint8_t *bytes;
  uint64_t size;
} flat;

static uint8_t *in_flat(void *context, uint64_t address, uint64_t size) {
  const flat *f = context;
  return address > f->size || size > f->size - address ? NULL : f->bytes + address;
}

int itg_rk_simulate(rk_machine *m, uint8_t *bytes, uint64_t size, const uint64_t *words,
                    const uint64_t *first, const uint64_t *counts, uint64_t tasks) {
  flat memory = {bytes, size};
  m->memory = in_flat;
  m->context = &memory;
  int result = RK_DONE;
  for (uint64_t i = 0; i < tasks && !result; i++)
    result = itg_rk_task(m, words + first[i], counts[i]);
  m->context = NULL;
  return result;
}
