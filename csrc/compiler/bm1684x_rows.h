// Elementwise commands: stretches of numbers are read as i32, i64 or f32, computed, and stored.
#pragma once
#include <math.h>
#include <string.h>

#include "attributes.h"
#include "bm1684x.h"

enum { LANE = 1 << 18, STRETCH = 512 };

// A loop with one body for all of its callers: inlined, these took five times as long to compile.
#define SHARED static __attribute__((noinline))

INLINE uint8_t *row_of(const itg_bm_tensor *t, int64_t n, int64_t c, int64_t h) {
  int64_t channel = t->lane + c;
  return t->at + n * t->n + channel / t->lanes * t->c + channel % t->lanes * LANE + h * t->h;
}

// The number at `index` of a channel.
INLINE int32_t number_of(const itg_bm_tensor *t, int64_t c, int64_t index) {
  int64_t channel = t->lane + c;
  int32_t v;
  memcpy(&v, t->at + channel / t->lanes * t->c + channel % t->lanes * LANE + 4 * index, sizeof v);
  return v;
}

INLINE float as_float(int64_t bits) {
  int32_t low = (int32_t)bits;
  float v;
  memcpy(&v, &low, sizeof v);
  return v;
}

#define LOAD_EACH(type, step)                \
  for (int64_t i = 0; i < count; i++) {      \
    type v;                                  \
    memcpy(&v, from + i * (step), sizeof v); \
    to[i] = v;                               \
  }
#define LOAD(type)                                 \
  if (step == (int64_t)sizeof(type)) {             \
    LOAD_EACH(type, (int64_t)sizeof(type))         \
  } else if (!step) {                              \
    type v;                                        \
    memcpy(&v, from, sizeof v);                    \
    for (int64_t i = 0; i < count; i++) to[i] = v; \
  } else {                                         \
    LOAD_EACH(type, step)                          \
  }                                                \
  break
#define LOAD_ROW(name, number)                                                                    \
  SHARED void name(number *restrict to, const uint8_t *restrict from, int64_t step, int64_t type, \
                   int64_t count) {                                                               \
    switch (type) {                                                                               \
      case ITG_BM_I8: LOAD(int8_t);                                                               \
      case ITG_BM_U8: LOAD(uint8_t);                                                              \
      case ITG_BM_I16: LOAD(int16_t);                                                             \
      case ITG_BM_U16: LOAD(uint16_t);                                                            \
      default: LOAD(int32_t);                                                                     \
    }                                                                                             \
  }
LOAD_ROW(load_64, int64_t)
LOAD_ROW(load_32, int32_t)

#define STORE_EACH(type, step)             \
  for (int64_t i = 0; i < count; i++) {    \
    type v = (type)from[i];                \
    memcpy(to + i * (step), &v, sizeof v); \
  }
#define STORE(type)                         \
  if (step == (int64_t)sizeof(type)) {      \
    STORE_EACH(type, (int64_t)sizeof(type)) \
  } else {                                  \
    STORE_EACH(type, step)                  \
  }                                         \
  break
#define STORE_ROW(name, number)                                                                   \
  SHARED void name(uint8_t *restrict to, const number *restrict from, int64_t step, int64_t type, \
                   int64_t count) {                                                               \
    switch (type) {                                                                               \
      case ITG_BM_I8:                                                                             \
      case ITG_BM_U8: STORE(uint8_t);                                                             \
      case ITG_BM_I16:                                                                            \
      case ITG_BM_U16: STORE(uint16_t);                                                           \
      default: STORE(uint32_t);                                                                   \
    }                                                                                             \
  }
STORE_ROW(store_64, int64_t)
STORE_ROW(store_32, int32_t)

static const int64_t LOWEST[] = {INT8_MIN, 0, INT16_MIN, 0, INT32_MIN, 0};
static const int64_t HIGHEST[] = {INT8_MAX,   UINT8_MAX, INT16_MAX,
                                  UINT16_MAX, INT32_MAX, UINT32_MAX};

#define CLAMP(name, number)                                               \
  SHARED void name(number *v, int64_t count, number least, number most) { \
    for (int64_t i = 0; i < count; i++) {                                 \
      number x = v[i] < least ? least : v[i];                             \
      v[i] = x > most ? most : x;                                         \
    }                                                                     \
  }
