// Which cores of the chip run a program. A program for several cores also runs on fewer of them:
// between two barriers, the parts of several cores run one after the other on the same core.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cores.h"

uint32_t itg_npu_cores_of(const itg_npu_program *p, uint32_t core_mask) {
  const uint32_t given = (uint32_t)__builtin_popcount(core_mask);
  return given && given < p->cores ? given : p->cores;
}

// Whether each core reads only bytes of its SRAM that it has written since the last barrier, so
// that another core's part may use that memory in between.
static bool shares_memory(const itg_npu_program *p, uint8_t *written, uint64_t bytes) {
  for (uint32_t core = 0; core < p->cores; core++) {
    const itg_npu_instruction *i = itg_npu_first(p);
    memset(written, 0, bytes);
    for (uint32_t n = 0; n < p->instructions; n++, i = itg_npu_next(i)) {
      itg_npu_region regions[ITG_NPU_REGIONS];
      if (i->head.core != core) continue;
      if (i->head.op == ITG_NPU_BARRIER) memset(written, 0, bytes);
      const int count = itg_npu_regions_of(i, regions);
      for (int write = 0; write < 2; write++)
        for (int k = 0; k < count; k++)
          if (regions[k].space == ITG_NPU_SRAM && regions[k].write == write &&
              !itg_npu_mark_region(written, regions[k].at, &regions[k], write))
            return false;
    }
  }
  return true;
}

itg_words itg_npu_check_cores(const void *program, uint32_t core_mask) {
  static _Thread_local char words[160];  // read before the next refusal overwrites it
  const itg_npu_program *p = program;
  const uint32_t limit = p->chip_cores ? p->chip_cores : ITG_NPU_CORES;
  if (core_mask != ITG_ALL_CORES && core_mask >> limit) {
    snprintf(words, sizeof words, "core_mask 0x%x has core %d; %.16s has cores 0 to %u", core_mask,
             31 - __builtin_clz(core_mask), p->chip, limit - 1);
    return words;
  }
  if (itg_npu_cores_of(p, core_mask) == p->cores) return NULL;
  const uint64_t bytes = p->sram / 8 + 1;
  uint8_t *written = malloc(bytes);
  if (!written) return "there is no memory to check the cores of a program";
  const bool shares = shares_memory(p, written, bytes);
  free(written);
  if (shares) return NULL;
  snprintf(words, sizeof words,
           "core_mask 0x%x has fewer cores than the program, which keeps data in the memory of "
           "each of its %u cores; give it %u",
           core_mask, p->cores, p->cores);
  return words;
}
