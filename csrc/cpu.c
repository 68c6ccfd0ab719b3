// What this CPU can do.
#include "intaglio.h"

uint32_t itg_cpu_isa(void) {
  uint32_t bits = ITG_ISA_scalar;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    bits |= ITG_ISA_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      bits |= ITG_ISA_avx512;
      if (__builtin_cpu_supports("avx512vnni")) bits |= ITG_ISA_avx512vnni;
      if (__builtin_cpu_supports("avx512bf16")) bits |= ITG_ISA_avx512bf16;
    }
  }
#endif
  return bits;
}
