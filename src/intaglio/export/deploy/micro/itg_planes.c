// Depthwise convolution with 3x3 windows for the form DSP, a channel at a time: its lines are
// copied as 16 bits with their padding, and windows move over pairs of neighbours.
#include "itg_form.h"

enum { PLANE = 4096 };  // bytes of the copy, unless three lines take more

typedef struct {
  uint32_t first, last;  // weights 0, 1 and 1, 2 of a line of the window
} line_weights;

ITG_INLINE line_weights weights_of(const int8_t *w, int32_t zero) {
  const uint32_t a = (uint16_t)(w[0] - zero), b = (uint16_t)(w[1] - zero),
                 c = (uint16_t)(w[2] - zero);
  const line_weights v = {a | b << 16, b | c << 16};
  return v;
}

// Copies a channel of `lines` lines with n pixels.
ITG_INLINE void copy_lines(const int8_t *x, int32_t lines, int32_t n, int32_t line, int32_t step,
                           const uint32_t flip, int32_t pitch, int16_t *to) {
  for (; lines > 0; lines--, x += line, to += pitch) {
    const int8_t *p = x;
    int16_t *q = to, *end = to + n / 2 * 2;
    while (q != end) {
      const int16_t a = (int16_t)itg_load(p, flip), b = (int16_t)itg_load(p + step, flip);
      p += 2 * step;
      *q++ = a, *q++ = b;
    }
    if (n % 2) *q = (int16_t)itg_load(p, flip);
  }
}

typedef struct {  // of a channel and a few output lines
  const int16_t *x;
  int32_t pitch, lines, bias, zero;
  float scale;
  int8_t *y;
} plane;

#define ITG_NEXT_TWO(a, b, p) \
  __asm volatile("ldrd %0, %1, [%2], #4" : "=r"(a), "=r"(b), "+r"(p) : : "memory")

// Three lines of two windows with stride 1: their sums.
ITG_INLINE void two_windows(const int16_t **p, const int16_t **q, const int16_t **r,
                            const line_weights *w, int32_t bias, int32_t *first, int32_t *second) {
  uint32_t d, e;
  ITG_NEXT_TWO(d, e, *p);
  int32_t a = itg_dot(d, w[0].first, bias), b = itg_crossed(d, w[0].first, bias);
  a = itg_mixed(e, w[0].last, a), b = itg_dot(e, w[0].last, b);
  ITG_NEXT_TWO(d, e, *q);
  a = itg_dot(d, w[1].first, a), b = itg_crossed(d, w[1].first, b);
  a = itg_mixed(e, w[1].last, a), b = itg_dot(e, w[1].last, b);
  ITG_NEXT_TWO(d, e, *r);
  a = itg_dot(d, w[2].first, a), b = itg_crossed(d, w[2].first, b);
  *first = itg_mixed(e, w[2].last, a), *second = itg_dot(e, w[2].last, b);
}

// The same of one window with stride 2.
ITG_INLINE int32_t one_window(const int16_t **p, const int16_t **q, const int16_t **r,
                              const line_weights *w, int32_t bias) {
  uint32_t d, e;
  ITG_NEXT_TWO(d, e, *p);
  int32_t a = itg_mixed(e, w[0].last, itg_dot(d, w[0].first, bias));
  ITG_NEXT_TWO(d, e, *q);
  a = itg_mixed(e, w[1].last, itg_dot(d, w[1].first, a));
  ITG_NEXT_TWO(d, e, *r);
  return itg_mixed(e, w[2].last, itg_dot(d, w[2].first, a));
}

