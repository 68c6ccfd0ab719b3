// Transforms convolution weights for Winograd convolution, and sums weights by sign.
#include <string.h>

#include "winograd_weights.h"

#include "attributes.h"

enum {
  PANEL = 16,  // columns of a panel
  MOST = 8,    // most points along an axis
  BLOCK = 8,   // channels per pass: their points fit the L1 cache
};

// Transforms one input channel of a panel: G w Gt.
INLINE void at_points(double taps[9][PANEL], const double *g, int size,
                      float (*made)[BLOCK][PANEL]) {
  double rows[MOST][3][PANEL];
  for (int p = 0; p < size; p++)
    for (int j = 0; j < 3; j++)
      for (int l = 0; l < PANEL; l++)
        rows[p][j][l] =
            g[3 * p] * taps[j][l] + g[3 * p + 1] * taps[3 + j][l] + g[3 * p + 2] * taps[6 + j][l];
  for (int p = 0; p < size; p++)
    for (int q = 0; q < size; q++)
      for (int l = 0; l < PANEL; l++)
        made[p * size + q][0][l] = (float)(g[3 * q] * rows[p][0][l] + g[3 * q + 1] * rows[p][1][l] +
                                           g[3 * q + 2] * rows[p][2][l]);
}

INLINE void panels(const float *w, const double *g, uint64_t m, uint64_t c, int size, float *made) {
  const uint64_t count = (m + PANEL - 1) / PANEL;
  double taps[9][PANEL];
  float some[MOST * MOST][BLOCK][PANEL];
  for (uint64_t i = 0; i < count; i++) {
    const int lanes = m - i * PANEL < PANEL ? (int)(m - i * PANEL) : PANEL;
    memset(taps, 0, sizeof taps);
    for (uint64_t first = 0; first < c; first += BLOCK) {
      const int block = c - first < BLOCK ? (int)(c - first) : BLOCK;
      for (int b = 0; b < block; b++) {
        const float *from = w + (i * PANEL * c + first + (uint64_t)b) * 9;
        for (int l = 0; l < lanes; l++, from += c * 9)
          for (int k = 0; k < 9; k++) taps[k][l] = from[k];
        at_points(taps, g, size, (void *)some[0][b]);
      }
      for (int p = 0; p < size * size; p++)
        memcpy(made + (((uint64_t)p * count + i) * c + first) * PANEL, some[p],
               (size_t)block * sizeof some[p][0]);
    }
  }
}

INLINE int by_size(const float *w, const double *g, uint64_t m, uint64_t c, uint32_t size,
                   float *made) {
  if (size == 4) panels(w, g, m, c, 4, made);
  if (size == 6) panels(w, g, m, c, 6, made);
  if (size == 8) panels(w, g, m, c, 8, made);
  return size == 4 || size == 6 || size == 8;
}

// Transforms one input channel of a panel of bytes.
INLINE void whole_at_points(const int8_t *w, const int32_t *g, int lanes, uint64_t row,
                            uint64_t tap, int32_t made[36][PANEL]) {
  int32_t taps[9][PANEL] = {{0}}, rows[6][3][PANEL];
  for (int l = 0; l < lanes; l++)
    for (int k = 0; k < 9; k++) taps[k][l] = w[(uint64_t)l * row + (uint64_t)k * tap];
  for (int p = 0; p < 6; p++)
    for (int j = 0; j < 3; j++)
      for (int l = 0; l < PANEL; l++)
        rows[p][j][l] =
            g[3 * p] * taps[j][l] + g[3 * p + 1] * taps[3 + j][l] + g[3 * p + 2] * taps[6 + j][l];
  for (int p = 0; p < 6; p++)
    for (int q = 0; q < 6; q++)
      for (int l = 0; l < PANEL; l++)
        made[p * 6 + q][l] =
            g[3 * q] * rows[p][0][l] + g[3 * q + 1] * rows[p][1][l] + g[3 * q + 2] * rows[p][2][l];
}

