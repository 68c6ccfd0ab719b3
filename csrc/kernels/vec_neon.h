// The vector operations of vec.h for ARM: 64-bit, whose every CPU has NEON, and 32-bit with VFPv4
// (ISA_armv7), which lacks divisions, roundings and sums across lanes. Subnormals are zeros there.
#pragma once
#include <arm_neon.h>
typedef float32x4_t vf;
typedef uint32x4_t vi;
typedef uint32x4_t vm;
enum { VL = 4 };
#define ITG_VECTORS
static inline vm vfirst(int64_t n) {  // all bits of the first n lanes
  static const int32_t lane[4] = {0, 1, 2, 3};
  return vcltq_s32(vld1q_s32(lane), vdupq_n_s32((int32_t)n));
}
#define vload(p) vld1q_f32(p)
#define vstore(p, v) vst1q_f32(p, v)
static inline vf vloadn(const float *p, int64_t n) {
  vf v = vdupq_n_f32(0.f);
  if (n & 2) v = vcombine_f32(vld1_f32(p), vget_high_f32(v));
  if (n == 1) v = vld1q_lane_f32(p, v, 0);
  if (n == 3) v = vld1q_lane_f32(p + 2, v, 2);
  return v;
}
static inline void vstoren(float *p, int64_t n, vf v) {
  if (n & 2) vst1_f32(p, vget_low_f32(v));
  if (n == 1) vst1q_lane_f32(p, v, 0);
  if (n == 3) vst1q_lane_f32(p + 2, v, 2);
}
#define vset(c) vdupq_n_f32(c)
#define vadd vaddq_f32
#define vsub vsubq_f32
#define vmul vmulq_f32
#define vfma(a, b, c) vfmaq_f32(c, a, b)
#define vabs vabsq_f32
#define vneg vnegq_f32
#define vlt vcltq_f32
#define vle vcleq_f32
#define vgt vcgtq_f32
#define vge vcgeq_f32
#define veq vceqq_f32
#define vne(a, b) vmvnq_u32(vceqq_f32(a, b))
#define vselect vbslq_f32
static inline vf vmin(vf a, vf b) { return vselect(vlt(a, b), a, b); }
static inline vf vmax(vf a, vf b) { return vselect(vgt(a, b), a, b); }
#define vand vandq_u32
#define vor vorrq_u32
#define vnot vmvnq_u32
#define vbits vreinterpretq_u32_f32
#define vfloats vreinterpretq_f32_u32
#define viset(c) vdupq_n_u32((uint32_t)(c))
#define viadd vaddq_u32
#define visub vsubq_u32
#define viand vandq_u32
#define vior vorrq_u32
#define vixor veorq_u32
#define vishl(a, n) vshlq_u32(a, vdupq_n_s32(n))
#define vishr(a, n) vshlq_u32(a, vdupq_n_s32(-(n)))
#define visar(a, n) vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(a), vdupq_n_s32(-(n))))
#define vitof(a) vcvtq_f32_s32(vreinterpretq_s32_u32(a))
#define vload_f16(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#define vload_bf16(p) vfloats(vshll_n_u16(vld1_u16(p), 16))
#define vstore_f16(p, v) vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)))
static inline vm vloadm(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  const uint16x8_t bytes = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
  const uint32x4_t lanes = vmovl_u16(vget_low_u16(bytes));
  return vtstq_u32(lanes, lanes);
}
static inline void vstorem(uint8_t *p, vm m) {
  const uint16x4_t half = vmovn_u32(vandq_u32(m, viset(1)));
  const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(half, half))), 0);
  memcpy(p, &four, sizeof four);
}
#if defined(ISA_armv7)
#define ITG_EACH(f) \
  (vf) { f(a[0]), f(a[1]), f(a[2]), f(a[3]) }
static inline vf vdiv(vf a, vf b) {
  return (vf){a[0] / b[0], a[1] / b[1], a[2] / b[2], a[3] / b[3]};
}
static inline vf vsqrt(vf a) { return ITG_EACH(sqrtf); }
#undef ITG_EACH
// To whole numbers, of which all above 2^23 are. Zeros keep their signs.
static inline vf vec_signed(vf whole, vf a) {
  const vi sign = vdupq_n_u32(0x80000000u);
  const vf y = vbslq_f32(sign, a, whole);
  return vbslq_f32(vcltq_f32(vabsq_f32(a), vdupq_n_f32(8388608.f)), y, a);
}
static inline vf vround(vf a) {
  const vf big = vbslq_f32(vdupq_n_u32(0x80000000u), a, vdupq_n_f32(8388608.f));
  return vec_signed(vsubq_f32(vaddq_f32(a, big), big), a);
}
static inline vf vec_down(vf a, vf by) {  // by 1: floor, by -1: ceil
  const vf t = vcvtq_f32_s32(vcvtq_s32_f32(a));
  const vm past = vcgtq_f32(vmulq_f32(t, by), vmulq_f32(a, by));
  return vec_signed(vbslq_f32(past, vsubq_f32(t, by), t), a);
}
#define vfloor(a) vec_down(a, vset(1.f))
#define vceil(a) vec_down(a, vset(-1.f))
static inline int vany(vm m) {
  const uint32x2_t h = vorr_u32(vget_low_u32(m), vget_high_u32(m));
  return vget_lane_u32(vpmax_u32(h, h), 0) != 0;
}
#define ITG_FOLD(name, fold, pairs)                                \
  static inline float name(vf a) {                                 \
    const float32x2_t h = fold(vget_low_f32(a), vget_high_f32(a)); \
    return vget_lane_f32(pairs(h, h), 0);                          \
  }
ITG_FOLD(vsum, vadd_f32, vpadd_f32)
ITG_FOLD(vhmax, vmax_f32, vpmax_f32)
ITG_FOLD(vhmin, vmin_f32, vpmin_f32)
#undef ITG_FOLD
#else
#define vdiv vdivq_f32
#define vsqrt vsqrtq_f32
#define vround vrndnq_f32
#define vfloor vrndmq_f32
#define vceil vrndpq_f32
#define vany(m) (vmaxvq_u32(m) != 0)
#define vsum vaddvq_f32
#define vhmax vmaxvq_f32
#define vhmin vminvq_f32
#endif
