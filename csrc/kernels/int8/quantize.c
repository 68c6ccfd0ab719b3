// quantize_linear and dequantize_linear. Blocks of elements are loaded as f32, converted and
// stored; the compiler vectorises the loops.
#include "qelements.h"
#include "quantize.h"

enum { BLOCK = 256 };

#define LOAD(type)                                                    \
  {                                                                   \
    const type *from = (const type *)t->data + at;                    \
    if (step == 1) /* a constant, so that GCC vectorises the loop */  \
      for (int64_t i = 0; i < n; i++) out[i] = (float)from[i];        \
    else                                                              \
      for (int64_t i = 0; i < n; i++) out[i] = (float)from[i * step]; \
    return;                                                           \
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
      else if (itg_is_small_float(t->dtype))
        ((uint8_t *)t->data)[at + i] = itg_f32_to_small(t->dtype, y[i], saturate);
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

// The most common case: f32 to bytes and back with one scale, without blocks.
#define DEQUANTIZE(type)                                                     \
  {                                                                          \
    const type *restrict from = (const type *)x->data + i;                   \
    for (int64_t k = 0; k < n; k++) to[k] = ((float)from[k] - zero) * scale; \
  }

static void dequantize_bytes(const itg_tensor *x, int64_t i, int64_t n, float scale, float zero,
                             float *restrict to) {
  if (x->dtype == ITG_U8) DEQUANTIZE(uint8_t)
  else DEQUANTIZE(int8_t)
}

static void divide_bytes(const float *restrict x, int64_t n, float scale, float zero, float lo,
                         float hi, uint8_t *restrict to) {
  for (int64_t k = 0; k < n; k++) {
    const float y = rintf(x[k] / scale) + zero, above = y > lo ? y : lo;  // NaN becomes the lowest
    to[k] = (uint8_t)(int32_t)(above < hi ? above : hi);
  }
}

#ifdef ITG_QELEMENTS
// Division is slow, so x is multiplied by 1 / scale. If the result is within the bounds of a byte,
// it differs from x / scale by less than 1e-4. So x is divided only if the result is that close to
// the middle of two integers, or NaN.
INLINE bool near_half(const vf *y) {
#if defined(ISA_neon)
  vm far = viset(-1);
  FOR_UNROLLED (16, int i = 0; i < 4; i++)
    far = vand(far, vlt(vabs(vsub(y[i], vround(y[i]))), vset(.4999f)));
  return vminvq_u32(far) == 0;
#elif defined(ISA_avx512)
  __mmask16 near = 0;
  FOR_UNROLLED (16, int i = 0; i < 4; i++) {
    const vf error = _mm512_sub_ps(y[i], vq_floats(vq_rounded(y[i])));
    near |= _mm512_cmp_ps_mask(_mm512_abs_ps(error), vset(.4999f), _CMP_NLT_UQ);
  }
  return near;
#else
  vf near = vset(0);
  const vf sign = vset(-0.f);
  FOR_UNROLLED (16, int i = 0; i < 4; i++) {
    const vf error = _mm256_andnot_ps(sign, _mm256_sub_ps(y[i], vq_floats(vq_rounded(y[i]))));
    near = _mm256_or_ps(near, _mm256_cmp_ps(error, vset(.4999f), _CMP_NLT_UQ));
  }
  return _mm256_movemask_ps(near);
#endif
}

static int64_t multiply_bytes(const float *x, int64_t n, float scale, float zero, float lo,
                              float hi, uint8_t *to) {
  const itg_quant q = {scale, (int)(zero - lo), lo < 0 ? 0x80 : 0};
  const qb_end end = qb_end_of(&q);
  const vf by = vset(1 / scale);
  int64_t i = 0;
  for (; i + QBYTES <= n; i += QBYTES) {
    vf y[4];
    FOR_UNROLLED (16, int k = 0; k < 4; k++) y[k] = vmul(vload(x + i + k * QL), by);
    vq_store(to + i, qb_in_order(qb_bytes(y, &end)));
    if (__builtin_expect(near_half(y), false))
      divide_bytes(x + i, QBYTES, scale, zero, lo, hi, to + i);
  }
  return i;
}
#endif

static void quantize_bytes(const float *x, int64_t n, float scale, float zero, float lo, float hi,
                           uint8_t *to) {
  int64_t i = 0;
#ifdef ITG_QELEMENTS
  if (fabsf(scale) > 1e-30f && fabsf(scale) < 1e30f)
    i = multiply_bytes(x, n, scale, zero, lo, hi, to);
#endif
  divide_bytes(x + i, n - i, scale, zero, lo, hi, to + i);
}

static bool is_byte(uint8_t dtype) { return dtype == ITG_U8 || dtype == ITG_I8; }

static float one(const itg_tensor *t) { return t ? (float)itg_load_f64(t->dtype, t->data, 0) : 0; }

ITG_FN(quantize_linear, any) {
  const itg_attrs_quantize_linear *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *scale = call->in[1], *zero = itg_input(call, 2),
                   *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_grain grain = itg_grain_of(x, scale, attrs->axis, attrs->block_size);
  const bool whole = !itg_is_float(out->dtype);
  int64_t i, end, at, step;
  itg_share(itg_count(out), 4096, part, parts, &i, &end);
  if (itg_count(scale) == 1 && x->dtype == ITG_F32 && is_byte(out->dtype)) {
    const float low = out->dtype == ITG_I8 ? -128 : 0;
    quantize_bytes((const float *)x->data + i, end - i, one(scale), one(zero), low, low + 255,
                   (uint8_t *)out->data + i);
    return NULL;
  }
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
  const itg_tensor *x = call->in[0], *scale = call->in[1], *zero = itg_input(call, 2),
                   *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_grain grain = itg_grain_of(x, scale, attrs->axis, attrs->block_size);
  int64_t i, end, at, step;
  itg_share(itg_count(out), 4096, part, parts, &i, &end);
  if (itg_count(scale) == 1 && is_byte(x->dtype) && out->dtype == ITG_F32) {
    dequantize_bytes(x, i, end - i, one(scale), one(zero), (float *)out->data + i);
    return NULL;
  }
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