INLINE void pairs_of(const int8_t *w, const int32_t *g, uint64_t m, uint64_t c, uint64_t channel,
                     uint64_t tap, const int head, int16_t *made) {
  const uint64_t count = (m + PANEL - 1) / PANEL, pairs = head ? (c + 3) / 4 * 2 : (c + 1) / 2,
                 all = pairs + (uint64_t)head;
  int32_t even[36][PANEL], odd[36][PANEL];
  uint32_t some[36][BLOCK][PANEL], start[36][PANEL];
  for (uint64_t i = 0; i < count; i++) {
    const int lanes = m - i * PANEL < PANEL ? (int)(m - i * PANEL) : PANEL;
    int16_t *panel = made + i * all * 2 * PANEL;
    memset(start, 0, sizeof start);
    for (uint64_t first = 0; first < pairs; first += BLOCK) {
      const int block = pairs - first < BLOCK ? (int)(pairs - first) : BLOCK;
      for (int b = 0; b < block; b++) {
        const uint64_t v = first + (uint64_t)b, at = head ? v % 2 * pairs + v / 2 * 2 : 2 * v;
        const int8_t *from = w + i * PANEL * c * 9;
        whole_at_points(from + (at < c ? at * channel : 0), g, at < c ? lanes : 0, c * 9, tap,
                        even);
        whole_at_points(from + (at + 1 < c ? (at + 1) * channel : 0), g, at + 1 < c ? lanes : 0,
                        c * 9, tap, odd);
        for (int p = 0; p < 36; p++)
          for (int l = 0; l < PANEL; l++)
            some[p][b][l] = ((uint32_t)even[p][l] & 0xffff) | (uint32_t)odd[p][l] << 16;
      }
      for (int b = 0; head && b < block; b += 2)  // products of the two halves
        for (int p = 0; p < 36; p++)
          for (int l = 0; l < PANEL; l++) {
            const uint32_t x = some[p][b][l], y = some[p][b + 1][l];
            start[p][l] -= (uint32_t)((int16_t)x * (int16_t)y) +
                           (uint32_t)((int16_t)(x >> 16) * (int16_t)(y >> 16));
          }
      for (int p = 0; p < 36; p++)
        memcpy(panel + ((uint64_t)p * count * all + (uint64_t)head + first) * 2 * PANEL, some[p],
               (size_t)block * sizeof some[p][0]);
    }
    for (int p = 0; p < 36 && head; p++)
      memcpy(panel + (uint64_t)p * count * all * 2 * PANEL, start[p], sizeof start[p]);
  }
}

INLINE void pairs_or_head(const int8_t *w, const int32_t *g, uint64_t m, uint64_t c,
                          uint64_t channel, uint64_t tap, uint64_t head, int16_t *made) {
  if (head) pairs_of(w, g, m, c, channel, tap, 1, made);
  else pairs_of(w, g, m, c, channel, tap, 0, made);
}

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,prefer-vector-width=512"))) static
#define HALF_AS_WIDE __attribute__((target("avx2"))) static

WIDE int by_avx512(const float *w, const double *g, uint64_t m, uint64_t c, uint32_t size,
                   float *made) {
  return by_size(w, g, m, c, size, made);
}

HALF_AS_WIDE int by_avx2(const float *w, const double *g, uint64_t m, uint64_t c, uint32_t size,
                         float *made) {
  return by_size(w, g, m, c, size, made);
}

WIDE void pairs_by_avx512(const int8_t *w, const int32_t *g, uint64_t m, uint64_t c,
                          uint64_t channel, uint64_t tap, uint64_t head, int16_t *made) {
  pairs_or_head(w, g, m, c, channel, tap, head, made);
}

HALF_AS_WIDE void pairs_by_avx2(const int8_t *w, const int32_t *g, uint64_t m, uint64_t c,
                                uint64_t channel, uint64_t tap, uint64_t head, int16_t *made) {
  pairs_or_head(w, g, m, c, channel, tap, head, made);
}
#endif

int itg_weights_at_points(const float *w, const double *g, uint64_t m, uint64_t c, uint32_t size,
                          float *made) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return by_avx512(w, g, m, c, size, made);
  if (__builtin_cpu_supports("avx2")) return by_avx2(w, g, m, c, size, made);
#endif
  return by_size(w, g, m, c, size, made);
}

void itg_bytes_at_points(const int8_t *w, const int32_t *g, uint64_t m, uint64_t c,
                         uint64_t channel, uint64_t tap, uint64_t head, int16_t *made) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    pairs_by_avx512(w, g, m, c, channel, tap, head, made);
    return;
  }
  if (__builtin_cpu_supports("avx2")) {
    pairs_by_avx2(w, g, m, c, channel, tap, head, made);
    return;
  }
#endif
  pairs_or_head(w, g, m, c, channel, tap, head, made);
}

void itg_signed_sums(const int8_t *w, uint64_t rows, uint64_t n, int64_t *above, int64_t *below) {
  for (uint64_t r = 0; r < rows; r++, w += n) {
    int64_t up = 0, all = 0;
    for (uint64_t i = 0; i < n;) {
      const uint64_t end =
          n - i < 1 << 16 ? n : i + (1 << 16);  // sums of that many bytes fit 32 bits
      int32_t some = 0, both = 0;
      for (; i < end; i++) {
        some += w[i] > 0 ? w[i] : 0;
        both += w[i];
      }
      up += some;
      all += both;
    }
    above[r] = up;
    below[r] = all - up;
  }
}
