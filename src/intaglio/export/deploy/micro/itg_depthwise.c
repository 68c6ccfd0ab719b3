// Depthwise convolution, four channels at a time.
#include "itg_form.h"

// The taps of a window inside of the image: the first, and the steps between lines and columns.
typedef struct {
  const int8_t *first;
  int32_t line, column;
} inside;

// Sums of n channels from c on. Windows at the border have pointers to their taps instead.
ITG_INLINE void channels(const itg_window *l, const int8_t *w, const int32_t *bias,
                         const float *scale, const int16_t *w_zero, const inside *in,
                         const int8_t *const *tap, int32_t kh, int32_t kw, int32_t step, int32_t c,
                         int n, int8_t *y) {
  itg_lanes sum = itg_lanes_start(bias + c, n);
  const int8_t *v = w + c;
  if (tap) {
    for (int32_t t = 0; t < kh * kw; t++, v += step) {
      itg_lanes_add(&sum, tap[t] + c, v, l->x_flip, n);
    }
  } else {
    const int8_t *row = in->first + c;
    ITG_UNROLL
    for (int32_t i = 0; i < kh; i++, row += in->line) {
      const int8_t *p = row;
      ITG_UNROLL
      for (int32_t j = 0; j < kw; j++, p += in->column, v += step) {
        itg_lanes_add(&sum, p, v, l->x_flip, n);
      }
    }
  }
  if (w_zero) {  // weights with a zero point: the sum of the window times it is taken off
    int32_t total[4] = {0, 0, 0, 0};
    for (int i = 0; i < n; i++) {
      for (int32_t t = 0; t < kh * kw; t++) total[i] -= itg_load(tap[t] + c + i, l->x_flip);
      total[i] = total[i] * w_zero[c + i];
    }
    const itg_lanes more = itg_lanes_start(total, n);
    sum = itg_lanes_sum(&sum, &more);
  }
  itg_lanes_finish(&sum, n, scale + c * l->per, l->per, l->y_zero, l->y_flip, l->exact, y + c);
}

#if defined(ITG_EIGHT)
// Eight channels of a 3x3 window, whose taps are given: two taps are added in 16 bits.
ITG_INLINE void eight(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
                      const int8_t *const *tap, int32_t step, int32_t c, int8_t *y) {
  itg_eight sum = itg_eight_start(bias + c);
  const int8_t *v = w + c;
  ITG_UNROLL
  for (int t = 0; t < 8; t += 2, v += 2 * step) {
    const int16x8_t first = itg_eight_products(tap[t] + c, v);
    itg_eight_add(&sum, vaddq_s16(first, itg_eight_products(tap[t + 1] + c, v + step)));
  }
  itg_eight_add(&sum, itg_eight_products(tap[8] + c, v));
  itg_eight_finish(&sum, scale + c, l->y_zero, l->y_flip, y + c);
}

static __attribute__((noinline)) int32_t eights(const itg_window *l, const int8_t *w,
                                                const int32_t *bias, const float *scale,
                                                const int8_t *const *tap, int8_t *y) {
  itg_window fixed;
  fixed.y_flip = l->y_flip, fixed.y_zero = l->y_zero;
  const int32_t step = l->c;
  int32_t c = 0;
  for (; c + 8 <= step; c += 8) eight(&fixed, w, bias, scale, tap, step, c, y);
  return c;
}

// Eight channels of a 3x3 window inside of the image.
static __attribute__((noinline)) int32_t eights_inside(const itg_window *l, const int8_t *w,
                                                       const int32_t *bias, const float *scale,
                                                       const inside *in, int8_t *y) {
  const int32_t step = l->c, column = in->column, line = in->line - 2 * column, zero = l->y_zero;
  const uint32_t flip = l->y_flip;
  int32_t c = 0;
  for (; c + 8 <= step; c += 8) {
    itg_eight sum = itg_eight_start(bias + c);
    const int8_t *v = w + c, *p = in->first + c;
    int16x8_t last = itg_eight_products(p, v);
    ITG_UNROLL
    for (int t = 1; t < 9; t++) {
      v += step;
      p += t % 3 ? column : line;
      const int16x8_t next = itg_eight_products(p, v);
      if (t % 2) {
        itg_eight_add(&sum, vaddq_s16(last, next));
      } else {
        last = next;
      }
    }
    itg_eight_add(&sum, last);
    itg_eight_finish(&sum, scale + c, zero, flip, y + c);
  }
  return c;
}
#endif

