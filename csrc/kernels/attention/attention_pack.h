// Packs keys and values into panels of 16 columns, as the register tile reads them (gemm/tile.h).
// Included by attention.c.
#pragma once
#include "gemm/tile.h"
#include "transpose_8x8.h"
#include "vec.h"

#if defined(ISA_avx512) || defined(ISA_avx2)
static inline void turn_8x8(const float *from, int64_t row, __m256 by,
                            float *to) {  // to: rows of a panel
  __m256 a[8];
  for (int i = 0; i < 8; i++) a[i] = _mm256_mul_ps(_mm256_loadu_ps(from + i * row), by);
  itg_turn_8x8(a);
#if defined(ISA_avx512bf16)
  for (int i = 0; i < 8; i += 2) {
    const __m256i low = _mm256_cvtepu16_epi32((__m128i)_mm256_cvtneps_pbh(a[i]));
    const __m256i high = _mm256_cvtepu16_epi32((__m128i)_mm256_cvtneps_pbh(a[i + 1]));
    _mm256_storeu_si256((__m256i *)(to + i / 2 * ITG_PANEL),
                        _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
  }
#else
  for (int i = 0; i < 8; i++) _mm256_storeu_ps(to + i * ITG_PANEL, a[i]);
#endif
}
#endif

// Element i of packed key or column c.
static inline void put_packed(float *panel, int64_t i, int64_t c, float x) {
#if defined(ISA_avx512bf16)
  vkeep_bf16((uint16_t *)(panel + i / 2 * ITG_PANEL + c) + i % 2, 1, vset(x));
#else
  panel[i * ITG_PANEL + c] = x;
#endif
}

// Packs keys [n, size], multiplied by `by`, into panels of 16 keys. With bf16 a pair of elements
// takes the place of a float.
static void pack_keys(const float *k, int64_t row, int64_t n, int64_t size, float by, float *to) {
  for (int64_t first = 0; first < n; first += ITG_PANEL, to += size / ITG_PAIR * ITG_PANEL) {
    const int64_t count = n - first < ITG_PANEL ? n - first : ITG_PANEL;
    const float *from = k + first * row;
    if (count < ITG_PANEL) memset(to, 0, (size_t)(size / ITG_PAIR * ITG_PANEL) * sizeof *to);
    int64_t done = 0, j = 0;  // keys and columns that whole 8 x 8 blocks have packed
#if defined(ISA_avx512) || defined(ISA_avx2)
    const __m256 factor = _mm256_set1_ps(by);
    for (; j + 8 <= count; j += 8)
      for (done = 0; done + 8 <= size; done += 8)
        turn_8x8(from + j * row + done, row, factor, to + done / ITG_PAIR * ITG_PANEL + j);
#endif
    for (int64_t c = 0; c < count; c++)
      for (int64_t i = c < j ? done : 0; i < size; i++)
        put_packed(to, i, c, from[c * row + i] * by);
  }
}

// Packs values [n, size] into panels of 16 columns.
static void pack_values(const float *v, int64_t row, int64_t n, int64_t size, float *to) {
  for (int64_t c = 0; c < size; c += ITG_PANEL) {
    const int64_t width = size - c < ITG_PANEL ? size - c : ITG_PANEL;
#if defined(ISA_avx512bf16)
    for (int64_t i = 0; i < n; i += 2, to += ITG_PANEL) {
      const float *from = v + i * row + c;
      const vf one = width < VL ? vloadn(from, width) : vload(from);
      const vf two = i + 1 == n   ? vset(0.f)
                     : width < VL ? vloadn(from + row, width)
                                  : vload(from + row);
      const vi low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(one));
      vstore(to, vfloats(vior(low,
                              vishl(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(two)), 16))));
    }
#else
    for (int64_t i = 0; i < n; i++, to += ITG_PANEL) {
      const float *from = v + i * row + c;
      if (width == ITG_PANEL) {
        for (int w = 0; w < ITG_PANEL; w += VL) vstore(to + w, vload(from + w));
      } else {
        for (int64_t w = 0; w < ITG_PANEL; w++) to[w] = w < width ? from[w] : 0.f;
      }
    }
#endif
  }
}
