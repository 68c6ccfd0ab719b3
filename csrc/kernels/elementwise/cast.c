// Conversion between element types: the ops cast and bitcast, and conversion of blocks for other
// kernels (widen.h).
#include "vec.h"
#include "widen.h"

// ---- to the wide type ---------------------------------------------------------------------------
#define WIDEN(code, type, wide_type, expression)       \
  case code: {                                         \
    const type *x = from;                              \
    wide_type *y = wide;                               \
    for (int64_t i = 0; i < n; i++) y[i] = expression; \
    return;                                            \
  }

void itg_widen(void *wide, const void *from, uint8_t dtype, int64_t n) {
  switch (dtype) {
    WIDEN(ITG_BF16, uint16_t, float, itg_bf16_to_f32(x[i]))
    WIDEN(ITG_I8, int8_t, int64_t, x[i])
    WIDEN(ITG_I4, uint8_t, int64_t,
          ((x[i] & 15) ^ 8) - 8)  // the upper bits of the byte mean nothing
    WIDEN(ITG_I2, uint8_t, int64_t, ((x[i] & 3) ^ 2) - 2)
    WIDEN(ITG_I16, int16_t, int64_t, x[i])
    WIDEN(ITG_I32, int32_t, int64_t, x[i])
    WIDEN(ITG_U8, uint8_t, uint64_t, x[i])
    WIDEN(ITG_U4, uint8_t, uint64_t, x[i] & 15)
    WIDEN(ITG_U2, uint8_t, uint64_t, x[i] & 3)
    WIDEN(ITG_BOOL, uint8_t, uint64_t, x[i] != 0)
    WIDEN(ITG_U16, uint16_t, uint64_t, x[i])
    WIDEN(ITG_U32, uint32_t, uint64_t, x[i])
    case ITG_F16: {
      const uint16_t *x = from;
      float *y = wide;
      int64_t i = 0;
#ifdef vload_f16
      for (; i + VL <= n; i += VL) vstore(y + i, vload_f16(x + i));
#endif
      for (; i < n; i++) y[i] = itg_f16_to_f32(x[i]);
      return;
    }
    case ITG_F32:
    case ITG_F64:
    case ITG_I64:
    case ITG_U64:
      memcpy(wide, from, (size_t)n * itg_item(dtype));
      return;
      WIDEN(ITG_F8E4M3FN, uint8_t, float, (float)itg_small_to_f64(ITG_F8E4M3FN, x[i]))
      WIDEN(ITG_F8E4M3FNUZ, uint8_t, float, (float)itg_small_to_f64(ITG_F8E4M3FNUZ, x[i]))
      WIDEN(ITG_F8E5M2, uint8_t, float, (float)itg_small_to_f64(ITG_F8E5M2, x[i]))
      WIDEN(ITG_F8E5M2FNUZ, uint8_t, float, (float)itg_small_to_f64(ITG_F8E5M2FNUZ, x[i]))
      WIDEN(ITG_F4E2M1FN, uint8_t, float, (float)itg_small_to_f64(ITG_F4E2M1FN, x[i]))
      WIDEN(ITG_F8E8M0FNU, uint8_t, float, (float)itg_small_to_f64(ITG_F8E8M0FNU, x[i]))
  }
}

// ---- from the wide type -------------------------------------------------------------------------
#define NARROW(code, type, wide_type, expression)              \
  case code: {                                                 \
    const wide_type *x = wide;                                 \
    type *y = to;                                              \
    for (int64_t i = 0; i < n; i++) y[i] = (type)(expression); \
    return;                                                    \
  }
#define NARROW_SMALL(code) NARROW(code, uint8_t, float, itg_f32_to_small(code, x[i], saturate))

