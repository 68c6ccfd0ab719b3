// Rounds and stores 16 results at a time. The loops have a fixed length, so that the compiler
// vectorises them on every instruction set.
#pragma once
#include "reference.h"
#include "kernels/int8/qvec.h"

enum { LANES = 16 };

// Loads 16 integers, possibly past the end of a feature: SRAM has ITG_NPU_SLACK bytes after its
// end.
INLINE void load_whole(uint8_t dtype, const uint8_t *at, int32_t *to) {
  if (dtype == ITG_I8)
    for (int i = 0; i < LANES; i++) to[i] = (int8_t)at[i];
  else if (dtype == ITG_U8)
    for (int i = 0; i < LANES; i++) to[i] = at[i];
  else
    for (int i = 0; i < LANES; i++) {
      int16_t v;
      memcpy(&v, at + 2 * i, sizeof v);
      to[i] = v;
    }
}

// Rounds, clamps and looks up 16 numbers and stores them side by side.
INLINE void finish_whole(const rounding *r, const float *t, uint8_t *to) {
  int32_t v[LANES];
  for (int i = 0; i < LANES; i++) {
    const float above = t[i] > r->low ? t[i] : r->low, both = above < r->high ? above : r->high;
    v[i] = (int32_t)rintf(both) + r->zero;
  }
  if (r->table) {
    for (int i = 0; i < LANES; i++) look_up(r, v[i], to + i * (int64_t)itg_item(r->dtype));
  } else if (r->dtype == ITG_I16) {
    int16_t wide[LANES];
    for (int i = 0; i < LANES; i++) wide[i] = (int16_t)v[i];
    memcpy(to, wide, sizeof wide);
  } else {
    uint8_t bytes[LANES];
    for (int i = 0; i < LANES; i++) bytes[i] = (uint8_t)v[i];
    memcpy(to, bytes, sizeof bytes);
  }
}

// Loads 16 neighbouring f16 as f32; store_halves does the reverse.
INLINE void load_halves(const uint8_t *at, float *to) {
#if defined(ISA_avx512)
  _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at)));
#elif defined(ITG_QVECTORS)
  for (int i = 0; i < LANES; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at + 2 * i))));
#else
  for (int i = 0; i < LANES; i++) to[i] = real(at + 2 * i);
#endif
}

