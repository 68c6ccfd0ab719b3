// Plain C: cores without vector instructions, and compilers that vectorise by themselves.
#ifndef ITG_PLAIN_H
#define ITG_PLAIN_H

#define ITG_ROWS 2
#define ITG_COLS 2
#define ITG_BIAS_FIRST 1
#define ITG_DIRECT 1
#define ITG_COL_UNIT 1  // elements to which a window is padded

typedef int8_t itg_col;

ITG_INLINE void itg_expand(itg_col *to, const int8_t *from, int32_t n, uint32_t flip) {
  if (flip) {
    for (int32_t i = 0; i < n; i++) to[i] = (int8_t)((uint8_t)from[i] ^ flip);
  } else if (n < 16) {
    for (int32_t i = 0; i < n; i++) to[i] = from[i];
  } else {
    memcpy(to, from, (size_t)n);
  }
}

// Rows are contiguous. Returns the next rows.
ITG_INLINE const int8_t *itg_block(int32_t *sum, const int8_t *w, const itg_col *const *x,
                                   int32_t k, int rows, int cols) {
  if (rows == 2 && cols == 2) {
    const int8_t *u = w, *v = w + k;
    const itg_col *p = x[0], *q = x[1];
    int32_t a = sum[0], b = sum[1], c = sum[2], d = sum[3];
    for (int32_t i = 0; i < k; i++) {
      const int32_t s = u[i], t = v[i], e = p[i], f = q[i];
      a += s * e, b += t * e, c += s * f, d += t * f;
    }
    sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
    return w + 2 * k;
  }
  for (int r = 0; r < rows; r++, w += k) {
    for (int j = 0; j < cols; j++) {
      int32_t total = 0;
      for (int32_t i = 0; i < k; i++) total += w[i] * x[j][i];
      sum[j * rows + r] += total;
    }
  }
  return w;
}

ITG_INLINE void itg_finish(const int32_t *sum, const int32_t *bias, int n, const float *scale,
                           int32_t per, int32_t zero, uint32_t flip, uint32_t exact, int8_t *y) {
  (void)bias;
  ITG_UNROLL
  for (int i = 0; i < n; i++) {
    y[i] = (int8_t)((uint32_t)itg_requant(sum[i], scale[i * per], zero, exact) ^ flip);
  }
}

#include "itg_scalar_lanes.h"

ITG_INLINE void itg_lanes_add(itg_lanes *s, const int8_t *x, const int8_t *w, uint32_t flip,
                              int n) {
  for (int i = 0; i < n; i++) s->of[i] += itg_load(x + i, flip) * w[i];
}

#endif
