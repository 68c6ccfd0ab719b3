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
      if (__builtin_cpu_supports("avx512vbmi") && bits & ITG_ISA_avx512vnni) bits |= ITG_ISA_avx512vbmi;
    }
  }
#endif
  return bits;
}

const char *itg_isa_name(uint32_t bits) {
  static const struct { uint32_t bit; const char *name; } names[] = {
    {ITG_ISA_avx2, "avx2"}, {ITG_ISA_avx512, "avx512"}, {ITG_ISA_avx512vnni, "avx512vnni"},
    {ITG_ISA_avx512bf16, "avx512bf16"}, {ITG_ISA_avx512vbmi, "avx512vbmi"}, {ITG_ISA_neon, "neon"},
    {ITG_ISA_dotprod, "dotprod"}, {ITG_ISA_rvv, "rvv"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (bits & names[i].bit) return names[i].name;
  return "an unknown instruction set";
}
