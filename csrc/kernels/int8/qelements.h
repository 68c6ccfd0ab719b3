// Loads of quantised bytes as vectors of floats, and stores: y = clamp(rint(real) + zero).
#pragma once
#include "infer.h"
#include "qvec.h"

// Scale and zero of a quantised tensor. A byte counts from 0: those of i8 are flipped, `less` is
// the zero then.
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

static inline float itg_apart(const itg_quant *q, uint8_t x) {
  return (float)((int)(x ^ q->flip) - q->less);
}

// The one rounding rule, by comparisons, so that no number is too large for it.
static inline uint8_t itg_byte_of(const itg_quant *q, float real) {
  const float y = rintf(real) + (float)q->less, above = y > 0 ? y : 0;
  return (uint8_t)((uint8_t)(int)(above < 255 ? above : 255) ^ q->flip);
}

// Floats that instructions may convert to 32 bits: everything below this in size.
#define ITG_CONVERTS 1e9f

#ifdef ITG_QVECTORS
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
    // four neighbours of each 16 bytes as 32-bit numbers
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

// QBYTES bytes minus their zero as four vectors; qb_bytes puts numbers in this order back in place.
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

// Narrowing saturates, which is the clamp; |y| < ITG_CONVERTS.
INLINE vq qb_bytes(const vf y[4], const qb_end *end) {
  const vq left = vq_packs32(vq_rounded(y[0]), vq_rounded(y[1]));
  const vq right = vq_packs32(vq_rounded(y[2]), vq_rounded(y[3]));
  return vq_xor(vq_packus16(vq_adds16(left, end->zero), vq_adds16(right, end->zero)), end->flip);
}

// The same where the four vectors followed each other.
INLINE vq qb_in_order(vq bytes) {
#if defined(ISA_avx512)
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
#else
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
}
#endif