CLAMP(clamp_64, int64_t)
CLAMP(clamp_32, int32_t)

// x / 2^right rounded: 0 halves to even, 1 away from zero, 2 towards zero, 3 down, 4 up, 5 halves
// up, 6 halves down.
INLINE int64_t shifted(int64_t x, int64_t right, int64_t mode) {
  int64_t down = x >> right, rest = x - (int64_t)((uint64_t)down << right);
  int64_t half = (int64_t)1 << (right - 1);
  switch (mode) {
    case 0: return down + (rest > half || (rest == half && (down & 1)));
    case 1: return down + (rest > half || (rest == half && x >= 0));
    case 2: return down + (x < 0 && rest > 0);
    case 3: return down;
    case 4: return down + (rest > 0);
    case 5: return down + (rest >= half);
    default: return down + (rest > half);
  }
}

SHARED void shift_row(int64_t *v, int64_t count, int64_t by, int64_t mode) {
  if (by > 0) {
    for (int64_t i = 0; i < count; i++) v[i] = (int64_t)((uint64_t)v[i] << by);
  } else if (by < 0 && mode == 5) {
    for (int64_t i = 0; i < count; i++) v[i] = (v[i] >> -by) + (v[i] >> (-by - 1) & 1);
  } else if (by < 0 && mode == 1) {  // half less one for negative numbers, then down
    const int64_t half = (int64_t)1 << (-by - 1);
    for (int64_t i = 0; i < count; i++) v[i] = (v[i] + half - (v[i] < 0)) >> -by;
  } else if (by < 0) {
    for (int64_t i = 0; i < count; i++) v[i] = shifted(v[i], -by, mode);
  }
}

// Numbers of a channel for RQ1: multiplier, shift, zero.
typedef struct rq1 {
  int64_t multiplier, by, zero;
} rq1;

INLINE rq1 rq1_of(const itg_bm_job *j, int64_t c) {
  rq1 r = {j->given[0], j->given[1], j->given[2]};
  if (j->numbers.type != ITG_BM_CONSTANT) {
    int32_t second = number_of(&j->numbers, c, 1);
    r.multiplier = number_of(&j->numbers, c, 0);
    r.by = j->packed ? (int8_t)second : second;
    int32_t zero = j->packed ? second >> 16 : number_of(&j->numbers, c, 2);
    r.zero = j->zero_bits < 0 ? (int64_t)(uint16_t)zero : (int64_t)(int16_t)zero;
  }
  r.by = r.by < -62 ? -62 : r.by > 62 ? 62 : r.by;
  return r;
}

SHARED void requantise_row(int64_t *v, int64_t count, const rq1 *r, int64_t mode) {
  for (int64_t i = 0; i < count; i++) v[i] = (int64_t)((uint64_t)v[i] * (uint64_t)r->multiplier);
  shift_row(v, count, r->by, mode);
  for (int64_t i = 0; i < count; i++) v[i] += r->zero;
}

#define COMBINE(name, number, unsigned_number)                                \
  SHARED void name(number *a, const number *b, int64_t count, int64_t op) {   \
    switch (op) {                                                             \
      case ITG_BM_ADD:                                                        \
        for (int64_t i = 0; i < count; i++)                                   \
          a[i] = (number)((unsigned_number)a[i] + (unsigned_number)b[i]);     \
        break;                                                                \
      case ITG_BM_SUB:                                                        \
        for (int64_t i = 0; i < count; i++)                                   \
          a[i] = (number)((unsigned_number)a[i] - (unsigned_number)b[i]);     \
        break;                                                                \
      case ITG_BM_MUL:                                                        \
        for (int64_t i = 0; i < count; i++)                                   \
          a[i] = (number)((unsigned_number)a[i] * (unsigned_number)b[i]);     \
        break;                                                                \
      case ITG_BM_MAX:                                                        \
        for (int64_t i = 0; i < count; i++) a[i] = a[i] > b[i] ? a[i] : b[i]; \
        break;                                                                \
      default:                                                                \
        for (int64_t i = 0; i < count; i++) a[i] = a[i] < b[i] ? a[i] : b[i]; \
    }                                                                         \
  }
