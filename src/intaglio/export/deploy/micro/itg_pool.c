// Pooling, and means over consecutive axes.
#include "itg_form.h"

// The rows or columns of a window that lie inside of the image.
typedef struct {
  int32_t start, from, to;
} span;

ITG_INLINE span clipped(int32_t start, int32_t kernel, int32_t by, int32_t size) {
  span s = {start, 0, kernel};
  while (s.from < kernel && start + s.from * by < 0) s.from++;
  while (s.to > s.from && start + (s.to - 1) * by >= size) s.to--;
  return s;
}

#define ITG_MAX_POOL(name, type, lowest, load)                                                 \
  void name(const itg_window *l, const type *x, type *y) {                                     \
    for (int32_t n = 0; n < l->n; n++, x += l->h * l->w * l->c) {                              \
      for (int32_t oy = 0; oy < l->oh; oy++) {                                                 \
        const span v = clipped(oy * l->sh - l->top, l->kh, l->dh, l->h);                       \
        for (int32_t ox = 0; ox < l->ow; ox++, y += l->c) {                                    \
          const span u = clipped(ox * l->sw - l->left, l->kw, l->dw, l->w);                    \
          for (int32_t c = 0; c < l->c; c++) y[c] = lowest;                                    \
          for (int32_t i = v.from; i < v.to; i++) {                                            \
            for (int32_t j = u.from; j < u.to; j++) {                                          \
              const type *p = x + ((v.start + i * l->dh) * l->w + u.start + j * l->dw) * l->c; \
              for (int32_t c = 0; c < l->c; c++) y[c] = load(p[c]) > y[c] ? load(p[c]) : y[c]; \
            }                                                                                  \
          }                                                                                    \
        }                                                                                      \
      }                                                                                        \
    }                                                                                          \
  }

#define ITG_AS_IS(v) (v)
ITG_MAX_POOL(pool_i8, int8_t, INT8_MIN, ITG_AS_IS)
ITG_MAX_POOL(pool_u8, uint8_t, 0, ITG_AS_IS)
ITG_MAX_POOL(itg_max_pool_floats, float, -__builtin_inff(), ITG_AS_IS)

void itg_max_pool(const itg_window *l, const int8_t *x, int8_t *y) {
  if (l->x_flip) {
    pool_u8(l, (const uint8_t *)x, (uint8_t *)y);
  } else {
    pool_i8(l, x, y);
  }
}

void itg_avg_pool(const itg_window *l, float x_scale, float y_scale, int32_t count_pad,
                  const int8_t *x, int8_t *y) {
  for (int32_t n = 0; n < l->n; n++, x += l->h * l->w * l->c) {
    for (int32_t oy = 0; oy < l->oh; oy++) {
      const span v = clipped(oy * l->sh - l->top, l->kh, l->dh, l->h);
      for (int32_t ox = 0; ox < l->ow; ox++, y += l->c) {
        const span u = clipped(ox * l->sw - l->left, l->kw, l->dw, l->w);
        const int32_t met = (v.to - v.from) * (u.to - u.from);
        const int32_t count = count_pad ? l->kh * l->kw : met > 1 ? met : 1;
        const float factor = x_scale / (y_scale * (float)count);
        for (int32_t c = 0; c < l->c; c++) {
          int32_t sum = -met * l->x_zero;
          for (int32_t i = v.from; i < v.to; i++) {
            const int8_t *p = x + ((v.start + i * l->dh) * l->w + u.start) * l->c + c;
            for (int32_t j = u.from; j < u.to; j++)
              sum += itg_load(p + j * l->dw * l->c, l->x_flip);
          }
          y[c] = (int8_t)((uint32_t)itg_round((float)sum * factor, l->y_zero) ^ l->y_flip);
        }
      }
    }
  }
}

void itg_mean(const itg_axis *l, float factor, const int8_t *x, int8_t *y) {
  for (int32_t o = 0; o < l->outer; o++, x += l->count * l->inner) {
    for (int32_t i = 0; i < l->inner; i++) {
      int32_t sum = -l->count * l->x_zero;
      const int8_t *p = x + i;
      for (int32_t k = 0; k < l->count; k++, p += l->inner) sum += itg_load(p, l->x_flip);
      *y++ = (int8_t)((uint32_t)itg_round((float)sum * factor, l->y_zero) ^ l->y_flip);
    }
  }
}
