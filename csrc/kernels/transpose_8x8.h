// Transposes 8 x 8 floats in registers: a[i] holds row i before and column i after.
#pragma once
#ifdef __AVX2__
#include <immintrin.h>

#include "attributes.h"

INLINE void itg_turn_8x8(__m256 *a) {
  __m256 b[8];
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  __m256 c[8];
  for (int i = 0; i < 8; i += 4) {
    c[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    c[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
    c[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    c[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
  for (int i = 0; i < 4; i++) {
    a[i] = _mm256_permute2f128_ps(c[i], c[i + 4], 0x20);
    a[i + 4] = _mm256_permute2f128_ps(c[i], c[i + 4], 0x31);
  }
}
#endif
