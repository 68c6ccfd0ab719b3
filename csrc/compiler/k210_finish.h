// Batch norm and curve of the K210: from sums of products to bytes.
#pragma once
#include <math.h>

#include "k210.h"

// One result in integers. Numbers beyond the chip's 36 bits wrap, as they do in numpy.
static uint8_t one_byte(const itg_k210_layer *l, int64_t output, int64_t acc) {
  int64_t v = (int64_t)((uint64_t)acc * (uint64_t)l->mul[output]) >> l->shift[output];
  v = (int64_t)((uint64_t)v + (uint64_t)l->add[output]);
  int i = ITG_K210_SEGMENTS - 1;
  while (i && v <= l->curve_start[i]) i--;
  uint64_t above = (uint64_t)v - (uint64_t)l->curve_start[i];
  int64_t product = (int64_t)(above * (uint64_t)l->curve_mul[i]), shift = l->curve_shift[i];
  int64_t whole = product >> shift, rest = product & (int64_t)((1ULL << shift) - 1);
  int64_t half = shift ? (int64_t)(1ULL << (shift - 1)) : 1;
  if (shift && (rest > half || (rest == half && (whole & 1)))) whole += product < 0 ? -1 : 1;
  int64_t y = whole + l->curve_bias[i];
  return (uint8_t)(y < 0 ? 0 : y > 255 ? 255 : y);
}

// Vectors of DL doubles. vd_bytes rounds to integers, halves to even, and adds the bias.
#if defined(ISA_avx512)
typedef __m512d vd;
enum { DL = 8 };
#define vd_set _mm512_set1_pd
#define vd_load _mm512_loadu_pd
#define vd_sums(p) _mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i *)(p)))
#define vd_add _mm512_add_pd
#define vd_sub _mm512_sub_pd
#define vd_mul _mm512_mul_pd
#define vd_floor(a) _mm512_roundscale_pd(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define vd_madd _mm512_fmadd_pd
#define vd_max _mm512_max_pd
#define vd_min _mm512_min_pd
typedef __mmask8 vd_mask;
#define vd_above(a, b) _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ)
#define vd_pick(m, a, b) _mm512_mask_mov_pd(b, m, a)
INLINE void vd_bytes(uint8_t *y, vd a, vd bias) {
  const __m256i sum = _mm256_add_epi32(_mm512_cvtpd_epi32(a), _mm512_cvtpd_epi32(bias));
  _mm_storel_epi64((__m128i *)y, _mm256_cvtusepi32_epi8(sum));
}
#elif defined(ISA_avx2)
typedef __m256d vd;
enum { DL = 4 };
#define vd_set _mm256_set1_pd
#define vd_load _mm256_loadu_pd
#define vd_sums(p) _mm256_cvtepi32_pd(_mm_loadu_si128((const __m128i *)(p)))
#define vd_add _mm256_add_pd
#define vd_sub _mm256_sub_pd
#define vd_mul _mm256_mul_pd
#define vd_floor _mm256_floor_pd
#define vd_madd _mm256_fmadd_pd
#define vd_max _mm256_max_pd
#define vd_min _mm256_min_pd
typedef __m256d vd_mask;
#define vd_above(a, b) _mm256_cmp_pd(a, b, _CMP_GT_OQ)
#define vd_pick(m, a, b) _mm256_blendv_pd(b, a, m)
INLINE void vd_bytes(uint8_t *y, vd a, vd bias) {
  const __m128i sum = _mm_add_epi32(_mm256_cvtpd_epi32(a), _mm256_cvtpd_epi32(bias));
  const __m128i words = _mm_packus_epi32(sum, _mm_setzero_si128());
  const int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  memcpy(y, &four, sizeof four);
}
#else
typedef double vd;
enum { DL = 1 };
#define vd_set(a) (a)
#define vd_load(p) (*(p))
#define vd_sums(p) ((double)*(p))
#define vd_add(a, b) ((a) + (b))
#define vd_sub(a, b) ((a) - (b))
#define vd_mul(a, b) ((a) * (b))
#define vd_floor floor
#define vd_madd(a, b, c) ((a) * (b) + (c))  // all three are exact
#define vd_max(a, b) ((a) > (b) ? (a) : (b))
#define vd_min(a, b) ((a) < (b) ? (a) : (b))
typedef int vd_mask;
#define vd_above(a, b) ((a) > (b))
#define vd_pick(m, a, b) ((m) ? (a) : (b))
INLINE void vd_bytes(uint8_t *y, vd a, vd bias) {
  const int sum = (int)rint(a) + (int)bias;
  *y = (uint8_t)(sum > 255 ? 255 : sum);
}
#endif

// Bytes of n results of one output; n is a multiple of 8. `from_x`: their sums of x, or NULL.
INLINE void finish(const itg_k210_layer *l, int64_t output, const int32_t *sums,
                   const double *from_x, uint8_t *y, int n) {
  if (!l->exact[output]) {
    for (int j = 0; j < n; j++) {
      const double acc = (double)sums[j] + l->of_w[output] + (from_x ? from_x[j] : 0);
      y[j] = one_byte(l, output, (int64_t)acc);
    }
    return;
  }
  const vd scale = vd_set(l->scale[output]), of_w = vd_set(l->of_w[output] * l->scale[output]);
  const vd most = vd_set(512);  // beyond 255, and within i32; results are not below zero
  const int64_t segments = l->segments;
  if (segments == 1 && !from_x) {
    const vd add = vd_set((double)l->add[output] - l->start[0]), lowest = vd_set(l->lowest);
    const vd factor = vd_set(l->factor[0]), bias = vd_set(l->bias[0]);
    for (int j = 0; j < n; j += DL) {
      const vd v = vd_add(vd_floor(vd_madd(vd_sums(sums + j), scale, of_w)), add);
      vd_bytes(y + j, vd_min(vd_mul(vd_max(v, lowest), factor), most), bias);
    }
    return;
  }
  const vd add = vd_set((double)l->add[output]), lowest = vd_set(l->lowest);
  for (int j = 0; j < n; j += DL) {
    vd acc = vd_sums(sums + j);
    if (from_x) acc = vd_add(acc, vd_load(from_x + j));
    const vd v = vd_add(vd_floor(vd_madd(acc, scale, of_w)), add);
    vd start = vd_set(l->start[0]), factor = vd_set(l->factor[0]), bias = vd_set(l->bias[0]);
    for (int64_t i = 1; i < segments; i++) {
      const vd next = vd_set(l->start[i]);
      const vd_mask above = vd_above(v, next);
      start = vd_pick(above, next, start);
      factor = vd_pick(above, vd_set(l->factor[i]), factor);
      bias = vd_pick(above, vd_set(l->bias[i]), bias);
    }
    const vd line = vd_mul(vd_max(vd_sub(v, start), lowest), factor);
    vd_bytes(y + j, vd_min(line, most), bias);
  }
}
