// NEON: 64-bit Arm with or without dot products, and 32-bit Arm.
//
// Rows of weights are interleaved in eights, four bytes of each at a time, so that a lane of a sum
// is a row. Rows and windows are padded to four bytes with zeros; the last rows are not
// interleaved.
#ifndef ITG_NEON_H
#define ITG_NEON_H

#include <arm_neon.h>

#define ITG_ROWS 8
#if defined(__aarch64__)
#define ITG_COLS 4
#else
#define ITG_COLS 2  // as many sums as fit 16 registers
#endif
#define ITG_MORE_COLS ITG_COLS
#define ITG_BIAS_FIRST 1
#define ITG_DIRECT 1
#define ITG_COL_UNIT 4

typedef int8_t itg_col;

ITG_INLINE void itg_expand(itg_col *to, const int8_t *from, int32_t n, uint32_t flip) {
  const int8x16_t flips = vdupq_n_s8((int8_t)flip);
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) vst1q_s8(to + i, veorq_s8(vld1q_s8(from + i), flips));
  for (; i < n; i++) to[i] = (int8_t)((uint8_t)from[i] ^ flip);
}

ITG_INLINE int8x16_t itg_four(const int8_t *p) {  // four bytes in every lane
  int32_t v;
  memcpy(&v, p, sizeof v);
  return vreinterpretq_s8_s32(vdupq_n_s32(v));
}

