// Sums, products, lookup tables and conversions of elements.
#include "itg_form.h"

ITG_INLINE float centred(const int8_t *x, uint32_t flip, int32_t zero) {
  return (float)(itg_load(x, flip) - zero);
}

static void add_row(const itg_pair *l, const int8_t *a, int32_t da, const int8_t *b, int32_t db,
                    int8_t *y, int32_t n) {
  int32_t i = 0;
#if defined(ITG_FORM_HELIUM)
  if (da == 1 && db == 1 && !(l->a_flip | l->b_flip)) {
    for (; i + 4 <= n; i += 4) {
      const float32x4_t u = vcvtq_f32_s32(vsubq_n_s32(vldrbq_s32(a + i), l->a_zero));
      const float32x4_t v = vcvtq_f32_s32(vsubq_n_s32(vldrbq_s32(b + i), l->b_zero));
      const float32x4_t s = vaddq_f32(vmulq_n_f32(u, l->a_scale), vmulq_n_f32(v, l->b_scale));
      vstrbq_s32(y + i, itg_round_lanes(s, l->y_zero, l->y_flip));
    }
  }
#endif
  for (; i < n; i++) {
    const float u = centred(a + i * da, l->a_flip, l->a_zero) * l->a_scale;
    const float v = centred(b + i * db, l->b_flip, l->b_zero) * l->b_scale;
    y[i] = (int8_t)((uint32_t)itg_round(u + v, l->y_zero) ^ l->y_flip);
  }
}

static void mul_row(const itg_pair *l, const int8_t *a, int32_t da, const int8_t *b, int32_t db,
                    int8_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    const int32_t u = itg_load(a + i * da, l->a_flip) - l->a_zero;
    const int32_t v = itg_load(b + i * db, l->b_flip) - l->b_zero;
    const float product = (float)(u * v) * l->a_scale;
    y[i] = (int8_t)((uint32_t)itg_round(product, l->y_zero) ^ l->y_flip);
  }
}

typedef void row_of(const itg_pair *, const int8_t *, int32_t, const int8_t *, int32_t, int8_t *,
                    int32_t);

static void rows(const itg_pair *l, row_of *row, int axis, const int8_t *a, const int8_t *b,
                 int8_t **y) {
  if (axis == ITG_RANK - 1) {
    row(l, a, l->a_step[axis], b, l->b_step[axis], *y, l->shape[axis]);
    *y += l->shape[axis];
    return;
  }
  for (int32_t i = 0; i < l->shape[axis]; i++) {
    rows(l, row, axis + 1, a + i * l->a_step[axis], b + i * l->b_step[axis], y);
  }
}

void itg_add(const itg_pair *l, const int8_t *a, const int8_t *b, int8_t *y) {
  rows(l, add_row, 0, a, b, &y);
}

void itg_mul(const itg_pair *l, const int8_t *a, const int8_t *b, int8_t *y) {
  rows(l, mul_row, 0, a, b, &y);
}

void itg_clip(int32_t n, float low, float high, const float *x, float *y) {
  for (int32_t i = 0; i < n; i++) {
    const float v = x[i] < low ? low : x[i];
    y[i] = v > high ? high : v;
  }
}

void itg_lookup(int32_t n, const uint8_t *table, const uint8_t *x, uint8_t *y) {
  for (int32_t i = 0; i < n; i++) y[i] = table[x[i]];
}

void itg_quantize(int32_t n, float scale, int32_t zero, uint32_t flip, const float *x, int8_t *y) {
  for (int32_t i = 0; i < n; i++) {
    const float v = x[i] / scale;  // not a number: the lowest integer
    y[i] = (int8_t)((uint32_t)(v == v ? itg_round(v, zero) : -128) ^ flip);
  }
}

void itg_dequantize(int32_t n, float scale, int32_t zero, uint32_t flip, const int8_t *x,
                    float *y) {
  for (int32_t i = 0; i < n; i++) y[i] = centred(x + i, flip, zero) * scale;
}
