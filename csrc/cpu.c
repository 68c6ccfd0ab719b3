// The instruction sets of this CPU, as far as this build has kernels for them.
#include "intaglio.h"
#if defined(__linux__) && (defined(__riscv) || defined(__arm__) || defined(__aarch64__))
#include <sys/auxv.h>
#endif
#if defined(__linux__) && defined(__riscv)
#include <unistd.h>
#endif

#if defined(__linux__) && defined(__riscv)
// Kernels of some vendors report V for the draft 0.7.1 of it, in which this vtype, e32 m4 ta ma, is
// not legal: its sign is set then. Both instructions are written as numbers, so that any assembler
// takes them.
static int has_rvv(void) {
  if (!(getauxval(AT_HWCAP) & 1ul << ('V' - 'A'))) return 0;
  long type;
  __asm__ volatile(".word 0x0d2072d7\n\tcsrr %0, 0xc21" : "=r"(type) : : "t0");
  return type == 0xd2;
}
#endif

#if defined(__linux__) && defined(__riscv)
// Linux 6.5 and newer answer riscv_hwprobe; older ones name no extension of RVV, so that a build
// may say by ITG_ASSUME_ZVFH that its board has this one.
static int has_zvfh(void) {
#ifdef ITG_ASSUME_ZVFH
  return 1;
#else
  struct {
    int64_t key;
    uint64_t value;
  } pair = {4, 0};  // RISCV_HWPROBE_KEY_IMA_EXT_0
  return !syscall(258, &pair, 1, 0, 0, 0) && pair.key == 4 && pair.value >> 30 & 1;
#endif
}
#endif

static uint32_t cpu_isa(void) {
  uint32_t bits = ITG_ISA_scalar;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    bits |= ITG_ISA_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      bits |= ITG_ISA_avx512;
      if (__builtin_cpu_supports("avx512vnni")) bits |= ITG_ISA_avx512vnni;
      if (__builtin_cpu_supports("avx512bf16")) bits |= ITG_ISA_avx512bf16;
      // Every CPU with VBMI and VNNI also counts bits (VPOPCNTDQ).
      if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vpopcntdq") &&
          bits & ITG_ISA_avx512vnni)
        bits |= ITG_ISA_avx512vbmi;
    }
  }
#elif defined(__aarch64__)
  bits |= ITG_ISA_neon;  // part of the architecture
#if defined(__linux__)
  // of AT_HWCAP and AT_HWCAP2, as Linux numbers them
  enum { FP16 = 1 << 9 | 1 << 10, DOTPROD = 1 << 20, I8MM = 1 << 13, BF16 = 1 << 14 };
  if (getauxval(AT_HWCAP) & DOTPROD) {
    bits |= ITG_ISA_dotprod;
    if (getauxval(AT_HWCAP2) & I8MM) bits |= ITG_ISA_i8mm;
  }
  if ((getauxval(AT_HWCAP) & FP16) == FP16) bits |= ITG_ISA_neonfp16;
  if (getauxval(AT_HWCAP2) & BF16) bits |= ITG_ISA_neonbf16;
#elif defined(__APPLE__)
  bits |= ITG_ISA_dotprod | ITG_ISA_neonfp16;  // of every such CPU since the M1
#endif
#elif defined(__linux__) && defined(__arm__)
  enum { NEON = 1 << 12, VFPV4 = 1 << 16 };  // of AT_HWCAP
  if ((getauxval(AT_HWCAP) & (NEON | VFPV4)) == (NEON | VFPV4)) bits |= ITG_ISA_armv7;
#elif defined(__linux__) && defined(__riscv)
  if (has_rvv()) bits |= ITG_ISA_rvv | (has_zvfh() ? ITG_ISA_rvvfp16 : 0);
#endif
  return bits;
}

static uint32_t built_isa(void) {
  uint32_t bits = ITG_ISA_scalar;
#ifdef ITG_BUILD_avx2
  bits |= ITG_ISA_avx2;
#endif
#ifdef ITG_BUILD_avx512
  bits |= ITG_ISA_avx512 | ITG_ISA_avx2;  // packages for AVX-512 have both bits
#endif
#ifdef ITG_BUILD_avx512vnni
  bits |= ITG_ISA_avx512vnni;
#endif
#ifdef ITG_BUILD_avx512bf16
  bits |= ITG_ISA_avx512bf16;
#endif
#ifdef ITG_BUILD_avx512vbmi
  bits |= ITG_ISA_avx512vbmi;
#endif
#ifdef ITG_BUILD_neon
  bits |= ITG_ISA_neon;
#endif
#ifdef ITG_BUILD_armv7
  bits |= ITG_ISA_armv7;
#endif
#ifdef ITG_BUILD_rvv
  bits |= ITG_ISA_rvv;
#endif
#ifdef ITG_BUILD_dotprod
  bits |= ITG_ISA_dotprod;
#endif
#ifdef ITG_BUILD_i8mm
  bits |= ITG_ISA_i8mm;
#endif
#ifdef ITG_BUILD_neonfp16
  bits |= ITG_ISA_neonfp16;
#endif
#ifdef ITG_BUILD_neonbf16
  bits |= ITG_ISA_neonbf16;
#endif
#ifdef ITG_BUILD_rvvfp16
  bits |= ITG_ISA_rvvfp16;
#endif
  return bits;
}

uint32_t itg_cpu_isa(void) { return cpu_isa() & built_isa(); }

uint32_t itg_missing_isa(uint32_t bits) {
  uint32_t missing = bits & ~itg_cpu_isa();
#ifndef ITG_BUILD_avx2
  if (!(bits & ITG_ISA_avx512)) missing |= bits & ITG_ISA_avx2;
#endif
  return missing;
}

const char *itg_isa_name(uint32_t bits) {
  static const struct {
    uint32_t bit;
    const char *name;
  } names[] = {
      {ITG_ISA_avx2, "avx2"},
      {ITG_ISA_avx512, "avx512"},
      {ITG_ISA_avx512vnni, "avx512vnni"},
      {ITG_ISA_avx512bf16, "avx512bf16"},
      {ITG_ISA_avx512vbmi, "avx512vbmi"},
      {ITG_ISA_neon, "neon"},
      {ITG_ISA_dotprod, "dotprod"},
      {ITG_ISA_i8mm, "i8mm"},
      {ITG_ISA_neonfp16, "neonfp16"},
      {ITG_ISA_neonbf16, "neonbf16"},
      {ITG_ISA_rvvfp16, "rvvfp16"},
      {ITG_ISA_rvv, "rvv"},
      {ITG_ISA_armv7, "armv7"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (bits & names[i].bit) return names[i].name;
  return "an unknown instruction set";
}

#ifdef ITG_PRINT_ISA  // a program for CMakeLists.txt: the names of what this CPU has
#include <stdio.h>
int main(void) {
  const uint32_t has = cpu_isa();
  for (uint32_t bit = 1; bit; bit <<= 1)
    if (has & bit) printf("%s ", itg_isa_name(bit));
  return 0;
}
#endif