void itg_narrow(void *to, const void *wide, uint8_t dtype, int64_t n, bool saturate) {
  switch (dtype) {
    NARROW(ITG_BF16, uint16_t, float, itg_f32_to_bf16(x[i]))
    NARROW(ITG_I8, uint8_t, uint64_t, x[i])
    NARROW(ITG_U8, uint8_t, uint64_t, x[i])
    NARROW(ITG_I16, uint16_t, uint64_t, x[i])
    NARROW(ITG_U16, uint16_t, uint64_t, x[i])
    NARROW(ITG_I32, uint32_t, uint64_t, x[i])
    NARROW(ITG_U32, uint32_t, uint64_t, x[i])
    NARROW(ITG_U4, uint8_t, uint64_t, x[i] & 15)
    NARROW(ITG_U2, uint8_t, uint64_t, x[i] & 3)
    NARROW(ITG_I4, uint8_t, uint64_t, x[i] & 15)
    NARROW(ITG_I2, uint8_t, uint64_t, x[i] & 3)
    NARROW(ITG_BOOL, uint8_t, uint64_t, x[i] != 0)
    case ITG_F16: {
      const float *x = wide;
      uint16_t *y = to;
      int64_t i = 0;
#ifdef vstore_f16
      for (; i + VL <= n; i += VL) vstore_f16(y + i, vload(x + i));
#endif
      for (; i < n; i++) y[i] = itg_f32_to_f16(x[i]);
      return;
    }
    case ITG_F32:
    case ITG_F64:
    case ITG_I64:
    case ITG_U64:
      memcpy(to, wide, (size_t)n * itg_item(dtype));
      return;
      NARROW_SMALL(ITG_F8E4M3FN)
      NARROW_SMALL(ITG_F8E4M3FNUZ)
      NARROW_SMALL(ITG_F8E5M2)
      NARROW_SMALL(ITG_F8E5M2FNUZ)
      NARROW_SMALL(ITG_F4E2M1FN)
      NARROW_SMALL(ITG_F8E8M0FNU)
  }
}

// ---- cast ---------------------------------------------------------------------------------------
// Cast to e8m0 as in ONNX: the smallest power of two that is not less than |x|.
static uint8_t to_e8m0(float x, bool saturate) {
  uint32_t bits = itg_bits_of_float(x) & 0x7fffffff, e = bits >> 23, fraction = bits & 0x7fffff;
  e += e ? fraction != 0 : fraction > 0x400000;
  if (x != x) return 255;
  if (e >= 255 || (!saturate && bits == 0)) return saturate ? 254 : 255;
  return (uint8_t)e;
}

// Truncates towards zero; NaN is 0. 32- and 64-bit types saturate, narrower ones keep the low bits
// of the i32.
static void floats_to_integers(itg_block *to, const double *x, uint8_t dtype, int64_t n) {
  int64_t lo = INT32_MIN, hi = INT32_MAX;
  if (dtype == ITG_U32) lo = 0, hi = UINT32_MAX;
  if (dtype == ITG_I64) lo = INT64_MIN, hi = INT64_MAX;
  if (dtype == ITG_U64) {
    for (int64_t i = 0; i < n; i++)
      to->u64[i] = x[i] >= 0x1p64 ? UINT64_MAX : x[i] > 0 ? (uint64_t)x[i] : 0;
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t v = itg_f64_to_i64(x[i]);
    to->i64[i] = v < lo ? lo : v > hi ? hi : v;
  }
}

// n wide elements of kind `from` become wide elements of the kind that `dtype` narrows from; `from`
// is overwritten.
static itg_block *convert(itg_block *x, itg_block *y, enum itg_wide from, uint8_t dtype,
                          int64_t n) {
  const enum itg_wide kind = itg_wide(dtype);
  if (dtype == ITG_BOOL) {
    for (int64_t i = 0; i < n; i++)
      y->u64[i] = from == ITG_WIDE_F32   ? x->f32[i] != 0
                  : from == ITG_WIDE_F64 ? x->f64[i] != 0
                                         : x->u64[i] != 0;
    return y;
  }
  if (kind >= ITG_WIDE_I64) {
    if (from >= ITG_WIDE_I64) return x;
    if (from == ITG_WIDE_F64) return floats_to_integers(y, x->f64, dtype, n), y;
    for (int64_t i = 0; i < n; i++) y->f64[i] = x->f32[i];
    return floats_to_integers(x, y->f64, dtype, n), x;
  }
  if (from == kind) return x;
  if (kind == ITG_WIDE_F64) {
    if (from == ITG_WIDE_F32)
      for (int64_t i = 0; i < n; i++) y->f64[i] = x->f32[i];
    else if (from == ITG_WIDE_I64)
      for (int64_t i = 0; i < n; i++) y->f64[i] = (double)x->i64[i];
    else
      for (int64_t i = 0; i < n; i++) y->f64[i] = (double)x->u64[i];
  } else {
    if (from == ITG_WIDE_I64)
      for (int64_t i = 0; i < n; i++) y->f32[i] = (float)x->i64[i];
    else if (from == ITG_WIDE_U64)
      for (int64_t i = 0; i < n; i++) y->f32[i] = (float)x->u64[i];
    else if (dtype == ITG_F32 || dtype == ITG_BF16)
      for (int64_t i = 0; i < n; i++) y->f32[i] = (float)x->f64[i];
    else
      for (int64_t i = 0; i < n; i++) y->f32[i] = itg_f64_to_f32_odd(x->f64[i]);
  }
  return y;
}

