// Convolution and fully connected layers: windows are unfolded, then multiplied by blocks of rows.
#include "itg_form.h"

ITG_INLINE void pad(itg_col *to, int32_t n, int32_t value) {
  for (int32_t i = 0; i < n; i++) to[i] = (itg_col)value;
}

// The part of a kernel line that lies inside of the image: columns from *from to *to.
ITG_INLINE void inside(int32_t start, int32_t kernel, int32_t by, int32_t width, int32_t *from,
                       int32_t *to) {
  *from = 0;
  if (start >= 0 && start + (kernel - 1) * by < width) {
    *to = kernel;
    return;
  }
  while (*from < kernel && start + *from * by < 0) ++*from;
  *to = kernel;
  while (*to > *from && start + (*to - 1) * by >= width) --*to;
}

// Unfold the window of one pixel and one group.
static void unfold(const itg_window *l, const int8_t *x, int32_t oy, int32_t ox, int32_t group,
                   itg_col *to) {
  const int32_t depth = l->c / l->groups, line = l->kw * depth;
  const int32_t left = ox * l->sw - l->left;
  int32_t from, past, y = oy * l->sh - l->top, k = l->kh * line;
  inside(left, l->kw, l->dw, l->w, &from, &past);
  x += group * depth;
  if (depth == l->c && l->dw == 1 && y >= 0 && y + (l->kh - 1) * l->dh < l->h && !from &&
      past == l->kw) {  // the whole window is inside
    const int8_t *row = x + (y * l->w + left) * l->c;
    for (int32_t i = 0; i < l->kh; i++, row += l->dh * l->w * l->c, to += line) {
      itg_expand(to, row, line, l->x_flip);
    }
    pad(to, ITG_ROUND_UP(k, ITG_COL_UNIT) - k, 0);
    return;
  }
  for (int32_t i = 0; i < l->kh; i++, y += l->dh, to += line) {
    if (y < 0 || y >= l->h || past <= from) {
      pad(to, line, l->x_zero);
      continue;
    }
    const int8_t *row = x + (y * l->w + left) * l->c;
    pad(to, from * depth, l->x_zero);
    if (depth == l->c && l->dw == 1) {
      itg_expand(to + from * depth, row + from * l->c, (past - from) * depth, l->x_flip);
    } else {
      for (int32_t j = from; j < past; j++) {
        itg_expand(to + j * depth, row + j * l->dw * l->c, depth, l->x_flip);
      }
    }
    pad(to + past * depth, line - past * depth, l->x_zero);
  }
  pad(to, ITG_ROUND_UP(k, ITG_COL_UNIT) - k, 0);
}

// Weights with a zero point: the sum of a window times it is taken off.
static int32_t window_sum(const itg_col *x, int32_t k) {
  int32_t sum = 0;
  for (int32_t i = 0; i < k; i++) sum += x[i];
  return sum;
}

// What is the same for all outputs of a layer.
typedef struct {
  int32_t zero, per, oc;
  uint32_t flip, exact, floats;
  const itg_more *more;
  const uint8_t *start;  // of y
} result;

static __attribute__((noinline)) void store_more(const result *t, const int32_t *sum,
                                                 const int32_t *bias, int n, const float *scale,
                                                 uint8_t *y) {
  const itg_more *m = t->more;
  const int32_t at = (int32_t)(y - t->start) / (t->floats ? 4 : 1);
  for (int i = 0; i < n; i++) {
    float v = (float)(ITG_BIAS_FIRST ? sum[i] : sum[i] + bias[i]) * scale[i * t->per];
    if (m->residual && t->floats) {
      v += ((const float *)m->residual)[at + i];
    } else if (m->residual) {
      const int32_t r = itg_load((const int8_t *)m->residual + at + i, m->r_flip) - m->r_zero;
      v += (float)r * m->r_scale;
    }
    if (t->floats) {
      ((float *)(void *)y)[i] = v;
    } else if (m->table) {
      const float low = (float)(m->lo - m->y_zero), high = (float)(m->hi - m->y_zero);
      v = v < low ? low : v;
      v = v > high ? high : v;
      y[i] = m->table[itg_bits(v + ITG_MAGIC) - ITG_MAGIC_BITS + m->y_zero - m->lo];
    } else {
      y[i] = (uint8_t)((uint32_t)itg_round(v, t->zero) ^ t->flip);
    }
  }
}

