// The vectors of qvec.h for ARM: QL = 4 lanes of 32 bits. Products are of signed bytes, so
// inputs are i8: as u8 they are VQ_LESS more, and the sums miss VQ_LESS times those of the weights.
// vq_dot is sdot, or without it products of 16 bits whose pairs are added.
#pragma once
#if defined(ISA_armv7)
#include "neon32.h"
#endif
typedef vi vq;
enum { QL = 4, QBYTES = 16, VQ_LESS = 128 };
#define vq_load(p) vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)(p)))
#define vq_store(p, v) vst1q_u8((uint8_t *)(p), vreinterpretq_u8_u32(v))
#define vq_set(x) vdupq_n_u32((uint32_t)(x))
#define vq_xor veorq_u32
#define vq_and vandq_u32
#define vq_add vaddq_u32
#define vq_mul vmulq_u32
#define vq_signed vreinterpretq_s32_u32
#define vq_unsigned vreinterpretq_u32_s32
#define vq_floats(sum) vcvtq_f32_s32(vq_signed(sum))
#define vq_rounded(y) vq_unsigned(vcvtnq_s32_f32(y))
typedef int8x16_t vq_four;
#define vq_weights vreinterpretq_s8_u32
#define vq_inputs vreinterpretq_s8_u32

// Adds the products of bytes to the sums of eight pairs each: `pairs[0]` holds those of the lower
// half of the lanes.
INLINE void vq_pairs(int32x4_t pairs[2], int8x16_t x, int8x16_t w) {
  pairs[0] = vpadalq_s16(pairs[0], vmull_s8(vget_low_s8(x), vget_low_s8(w)));
  pairs[1] = vpadalq_s16(pairs[1], vmull_high_s8(x, w));
}

INLINE vq vq_dot(vq sum, vq_four x, vq_four w) {
#if defined(ISA_dotprod)
  return vq_unsigned(vdotq_s32(vq_signed(sum), x, w));
#else
  const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(w)), high = vmull_high_s8(x, w);
  return vq_add(sum, vq_unsigned(vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high))));
#endif
}

// Adds the weights of a packed row, four bytes along k by 16 columns.
INLINE void vq_add_row(vq sum[4], const int8_t *w) {
  FOR_UNROLLED (4, int v = 0; v < 4; v++)
    sum[v] = vq_dot(sum[v], vdupq_n_s8(1), vld1q_s8(w + 16 * v));
}

// ---- requantisation -----------------------------------------------------------------------------
typedef struct vq_end {  // of a call, in registers. Numbers become i8; for u8 they are 128 less.
  int16x8_t zero;
  int8x16_t lo, hi;
  int8x16_t flip;  // makes i8 the result's type
} vq_end;

INLINE vq_end vq_end_of(const itg_requantize *q) {
  const int less = q->high ? 0 : 128;
  const int lo = (int)q->lo + q->zero - less, hi = (int)q->hi + q->zero - less;
  return (vq_end){vdupq_n_s16((int16_t)(q->zero - less)),
                  vdupq_n_s8((int8_t)(lo < -128 ? -128 : lo)),
                  vdupq_n_s8((int8_t)(hi > 127 ? 127 : hi)), vdupq_n_s8((int8_t)less)};
}

// No bounds but those of i8, which conversions enforce.
INLINE bool vq_is_bare(const itg_requantize *q) {
  return q->high && q->lo + (float)q->zero <= -128 && q->hi + (float)q->zero >= 127;
}

INLINE uint8x16_t vq_bounded(int8x16_t bytes, vq_end end, bool bare) {
  if (!bare) bytes = veorq_s8(vminq_s8(vmaxq_s8(bytes, end.lo), end.hi), end.flip);
  return vreinterpretq_u8_s8(bytes);
}

// Rounds 16 scaled sums and narrows them to bytes. Conversions saturate, so that bounds come last.
INLINE int8x16_t vq_narrow(const vf *y, vq_end end) {
  int16x8_t a = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(y[0])), vcvtnq_s32_f32(y[1]));
  int16x8_t b = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(y[2])), vcvtnq_s32_f32(y[3]));
  a = vqaddq_s16(a, end.zero);
  b = vqaddq_s16(b, end.zero);
  return vqmovn_high_s16(vqmovn_s16(a), b);
}

INLINE uint8x16_t vq_bytes(const vf *y, vq_end end) {
  return vq_bounded(vq_narrow(y, end), end, false);
}

// table[byte] for every byte, with 256 entries.
INLINE uint8x16_t vq_lookup(uint8x16_t bytes, const uint8_t *table) {
  const uint8x16_t next = vdupq_n_u8(64);
  uint8x16_t found = vqtbl4q_u8(vld1q_u8_x4(table), bytes);
  for (int i = 1; i < 4; i++) {
    bytes = vsubq_u8(bytes, next);
    found = vqtbx4q_u8(found, vld1q_u8_x4(table + 64 * i), bytes);
  }
  return found;
}

typedef struct vq_residual {  // how residuals become floats, in registers
  uint8x16_t flip;
  int16x8_t zero;
  vf scale;
} vq_residual;

INLINE vq_residual vq_residual_of(const itg_requantize *q) {
  return (vq_residual){vdupq_n_u8((uint8_t)q->r_high), vdupq_n_s16((int16_t)q->r_zero),
                       vdupq_n_f32(q->r_scale)};
}

// Dequantises 16 bytes of a residual and adds them to scaled sums.
INLINE void vq_add_residual(vq_residual r, const uint8_t *from, vf *y) {
  const uint8x16_t bytes = veorq_u8(vld1q_u8(from), r.flip);
  const int16x8_t a = vsubq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))), r.zero),
                  b = vsubq_s16(vreinterpretq_s16_u16(vmovl_high_u8(bytes)), r.zero);
  y[0] = vadd(y[0], vmul(vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))), r.scale));
  y[1] = vadd(y[1], vmul(vcvtq_f32_s32(vmovl_high_s16(a)), r.scale));
  y[2] = vadd(y[2], vmul(vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))), r.scale));
  y[3] = vadd(y[3], vmul(vcvtq_f32_s32(vmovl_high_s16(b)), r.scale));
}

// Stores the first n of 16 bytes.
INLINE void vq_put_some(uint8_t *to, uint8x16_t bytes, int64_t n) {
  if (n == 16) {
    vst1q_u8(to, bytes);
    return;
  }
  uint8x8_t eight = vget_low_u8(bytes);
  if (n & 8) {
    vst1_u8(to, eight);
    to += 8;
    eight = vget_high_u8(bytes);
  }
  for (int64_t i = n & 7; i > 0; i--) {
    *to++ = vget_lane_u8(eight, 0);
    eight = vext_u8(eight, eight, 1);
  }
}