static inline int32_t f32_to_i32(
    float x) {  // clamped before it is converted: selects, so that it runs on vectors
  const float low = x > -0x1p31f ? x : -0x1p31f, safe = low < 0x1.fffffep30f ? low : 0x1.fffffep30f;
  const int32_t v = x >= 0x1p31f ? INT32_MAX : (int32_t)safe;
  return x == x ? v : 0;
}

// Common pairs of types, converted without the wide type. Returns false for other pairs.
static bool cast_directly(void *to, uint8_t out, const void *from, uint8_t in, int64_t n) {
#define DIRECT(in_code, in_type, out_code, out_type, expression)   \
  if (in == in_code && out == out_code) {                          \
    const in_type *x = from;                                       \
    out_type *y = to;                                              \
    for (int64_t i = 0; i < n; i++) y[i] = (out_type)(expression); \
    return true;                                                   \
  }
  DIRECT(ITG_U8, uint8_t, ITG_F32, float, x[i])
  DIRECT(ITG_I8, int8_t, ITG_F32, float, x[i])
  DIRECT(ITG_I32, int32_t, ITG_F32, float, x[i])
  DIRECT(ITG_BOOL, uint8_t, ITG_F32, float, x[i] != 0)
  DIRECT(ITG_F32, float, ITG_BOOL, uint8_t, x[i] != 0)
  DIRECT(ITG_BOOL, uint8_t, ITG_I32, int32_t, x[i] != 0)
  DIRECT(ITG_F32, float, ITG_I32, int32_t, f32_to_i32(x[i]))
#undef DIRECT
  return false;
}

ITG_FN(cast, any) {
  const itg_tensor *in = call->in[0];
  itg_tensor *out = call->out[0];
  const itg_attrs_cast *a = call->attrs;
  const int64_t item = (int64_t)itg_item(in->dtype), out_item = (int64_t)itg_item(out->dtype);
  const char *from = in->data;
  char *to = out->data;
  const enum itg_wide kind = itg_wide(in->dtype);
  int64_t i, end;
  itg_share(itg_count(in), 4096, part, parts, &i, &end);
  if (in->dtype == out->dtype &&
      !itg_is_small_float(in->dtype)) {  // small floats may lose their inf
    if (from != to && i < end) memmove(to + i * item, from + i * item, (size_t)((end - i) * item));
    return NULL;
  }
  if (cast_directly(to + i * out_item, out->dtype, from + i * item, in->dtype, end - i))
    return NULL;
  for (; i < end; i += ITG_BLOCK) {
    itg_block x, y;
    int64_t n = end - i < ITG_BLOCK ? end - i : ITG_BLOCK;
    itg_widen(&x, from + i * item, in->dtype, n);
    const itg_block *got = convert(&x, &y, kind, out->dtype, n);
    if (out->dtype == ITG_F8E8M0FNU)
      for (int64_t k = 0; k < n; k++) to[i + k] = (char)to_e8m0(got->f32[k], a->saturate != 0);
    else itg_narrow(to + i * out_item, got, out->dtype, n, a->saturate != 0);
  }
  return NULL;
}

ITG_FN(bitcast, any) {
  int64_t item = (int64_t)itg_item(call->in[0]->dtype), i, end;
  itg_share(itg_count(call->in[0]), 4096, part, parts, &i, &end);
  const char *from = (const char *)call->in[0]->data + i * item;
  char *to = (char *)call->out[0]->data + i * item;
  if (from != to && i < end) memmove(to, from, (size_t)((end - i) * item));
  return NULL;
}
