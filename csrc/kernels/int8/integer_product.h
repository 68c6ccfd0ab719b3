// Tiled product of 8-bit matrices in 32-bit integers. matmul packs columns of a matrix for it,
// convolution packs windows. The register tile is ROWS = 4 rows by two vectors of columns (left and
// right); a lane holds two 16-bit numbers that are neighbours along k (vpmaddwd).
#pragma once
#include <string.h>

#include "infer.h"
#include "integer_sizes.h"
#include "vec.h"

enum { ROWS = ITG_TILE_ROWS, WIDTH = ITG_TILE_WIDTH };

// ---- one tile: sums[r][c] over pairs; a is [pair][ROWS][2], b is [pair][WIDTH][2] ---------------
#if defined(ISA_avx512) || defined(ISA_avx2)
#if defined(ISA_avx512)
typedef __m512i vs;
#define vs_load(p) _mm512_loadu_si512(p)
#define vs_store(p, v) _mm512_storeu_si512(p, v)
#define vs_twice(pair) _mm512_set1_epi32(pair)
#define vs_add(sum, a, b) _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))
#define vs_zero _mm512_setzero_si512()
#else
typedef __m256i vs;
#define vs_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define vs_store(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define vs_twice(pair) _mm256_set1_epi32(pair)
#define vs_add(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
#define vs_zero _mm256_setzero_si256()
#endif

static inline void tile(const int16_t *a, const int16_t *b, int64_t pairs,
                        uint32_t sums[ROWS][WIDTH]) {
  for (int c = 0; c < WIDTH; c += 2 * VL) {
    vs left[ROWS], right[ROWS];
    for (int r = 0; r < ROWS; r++) left[r] = right[r] = vs_zero;
    for (int64_t p = 0; p < pairs; p++) {
      const int16_t *column = b + (p * WIDTH + c) * 2;
      const vs b0 = vs_load(column), b1 = vs_load(column + 2 * VL);
      for (int r = 0; r < ROWS; r++) {
        int32_t pair;
        memcpy(&pair, a + (p * ROWS + r) * 2, sizeof pair);
        left[r] = vs_add(left[r], vs_twice(pair), b0);
        right[r] = vs_add(right[r], vs_twice(pair), b1);
      }
    }
    for (int r = 0; r < ROWS; r++) {
      vs_store(&sums[r][c], left[r]);
      vs_store(&sums[r][c + VL], right[r]);
    }
  }
}
#else
static inline void tile(const int16_t *a, const int16_t *b, int64_t pairs,
                        uint32_t sums[ROWS][WIDTH]) {
  memset(sums, 0, ROWS * sizeof *sums);
  for (int64_t p = 0; p < pairs; p++, a += 2 * ROWS, b += 2 * WIDTH)
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < WIDTH; c++)
        sums[r][c] += (uint32_t)(a[2 * r] * b[2 * c] + a[2 * r + 1] * b[2 * c + 1]);
}
#endif

// ---- scales and zeros ---------------------------------------------------------------------------
typedef struct param {  // one number (step 0) or one per row or column
  const void *data;     // NULL: absent
  uint8_t dtype;
  int64_t step;
} param;

static inline param param_of(const itg_tensor *t) {
  return t ? (param){t->data, t->dtype, itg_count(t) > 1} : (param){NULL, 0, 0};
}
static inline param param_from(param p, int64_t first) {
  if (p.data) p.data = (const char *)p.data + p.step * first * (int64_t)itg_item(p.dtype);
  return p;
}
static inline float real(param p, int64_t i) {
  return (float)itg_load_f64(p.dtype, p.data, i * p.step);
}
static inline int zero(param p, int64_t i) {
  return p.data ? (int)itg_load_i64(p.dtype, p.data, i * p.step) : 0;
}

// Bytes are widened by (byte ^ flip) - flip, which extends the sign of i8 and does not change u8.
static inline int flip_of(uint8_t dtype) { return dtype == ITG_I8 ? 0x80 : 0; }

// ---- the product --------------------------------------------------------------------------------
typedef struct product {
  const uint8_t *a;  // rows x depth
  int a_flip;
  int64_t depth, out_step;  // out_step: elements between rows of the result
  // without a_scale the result is the i32 sums; without y_zero it is f32
  param a_zero, a_scale, b_scale, y_scale, y_zero, bias, r_scale, r_zero;
  const void *residual;  // added before rounding, with the shape of `out`: bytes if `out` is bytes,
                         // else f32
  void *out;
} product;

