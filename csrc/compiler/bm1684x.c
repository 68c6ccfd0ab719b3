// Elementwise commands read a stretch of numbers as i64, compute, and store it.
#include "bm1684x.h"

#include <math.h>
#include <string.h>

#include "../attributes.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

enum { LANES = 64, LANE = 1 << 18, STRETCH = 512 };

INLINE uint8_t *row_of(const itg_bm_tensor *t, int64_t n, int64_t c, int64_t h) {
  int64_t channel = t->lane + c;
  return t->at + n * t->n + channel / LANES * t->c + channel % LANES * LANE + h * t->h;
}

#define LOAD(type)                         \
  for (int64_t i = 0; i < count; i++) {    \
    type v;                                \
    memcpy(&v, from + i * step, sizeof v); \
    to[i] = v;                             \
  }                                        \
  break

INLINE void load_row(int64_t *to, const uint8_t *from, int64_t step, int64_t type, int64_t count) {
  switch (type) {
    case 0: LOAD(int8_t);
    case 1: LOAD(uint8_t);
    case 2: LOAD(int16_t);
    case 3: LOAD(uint16_t);
    case 4:
      if (step == 4) {
        for (int64_t i = 0; i < count; i++) {
          int32_t v;
          memcpy(&v, from + i * 4, sizeof v);
          to[i] = v;
        }
        break;
      }
      LOAD(int32_t);
    default: LOAD(uint32_t);
  }
}

#define STORE(type)                      \
  for (int64_t i = 0; i < count; i++) {  \
    type v = (type)from[i];              \
    memcpy(to + i * step, &v, sizeof v); \
  }                                      \
  break

INLINE void store_row(uint8_t *to, int64_t *from, int64_t step, int64_t type, int64_t count,
                      int64_t saturate) {
  static const int64_t low[] = {INT8_MIN, 0, INT16_MIN, 0, INT32_MIN, 0};
  static const int64_t high[] = {INT8_MAX, UINT8_MAX, INT16_MAX, UINT16_MAX, INT32_MAX, UINT32_MAX};
  if (saturate) {
    int64_t least = low[type], most = high[type];
    for (int64_t i = 0; i < count; i++) {
      int64_t v = from[i] < least ? least : from[i];
      from[i] = v > most ? most : v;
    }
  }
  switch (type) {
    case 0:
    case 1: STORE(uint8_t);
    case 2:
    case 3: STORE(uint16_t);
    default: STORE(uint32_t);
  }
}

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

INLINE void shift_row(int64_t *v, int64_t count, int64_t by, int64_t mode) {
  if (by > 0) {
    for (int64_t i = 0; i < count; i++) v[i] = (int64_t)((uint64_t)v[i] << by);
  } else if (by < 0 && mode == 5) {
    for (int64_t i = 0; i < count; i++) v[i] = (v[i] >> -by) + (v[i] >> (-by - 1) & 1);
  } else if (by < 0) {
    for (int64_t i = 0; i < count; i++) v[i] = shifted(v[i], -by, mode);
  }
}

INLINE void combine(int64_t *a, const int64_t *b, int64_t count, int64_t op) {
#define EACH(value)                                   \
  for (int64_t i = 0; i < count; i++) a[i] = (value); \
  break
  switch (op) {
    case ITG_BM_ADD: EACH(a[i] + b[i]);
    case ITG_BM_SUB: EACH(a[i] - b[i]);
    case ITG_BM_MUL: EACH((int64_t)((uint64_t)a[i] * (uint64_t)b[i]));
    case ITG_BM_MAX: EACH(a[i] > b[i] ? a[i] : b[i]);
    default: EACH(a[i] < b[i] ? a[i] : b[i]);
  }
#undef EACH
}

// Requantise by f32: rint(x * scale + offset), each step rounded.
INLINE void requantise(int64_t *v, int64_t count, float scale, float offset) {
  const float most = 9007199254740992.0f;
  for (int64_t i = 0; i < count; i++) {
    float y = nearbyintf((float)v[i] * scale + offset);
    y = y < -most ? -most : y;
    v[i] = (int64_t)(y > most ? most : y);
  }
}

CLONES void itg_bm_run_rows(const itg_bm_rows *r) {
  int64_t a[STRETCH], b[STRETCH];
  int64_t height = r->shape[2], width = r->shape[3];
  for (int64_t i = 0; i < STRETCH; i++) b[i] = (int64_t)(intptr_t)r->b.at;
  for (int64_t n = 0; n < r->shape[0]; n++) {
    for (int64_t c = 0; c < r->shape[1]; c++) {
      for (int64_t h = 0; h < height; h++) {
        const uint8_t *from = row_of(&r->a, n, c, h);
        const uint8_t *other = r->b.type < 6 ? row_of(&r->b, n, c, h) : 0;
        uint8_t *to = row_of(&r->y, n, c, h);
        for (int64_t x = 0; x < width; x += STRETCH) {
          int64_t count = width - x < STRETCH ? width - x : STRETCH;
          load_row(a, from + x * r->a.w, r->a.w, r->a.type, count);
          if (r->op == ITG_BM_RQ1) {
            for (int64_t i = 0; i < count; i++)
              a[i] = (int64_t)((uint64_t)a[i] * (uint64_t)r->multiplier[c]);
            shift_row(a, count, r->by[c], r->mode);
            for (int64_t i = 0; i < count; i++) a[i] += r->zero[c];
          } else if (r->op == ITG_BM_RQ0) {
            requantise(a, count, r->scale[c], r->offset[c]);
          } else {
            if (other) load_row(b, other + x * r->b.w, r->b.w, r->b.type, count);
            combine(a, b, count, r->op);
            shift_row(a, count, r->shift, r->mode);
          }
          store_row(to + x * r->y.w, a, r->y.w, r->y.type, count, r->saturate);
        }
      }
    }
  }
}