INLINE void store_halves(const float *t, uint8_t *to) {
#if defined(ISA_avx512)
  _mm256_storeu_si256((__m256i *)to,
                      _mm512_cvtps_ph(_mm512_loadu_ps(t), _MM_FROUND_TO_NEAREST_INT));
#elif defined(ITG_QVECTORS)
  for (int i = 0; i < LANES; i += 8)
    _mm_storeu_si128((__m128i *)(to + 2 * i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(t + i), _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < LANES; i++) {
    const uint16_t half = itg_f32_to_f16(t[i]);
    memcpy(to + 2 * i, &half, sizeof half);
  }
#endif
}

// Clamps 16 float results, applies the curve if there is one, and stores them side by side.
INLINE void finish_floats(const rounding *r, const float *t, uint8_t *to) {
  float v[LANES];
  for (int i = 0; i < LANES; i++) v[i] = clamped(r, t[i]);
  if (r->dtype == ITG_F32) {
    memcpy(to, v, sizeof v);
    return;
  }
  store_halves(v, to);
  if (!r->table) return;
  for (int i = 0; i < LANES; i++) {
    uint16_t half;
    memcpy(&half, to + 2 * i, sizeof half);
    v[i] = curved(r, half);
  }
  store_halves(v, to);
}

INLINE void finish(const rounding *r, const float *t, uint8_t *to) {
  if (r->floats) finish_floats(r, t, to);
  else finish_whole(r, t, to);
}

// Whether 16 channels from a multiple of 16 on are always contiguous in memory.
static inline bool has_lanes(const box *b) { return b->c2 % LANES == 0 && b->first % LANES == 0; }

// Stores n <= 16 elements of a pixel from channel c on.
static inline void put_lanes(const box *b, int64_t c, int64_t y, int64_t x, const uint8_t *from,
                             int64_t n) {
  if (has_lanes(b)) {
    uint8_t *to = element(b, c, y, x);
    if (n * b->item == 8) memcpy(to, from, 8);
    else memcpy(to, from, (size_t)(n * b->item));
    return;
  }
  if (b->c2 == 1 && b->item == 1) {
    uint8_t *to = element(b, c, y, x);
    for (int64_t i = 0; i < n; i++, to += b->plane) *to = from[i];
    return;
  }
  for (int64_t i = 0; i < n;) {
    const int64_t left = b->c2 - (b->first + c + i) % b->c2, run = left < n - i ? left : n - i;
    memcpy(element(b, c + i, y, x), from + i * b->item, (size_t)(run * b->item));
    i += run;
  }
}

static inline void get_lanes(const box *b, int64_t c, int64_t y, int64_t x, uint8_t *to,
                             int64_t n) {
  for (int64_t i = 0; i < n;) {
    const int64_t left = b->c2 - (b->first + c + i) % b->c2, run = left < n - i ? left : n - i;
    memcpy(to + i * b->item, element(b, c + i, y, x), (size_t)(run * b->item));
    i += run;
  }
}

// ---- epilogue of a product ----------------------------------------------------------------------
typedef struct ending {
  rounding round;
  box dst, residual;
  bool adds;            // there is a residual
  bool dst_lanes;       // has_lanes(&dst)
  bool dst_halves;      // dst is bytes in blocks of eight channels
  bool residual_lanes;  // has_lanes(&residual)
  int32_t r_zero;
  float r_factor;
  const float *scale;  // per output, padded to a multiple of 16
} ending;

static ending ending_of(const machine *m, const itg_npu_product *p, const float *scale) {
  ending e = {.adds = p->residual.channels != 0,
              .r_zero = p->r_zero,
              .r_factor = p->r_factor,
              .scale = scale};
  e.round = ROUNDING(m, p, p->table, p->entries, p->base);
  e.dst = box_of(m, &p->head, &p->dst);
  e.dst_lanes = has_lanes(&e.dst);
  e.dst_halves = e.dst.c2 == LANES / 2 && !e.dst.first && e.dst.item == 1;
  if (!e.adds) return e;
  e.residual = box_of(m, &p->head, &p->residual);
  e.residual_lanes = has_lanes(&e.residual);
  return e;
}

typedef struct place {             // addresses of 16 channels at row 0, column 0
  uint8_t *dst, *half, *residual;  // half: of the last 8 in dst
  const float *scale;
  int64_t first, count;
} place;

static place place_of(const ending *e, int64_t group) {
  const int64_t c = group * LANES, left = e->dst.channels - c;
  return (place){element(&e->dst, c, 0, 0),
                 element(&e->dst, c + LANES / 2, 0, 0),
                 e->adds ? element(&e->residual, c, 0, 0) : NULL,
                 e->scale + c,
                 c,
                 left < LANES ? left : LANES};
}

// Stores the results of 16 channels of a pixel. They need not be contiguous in dst, and the last
// ones may not exist.
INLINE void put_place(const ending *e, const place *p, int64_t y, int64_t x,
                      const uint8_t *results) {
  const int64_t at = y * e->dst.row + x * e->dst.pixel;
  if (e->dst_halves && p->count == LANES) {
    memcpy(p->dst + at, results, LANES / 2);
    memcpy(p->half + at, results + LANES / 2, LANES / 2);
  } else {
    put_lanes(&e->dst, p->first, y, x, results, p->count);
  }
}

INLINE void add_residual(const ending *e, const place *p, int64_t y, int64_t x, float *t) {
  uint8_t few[LANES * 2] = {0};
  const uint8_t *at = few;
  if (e->residual_lanes) at = p->residual + y * e->residual.row + x * e->residual.pixel;
  else get_lanes(&e->residual, p->first, y, x, few, p->count);
  if (e->residual.dtype == ITG_F16) {
    float real[LANES];
    load_halves(at, real);
    for (int i = 0; i < LANES; i++) t[i] += real[i] * e->r_factor;
  } else {
    int32_t r[LANES];
    load_whole(e->residual.dtype, at, r);
    for (int i = 0; i < LANES; i++) t[i] += (float)(r[i] - e->r_zero) * e->r_factor;
  }
}

// Adds the residual to 16 scaled channels of one pixel, rounds and stores them.
INLINE void end_reals(const ending *e, const place *p, float *t, int64_t y, int64_t x) {
  if (e->adds) add_residual(e, p, y, x, t);
  if (e->dst_lanes && p->count == LANES) {
    finish(&e->round, t, p->dst + y * e->dst.row + x * e->dst.pixel);
  } else {
    uint8_t results[LANES * 4];
    finish(&e->round, t, results);
    put_place(e, p, y, x, results);
  }
}

// Epilogue for the i32 sums of 16 channels of one pixel. With AVX-512 they are one vector.
#if defined(ISA_avx512)
typedef __m512i sixteen;
INLINE sixteen sixteen_of(const int32_t *from) { return _mm512_loadu_si512(from); }

INLINE __m512i load_sixteen(uint8_t dtype, const uint8_t *at) {
  if (dtype == ITG_I16) return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)at));
  const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
  return dtype == ITG_I8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
}

