// Access to single elements: every storage type read as, and written from, double or int64. With a
// constant `dtype` the switches fold away, so that one function written with these serves f32 at
// full speed and all other types.
#pragma once
#include <math.h>
#include <string.h>

#include "kernel.h"

static inline float itg_float_of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline uint32_t itg_bits_of_float(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static inline float itg_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, x = (uint32_t)(h & 0x7fff) << 13,
           exponent = x & 0x0f800000;
  if (exponent == 0x0f800000) x += 0x70000000;  // infinity, NaN
  else if (exponent) x += 0x38000000;
  else x = itg_bits_of_float((float)(h & 0x7fff) * 0x1p-24f);
  return itg_float_of_bits(x | sign);
}

static inline uint16_t itg_f32_to_f16(float f) {  // to nearest, ties to even
  uint32_t bits = itg_bits_of_float(f), sign = bits >> 16 & 0x8000, x = bits & 0x7fffffff;
  if (x > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (x >> 13 & 0x3ff));
  if (x >= 0x47800000) return (uint16_t)(sign | 0x7c00);
  if (x < 0x38800000)  // the sum with 0.5 rounds to the spacing of f16's subnormals
    return (uint16_t)(sign | (itg_bits_of_float(itg_float_of_bits(x) + 0.5f) - 0x3f000000));
  x += 0xfff + (x >> 13 & 1);
  return (uint16_t)(sign | (x - 0x38000000) >> 13);
}

static inline float itg_bf16_to_f32(uint16_t h) { return itg_float_of_bits((uint32_t)h << 16); }