// Sums of four rows. Without dot products they are those of bytes 0 and 1, and of 2 and 3.
#if defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t itg_four_rows;
ITG_INLINE void itg_add_four(itg_four_rows *sum, int8x16_t w, int8x16_t x) {
  *sum = vdotq_s32(*sum, w, x);
}
ITG_INLINE int32x4_t itg_total(itg_four_rows sum) { return sum; }
#define ITG_ZERO_ROWS vdupq_n_s32(0)
#else
typedef struct {
  int32x4_t low, high;
} itg_four_rows;
ITG_INLINE void itg_add_four(itg_four_rows *sum, int8x16_t w, int8x16_t x) {
  sum->low = vpadalq_s16(sum->low, vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  sum->high = vpadalq_s16(sum->high, vmull_s8(vget_high_s8(w), vget_low_s8(x)));
}
ITG_INLINE int32x4_t itg_total(itg_four_rows s) {
  return vcombine_s32(vpadd_s32(vget_low_s32(s.low), vget_high_s32(s.low)),
                      vpadd_s32(vget_low_s32(s.high), vget_high_s32(s.high)));
}
#define ITG_ZERO_ROWS ((itg_four_rows){vdupq_n_s32(0), vdupq_n_s32(0)})
#endif

ITG_INLINE int32_t itg_one_row(const int8_t *w, const itg_col *x, int32_t k) {
  itg_four_rows sum = ITG_ZERO_ROWS;
  int32_t i = 0, rest = 0;
  for (; i + 16 <= k; i += 16) {
    const int8x16_t u = vld1q_s8(w + i), v = vld1q_s8(x + i);
#if defined(__ARM_FEATURE_DOTPROD)
    sum = vdotq_s32(sum, u, v);
#else
    sum.low = vpadalq_s16(sum.low, vmull_s8(vget_low_s8(u), vget_low_s8(v)));
    sum.high = vpadalq_s16(sum.high, vmull_s8(vget_high_s8(u), vget_high_s8(v)));
#endif
  }
  for (; i < k; i++) rest += w[i] * x[i];
  const int32x4_t s = itg_total(sum);
  const int32x2_t two = vadd_s32(vget_low_s32(s), vget_high_s32(s));
  return rest + vget_lane_s32(vpadd_s32(two, two), 0);
}

ITG_INLINE const int8_t *itg_block(int32_t *sum, const int8_t *w, const itg_col *const *x,
                                   int32_t k, int rows, int cols) {
  const int32_t whole = ITG_ROUND_UP(k, ITG_COL_UNIT);
  if (rows == 1) {
    *sum += itg_one_row(w, x[0], k);
    return w + whole;
  }
  itg_four_rows s[ITG_COLS][2];
  ITG_UNROLL
  for (int j = 0; j < cols; j++) s[j][0] = s[j][1] = ITG_ZERO_ROWS;
  for (int32_t i = 0; i < whole; i += 4, w += 32) {
    const int8x16_t u = vld1q_s8(w), v = vld1q_s8(w + 16);
    ITG_UNROLL
    for (int j = 0; j < cols; j++) {
      const int8x16_t p = itg_four(x[j] + i);
      itg_add_four(&s[j][0], u, p);
      itg_add_four(&s[j][1], v, p);
    }
  }
  ITG_UNROLL
  for (int j = 0; j < 2 * cols; j++) {
    int32_t *to = sum + 4 * j;
    vst1q_s32(to, vaddq_s32(vld1q_s32(to), itg_total(s[j / 2][j % 2])));
  }
  return w;
}

// Rounds half to even. On 32-bit Arm, numbers beyond 2^21 become 2^21: every byte is saturated.
ITG_INLINE int32x4_t itg_nearest(float32x4_t y) {
#if defined(__aarch64__)
  return vcvtnq_s32_f32(y);
#else
  const float32x4_t most = vdupq_n_f32(2097152.0f), magic = vdupq_n_f32(ITG_MAGIC);
  y = vaddq_f32(vminq_f32(vmaxq_f32(y, vnegq_f32(most)), most), magic);
  return vsubq_s32(vreinterpretq_s32_f32(y), vdupq_n_s32(ITG_MAGIC_BITS));
#endif
}

ITG_INLINE int16x4_t itg_scaled(int32x4_t sum, float32x4_t by) {
  return vqmovn_s32(itg_nearest(vmulq_f32(vcvtq_f32_s32(sum), by)));
}

// Conversions to 16 and 8 bits saturate.
ITG_INLINE int8x8_t itg_eight_bytes(int16x4_t low, int16x4_t high, int32_t zero, uint32_t flip) {
  const int16x8_t v = vqaddq_s16(vcombine_s16(low, high), vdupq_n_s16((int16_t)zero));
  return veor_s8(vqmovn_s16(v), vdup_n_s8((int8_t)flip));
}

ITG_INLINE void itg_finish(const int32_t *sum, const int32_t *bias, int n, const float *scale,
                           int32_t per, int32_t zero, uint32_t flip, uint32_t exact, int8_t *y) {
  (void)bias;
  if (n == 8) {
    const float32x4_t one = vdupq_n_f32(*scale);
    const float32x4_t low = per ? vld1q_f32(scale) : one, high = per ? vld1q_f32(scale + 4) : one;
    vst1_s8(y, itg_eight_bytes(itg_scaled(vld1q_s32(sum), low),
                               itg_scaled(vld1q_s32(sum + 4), high), zero, flip));
    return;
  }
  for (int i = 0; i < n; i++) {
    y[i] = (int8_t)((uint32_t)itg_requant(sum[i], scale[i * per], zero, exact) ^ flip);
  }
}

#include "itg_scalar_lanes.h"

ITG_INLINE void itg_lanes_add(itg_lanes *s, const int8_t *x, const int8_t *w, uint32_t flip,
                              int n) {
  for (int i = 0; i < n; i++) s->of[i] += itg_load(x + i, flip) * w[i];
}

// Eight sums of a depthwise convolution.
#define ITG_EIGHT 1

typedef struct {
  int32x4_t low, high;
} itg_eight;

ITG_INLINE itg_eight itg_eight_start(const int32_t *bias) {
  const itg_eight s = {vld1q_s32(bias), vld1q_s32(bias + 4)};
  return s;
}

ITG_INLINE int16x8_t itg_eight_products(const int8_t *x, const int8_t *w) {
  return vmull_s8(vld1_s8(x), vld1_s8(w));
}

// Products of 16 bits, or sums of two: these fit where no weight is -128.
ITG_INLINE void itg_eight_add(itg_eight *s, int16x8_t v) {
  s->low = vaddw_s16(s->low, vget_low_s16(v));
  s->high = vaddw_s16(s->high, vget_high_s16(v));
}

ITG_INLINE void itg_eight_finish(const itg_eight *s, const float *scale, int32_t zero,
                                 uint32_t flip, int8_t *y) {
  const int16x4_t low = itg_scaled(s->low, vld1q_f32(scale));
  vst1_s8(y, itg_eight_bytes(low, itg_scaled(s->high, vld1q_f32(scale + 4)), zero, flip));
}

#endif
