// quantize_linear and dequantize_linear: blocks of f32 between the two conversions; the loops vectorise by themselves.
#include "quantize.h"

enum { BLOCK = 256 };

#define LOAD(type)                                                           \
  {                                                                          \
    const type *from = (const type *)t->data + at;                           \
    for (int64_t i = 0; i < n; i++) out[i] = (float)from[i * step];          \
    return;                                                                  \
  }

static void load(const itg_tensor *t, int64_t at, int64_t step, int64_t n, float *out) {
  if (!step) {
    const float same = (float)itg_load_f64(t->dtype, t->data, at);
    for (int64_t i = 0; i < n; i++) out[i] = same;
    return;
  }
  switch (t->dtype) {
    case ITG_F32: LOAD(float)
    case ITG_I8: LOAD(int8_t)
    case ITG_U8: LOAD(uint8_t)
    case ITG_I16: LOAD(int16_t)
    case ITG_U16: LOAD(uint16_t)
    case ITG_I32: LOAD(int32_t)
    default:
      for (int64_t i = 0; i < n; i++) out[i] = (float)itg_load_f64(t->dtype, t->data, at + i);
  }
}

static void store(const itg_tensor *t, int64_t at, int64_t n, const float *y, bool saturate) {
  int64_t lo, hi;
  if (itg_is_float(t->dtype)) {
    for (int64_t i = 0; i < n; i++) {
      if (t->dtype == ITG_F32) ((float *)t->data)[at + i] = y[i];
      else if (itg_is_small_float(t->dtype)) ((uint8_t *)t->data)[at + i] = itg_f32_to_small(t->dtype, y[i], saturate);
      else itg_store_f64(t->dtype, t->data, at + i, y[i]);
    }
    return;
  }
  itg_limits(t->dtype, &lo, &hi);
  int32_t whole[BLOCK];
  for (int64_t i = 0; i < n; i++) {
    float v = y[i] > (float)lo ? y[i] : (float)lo;  // NaN becomes the lowest
    whole[i] = (int32_t)(v < (float)hi ? v : (float)hi);
  }
  if (t->dtype == ITG_I8 || t->dtype == ITG_U8)
    for (int64_t i = 0; i < n; i++) ((uint8_t *)t->data)[at + i] = (uint8_t)whole[i];
  else
    for (int64_t i = 0; i < n; i++) itg_store_i64(t->dtype, t->data, at + i, whole[i]);
}

ITG_FN(quantize_linear, any) {
  const itg_attrs_quantize_linear *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *scale = call->in[1], *zero = itg_input(call, 2), *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_grain grain = itg_grain_of(x, scale, attrs->axis, attrs->block_size);
  const bool whole = !itg_is_float(out->dtype);
  int64_t i, end, at, step;
  itg_share(itg_count(out), 4096, part, parts, &i, &end);
  for (int64_t n; i < end; i += n) {
    float y[BLOCK], s[BLOCK], z[BLOCK];
    n = itg_grain_run(&grain, i, end, &at, &step);
    n = n < end - i ? n : end - i;
    n = n < BLOCK ? n : BLOCK;
    load(x, i, 1, n, y);
    load(scale, at, step, n, s);
    if (zero) load(zero, at, step, n, z);
    if (whole)
      for (int64_t k = 0; k < n; k++) y[k] = rintf(y[k] / s[k]);
    else
      for (int64_t k = 0; k < n; k++) y[k] /= s[k];
    if (zero)
      for (int64_t k = 0; k < n; k++) y[k] += z[k];
    store(out, i, n, y, attrs->saturate != 0);
  }
  return NULL;
}

ITG_FN(dequantize_linear, any) {
  const itg_attrs_dequantize_linear *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *scale = call->in[1], *zero = itg_input(call, 2), *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_grain grain = itg_grain_of(x, scale, attrs->axis, attrs->block_size);
  int64_t i, end, at, step;
  itg_share(itg_count(out), 4096, part, parts, &i, &end);
  for (int64_t n; i < end; i += n) {
    float y[BLOCK], s[BLOCK], z[BLOCK];
    n = itg_grain_run(&grain, i, end, &at, &step);
    n = n < end - i ? n : end - i;
    n = n < BLOCK ? n : BLOCK;
    load(x, i, 1, n, y);
    load(scale, at, step, n, s);
    if (zero) {
      load(zero, at, step, n, z);
      for (int64_t k = 0; k < n; k++) y[k] -= z[k];
    }
    for (int64_t k = 0; k < n; k++) y[k] *= s[k];
    store(out, i, n, y, false);
  }
  return NULL;
}