ITG_INLINE void store(const result *t, const int32_t *sum, const int32_t *bias, int n,
                      const float *scale, uint8_t *y) {
  if (t->more) {
    const result copy = *t;  // the address of *t is not taken, which keeps it in registers
    store_more(&copy, sum, bias, n, scale, y);
  } else if (t->floats) {
    for (int i = 0; i < n; i++) {
      const int32_t whole = ITG_BIAS_FIRST ? sum[i] : sum[i] + bias[i];
      ((float *)(void *)y)[i] = (float)whole * scale[i * t->per];
    }
  } else {
    itg_finish(sum, bias, n, scale, t->per, t->zero, t->flip, t->exact, (int8_t *)y);
  }
}

// All outputs of one group for `cols` windows.
ITG_INLINE void products(const result t, const int8_t *w, const int32_t *bias, const float *scale,
                         const int16_t *w_zero, const itg_col *const *x, int32_t k, int32_t rows,
                         int cols, uint8_t *y) {
  const int32_t size = t.floats ? 4 : 1;
  int32_t off[ITG_COLS] = {0}, o = 0;
  for (int j = 0; w_zero && j < cols; j++) off[j] = window_sum(x[j], k);
  for (; o + ITG_ROWS <= rows; o += ITG_ROWS) {
    int32_t sum[ITG_COLS * ITG_ROWS];
    ITG_UNROLL
    for (int i = 0; i < cols * ITG_ROWS; i++) sum[i] = ITG_BIAS_FIRST ? bias[o + i % ITG_ROWS] : 0;
    w = itg_block(sum, w, x, k, ITG_ROWS, cols);
#if defined(ITG_KEPT_SCALES)  // loaded once: for the compiler, stores of bytes may change them
    float kept[ITG_ROWS];
    for (int i = 0; i < ITG_ROWS; i++) kept[i] = scale[(o + i) * t.per];
#endif
    ITG_UNROLL
    for (int j = 0; j < cols; j++) {
      int32_t *s = sum + j * ITG_ROWS;
#if defined(ITG_KEPT_SCALES)
      if (!t.more && !t.floats && !w_zero) {
        itg_finish(s, bias + o, ITG_ROWS, kept, 1, t.zero, t.flip, t.exact,
                   (int8_t *)y + j * t.oc + o);
        continue;
      }
#endif
      if (w_zero) {
        for (int r = 0; r < ITG_ROWS; r++) s[r] -= off[j] * w_zero[o + r];
      }
      store(&t, s, bias + o, ITG_ROWS, scale + o * t.per, y + (j * t.oc + o) * size);
    }
  }
  for (; o < rows; o++) {
    const int8_t *next = w;
    for (int j = 0; j < cols; j++) {
      int32_t sum[ITG_COLS * ITG_ROWS] = {ITG_BIAS_FIRST ? bias[o] : 0};
      next = itg_block(sum, w, x + j, k, 1, 1);
      if (w_zero) *sum -= off[j] * w_zero[o];
      store(&t, sum, bias + o, 1, scale + o * t.per, y + (j * t.oc + o) * size);
    }
    w = next;
  }
}

// The usual case, with nothing to decide inside: a scale per channel, 8-bit results.
#define ITG_USUAL_ARGS                                                           \
  const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale, \
      const itg_col *const *x, int32_t k, int32_t rows, uint8_t *y
static __attribute__((noinline)) void usual_signed(ITG_USUAL_ARGS) {
  const result t = {l->y_zero, 1, l->oc, 0, l->exact, 0, NULL, NULL};
  products(t, w, bias, scale, NULL, x, k, rows, ITG_COLS, y);
}

static __attribute__((noinline)) void usual_unsigned(ITG_USUAL_ARGS) {
  const result t = {l->y_zero, 1, l->oc, 0x80, l->exact, 0, NULL, NULL};
  products(t, w, bias, scale, NULL, x, k, rows, ITG_COLS, y);
}

