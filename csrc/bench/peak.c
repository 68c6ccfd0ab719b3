// How many multiply-adds a core can do: the yardstick of benchmarks/kernels.py, not part of the
// runtime.
#include <immintrin.h>
#include <stdint.h>

// 12 sums are more than any core needs to keep its multipliers busy: 24 * lanes operations per
// round.
#define EACH(do) \
  do (0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11)
#define START(i) s##i = x,
#define STEP(i)            \
  s##i = MADD(s##i, x, x); \
  __asm__ volatile("" : "+x"(s##i));  // or the compiler would shorten it
#define ADD(i) +s##i
#define PEAK(isa, options, vector, set)                                                          \
  __attribute__((visibility("default"), target(options))) float itg_peak_##isa(int64_t rounds) { \
    vector x = set(0.5f), EACH(START) none = set(0.f);                                           \
    for (; rounds > 0; rounds--) {                                                               \
      EACH(STEP)                                                                                 \
    }                                                                                            \
    vector sum = none EACH(ADD);                                                                 \
    return sum[0];                                                                               \
  }

#define MADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
PEAK(scalar, "sse2", __m128, _mm_set1_ps)
#undef MADD
#define MADD _mm256_fmadd_ps
PEAK(avx2, "avx2,fma", __m256, _mm256_set1_ps)
#undef MADD
#define MADD _mm512_fmadd_ps
PEAK(avx512, "avx512f", __m512, _mm512_set1_ps)
#undef MADD

// The same for bytes: four multiply-adds per 32-bit lane, or two where there are only 16-bit ones.
#define BYTES(isa, options, vector, set)                                            \
  __attribute__((visibility("default"), target(options))) int itg_peak_bytes_##isa( \
      int64_t rounds) {                                                             \
    vector x = set(3), EACH(START) none = set(0);                                   \
    for (; rounds > 0; rounds--) {                                                  \
      EACH(STEP)                                                                    \
    }                                                                               \
    vector sum = none EACH(ADD);                                                    \
    return (int)sum[0];                                                             \
  }
#define MADD(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
BYTES(avx2, "avx2", __m256i, _mm256_set1_epi32)
#undef MADD
#define MADD(sum, a, b) _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))
BYTES(avx512, "avx512f,avx512bw", __m512i, _mm512_set1_epi32)
#undef MADD
#define MADD _mm512_dpbusd_epi32
BYTES(avx512vnni, "avx512f,avx512vnni", __m512i, _mm512_set1_epi32)