INLINE void finish_sixteen(const rounding *r, __m512 t, uint8_t *to) {
  if (r->floats) {
    float real[LANES];
    _mm512_storeu_ps(real, t);
    finish_floats(r, real, to);
    return;
  }
  t = _mm512_min_ps(_mm512_max_ps(t, _mm512_set1_ps(r->low)),
                    _mm512_set1_ps(r->high));  // NaN becomes low
  __m512i v = _mm512_add_epi32(_mm512_cvtps_epi32(t), _mm512_set1_epi32(r->zero));
  if (r->table) {  // gathers read four bytes, possibly past the end of the table: SRAM has slack
    v = _mm512_max_epi32(_mm512_sub_epi32(v, _mm512_set1_epi32(r->base)), _mm512_setzero_si512());
    v = _mm512_min_epi32(v, _mm512_set1_epi32(r->last));
    if (r->dtype == ITG_F32) v = _mm512_i32gather_epi32(v, r->table, 4);
    else
      v = itg_item(r->dtype) == 2 ? _mm512_i32gather_epi32(v, r->table, 2)
                                  : _mm512_i32gather_epi32(v, r->table, 1);
  }
  if (r->dtype == ITG_F32) _mm512_storeu_si512(to, v);
  else if (itg_item(r->dtype) == 2) _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(v));
  else _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(v));
}

INLINE void end_sixteen(const ending *e, const place *p, sixteen sums, int64_t y, int64_t x) {
  if (e->round.dtype == ITG_I32) {
    uint8_t whole[LANES * 4];
    _mm512_storeu_si512(whole, sums);
    put_place(e, p, y, x, whole);
    return;
  }
  __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(p->scale));
  if (e->adds && e->residual_lanes && e->residual.dtype != ITG_F16) {
    const __m512i r =
        load_sixteen(e->residual.dtype, p->residual + y * e->residual.row + x * e->residual.pixel);
    const __m512 real = _mm512_cvtepi32_ps(_mm512_sub_epi32(r, _mm512_set1_epi32(e->r_zero)));
    t = _mm512_add_ps(t, _mm512_mul_ps(real, _mm512_set1_ps(e->r_factor)));
  } else if (e->adds) {
    float one[LANES];
    _mm512_storeu_ps(one, t);
    add_residual(e, p, y, x, one);
    t = _mm512_loadu_ps(one);
  }
  if (e->dst_lanes && p->count == LANES) {
    finish_sixteen(&e->round, t, p->dst + y * e->dst.row + x * e->dst.pixel);
  } else {
    uint8_t results[LANES * 4];
    finish_sixteen(&e->round, t, results);
    put_place(e, p, y, x, results);
  }
}
#else
typedef struct sixteen {
  int32_t at[LANES];
} sixteen;
INLINE sixteen sixteen_of(const int32_t *from) {
  sixteen results;
  memcpy(results.at, from, sizeof results.at);
  return results;
}

INLINE void end_sixteen(const ending *e, const place *p, sixteen sums, int64_t y, int64_t x) {
  if (e->round.dtype == ITG_I32) {
    put_place(e, p, y, x, (const uint8_t *)sums.at);
    return;
  }
  float t[LANES];
  for (int i = 0; i < LANES; i++) t[i] = (float)sums.at[i] * p->scale[i];
  end_reals(e, p, t, y, x);
}
#endif