static __attribute__((noinline)) void any(const itg_window *l, const int8_t *w, const int32_t *bias,
                                          const float *scale, const int16_t *w_zero,
                                          const itg_more *more, const itg_col *const *x, int32_t k,
                                          int32_t rows, int32_t count, const uint8_t *start,
                                          uint8_t *y) {
  const result t = {l->y_zero, l->per, l->oc, l->y_flip, l->exact, l->floats, more, start};
  if (ITG_MORE_COLS > 1 && count == ITG_MORE_COLS) {
    products(t, w, bias, scale, w_zero, x, k, rows, ITG_MORE_COLS, y);
    return;
  }
  for (int32_t i = 0; i < count; i++, y += l->oc * (l->floats ? 4 : 1)) {
    products(t, w, bias, scale, w_zero, x + i, k, rows, 1, y);
  }
}

// Bytes of weights of one group: rows of whole units.
ITG_INLINE int32_t group_bytes(int32_t k, int32_t rows) {
  return ITG_ROUND_UP(k, ITG_COL_UNIT) * rows;
}

void itg_conv(const itg_window *l, const int8_t *w, const int32_t *bias, const float *scale,
              const int16_t *w_zero, const itg_more *more, const int8_t *x, void *y,
              void *scratch) {
  const int32_t depth = l->c / l->groups, k = l->kh * l->kw * depth, rows = l->oc / l->groups;
  const int32_t unit = ITG_ROUND_UP(k, ITG_COL_UNIT);
  const int direct = ITG_DIRECT && !l->x_flip && l->groups == 1 && l->kh == 1 && l->kw == 1 &&
                     !l->top && !l->left && k == unit && (l->oh - 1) * l->sh < l->h &&
                     (l->ow - 1) * l->sw < l->w;
  const int plain = !w_zero && !more && !l->floats && l->per;
  const int32_t size = l->floats ? 4 : 1, most = plain ? ITG_COLS : ITG_MORE_COLS;
  void (*const usual)(ITG_USUAL_ARGS) = l->y_flip ? usual_unsigned : usual_signed;
  itg_col *columns = scratch;
  const itg_col *held[ITG_COLS];
#if ITG_COLS == 2 && !ITG_DIRECT
  if (plain && l->groups == 1 && l->kh == 1 && l->kw == 1 && l->sh == 1 && l->sw == 1 &&
      l->oh == l->h && l->ow == l->w && k == unit) {  // neighbouring pixels are unfolded together
    uint8_t *at = y;
    int32_t left = l->n * l->h * l->w;
    held[0] = columns, held[1] = columns + k;
    for (; left >= 2; left -= 2, x += 2 * k, at += 2 * l->oc) {
      itg_expand(columns, x, 2 * k, l->x_flip);
      usual(l, w, bias, scale, held, k, rows, at);
    }
    if (!left) return;
    itg_expand(columns, x, k, l->x_flip);
    any(l, w, bias, scale, NULL, NULL, held, k, rows, 1, at, at);
    return;
  }
#endif
  for (int32_t g = 0; g < l->groups; g++) {
    uint8_t *at = (uint8_t *)y + g * rows * size;
    int32_t count = 0;
    const int8_t *image = x;
    for (int32_t n = 0; n < l->n; n++, image += l->h * l->w * l->c) {
      for (int32_t oy = 0; oy < l->oh; oy++) {
        for (int32_t ox = 0; ox < l->ow; ox++) {
          if (direct) {
            held[count] =
                (const itg_col *)(const void *)(image + (oy * l->sh * l->w + ox * l->sw) * l->c);
          } else {
            itg_col *to = columns + count * unit;
            unfold(l, image, oy, ox, g, to);
            held[count] = to;
          }
          if (++count == most) {
            if (plain) {
              usual(l, w, bias, scale, held, k, rows, at);
            } else {
              any(l, w, bias, scale, w_zero, more, held, k, rows, count, y, at);
            }
            at += count * l->oc * size;
            count = 0;
          }
        }
      }
    }
    if (count) any(l, w, bias, scale, w_zero, more, held, k, rows, count, y, at);
    w += group_bytes(k, rows);
    bias += rows, scale += rows * l->per;
    if (w_zero) w_zero += rows;
  }
}
