// Vectors of 32-bit sums of products of bytes: what the 8-bit kernels need of an instruction set. A lane holds four
// bytes that lie next to each other along the sum: four of the input (as u8) meet four weights (i8). Nothing
// saturates: where there is no instruction for four products at once, they are made as 16-bit pairs.
#pragma once
#include <stdbool.h>
#include <string.h>

#include "vec.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

// Sums become bytes: clamp(rint(float(sum) * scale) + zero). The bounds are the output's minus its zero, so that one
// clamp serves overflow, saturation and activations, and what is left fits into 16 bits.
typedef struct itg_requantize {
  const int32_t *bias;  // per output channel, with the input's zero folded in
  const float *scale;
  float lo, hi;
  int32_t zero;
  int high;        // 0x80 where the result is i8: what makes its bytes of those of u8
  bool saturates;  // no sum leaves 32 bits when it is scaled, and the bounds are the type's: narrowing does it all
} itg_requantize;

static inline itg_requantize itg_requantize_of(const int32_t *bias, const float *scale, int64_t channels, int64_t zero,
                                               int64_t lo, int64_t hi, int64_t low) {
  bool small = true;
  for (int64_t i = 0; i < channels; i++) small &= fabsf(scale[i]) < 1;
  return (itg_requantize){bias, scale, (float)(lo - zero), (float)(hi - zero), (int32_t)zero, low ? 0x80 : 0,
                          small && hi - lo == 255};
}

static inline uint8_t itg_requantized(const itg_requantize *q, int32_t sum, int64_t channel) {
  const float y = (float)sum * q->scale[channel], above = y > q->lo ? y : q->lo;
  return (uint8_t)((int32_t)rintf(above < q->hi ? above : q->hi) + q->zero);
}

#if defined(ISA_avx512) || defined(ISA_avx2)
#define ITG_QVECTORS
#if defined(ISA_avx512)
typedef __m512i vq;
enum { QL = 16, QBYTES = 64 };
#define vq_load(p) _mm512_loadu_si512(p)
#define vq_store(p, v) _mm512_storeu_si512(p, v)
#define vq_set(x) _mm512_set1_epi32(x)
#define vq_set16(x) _mm512_set1_epi16(x)
#define vq_xor _mm512_xor_si512
#define vq_and _mm512_and_si512
#define vq_adds16 _mm512_adds_epi16
#define vq_packs32 _mm512_packs_epi32
#define vq_packus16 _mm512_packus_epi16
#define vq_unpacklo8 _mm512_unpacklo_epi8
#define vq_unpackhi8 _mm512_unpackhi_epi8
#define vq_unpacklo16 _mm512_unpacklo_epi16
#define vq_unpackhi16 _mm512_unpackhi_epi16
#else
typedef __m256i vq;
enum { QL = 8, QBYTES = 32 };
#define vq_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define vq_store(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define vq_set(x) _mm256_set1_epi32(x)
#define vq_set16(x) _mm256_set1_epi16(x)
#define vq_xor _mm256_xor_si256
#define vq_and _mm256_and_si256
#define vq_adds16 _mm256_adds_epi16
#define vq_packs32 _mm256_packs_epi32
#define vq_packus16 _mm256_packus_epi16
#define vq_unpacklo8 _mm256_unpacklo_epi8
#define vq_unpackhi8 _mm256_unpackhi_epi8
#define vq_unpacklo16 _mm256_unpacklo_epi16
#define vq_unpackhi16 _mm256_unpackhi_epi16
#endif

// Weights and inputs as `dot` wants them, made once for all the products that they take part in.
#if defined(ISA_avx512vnni)
typedef vq vq_four;
INLINE vq_four vq_weights(vq w) { return w; }
INLINE vq_four vq_inputs(vq x) { return x; }
INLINE vq vq_dot(vq sum, vq_four x, vq_four w) {  // in words, for with the intrinsic GCC 12 keeps sums on the stack
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  return sum;
}
#else
typedef struct vq_four {
  vq even, odd;  // bytes 0 and 2, bytes 1 and 3, as 16-bit numbers
} vq_four;
#if defined(ISA_avx512)
INLINE vq_four vq_weights(vq w) {
  return (vq_four){_mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8), _mm512_srai_epi16(w, 8)};
}
INLINE vq_four vq_inputs(vq x) { return (vq_four){vq_and(x, vq_set16(0xff)), _mm512_srli_epi16(x, 8)}; }
INLINE vq vq_dot(vq sum, vq_four x, vq_four w) {
  return _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(x.even, w.even), _mm512_madd_epi16(x.odd, w.odd)));
}
#else
INLINE vq_four vq_weights(vq w) {
  return (vq_four){_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), _mm256_srai_epi16(w, 8)};
}
INLINE vq_four vq_inputs(vq x) { return (vq_four){vq_and(x, vq_set16(0xff)), _mm256_srli_epi16(x, 8)}; }
INLINE vq vq_dot(vq sum, vq_four x, vq_four w) {
  return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(x.even, w.even), _mm256_madd_epi16(x.odd, w.odd)));
}
#endif
#endif

INLINE vf vq_floats(vq sum) {
#if defined(ISA_avx512)
  return _mm512_cvtepi32_ps(sum);
#else
  return _mm256_cvtepi32_ps(sum);
#endif
}

INLINE vq vq_rounded(vf y) {
#if defined(ISA_avx512)
  return _mm512_cvtps_epi32(y);
#else
  return _mm256_cvtps_epi32(y);
#endif
}

typedef struct vq_end {  // what all sums of a call share
  vf lo, hi;
  vq zero, high;
} vq_end;

INLINE vq_end vq_end_of(const itg_requantize *q) {
  return (vq_end){vset(q->lo), vset(q->hi), vq_set16((short)(q->zero + q->high)),
                  vq_set((int32_t)(q->high * 0x01010101u))};
}

// Four vectors of sums -> bytes; within 128 bits those of a, b, c, d follow each other.
INLINE vq vq_bytes(vq a, vq b, vq c, vq d, const vf *scale, const bool saturates, vq_end end) {
  vf y[4] = {vmul(vq_floats(a), scale[0]), vmul(vq_floats(b), scale[1]), vmul(vq_floats(c), scale[2]),
             vmul(vq_floats(d), scale[3])};
  if (!saturates)
    UNROLL for (int i = 0; i < 4; i++) y[i] = vmin(vmax(y[i], end.lo), end.hi);
  const vq left = vq_packs32(vq_rounded(y[0]), vq_rounded(y[1]));
  const vq right = vq_packs32(vq_rounded(y[2]), vq_rounded(y[3]));
  return vq_xor(vq_packus16(vq_adds16(left, end.zero), vq_adds16(right, end.zero)), end.high);
}
#endif
