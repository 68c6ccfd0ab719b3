// Helium: 16 products of bytes an instruction, four floats.
//
// Rows of weights are interleaved in fours, 16 bytes of each at a time; the last bytes of a row
// are not padded.
#ifndef ITG_HELIUM_H
#define ITG_HELIUM_H

#include <arm_mve.h>

#define ITG_ROWS 4
#define ITG_COLS 1
#define ITG_BIAS_FIRST 0
#define ITG_DIRECT 1
#define ITG_COL_UNIT 1

typedef int8_t itg_col;

ITG_INLINE void itg_expand(itg_col *to, const int8_t *from, int32_t n, uint32_t flip) {
  const int8x16_t flips = vdupq_n_s8((int8_t)flip);
  for (; n > 0; n -= 16, to += 16, from += 16) {
    const mve_pred16_t p = vctp8q((uint32_t)n);
    vstrbq_p_s8(to, veorq_s8(vldrbq_z_s8(from, p), flips), p);
  }
}

// 16 bytes; the compiler would else keep one pointer for four loads and move it.
ITG_INLINE int8x16_t itg_next(const int8_t **p) {
  int8x16_t v;
  __asm volatile("vldrb.8 %q0, [%1], #16" : "=w"(v), "+l"(*p) : : "memory");
  return v;
}

// Lanes of the window past its end are zero, so weights may be read past a row; deploy pads the
// end of all weights.
ITG_INLINE const int8_t *itg_block(int32_t *sum, const int8_t *w, const itg_col *const *x,
                                   int32_t k, int rows, int cols) {
  const itg_col *p = x[0];
  (void)cols;
  if (rows == 4) {
    int32_t a = sum[0], b = sum[1], c = sum[2], d = sum[3];
    for (int32_t blocks = k >> 4; blocks > 0; blocks--) {
      const int8x16_t v = itg_next(&p);
      a = vmladavaq_s8(a, v, itg_next(&w));
      b = vmladavaq_s8(b, v, itg_next(&w));
      c = vmladavaq_s8(c, v, itg_next(&w));
      d = vmladavaq_s8(d, v, itg_next(&w));
    }
    const int32_t rest = k & 15;
    if (rest) {
      const int8x16_t v = vldrbq_z_s8(p, vctp8q((uint32_t)rest));
      a = vmladavaq_s8(a, v, vldrbq_s8(w));
      w += rest;
      b = vmladavaq_s8(b, v, vldrbq_s8(w));
      w += rest;
      c = vmladavaq_s8(c, v, vldrbq_s8(w));
      w += rest;
      d = vmladavaq_s8(d, v, vldrbq_s8(w));
      w += rest;
    }
    sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
    return w;
  }
  int32_t a = sum[0];
  const int8_t *u = w;
  for (int32_t left = k; left > 0; left -= 16, p += 16, u += 16) {
    a = vmladavaq_s8(a, vldrbq_z_s8(p, vctp8q((uint32_t)left)), vldrbq_s8(u));
  }
  sum[0] = a;
  return w + k;
}

typedef int32x4_t itg_lanes;

// VCVTN rounds half to even and saturates; the zero point is added with saturation too.
ITG_INLINE int32x4_t itg_round_lanes(float32x4_t v, int32_t zero, uint32_t flip) {
  int32x4_t r = vqaddq_n_s32(vcvtnq_s32_f32(v), zero);
  r = vminq_s32(vmaxq_s32(r, vdupq_n_s32(-128)), vdupq_n_s32(127));
  return veorq_s32(r, vdupq_n_s32((int32_t)flip));
}

ITG_INLINE void itg_lanes_finish(const itg_lanes *s, int n, const float *scale, int32_t per,
                                 int32_t zero, uint32_t flip, uint32_t exact, int8_t *y) {
  (void)exact;
  const mve_pred16_t some = vctp32q((uint32_t)n);
  float32x4_t by = vdupq_n_f32(*scale);
  if (per) by = n == 4 ? vldrwq_f32(scale) : vldrwq_z_f32(scale, some);
  const int32x4_t r = itg_round_lanes(vmulq_f32(vcvtq_f32_s32(*s), by), zero, flip);
  if (n == 4) {
    vstrbq_s32(y, r);
  } else {
    vstrbq_p_s32(y, r, some);
  }
}

ITG_INLINE void itg_finish(const int32_t *sum, const int32_t *bias, int n, const float *scale,
                           int32_t per, int32_t zero, uint32_t flip, uint32_t exact, int8_t *y) {
  if (n == 1) {
    *y = (int8_t)((uint32_t)itg_requant(*sum + *bias, *scale, zero, exact) ^ flip);
    return;
  }
  const itg_lanes s = vaddq_s32(vldrwq_s32(sum), vldrwq_s32(bias));
  itg_lanes_finish(&s, 4, scale, per, zero, flip, exact, y);
}

ITG_INLINE itg_lanes itg_lanes_start(const int32_t *bias, int n) {
  return n == 4 ? vldrwq_s32(bias) : vldrwq_z_s32(bias, vctp32q((uint32_t)n));
}

ITG_INLINE itg_lanes itg_lanes_sum(const itg_lanes *a, const itg_lanes *b) {
  return vaddq_s32(*a, *b);
}

ITG_INLINE void itg_lanes_add(itg_lanes *s, const int8_t *x, const int8_t *w, uint32_t flip,
                              int n) {
  const mve_pred16_t some = vctp32q((uint32_t)n);
  int32x4_t u = n == 4 ? vldrbq_s32(x) : vldrbq_z_s32(x, some);
  const int32x4_t v = n == 4 ? vldrbq_s32(w) : vldrbq_z_s32(w, some);
  if (flip) u = vsubq_n_s32(vandq_s32(u, vdupq_n_s32(255)), 128);
  *s = vaddq_s32(*s, vmulq_s32(u, v));
}

// Eight sums of a depthwise convolution: those of even channels and those of odd channels.
#define ITG_EIGHT 1

typedef struct {
  int32x4_t even, odd;
} itg_eight;

ITG_INLINE itg_eight itg_eight_start(const int32_t *bias) {
  const int32x4x2_t v = vld2q_s32(bias);
  const itg_eight s = {v.val[0], v.val[1]};
  return s;
}

ITG_INLINE int16x8_t itg_eight_products(const int8_t *x, const int8_t *w) {
  return vmulq_s16(vldrbq_s16(x), vldrbq_s16(w));
}

// Products of 16 bits, or sums of two: these fit where no weight is -128.
ITG_INLINE void itg_eight_add(itg_eight *s, int16x8_t v) {
  s->even = vaddq_s32(s->even, vmovlbq_s16(v));
  s->odd = vaddq_s32(s->odd, vmovltq_s16(v));
}

ITG_INLINE void itg_eight_finish(const itg_eight *s, const float *scale, int32_t zero,
                                 uint32_t flip, int8_t *y) {
  const float32x4x2_t by = vld2q_f32(scale);
  const int32x4_t even = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(s->even), by.val[0]));
  const int32x4_t odd = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(s->odd), by.val[1]));
  int16x8_t v = vqmovntq_s32(vqmovnbq_s32(vdupq_n_s16(0), even), odd);
  v = vqaddq_n_s16(v, (int16_t)zero);
  v = vminq_s16(vmaxq_s16(v, vdupq_n_s16(-128)), vdupq_n_s16(127));
  vstrbq_s16(y, veorq_s16(v, vdupq_n_s16((int16_t)flip)));
}

#endif
