// Fully connected layers in the form DSP: bytes are widened where they lie, four rows at a time.
//
// Rows of weights are interleaved in fours, four bytes of each at a time; SXTB16 takes bytes 0 and
// 2, then 1 and 3 of weights and inputs alike. The last bytes of a row are padded with zeros.
#include "itg_form.h"

// Up to four bytes of the input; those past its end are zero.
ITG_INLINE uint32_t last_word(const int8_t *x, int32_t n, uint32_t flip) {
  uint32_t v = 0;
  for (int32_t i = 0; i < n; i++) v |= ((uint32_t)(uint8_t)x[i] ^ flip) << (8 * i);
  return v;
}

ITG_INLINE void add_word(int32_t *sum, const int8_t *w, uint32_t v, int rows) {
  const uint32_t even = itg_even(v), odd = itg_odd(v);
  ITG_UNROLL
  for (int r = 0; r < rows; r++) {
    const uint32_t u = itg_word(w + 4 * r);
    sum[r] = itg_dot(itg_even(u), even, sum[r]);
    sum[r] = itg_dot(itg_odd(u), odd, sum[r]);
  }
}

ITG_INLINE const int8_t *some_rows(const itg_window *l, const int8_t *w, const int32_t *bias,
                                   const float *scale, const int16_t *w_zero, int32_t total,
                                   const int8_t *x, int32_t k, int32_t o, int rows, void *y) {
  const uint32_t flips = l->x_flip * 0x01010101u;
  int32_t sum[4] = {0, 0, 0, 0}, i = 0;
  for (int r = 0; r < rows; r++) sum[r] = bias[o + r];
  for (; i + 4 <= k; i += 4, w += 4 * rows) add_word(sum, w, itg_word(x + i) ^ flips, rows);
  if (i < k) {
    add_word(sum, w, last_word(x + i, k - i, l->x_flip), rows);
    w += 4 * rows;
  }
  for (int r = 0; w_zero && r < rows; r++) sum[r] -= total * w_zero[o + r];
  if (l->floats) {
    for (int r = 0; r < rows; r++) ((float *)y)[o + r] = (float)sum[r] * scale[(o + r) * l->per];
  } else {
    itg_finish(sum, bias + o, rows, scale + o * l->per, l->per, l->y_zero, l->y_flip, l->exact,
               (int8_t *)y + o);
  }
  return w;
}

void itg_dense(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
               const int16_t *w_zero, const int8_t *x, void *y, void *scratch) {
  const int32_t k = l->h * l->w * l->c;
  int32_t o = 0, total = 0;
  (void)scratch;
  for (int32_t i = 0; w_zero && i < k; i++) total += itg_load(x + i, l->x_flip);
  for (; o + 4 <= l->oc; o += 4) {
    w = some_rows(l, w, bias, scale, w_zero, total, x, k, o, 4, y);
  }
  for (; o < l->oc; o++) w = some_rows(l, w, bias, scale, w_zero, total, x, k, o, 1, y);
}