COMBINE(combine_64, int64_t, uint64_t)
COMBINE(combine_32, int32_t, uint32_t)

typedef union stretch {
  int64_t wide[STRETCH];
  int32_t whole[STRETCH];
  float real[STRETCH];
} stretch;

SHARED void load_f32(float *restrict to, const uint8_t *restrict from, int64_t step,
                     int64_t count) {
  if (step == 4) LOAD_EACH(float, 4)
  else LOAD_EACH(float, step)
}

SHARED void store_f32(uint8_t *restrict to, const float *restrict from, int64_t step,
                      int64_t count) {
  for (int64_t i = 0; i < count; i++) memcpy(to + i * step, from + i, sizeof *from);
}

// Rounds to integers of at most 16 bits.
SHARED void round_32(const float *from, int32_t *to, int64_t count, int64_t type) {
  const float least = (float)LOWEST[type], most = (float)HIGHEST[type];
  for (int64_t i = 0; i < count; i++) {
    float y = rintf(from[i]);
    y = y < least ? least : y;
    to[i] = (int32_t)(y > most ? most : y);
  }
}

SHARED void round_64(const float *from, int64_t *to, int64_t count) {
  const float far = 9007199254740992.0f;
  for (int64_t i = 0; i < count; i++) {
    float y = rintf(from[i]);
    y = y < -far ? -far : y;
    to[i] = (int64_t)(y > far ? far : y);
  }
}

INLINE void store_rounded(const itg_bm_job *j, uint8_t *to, const float *real, int64_t count) {
  stretch s;
  if (j->y.type < ITG_BM_I32) {
    round_32(real, s.whole, count, j->y.type);
    store_32(to, s.whole, j->y.w, j->y.type, count);
  } else {
    round_64(real, s.wide, count);
    clamp_64(s.wide, count, LOWEST[j->y.type], HIGHEST[j->y.type]);
    store_64(to, s.wide, j->y.w, j->y.type, count);
  }
}

// A stretch of two integer operands. Sums of numbers of at most 16 bits, and wrapped sums, fit i32.
INLINE void combine_stretch(const itg_bm_job *j, uint8_t *to, const uint8_t *a, const uint8_t *b,
                            stretch *s, stretch *t, int64_t count, int narrow) {
  if (narrow) {
    load_32(s->whole, a, j->a.w, j->a.type, count);
    if (b) load_32(t->whole, b, j->b.w, j->b.type, count);
    combine_32(s->whole, t->whole, count, j->op);
    if (j->saturate && j->y.type < ITG_BM_I32)
      clamp_32(s->whole, count, (int32_t)LOWEST[j->y.type], (int32_t)HIGHEST[j->y.type]);
    store_32(to, s->whole, j->y.w, j->y.type, count);
    return;
  }
  load_64(s->wide, a, j->a.w, j->a.type, count);
  if (b) load_64(t->wide, b, j->b.w, j->b.type, count);
  combine_64(s->wide, t->wide, count, j->op);
  shift_row(s->wide, count, j->shift, j->mode);
  if (j->saturate) clamp_64(s->wide, count, LOWEST[j->y.type], HIGHEST[j->y.type]);
  store_64(to, s->wide, j->y.w, j->y.type, count);
}

INLINE int is_narrow(const itg_bm_job *j) {
  if (j->shift || (j->op == ITG_BM_MUL && j->saturate)) return 0;
  if (!j->saturate) return 1;
  const int64_t constant = (int64_t)(intptr_t)j->b.at;
  if (j->b.type == ITG_BM_CONSTANT) return j->a.type < ITG_BM_I32 && constant == (int16_t)constant;
  return j->a.type < ITG_BM_I32 && j->b.type < ITG_BM_I32;
}

