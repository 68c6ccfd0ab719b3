// Vectors of f16 whose arithmetic is that of f16: NEON with FEAT_FP16 (Armv8.2), RVV with Zvfh.
// Included by the f16 forms of products and depthwise convolutions; a source that defines ITG_VLH
// chooses the length of RVV's. `vh` holds VLH halves, which are uint16_t in memory.
//
//   hload(p)                 hsome(p, n) hkeep(p, n, v) load and store the first n <= VLH
//   hset(c) hzero            of a float; hdup(p) of the half at p
//   hfma(a, b, c)            a * b + c, rounded once to f16
//   hclamp(lo, hi, y)        keeps a NaN of y
//   hmax(a, b)               NaN if either is NaN
//   hwide(v, i)              halves [i * VL, (i + 1) * VL) as floats
//   hnarrow(f)               of the floats f[VLH / VL], rounded half to even
//   ITG_HALVES               defined where there is such arithmetic
#pragma once
#include "vec.h"

#if defined(ISA_neonfp16)
#define ITG_HALVES
typedef float16x8_t vh;
enum { VLH = 8 };
#define hload(p) vreinterpretq_f16_u16(vld1q_u16(p))
#define hstore(p, v) vst1q_u16(p, vreinterpretq_u16_f16(v))
#define hset(c) vdupq_n_f16((float16_t)(c))
#define hdup(p) vreinterpretq_f16_u16(vld1q_dup_u16(p))
#define hfma(a, b, c) vfmaq_f16(c, a, b)
#define hclamp(lo, hi, y) vminq_f16(hi, vmaxq_f16(lo, y))
#define hmax(a, b) vmaxq_f16(a, b)
#define hwide(v, i) ((i) ? vcvt_high_f32_f16(v) : vcvt_f32_f16(vget_low_f16(v)))
#define hnarrow(f) vcvt_high_f16_f32(vcvt_f16_f32((f)[0]), (f)[1])
static inline vh hsome(const uint16_t *p, int64_t n) {
  if (n >= VLH) return hload(p);
  uint16_t t[VLH] = {0};
  if (n == 4) memcpy(t, p, 4 * sizeof *t);
  else memcpy(t, p, (size_t)n * sizeof *t);
  return hload(t);
}
static inline void hkeep(uint16_t *p, int64_t n, vh v) {
  if (n >= VLH) {
    hstore(p, v);
    return;
  }
  uint16_t t[VLH];
  hstore(t, v);
  memcpy(p, t, (size_t)n * sizeof *t);
}
#elif defined(ISA_rvvfp16)
#define ITG_HALVES
#ifndef ITG_VLH
#define ITG_VLH 16
#endif
enum { VLH = ITG_VLH };
typedef _Float16 vh __attribute__((ext_vector_type(ITG_VLH)));
typedef _Float16 vh_any __attribute__((ext_vector_type(ITG_VLH), aligned(2), may_alias));
typedef int16_t vec_hm __attribute__((ext_vector_type(ITG_VLH)));  // -1 and 0
#define hload(p) (*(const vh_any *)(p))
#define hstore(p, v) (*(vh_any *)(p) = (v))
#define hset(c) ((vh)(_Float16)(c))
#define hdup(p) ((vh)(*(const _Float16 __attribute__((may_alias)) *)(p)))
#define hfma(a, b, c) __builtin_elementwise_fma(a, b, c)
static inline vh hclamp(vh lo, vh hi, vh y) {
  y = (vec_hm)(lo > y) ? lo : y;
  return (vec_hm)(hi < y) ? hi : y;
}
static inline vh hmax(vh a, vh b) {
  a = (vec_hm)(b > a) ? b : a;
  return (vec_hm)(b != b) ? b : a;  // a NaN of a is never less than b
}
#if ITG_VLH == 16
#define hwide(v, i) vec_to(v, vf)
#define hnarrow(f) vec_to((f)[0], vh)
#else
#define hwide(v, i) vec_to((i) ? (v).hi : (v).lo, vf)
static inline vh hnarrow(const vf *f) {
  typedef _Float16 part __attribute__((ext_vector_type(ITG_VLH / 2)));
  vh v;
  v.lo = vec_to(f[0], part);
  v.hi = vec_to(f[1], part);
  return v;
}
#endif
static inline vh hsome(const uint16_t *p, int64_t n) {
  if (n >= VLH) return hload(p);
  uint16_t t[VLH] = {0};
  __riscv_vse16_v_u16m4(t, __riscv_vle16_v_u16m4(p, (size_t)n), (size_t)n);
  return hload(t);
}
static inline void hkeep(uint16_t *p, int64_t n, vh v) {
  if (n >= VLH) {
    hstore(p, v);
    return;
  }
  uint16_t t[VLH];
  hstore(t, v);
  __riscv_vse16_v_u16m4(p, __riscv_vle16_v_u16m4(t, (size_t)n), (size_t)n);
}
#endif