static inline uint16_t itg_f32_to_bf16(float f) {
  uint32_t x = itg_bits_of_float(f);
  if ((x & 0x7fffffff) > 0x7f800000) return (uint16_t)((x >> 16 & 0x8000) | 0x7fc0);
  return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

// Rounds to odd, so that rounding the result to f16 gives the same as rounding `d` to f16 directly.
static inline float itg_f64_to_f32_odd(double d) {
  float f = (float)d;
  if ((double)f == d || d != d || fabs(d) > 65536) return f;
  uint32_t x = itg_bits_of_float(f);
  if (fabs((double)f) > fabs(d)) x--;  // toward zero; f is not 0 here, for |f| > |d|
  return itg_float_of_bits(x | 1);
}

// ---- the 8- and 4-bit floats: sign, exponent, `mantissa` bits; `top` is the code of the largest
// number ----
typedef struct itg_small_float {
  int mantissa, bias, sign, top;
  int nan, inf;  // codes without sign; inf < 0: there is none; nan < 0: there is none
  bool unsigned_zero;
} itg_small_float;

static inline itg_small_float itg_small_float_of(uint8_t dtype) {
  switch (dtype) {
    case ITG_F8E4M3FN: return (itg_small_float){3, 7, 0x80, 0x7e, 0x7f, -1, false};
    case ITG_F8E4M3FNUZ: return (itg_small_float){3, 8, 0x80, 0x7f, 0x80, -1, true};
    case ITG_F8E5M2: return (itg_small_float){2, 15, 0x80, 0x7b, 0x7e, 0x7c, false};
    case ITG_F8E5M2FNUZ: return (itg_small_float){2, 16, 0x80, 0x7f, 0x80, -1, true};
    default: return (itg_small_float){1, 1, 0x08, 0x07, -1, -1, false};  // f4e2m1fn
  }
}

static inline bool itg_is_small_float(uint8_t dtype) {
  return dtype >= ITG_F8E4M3FN && dtype <= ITG_F8E8M0FNU;
}

static inline double itg_small_to_f64(uint8_t dtype, uint8_t code) {
  if (dtype == ITG_F8E8M0FNU) return code == 0xff ? (double)NAN : ldexp(1, code - 127);
  itg_small_float f = itg_small_float_of(dtype);
  int body = code & (f.sign - 1), exponent = body >> f.mantissa,
      fraction = body & ((1 << f.mantissa) - 1);
  double sign = code & f.sign ? -1 : 1;
  if (f.unsigned_zero ? code == f.nan : f.nan >= 0 && body > f.top && body != f.inf)
    return (double)NAN;
  if (body == f.inf) return sign * (double)INFINITY;
  if (exponent) fraction += 1 << f.mantissa;
  return sign * ldexp(fraction, (exponent ? exponent : 1) - f.bias - f.mantissa);
}

// Rounds to nearest, ties to even. Numbers that are too large become the largest one if `saturate`,
// else infinity or NaN.
static inline uint8_t itg_f32_to_small(uint8_t dtype, float narrow, bool saturate) {
  double x = narrow;
  if (dtype == ITG_F8E8M0FNU) {  // powers of two from 2**-127 to 2**127; 0xff is NaN
    if (!(x > 0) || (isinf(x) && !saturate)) return x == 0 && saturate ? 0 : 0xff;
    if (x >= 0x1p127) return saturate || x < 0x1.8p127 ? 0xfe : 0xff;
    int e = ilogb(x);
    e += x >= ldexp(1.5, e);  // ties go up, as in ml_dtypes
    return (uint8_t)(e < -127 ? 0 : e + 127);
  }
  itg_small_float f = itg_small_float_of(dtype);
  int sign = signbit(x) ? f.sign : 0, code;
  if (x != x) return (uint8_t)(f.nan < 0 ? f.sign ^ sign : f.unsigned_zero ? f.nan : f.nan | sign);
  double a = fabs(x);
  if (a >= 0x1p20) {
    code = f.top + 1;
  } else {
    int e = a == 0 ? 1 - f.bias : ilogb(a);
    if (e < 1 - f.bias) e = 1 - f.bias;
    code = ((e + f.bias - 1) << f.mantissa) + (int)rint(ldexp(a, f.mantissa - e));
  }
  if (code > f.top) code = saturate || f.nan < 0 ? f.top : f.inf >= 0 ? f.inf : f.nan;
  if (f.unsigned_zero && (code == 0 || code == f.nan)) return (uint8_t)code;
  return (uint8_t)(code | sign);
}

// ---- as double ----------------------------------------------------------------------------------
static inline double itg_load_f64(uint8_t dtype, const void *data, int64_t i) {
  switch (dtype) {
    case ITG_F32: return ((const float *)data)[i];
    case ITG_F64: return ((const double *)data)[i];
    case ITG_F16: return itg_f16_to_f32(((const uint16_t *)data)[i]);
    case ITG_BF16: return itg_bf16_to_f32(((const uint16_t *)data)[i]);
    case ITG_I8: return ((const int8_t *)data)[i];
    case ITG_U8: return ((const uint8_t *)data)[i];
    case ITG_I4:
      return ((((const uint8_t *)data)[i] & 15) ^ 8) -
             8;  // the upper bits of the byte mean nothing
    case ITG_U4: return ((const uint8_t *)data)[i] & 15;
    case ITG_I2: return ((((const uint8_t *)data)[i] & 3) ^ 2) - 2;
    case ITG_U2: return ((const uint8_t *)data)[i] & 3;
    case ITG_BOOL: return ((const uint8_t *)data)[i] != 0;
    case ITG_I16: return ((const int16_t *)data)[i];
    case ITG_U16: return ((const uint16_t *)data)[i];
    case ITG_I32: return ((const int32_t *)data)[i];
    case ITG_U32: return ((const uint32_t *)data)[i];
    case ITG_I64: return (double)((const int64_t *)data)[i];
    case ITG_U64: return (double)((const uint64_t *)data)[i];
    default: return itg_small_to_f64(dtype, ((const uint8_t *)data)[i]);
  }
}

// Smallest and largest value of an integer type of at most 32 bits.
static inline void itg_limits(uint8_t dtype, int64_t *lo, int64_t *hi) {
  int bits = 8 * itg_item_sizes[dtype];
  if (dtype == ITG_I2 || dtype == ITG_U2) bits = 2;
  if (dtype == ITG_I4 || dtype == ITG_U4) bits = 4;
  bool is_signed = (dtype >= ITG_I8 && dtype <= ITG_I64) || dtype == ITG_I4 || dtype == ITG_I2;
  *lo = is_signed ? -(INT64_C(1) << (bits - 1)) : 0;
  *hi = (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1;
}

static inline int64_t itg_f64_to_i64(double x) {  // toward zero, clamped; NaN is 0
  if (x != x) return 0;
  return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static inline void itg_store_i64(uint8_t dtype, void *data, int64_t i, int64_t v);

// Stores to integer types truncate toward zero and clamp to the range of the type.
static inline void itg_store_f64(uint8_t dtype, void *data, int64_t i, double v) {
  switch (dtype) {
    case ITG_F32: ((float *)data)[i] = (float)v; return;
    case ITG_F64: ((double *)data)[i] = v; return;
    case ITG_F16: ((uint16_t *)data)[i] = itg_f32_to_f16(itg_f64_to_f32_odd(v)); return;
    case ITG_BF16: ((uint16_t *)data)[i] = itg_f32_to_bf16((float)v); return;
    case ITG_BOOL: ((uint8_t *)data)[i] = v != 0; return;
    case ITG_I64: ((int64_t *)data)[i] = itg_f64_to_i64(v); return;
    case ITG_U64:
      ((uint64_t *)data)[i] = v >= 0x1p64 ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
      return;
    default: break;
  }
  if (itg_is_small_float(dtype)) {
    ((uint8_t *)data)[i] = itg_f32_to_small(dtype, (float)v, false);
    return;
  }
  int64_t lo, hi, x = itg_f64_to_i64(v);
  itg_limits(dtype, &lo, &hi);
  itg_store_i64(dtype, data, i, x < lo ? lo : x > hi ? hi : x);
}

// ---- as int64: u64 keeps its bits ---------------------------------------------------------------
static inline int64_t itg_load_i64(uint8_t dtype, const void *data, int64_t i) {
  switch (dtype) {
    case ITG_I8: return ((const int8_t *)data)[i];
    case ITG_U8: return ((const uint8_t *)data)[i];
    case ITG_I4:
      return ((((const uint8_t *)data)[i] & 15) ^ 8) -
             8;  // the upper bits of the byte mean nothing
    case ITG_U4: return ((const uint8_t *)data)[i] & 15;
    case ITG_I2: return ((((const uint8_t *)data)[i] & 3) ^ 2) - 2;
    case ITG_U2: return ((const uint8_t *)data)[i] & 3;
    case ITG_BOOL: return ((const uint8_t *)data)[i] != 0;
    case ITG_I16: return ((const int16_t *)data)[i];
    case ITG_U16: return ((const uint16_t *)data)[i];
    case ITG_I32: return ((const int32_t *)data)[i];
    case ITG_U32: return ((const uint32_t *)data)[i];
    case ITG_I64: return ((const int64_t *)data)[i];
    case ITG_U64: return (int64_t)((const uint64_t *)data)[i];
    default: return itg_f64_to_i64(itg_load_f64(dtype, data, i));
  }
}

// Integers keep their low bits, as in numpy.
static inline void itg_store_i64(uint8_t dtype, void *data, int64_t i, int64_t v) {
  switch (dtype) {
    case ITG_I8:
    case ITG_U8: ((uint8_t *)data)[i] = (uint8_t)v; return;
    case ITG_I4:
    case ITG_U4: ((uint8_t *)data)[i] = (uint8_t)(v & 15); return;
    case ITG_I2:
    case ITG_U2: ((uint8_t *)data)[i] = (uint8_t)(v & 3); return;
    case ITG_BOOL: ((uint8_t *)data)[i] = v != 0; return;
    case ITG_I16:
    case ITG_U16: ((uint16_t *)data)[i] = (uint16_t)v; return;
    case ITG_I32:
    case ITG_U32: ((uint32_t *)data)[i] = (uint32_t)v; return;
    case ITG_I64:
    case ITG_U64: ((uint64_t *)data)[i] = (uint64_t)v; return;
    default: itg_store_f64(dtype, data, i, (double)v); return;
  }
}

// ---- kinds of types -----------------------------------------------------------------------------
static inline bool itg_is_float(uint8_t dtype) {
  return (dtype >= ITG_F32 && dtype <= ITG_BF16) || itg_is_small_float(dtype);
}
static inline bool itg_is_wide_float(uint8_t dtype) {
  return dtype >= ITG_F32 && dtype <= ITG_BF16;
}
static inline bool itg_is_index(uint8_t dtype) { return dtype == ITG_I32 || dtype == ITG_I64; }