static inline void pack_rows(const product *p, int64_t row, int64_t rows, int16_t *to) {
  if (rows < ROWS || p->depth % 2)
    memset(to, 0, (size_t)((p->depth + 1) / 2 * ROWS * 2) * sizeof *to);
  for (int64_t r = 0; r < rows; r++) {
    const uint8_t *a = p->a + (row + r) * p->depth;
    const int flip = p->a_flip, less = flip + zero(p->a_zero, row + r);
    int16_t *pair = to + 2 * r;
    for (int64_t k = 0; k + 1 < p->depth; k += 2, pair += 2 * ROWS) {
      pair[0] = (int16_t)((a[k] ^ flip) - less);
      pair[1] = (int16_t)((a[k + 1] ^ flip) - less);
    }
    if (p->depth % 2) pair[0] = (int16_t)((a[p->depth - 1] ^ flip) - less);
  }
}

// Requantisation of a row: sum * (a_scale * b_scale / y_scale) + zero.
typedef struct row_end {
  float a_scale, y_scale, zero;
  uint32_t bias;
} row_end;

static inline row_end row_end_of(const product *p, int64_t row) {
  if (!p->a_scale.data) return (row_end){0};
  return (row_end){real(p->a_scale, row), p->y_scale.data ? real(p->y_scale, row) : 1,
                   (float)zero(p->y_zero, row), (uint32_t)zero(p->bias, row)};
}

static inline void add_residual(const product *p, float y_scale, int64_t at, int64_t n, float *y) {
  if (!p->y_zero.data) {
    const float *r = (const float *)p->residual + at;
    for (int64_t c = 0; c < n; c++) y[c] += r[c];
    return;
  }
  const float scale = real(p->r_scale, 0) / y_scale;
  const int flip = flip_of(p->r_zero.dtype), less = flip + zero(p->r_zero, 0);
  const uint8_t *r = (const uint8_t *)p->residual + at;
  for (int64_t c = 0; c < n; c++) y[c] += (float)((r[c] ^ flip) - less) * scale;
}

// Requantises n <= WIDTH sums and stores them from element `at` of the result on.
static inline void finish(const product *p, const row_end *end, const uint32_t *sums,
                          int64_t column, int64_t n, int64_t at) {
  if (!p->a_scale.data) {
    memcpy((uint32_t *)p->out + at, sums, (size_t)n * sizeof *sums);
    return;
  }
  float scale[WIDTH], y[WIDTH];
  if (p->b_scale.step) {
    for (int64_t c = 0; c < WIDTH; c++)
      scale[c] = c < n ? end->a_scale * real(p->b_scale, column + c) / end->y_scale : 0;
  } else {
    const float same = end->a_scale * real(p->b_scale, 0) / end->y_scale;
    for (int64_t c = 0; c < WIDTH; c++) scale[c] = same;
  }
  for (int c = 0; c < WIDTH; c++) y[c] = (float)(int32_t)(sums[c] + end->bias) * scale[c];
  if (p->residual) add_residual(p, end->y_scale, at, n, y);
  if (!p->y_zero.data) {
    memcpy((float *)p->out + at, y, (size_t)n * sizeof *y);
    return;
  }
  const float lo = p->y_zero.dtype == ITG_I8 ? -128 : 0, hi = p->y_zero.dtype == ITG_I8 ? 127 : 255;
  uint8_t whole[WIDTH], *to = (uint8_t *)p->out + at;
  for (int c = 0; c < WIDTH; c++) {
    const float whole_y = rintf(y[c]) + end->zero, above = whole_y > lo ? whole_y : lo;
    whole[c] = (uint8_t)(int32_t)(above < hi ? above : hi);
  }
  if (n == WIDTH) memcpy(to, whole, WIDTH);
  else memcpy(to, whole, (size_t)n);
}

// Multiplies rows [row, last) with the n packed columns from `column` on.
static inline void multiply(const product *p, int64_t row, int64_t last, int64_t column, int64_t n,
                            const int16_t *b, int16_t *a) {
  const int64_t pairs = (p->depth + 1) / 2;
  uint32_t sums[ROWS][WIDTH];
  row_end ends[ROWS];
  for (; row < last; row += ROWS) {
    const int64_t rows = last - row < ROWS ? last - row : ROWS;
    pack_rows(p, row, rows, a);
    for (int64_t r = 0; r < rows; r++) ends[r] = row_end_of(p, row + r);
    for (int64_t c = 0; c < n; c += WIDTH) {
      tile(a, b + c * pairs * 2, pairs, sums);
      for (int64_t r = 0; r < rows; r++)
        finish(p, &ends[r], sums[r], column + c, n - c < WIDTH ? n - c : WIDTH,
               (row + r) * p->out_step + column + c);
    }
  }
}
