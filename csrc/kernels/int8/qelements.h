// Loads quantised bytes as vectors of floats, and stores floats as bytes: clamp(rint(real) + zero).
#pragma once
#include "infer.h"
#include "qvec.h"

// Scale and zero of a quantised tensor. Bytes are handled as u8: xor with `flip` turns i8 into u8,
// and `less` is the zero of these u8.
typedef struct itg_quant {
  float scale;
  int less;
  uint8_t flip;  // 0x80 for i8
} itg_quant;

static inline itg_quant itg_quant_of(const itg_tensor *scale, const itg_tensor *zero) {
  const uint8_t flip = zero->dtype == ITG_I8 ? 0x80 : 0;
  return (itg_quant){(float)itg_load_f64(scale->dtype, scale->data, 0),
                     (int)itg_load_i64(zero->dtype, zero->data, 0) + flip, flip};
}

// The byte minus its zero.
static inline float itg_minus_zero(const itg_quant *q, uint8_t x) {
  return (float)((int)(x ^ q->flip) - q->less);
}

// The rounding rule of 8-bit arithmetic. The clamp is done in floats, so any number is allowed.
static inline uint8_t itg_byte_of(const itg_quant *q, float real) {
  const float y = rintf(real) + (float)q->less, above = y > 0 ? y : 0;
  return (uint8_t)((uint8_t)(int)(above < 255 ? above : 255) ^ q->flip);
}

// Bound of |x| for floats that are converted to i32 without a clamp.
#define ITG_CONVERTS 1e9f

#if defined(ISA_neon)
#define ITG_QELEMENTS
typedef struct qb_quant {
  uint8x8_t less;
  vq flip;
} qb_quant;

INLINE qb_quant qb_quant_of(const itg_quant *q) {
  return (qb_quant){vdup_n_u8((uint8_t)q->less), vq_set(q->flip * 0x01010101u)};
}

// Converts QBYTES bytes minus their zero to four vectors of floats, in their order.
INLINE void qb_floats(vq x, const qb_quant *q, vf y[4]) {
  const uint8x16_t bytes = vreinterpretq_u8_u32(vq_xor(x, q->flip));
  const int16x8_t low = vreinterpretq_s16_u16(vsubl_u8(vget_low_u8(bytes), q->less)),
                  high = vreinterpretq_s16_u16(vsubl_u8(vget_high_u8(bytes), q->less));
  y[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
  y[1] = vcvtq_f32_s32(vmovl_high_s16(low));
  y[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
  y[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

typedef struct qb_end {
  int16x8_t zero;
  vq flip;
} qb_end;

INLINE qb_end qb_end_of(const itg_quant *q) {
  return (qb_end){vdupq_n_s16((int16_t)q->less), vq_set(q->flip * 0x01010101u)};
}

// Rounds four vectors of floats to bytes. Narrowing saturates, so no clamp is needed.
INLINE vq qb_bytes(const vf y[4], const qb_end *end) {
  int16x8_t a = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(y[0])), vcvtnq_s32_f32(y[1]));
  int16x8_t b = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(y[2])), vcvtnq_s32_f32(y[3]));
  a = vqaddq_s16(a, end->zero);
  b = vqaddq_s16(b, end->zero);
  return vq_xor(vreinterpretq_u32_u8(vqmovun_high_s16(vqmovun_s16(a), b)), end->flip);
}
#define qb_in_order(bytes) (bytes)
#elif defined(ITG_QVECTORS)
#define ITG_QELEMENTS
#if defined(ISA_avx512)
#define qb_shuffle _mm512_shuffle_epi8
#define qb_sub32 _mm512_sub_epi32
#define qb_spread(p) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(p)))
#else
#define qb_shuffle _mm256_shuffle_epi8
#define qb_sub32 _mm256_sub_epi32
#define qb_spread(p) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(p)))
#endif

static const uint8_t itg_fours[4][16] = {
    // shuffles that widen bytes 4 i to 4 i + 3 of each 16 bytes to 32 bits
    {0, 128, 128, 128, 1, 128, 128, 128, 2, 128, 128, 128, 3, 128, 128, 128},
    {4, 128, 128, 128, 5, 128, 128, 128, 6, 128, 128, 128, 7, 128, 128, 128},
    {8, 128, 128, 128, 9, 128, 128, 128, 10, 128, 128, 128, 11, 128, 128, 128},
    {12, 128, 128, 128, 13, 128, 128, 128, 14, 128, 128, 128, 15, 128, 128, 128}};

typedef struct qb_quant {
  vq less, flip;
} qb_quant;

INLINE qb_quant qb_quant_of(const itg_quant *q) {
  return (qb_quant){vq_set(q->less), vq_set((int32_t)(q->flip * 0x01010101u))};
}

// Converts QBYTES bytes minus their zero to four vectors of floats. In each 128 bits, y[i] holds
// bytes 4 i to 4 i + 3. qb_bytes takes floats in this order.
INLINE void qb_floats(vq x, const qb_quant *q, vf y[4]) {
  x = vq_xor(x, q->flip);
  FOR_UNROLLED (16, int i = 0; i < 4; i++)
    y[i] = vq_floats(qb_sub32(qb_shuffle(x, qb_spread(itg_fours[i])), q->less));
}

typedef struct qb_end {
  vq zero, flip;
} qb_end;

INLINE qb_end qb_end_of(const itg_quant *q) {
  return (qb_end){vq_set16((short)q->less), vq_set((int32_t)(q->flip * 0x01010101u))};
}

// Rounds four vectors of floats to bytes, in the order of qb_floats. Narrowing saturates, so no
// clamp is needed; |y| < ITG_CONVERTS.
INLINE vq qb_bytes(const vf y[4], const qb_end *end) {
  const vq left = vq_packs32(vq_rounded(y[0]), vq_rounded(y[1]));
  const vq right = vq_packs32(vq_rounded(y[2]), vq_rounded(y[3]));
  return vq_xor(vq_packus16(vq_adds16(left, end->zero), vq_adds16(right, end->zero)), end->flip);
}

// Reorders the bytes of qb_bytes if the four vectors were loaded from consecutive addresses.
INLINE vq qb_in_order(vq bytes) {
#if defined(ISA_avx512)
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
#else
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
}
#endif
