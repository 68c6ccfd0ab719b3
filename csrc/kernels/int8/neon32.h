// What 8-bit kernels use of 64-bit ARM, for 32-bit ARM with NEON: the same names.
#pragma once
#include <arm_neon.h>

// Rounds half to even; beyond 2^21, where every byte is saturated, to 2^21. NaN becomes a large
// number.
INLINE int32x4_t vcvtnq_s32_f32(float32x4_t y) {
  const float32x4_t most = vdupq_n_f32(2097152.f), magic = vdupq_n_f32(12582912.f);
  y = vaddq_f32(vminq_f32(vmaxq_f32(y, vnegq_f32(most)), most), magic);
  return vsubq_s32(vreinterpretq_s32_f32(y), vreinterpretq_s32_f32(magic));
}

#define vmull_high_s8(a, b) vmull_s8(vget_high_s8(a), vget_high_s8(b))
#define vmlal_high_s8(sum, a, b) vmlal_s8(sum, vget_high_s8(a), vget_high_s8(b))
#define vmlal_high_s16(sum, a, b) vmlal_s16(sum, vget_high_s16(a), vget_high_s16(b))
#define vmovl_high_s8(v) vmovl_s8(vget_high_s8(v))
#define vmovl_high_u8(v) vmovl_u8(vget_high_u8(v))
#define vmovl_high_s16(v) vmovl_s16(vget_high_s16(v))
#define vaddw_high_s8(sum, v) vaddw_s8(sum, vget_high_s8(v))
#define vaddw_high_s16(sum, v) vaddw_s16(sum, vget_high_s16(v))
#define vqmovn_high_s32(low, v) vcombine_s16(low, vqmovn_s32(v))
#define vqmovn_high_s16(low, v) vcombine_s8(low, vqmovn_s16(v))
#define vqmovun_high_s16(low, v) vcombine_u8(low, vqmovun_s16(v))
#define vdupq_laneq_s32(v, lane)                            \
  ((lane) < 2 ? vdupq_lane_s32(vget_low_s32(v), (lane) & 1) \
              : vdupq_lane_s32(vget_high_s32(v), (lane) & 1))

INLINE int32x4_t vpaddq_s32(int32x4_t a, int32x4_t b) {
  return vcombine_s32(vpadd_s32(vget_low_s32(a), vget_high_s32(a)),
                      vpadd_s32(vget_low_s32(b), vget_high_s32(b)));
}

INLINE int8_t vminvq_s8(int8x16_t v) {
  int8x8_t least = vpmin_s8(vget_low_s8(v), vget_high_s8(v));
  least = vpmin_s8(least, least);
  least = vpmin_s8(least, least);
  return vget_lane_s8(vpmin_s8(least, least), 0);
}

INLINE uint32_t vminvq_u32(uint32x4_t v) {
  const uint32x2_t least = vpmin_u32(vget_low_u32(v), vget_high_u32(v));
  return vget_lane_u32(vpmin_u32(least, least), 0);
}

// 64 bytes of a table; an index past them takes `old`, or zero.
typedef struct vq_table {
  uint8x8x4_t low, high;
} vq_table;

INLINE vq_table vq_table_at(const uint8_t *p) {
  vq_table t;
  for (int i = 0; i < 4; i++)
    t.low.val[i] = vld1_u8(p + 8 * i), t.high.val[i] = vld1_u8(p + 32 + 8 * i);
  return t;
}

INLINE uint8x8_t vq_table_eight(uint8x8_t old, const vq_table *t, uint8x8_t at) {
  return vtbx4_u8(vtbx4_u8(old, t->low, at), t->high, vsub_u8(at, vdup_n_u8(32)));
}

INLINE uint8x16_t vqtbx4q_u8(uint8x16_t old, vq_table t, uint8x16_t at) {
  return vcombine_u8(vq_table_eight(vget_low_u8(old), &t, vget_low_u8(at)),
                     vq_table_eight(vget_high_u8(old), &t, vget_high_u8(at)));
}
#define vqtbl4q_u8(t, at) vqtbx4q_u8(vdupq_n_u8(0), t, at)
#define vld1q_u8_x4 vq_table_at

INLINE int8x16x4_t vld1q_s8_x4(const int8_t *p) {
  return (int8x16x4_t){{vld1q_s8(p), vld1q_s8(p + 16), vld1q_s8(p + 32), vld1q_s8(p + 48)}};
}