// All channels of a window inside of the image.
static __attribute__((noinline)) void window_3x3(const itg_window *l, const int8_t *w,
                                                 const int32_t *bias, const float *scale,
                                                 const inside *in, int8_t *y) {
  const inside local = *in;
  itg_window fixed;  // what is the same for all channels, in registers
  fixed.x_flip = 0, fixed.y_flip = l->y_flip, fixed.y_zero = l->y_zero, fixed.exact = l->exact;
  fixed.per = 1;
  const int32_t step = l->c;
  int32_t c = 0;
#if defined(ITG_EIGHT)
  if (l->pairs) c = eights_inside(l, w, bias, scale, in, y);
#endif
  for (; c + 4 <= step; c += 4) {
    channels(&fixed, w, bias, scale, NULL, &local, NULL, 3, 3, step, c, 4, y);
  }
  for (; c < step; c++) {
    channels(&fixed, w, bias, scale, NULL, &local, NULL, 3, 3, step, c, 1, y);
  }
}

// All channels of any window.
static __attribute__((noinline)) void window_any(const itg_window *l, const int8_t *w,
                                                 const int32_t *bias, const float *scale,
                                                 const int16_t *w_zero, const int8_t *const *tap,
                                                 int usual, int8_t *y) {
  int32_t c = 0;
#if defined(ITG_EIGHT)
  if (usual && l->pairs) c = eights(l, w, bias, scale, tap, y);
#else
  (void)usual;
#endif
  for (; c + 4 <= l->c; c += 4) {
    channels(l, w, bias, scale, w_zero, NULL, tap, l->kh, l->kw, l->c, c, 4, y);
  }
  for (; c < l->c; c++) {
    channels(l, w, bias, scale, w_zero, NULL, tap, l->kh, l->kw, l->c, c, 1, y);
  }
}

void itg_depthwise(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
                   const int16_t *w_zero, const int8_t *x, int8_t *y, void *scratch) {
  const int8_t **tap = scratch;
  int8_t *zeros = (int8_t *)(tap + l->kh * l->kw);  // a pixel of padding, as it is stored
  const int usual = l->kh == 3 && l->kw == 3 && !w_zero && !l->x_flip && l->per;
  inside in = {x, l->dh * l->w * l->c, l->dw * l->c};
  for (int32_t c = 0; c < l->c; c++) zeros[c] = (int8_t)((uint32_t)l->x_zero ^ l->x_flip);
  for (int32_t n = 0; n < l->n; n++, x += l->h * l->w * l->c) {
    for (int32_t oy = 0; oy < l->oh; oy++) {
      const int32_t top = oy * l->sh - l->top, bottom = top + (l->kh - 1) * l->dh;
      const int whole = usual && top >= 0 && bottom < l->h;
      for (int32_t ox = 0; ox < l->ow; ox++, y += l->c) {
        const int32_t left = ox * l->sw - l->left;
        if (whole && left >= 0 && left + (l->kw - 1) * l->dw < l->w) {
          in.first = x + (top * l->w + left) * l->c;
          window_3x3(l, w, bias, scale, &in, y);
          continue;
        }
        const int8_t **to = tap;
        for (int32_t i = 0, iy = top; i < l->kh; i++, iy += l->dh) {
          const int32_t at = (iy * l->w + left) * l->c;
          for (int32_t j = 0; j < l->kw; j++) {
            const int32_t ix = left + j * l->dw;
            const int good = iy >= 0 && iy < l->h && ix >= 0 && ix < l->w;
            *to++ = good ? x + at + j * in.column : zeros;
          }
        }
        window_any(l, w, bias, scale, w_zero, tap, usual, y);
      }
    }
  }
}
