// Dynamic quantisation of one f32 row: bytes around 128 with the scale max|x| / 127.
#pragma once
#include <stdint.h>
#include <string.h>

enum { ITG_ROW_ZERO = 128 };

// The largest |x|, as bits. The bits of |x| have the order of the numbers, and those of NaN are
// larger than all, so the result also tells whether all numbers are finite.
static inline uint32_t itg_largest_bits(const float *x, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return (uint32_t)most;
}

static inline void itg_to_bytes(const float *restrict x, int64_t n, float by,
                                uint8_t *restrict to) {
  for (int64_t i = 0; i < n; i++)
    to[i] = (uint8_t)((int32_t)__builtin_rintf(x[i] * by) + ITG_ROW_ZERO);
}

// Quantises a row and returns its scale. If the row is all zeros or nearly so, all bytes are the
// zero point. If a number is not finite, the scale is NaN.
static inline float itg_quantize_row(const float *x, int64_t n, uint8_t *to) {
  const uint32_t bits = itg_largest_bits(x, n);
  float most;
  memcpy(&most, &bits, sizeof most);
  const float by = 127.f / most;
  const _Bool finite = bits < 0x7f800000u;
  if (finite && by < __builtin_inff()) itg_to_bytes(x, n, by, to);
  else memset(to, ITG_ROW_ZERO, (size_t)n);
  return finite ? most / 127.f : __builtin_nanf("");
}
