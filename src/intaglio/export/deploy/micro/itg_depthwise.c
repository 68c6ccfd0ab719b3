// Depthwise convolution: four channels at a time over pointers to the taps of a window.
#include "itg_form.h"

ITG_INLINE void channels(const itg_window *l, const int8_t *w, const int32_t *bias,
                         const float *scale, const int16_t *w_zero, const int8_t *const *tap,
                         int32_t taps, int32_t c, int n, int8_t *y) {
  itg_lanes sum = itg_lanes_start(bias + c, n);
  const int8_t *v = w + c;
  for (int32_t t = 0; t < taps; t++, v += l->c) itg_lanes_add(&sum, tap[t] + c, v, l->x_flip, n);
  if (w_zero) {  // weights with a zero point: the sum of the window times it is taken off
    int32_t total[4] = {0, 0, 0, 0};
    for (int i = 0; i < n; i++) {
      for (int32_t t = 0; t < taps; t++) total[i] -= itg_load(tap[t] + c + i, l->x_flip);
      total[i] = total[i] * w_zero[c + i];
    }
    const itg_lanes more = itg_lanes_start(total, n);
    sum = itg_lanes_sum(&sum, &more);
  }
  itg_lanes_finish(&sum, n, scale + c * l->per, l->per, l->y_zero, l->y_flip, l->exact, y + c);
}

void itg_depthwise(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
                   const int16_t *w_zero, const int8_t *x, int8_t *y, void *scratch) {
  const int32_t taps = l->kh * l->kw;
  const int8_t **tap = scratch;
  int8_t *zeros = (int8_t *)(tap + taps);  // a pixel of padding, as it is stored
  for (int32_t c = 0; c < l->c; c++) zeros[c] = (int8_t)((uint32_t)l->x_zero ^ l->x_flip);
  for (int32_t n = 0; n < l->n; n++, x += l->h * l->w * l->c) {
    for (int32_t oy = 0; oy < l->oh; oy++) {
      for (int32_t ox = 0; ox < l->ow; ox++, y += l->c) {
        const int8_t **to = tap;
        for (int32_t i = 0, iy = oy * l->sh - l->top; i < l->kh; i++, iy += l->dh) {
          int32_t ix = ox * l->sw - l->left;
          const int8_t *at = x + (iy * l->w + ix) * l->c;
          for (int32_t j = 0; j < l->kw; j++, ix += l->dw, at += l->dw * l->c) {
            *to++ = iy >= 0 && iy < l->h && ix >= 0 && ix < l->w ? at : zeros;
          }
        }
        int32_t c = 0;
        for (; c + 4 <= l->c; c += 4) channels(l, w, bias, scale, w_zero, tap, taps, c, 4, y);
        for (; c < l->c; c++) channels(l, w, bias, scale, w_zero, tap, taps, c, 1, y);
      }
    }
  }
}
