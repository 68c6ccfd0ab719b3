#include "rknn_view.h"

#include <math.h>
#include <string.h>

enum { ROW = 256 };  // elements that are converted at once

size_t rk_type_size(rknn_tensor_type type) {
  static const uint8_t sizes[] = {4, 2, 1, 1, 2, 2, 4, 4, 8, 1, 0, 2};
  return (unsigned)type < sizeof sizes ? sizes[type] : 0;
}

// ---- element types ------------------------------------------------------------------------------
float rk_half_to_float(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, e = half >> 10 & 31, m = half & 0x3ff;
  uint32_t bits;
  float value;
  if (e == 31) bits = sign | 0x7f800000 | m << 13;
  else if (e) bits = sign | (e + 112) << 23 | m << 13;
  else {  // zero, or below the normal numbers
    value = (float)m * 0x1p-24f;
    memcpy(&bits, &value, 4);
    bits |= sign;
  }
  memcpy(&value, &bits, 4);
  return value;
}

uint16_t rk_float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
  if (bits >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (bits < 0x38800000) {                       // below the normal numbers: in units of 2^-24
    memcpy(&value, &bits, 4);
    return (uint16_t)(sign | (uint32_t)rintf(value * 0x1p24f));
  }
  return (uint16_t)(sign | ((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13));
}

uint16_t rk_float_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define LOAD(code, T, ...)                               \
  case code:                                             \
    for (int64_t i = 0; i < count; i++) {                \
      T x;                                               \
      memcpy(&x, from + i * step * sizeof(T), sizeof x); \
      row[i] = (double)(__VA_ARGS__);                    \
    }                                                    \
    break;

static void load(const uint8_t *from, rknn_tensor_type type, int64_t step, int64_t count,
                 double *row) {
  switch (type) {
    LOAD(RKNN_TENSOR_FLOAT32, float, x)
    LOAD(RKNN_TENSOR_FLOAT16, uint16_t, rk_half_to_float(x))
    LOAD(RKNN_TENSOR_INT8, int8_t, x)
    LOAD(RKNN_TENSOR_UINT8, uint8_t, x)
    LOAD(RKNN_TENSOR_BOOL, uint8_t, x != 0)
    LOAD(RKNN_TENSOR_INT16, int16_t, x)
    LOAD(RKNN_TENSOR_UINT16, uint16_t, x)
    LOAD(RKNN_TENSOR_INT32, int32_t, x)
    LOAD(RKNN_TENSOR_UINT32, uint32_t, x)
    LOAD(RKNN_TENSOR_INT64, int64_t, x)
    case RKNN_TENSOR_BFLOAT16:
      for (int64_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        memcpy((uint8_t *)&bits + 2, from + i * step * 2, 2);
        float x;
        memcpy(&x, &bits, 4);
        row[i] = x;
      }
      break;
    default: break;
  }
}

// Integers wrap around, as in numpy.
static int64_t whole(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : x > 0 ? INT64_MAX : INT64_MIN;
}

#define STORE(code, T, ...)                            \
  case code:                                           \
    for (int64_t i = 0; i < count; i++) {              \
      const double v = row[i];                         \
      const T x = (T)(__VA_ARGS__);                    \
      memcpy(to + i * step * sizeof(T), &x, sizeof x); \
    }                                                  \
    break;

static void store(uint8_t *to, rknn_tensor_type type, int64_t step, int64_t count,
                  const double *row) {
  switch (type) {
    STORE(RKNN_TENSOR_FLOAT32, float, v)
    STORE(RKNN_TENSOR_FLOAT16, uint16_t, rk_float_to_half((float)v))
    STORE(RKNN_TENSOR_BFLOAT16, uint16_t, rk_float_to_bf16((float)v))
    STORE(RKNN_TENSOR_INT8, int8_t, whole(v))
    STORE(RKNN_TENSOR_UINT8, uint8_t, whole(v))
    STORE(RKNN_TENSOR_BOOL, uint8_t, v != 0)
    STORE(RKNN_TENSOR_INT16, int16_t, whole(v))
    STORE(RKNN_TENSOR_UINT16, uint16_t, whole(v))
    STORE(RKNN_TENSOR_INT32, int32_t, whole(v))
    STORE(RKNN_TENSOR_UINT32, uint32_t, whole(v))
    STORE(RKNN_TENSOR_INT64, int64_t, whole(v))
    default: break;
  }
}

static void quantise(double *row, int64_t count, rknn_tensor_type type, float scale, int32_t zp) {
  const double low = type == RKNN_TENSOR_UINT8   ? 0
                     : type == RKNN_TENSOR_INT16 ? -32768
                                                 : -128,
               high = type == RKNN_TENSOR_UINT8   ? 255
                      : type == RKNN_TENSOR_INT16 ? 32767
                                                  : 127;
  for (int64_t i = 0; i < count; i++) {
    const double q = rint(row[i] / scale) + zp;
    row[i] = q >= high ? high : q > low ? q : low;  // NaN: low
  }
}

// ---- layouts ------------------------------------------------------------------------------------
static int64_t channels_stored(const rk_view *v) {
  return v->fmt == RKNN_TENSOR_NC1HWC2 ? (v->c + v->c2 - 1) / v->c2 * v->c2 : v->c;
}

uint64_t rk_view_bytes(const rk_view *v) {
  return (uint64_t)(v->n * channels_stored(v) * v->h_stride * v->w_stride) * rk_type_size(v->type);
}

// Where the row of channel c and height h begins, in elements; `step` is that from w to w + 1.
static int64_t row_of(const rk_view *v, int64_t n, int64_t c, int64_t h, int64_t *step) {
  const int64_t hs = v->h_stride, ws = v->w_stride;
  switch (v->fmt) {
    case RKNN_TENSOR_NHWC: *step = v->c; return (n * hs + h) * ws * v->c + c;
    case RKNN_TENSOR_NC1HWC2:
      *step = v->c2;
      return ((n * (channels_stored(v) / v->c2) + c / v->c2) * hs + h) * ws * v->c2 + c % v->c2;
    default: *step = 1; return ((n * v->c + c) * hs + h) * ws;
  }
}

bool rk_same_bytes(const rk_view *a, const rk_view *b) {
  const bool dense = a->h_stride == a->h && a->w_stride == a->w && b->h_stride == b->h &&
                     b->w_stride == b->w && channels_stored(a) == a->c &&
                     channels_stored(b) == b->c;
  const bool alike = a->fmt == b->fmt && (a->fmt != RKNN_TENSOR_NC1HWC2 || a->c2 == b->c2);
  return a->type == b->type && dense && (alike || a->c == 1 || a->h * a->w == 1);
}

static float channel(const float *values, uint32_t count, int64_t c, float without) {
  return count ? values[count == 1 ? 0 : c] : without;
}

static void change_row(double *row, int64_t count, int64_t c, const rk_change *change) {
  if (change->from_scale != 0)
    for (int64_t i = 0; i < count; i++)
      row[i] = (float)((row[i] - change->from_zp) * change->from_scale);
  if (change->n_mean || change->n_std) {  // float32 after each operation, as in numpy
    const float std = channel(change->std, change->n_std, c, 1),
                mean = channel(change->mean, change->n_mean, c, 0);
    for (int64_t i = 0; i < count; i++) {
      const float product = (float)row[i] * std;
      row[i] = product + mean;
    }
  }
}

void rk_copy(const rk_view *from, const rk_view *to, const rk_change *change) {
  static const rk_change nothing;
  if (!change) change = &nothing;
  const bool plain = change->from_scale == 0 && change->to_scale == 0 && !change->n_mean &&
                     !change->n_std && from->type == to->type;
  const size_t size = rk_type_size(to->type);
  if (plain && rk_same_bytes(from, to)) {
    memcpy(to->data, from->data, rk_view_bytes(to));
    return;
  }
  if (channels_stored(to) != to->c) memset(to->data, 0, rk_view_bytes(to));
  for (int64_t n = 0; n < to->n; n++)
    for (int64_t c = 0; c < to->c; c++)
      for (int64_t h = 0; h < to->h; h++) {
        int64_t from_step, to_step;
        const uint8_t *a = (const uint8_t *)from->data +
                           (size_t)row_of(from, n, c, h, &from_step) * rk_type_size(from->type);
        uint8_t *b = (uint8_t *)to->data + (size_t)row_of(to, n, c, h, &to_step) * size;
        for (int64_t w = 0; w < to->w; w += ROW) {
          double row[ROW];
          const int64_t count = to->w - w < ROW ? to->w - w : ROW;
          const uint8_t *x = a + (size_t)(w * from_step) * rk_type_size(from->type);
          uint8_t *y = b + (size_t)(w * to_step) * size;
          if (plain) {
            for (int64_t i = 0; i < count; i++)
              memcpy(y + (size_t)(i * to_step) * size, x + (size_t)(i * from_step) * size, size);
            continue;
          }
          load(x, from->type, from_step, count, row);
          change_row(row, count, c, change);
          if (change->to_scale != 0)
            quantise(row, count, to->type, change->to_scale, change->to_zp);
          store(y, to->type, to_step, count, row);
        }
      }
}