// A stretch by the numbers of its channel.
INLINE void scale_stretch(const itg_bm_job *j, uint8_t *to, const uint8_t *a, int64_t c,
                          int64_t count) {
  stretch s;
  if (j->op == ITG_BM_RQ1) {
    const rq1 r = rq1_of(j, c);
    load_64(s.wide, a, j->a.w, j->a.type, count);
    requantise_row(s.wide, count, &r, j->mode);
    clamp_64(s.wide, count, LOWEST[j->y.type], HIGHEST[j->y.type]);
    store_64(to, s.wide, j->y.w, j->y.type, count);
    return;
  }
  const int memory = j->numbers.type != ITG_BM_CONSTANT;
  const int32_t one = memory ? number_of(&j->numbers, c, 0) : (int32_t)j->given[0];
  const int32_t two = memory ? number_of(&j->numbers, c, 1) : (int32_t)j->given[1];
  float real[STRETCH];
  if (j->op == ITG_BM_RQ0) {
    const float scale = as_float(one), offset = as_float(two);
    load_32(s.whole, a, j->a.w, j->a.type, count);
    for (int64_t i = 0; i < count; i++) real[i] = (float)s.whole[i] * scale + offset;
    store_rounded(j, to, real, count);
  } else {
    const int64_t zero = j->swapped ? two : one;
    const float scale = as_float(j->swapped ? one : two);
    load_64(s.wide, a, j->a.w, j->a.type, count);
    for (int64_t i = 0; i < count; i++) real[i] = (float)(s.wide[i] - zero) * scale;
    store_f32(to, real, j->y.w, count);
  }
}

INLINE void float_stretch(const itg_bm_job *j, uint8_t *to, const uint8_t *a, const uint8_t *b,
                          int64_t count) {
  float x[STRETCH], y[STRETCH];
  load_f32(x, a, j->a.w, count);
  if (j->op == ITG_BM_CAST) {
    store_rounded(j, to, x, count);
    return;
  }
  if (b) load_f32(y, b, j->b.w, count);
  else
    for (int64_t i = 0; i < count; i++) y[i] = as_float((int64_t)(intptr_t)j->b.at);
  if (j->op == ITG_BM_F_ADD)
    for (int64_t i = 0; i < count; i++) x[i] += y[i];
  else if (j->op == ITG_BM_F_SUB)
    for (int64_t i = 0; i < count; i++) x[i] -= y[i];
  else
    for (int64_t i = 0; i < count; i++) x[i] *= y[i];
  store_f32(to, x, j->y.w, count);
}

// Whether all scales and offsets of RQ0 are finite.
INLINE int all_finite(const itg_bm_job *j) {
  for (int64_t c = 0; c < j->shape[1]; c++)
    for (int64_t i = 0; i < 2; i++) {
      const int memory = j->numbers.type != ITG_BM_CONSTANT;
      if (!isfinite(as_float(memory ? number_of(&j->numbers, c, i) : j->given[i]))) return 0;
    }
  return 1;
}

static int run_rows(const itg_bm_job *j) {
  int64_t height = j->shape[2], width = j->shape[3];
  if (j->op == ITG_BM_RQ0 && !all_finite(j)) return 0;
  const int two = j->b.type != ITG_BM_CONSTANT && j->b.type != ITG_BM_NONE;
  if (j->y.h == width * j->y.w && j->a.h == width * j->a.w && (!two || j->b.h == width * j->b.w))
    width *= height, height = 1;
  const int narrow = is_narrow(j);
  stretch s, t;
  for (int64_t i = 0; i < STRETCH && !two; i++) {
    if (narrow) t.whole[i] = (int32_t)(intptr_t)j->b.at;
    else t.wide[i] = (int64_t)(intptr_t)j->b.at;
  }
  for (int64_t n = 0; n < j->shape[0]; n++) {
    for (int64_t c = 0; c < j->shape[1]; c++) {
      for (int64_t h = 0; h < height; h++) {
        const uint8_t *a = row_of(&j->a, n, c, h), *b = two ? row_of(&j->b, n, c, h) : 0;
        uint8_t *to = row_of(&j->y, n, c, h);
        for (int64_t x = 0; x < width; x += STRETCH) {
          int64_t count = width - x < STRETCH ? width - x : STRETCH;
          uint8_t *at = to + x * j->y.w;
          const uint8_t *first = a + x * j->a.w, *second = b ? b + x * j->b.w : 0;
          if (j->op < ITG_BM_RQ0) combine_stretch(j, at, first, second, &s, &t, count, narrow);
          else if (j->op < ITG_BM_F_ADD) scale_stretch(j, at, first, c, count);
          else float_stretch(j, at, first, second, count);
        }
      }
    }
  }
  return 1;
}