// All windows, in the stride `by` along lines.
ITG_INLINE void windows(const itg_window *l, const plane *t, const int8_t *w, const int by,
                        const uint32_t flip) {
  const line_weights u[3] = {weights_of(w, t->zero), weights_of(w + 3, t->zero),
                             weights_of(w + 6, t->zero)};
  const float scale = t->scale;
  const int32_t zero = l->y_zero, step = l->c, bias = t->bias, pitch = t->pitch, wide = l->ow;
  const int32_t down = l->sh * pitch;
  const uint32_t exact = l->exact;
  const int16_t *x = t->x, *const end = x + t->lines * down;
  int8_t *y = t->y;
  for (; x != end; x += down) {
    const int16_t *p = x, *q = x + pitch, *r = q + pitch;
    int32_t a, b;
    if (by == 2) {
      for (int32_t left = wide; left > 0; left--, y += step) {
        a = one_window(&p, &q, &r, u, bias);
        *y = (int8_t)((uint32_t)itg_requant(a, scale, zero, exact) ^ flip);
      }
      continue;
    }
    for (int32_t left = wide / 2; left > 0; left--, y += 2 * step) {
      two_windows(&p, &q, &r, u, bias, &a, &b);
      y[0] = (int8_t)((uint32_t)itg_requant(a, scale, zero, exact) ^ flip);
      y[step] = (int8_t)((uint32_t)itg_requant(b, scale, zero, exact) ^ flip);
    }
    if (wide % 2) {
      two_windows(&p, &q, &r, u, bias, &a, &b);
      *y = (int8_t)((uint32_t)itg_requant(a, scale, zero, exact) ^ flip);
      y += step;
    }
  }
}

typedef void (*windows_fn)(const itg_window *l, const plane *t, const int8_t *w);
#define WINDOWS(name, BY, FLIP)                                                   \
  static __attribute__((noinline)) void name(const itg_window *l, const plane *t, \
                                             const int8_t *w) {                   \
    windows(l, t, w, BY, FLIP);                                                   \
  }
WINDOWS(signed_1, 1, 0)
WINDOWS(signed_2, 2, 0)
WINDOWS(unsigned_1, 1, 0x80)
WINDOWS(unsigned_2, 2, 0x80)

void itg_planes(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
                const int16_t *w_zero, const int8_t *x, int8_t *y, void *scratch) {
  const int32_t pitch = ITG_ROUND_UP((l->ow - 1) * l->sw + 4, 2), line = l->w * l->c;
  const int32_t fit = PLANE / (2 * pitch) - 3, most = fit < 0 ? 1 : fit / l->sh + 1;
  const int32_t inner = l->w < pitch - l->left ? l->w : pitch - l->left;
  const windows_fn run =
      l->sw == 1 ? (l->y_flip ? unsigned_1 : signed_1) : (l->y_flip ? unsigned_2 : signed_2);
  int16_t *copy = scratch;
  for (int32_t n = 0; n < l->n; n++, x += l->h * line) {
    for (int32_t oy = 0; oy < l->oh; oy += most) {
      const int32_t lines = most < l->oh - oy ? most : l->oh - oy, top = oy * l->sh - l->top;
      const int32_t copied = (lines - 1) * l->sh + 3;
      plane t = {copy, pitch, lines, 0, 0, 0, NULL};
      for (int32_t i = 0; i < copied * pitch; i++) copy[i] = (int16_t)l->x_zero;
      // Lines inside of the image. All channels have the same padding.
      const int32_t from = top < 0 ? -top : 0, past = l->h - top < copied ? l->h - top : copied;
      const int8_t *first = x + (top + from) * line;
      int16_t *to = copy + from * pitch + l->left;
      for (int32_t c = 0; c < l->c; c++) {
        if (l->x_flip) {
          copy_lines(first + c, past - from, inner, line, l->c, 0x80, pitch, to);
        } else {
          copy_lines(first + c, past - from, inner, line, l->c, 0, pitch, to);
        }
        t.bias = bias[c], t.zero = w_zero ? w_zero[c] : 0, t.scale = scale[c * l->per];
        t.y = y + c;
        run(l, &t, w + 9 * c);
      }
      y += lines * l->ow * l->c;
    }
  }
}
