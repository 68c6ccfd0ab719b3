// Products of Winograd convolution of bytes: at every point, rows of inputs (one per tile) times
// panels of weights.
//
// The register tile is M rows by N vectors of columns; register sum[m][v] holds row m times vector
// v of the columns. A lane holds two 16-bit numbers that are neighbours along k. Each step along k
// loads N vectors of weights and broadcasts two inputs per row.
//
// CPUs with more adders than multipliers can save half of the products by Winograd's inner product:
//   (x0 + y1) (x1 + y0) = x0 y0 + x1 y1 + x0 x1 + y0 y1
// The last two terms, the cross terms, depend only on the row or only on the column. Those of the
// columns, negated, are stored before the weights of a panel (its "head"). The compiler stores a
// head only if the sum of an input and a weight always fits 16 bits. Those of the rows are computed
// here. One sum in four still uses ordinary products, which balances adders and multipliers.
#pragma once
typedef struct product {  // of n rows with some panels, at points [first, last)
  const uint16_t *x, *w;
  const uint32_t *start;  // initial sums of each column at point (1, 1)
  const uint32_t *zeros;  // initial sums at the other points, unless products are saved
  uint32_t *cross;        // negated cross terms of each row, if products are saved
  bool fresh;             // `cross` is not computed yet
  uint32_t *out;
  int64_t first, last, n, pairs, panel, row, span;  // panel, row, span: distances in w, x and out
  int64_t x_step, w_step;                           // distances of points in x and w
} product;

#if defined(ISA_avx512vnni)
// Whether saving products pays: AMD cores add 16-bit numbers on four ports and multiply on two;
// Intel cores do both on two.
static bool half_products_pay(const itg_qwinograd *g) { return g->head && __builtin_cpu_is("amd"); }

// Negated cross terms of eight rows: the dot product of the first and the second half of a row.
// EVEN: all vectors of 16 are full.
INLINE void cross_rows(const bool EVEN, const uint16_t *x, int64_t row, int64_t pairs,
                       uint32_t *cross) {
  __m256i sum[8], two[4], four[2];
  FOR_UNROLLED (16, int i = 0; i < 8; i++) sum[i] = _mm256_setzero_si256();
  for (int64_t c = 0; c < pairs; c += 16) {
    const __mmask16 some = (__mmask16)(EVEN || pairs - c >= 16 ? 0xffff : (1u << (pairs - c)) - 1);
    FOR_UNROLLED (16, int i = 0; i < 8; i++) {
      const uint16_t *at = x + i * row + c;
      const __m256i near =
          EVEN ? _mm256_loadu_si256((const void *)at) : _mm256_maskz_loadu_epi16(some, at);
      const __m256i far = _mm256_loadu_si256((const void *)(at + pairs));
      __asm__("vpdpwssd %2, %1, %0" : "+v"(sum[i]) : "v"(near), "v"(far));
    }
  }
  FOR_UNROLLED (16, int i = 0; i < 4; i++)
    two[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(sum[2 * i], sum[2 * i + 1]),
                              _mm256_unpackhi_epi32(sum[2 * i], sum[2 * i + 1]));
  FOR_UNROLLED (16, int i = 0; i < 2; i++)
    four[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(two[2 * i], two[2 * i + 1]),
                               _mm256_unpackhi_epi64(two[2 * i], two[2 * i + 1]));
  const __m256i all = _mm256_add_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                                       _mm256_permute2x128_si256(four[0], four[1], 0x31));
  _mm256_storeu_si256((void *)cross, _mm256_sub_epi32(_mm256_setzero_si256(), all));
}

// Cross terms of n rows at one point, eight rows at a time (the scratch memory has rows enough).
// Not inlined, because GCC would spill addresses in the caller.
static __attribute__((noinline)) void find_cross(const uint16_t *x, int64_t n, int64_t row,
                                                 int64_t pairs, uint32_t *cross) {
  for (int64_t r = 0; r < n; r += 8, x += 8 * row, cross += 8)
    if (pairs == 8) cross_rows(false, x, row, 8, cross);
    else if (pairs == 16) cross_rows(true, x, row, 16, cross);
    else if (pairs % 16) cross_rows(false, x, row, pairs, cross);
    else cross_rows(true, x, row, pairs, cross);
}
#else
static bool half_products_pay(const itg_qwinograd *g) { return (void)g, false; }
INLINE void find_cross(const uint16_t *x, int64_t n, int64_t row, int64_t pairs, uint32_t *cross) {
  (void)x, (void)n, (void)row, (void)pairs, (void)cross;
}
#endif

typedef void (*rows_fn)(const product *p);
typedef enum {
  PAIRS,
  FOURS,
  HALF
} method;  // weights without a head; weights with a head, all products; half of the products

#if defined(ITG_QVECTORS)
INLINE int32_t two_of(const uint16_t *p) {
  int32_t two;
  memcpy(&two, p, sizeof two);
  return two;
}

INLINE vq dot(vq sum, vq x, vq w) {
#if defined(ISA_avx512vnni)
  __asm__("vpdpwssd %2, %1, %0"
          : "+v"(sum)
          : "v"(x), "v"(w));  // assembly, because with the intrinsic GCC 12 spills the sums
  return sum;
#elif defined(ISA_avx512)
  return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w));
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
#endif
}

// Multiplies n rows with V panels, M rows at a time; the last tile may repeat a few rows.
INLINE void multiply_rows(const int M, const int V, const method METHOD, const product *all) {
  product p = *all;  // a copy, because GCC would load the fields again after every store
  const int N = V * PARTS;
#define WHOLE(m, v) (METHOD != HALF || ((m) * N + (v)) % 4 == 0)  // uses all products
  for (int64_t point = p.first; point < p.last; point++) {
    const uint32_t *start = point == SIZE + 1 ? p.start
                            : METHOD == HALF  ? (const uint32_t *)(p.w - ITG_QW_PAIR)
                                              : p.zeros;
    const int64_t start_step = METHOD == HALF && point != SIZE + 1 ? p.panel / 2 : ITG_PANEL;
    const uint16_t *ahead = point + 1 < POINTS ? p.w + p.w_step : p.w;  // is prefetched
    if (METHOD == HALF && p.fresh) find_cross(p.x, p.n, p.row, p.pairs, p.cross);
    for (int64_t r = 0;;) {
      const uint16_t *row[8], *w = p.w, *end = p.w + p.pairs * ITG_QW_PAIR;
      row[0] = p.x + r * p.row;
      FOR_UNROLLED (16, int m = 1; m < M; m++) row[m] = row[m - 1] + p.row;
      vq sum[8][ITG_QW_PANELS * PARTS];
      FOR_UNROLLED (16, int v = 0; v < N; v++) {
        vq from = vq_load(start + v / PARTS * start_step + v % PARTS * QL);
        vq bare = from;  // without the head
        if (METHOD == HALF) bare = (vq)((vu)from - (vu)vq_load(p.w - ITG_QW_PAIR + v * p.panel));
        FOR_UNROLLED (16, int m = 0; m < M; m++)
          sum[m][v] = WHOLE(m, v) ? bare : vq_add(from, vq_set((int)p.cross[r + m]));
      }
      for (int64_t k = 0, far = p.pairs; w < end; k += 2, far += 2) {
        vq y[ITG_QW_PANELS * PARTS], z[ITG_QW_PANELS * PARTS];
#define LOAD(y)                                                               \
  FOR_UNROLLED (16, int v = 0; v < N; v++) {                                  \
    y[v] = vq_load(w + v / PARTS * p.panel + v % PARTS * 2 * QL);             \
    __asm__("" : "+v"(y[v])); /* else GCC loads it again for every product */ \
  }                                                                           \
  __builtin_prefetch(ahead), w += ITG_QW_PAIR, ahead += ITG_QW_PAIR
        LOAD(y);
        if (METHOD == HALF) {
          LOAD(z);
          FOR_UNROLLED (16, int m = 0; m < M; m++) {
            const vq x = vq_set(two_of(row[m] + k)), other = vq_set(two_of(row[m] + far));
            FOR_UNROLLED (16, int v = 0; v < N; v++)
              if (WHOLE(m, v)) sum[m][v] = dot(dot(sum[m][v], x, y[v]), other, z[v]);
              else sum[m][v] = dot(sum[m][v], vq_add16(x, z[v]), vq_add16(other, y[v]));
          }
          continue;
        }
        FOR_UNROLLED (16, int m = 0; m < M; m++) {
          const vq x = vq_set(two_of(row[m] + k));
          FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = dot(sum[m][v], x, y[v]);
        }
        if (METHOD == PAIRS) continue;
        LOAD(y);
        FOR_UNROLLED (16, int m = 0; m < M; m++) {
          const vq x = vq_set(two_of(row[m] + far));
          FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = dot(sum[m][v], x, y[v]);
        }
#undef LOAD
      }
      uint32_t *out = p.out + r * p.span;
      FOR_UNROLLED (16, int m = 0; m < M; m++, out += p.span)
        FOR_UNROLLED (16, int v = 0; v < N; v++)
          vq_store_halves(out + v / PARTS * (POINTS * ITG_PANEL) + v % PARTS * QL, sum[m][v]);
      const int64_t next = r + 2 * M <= p.n ? r + M : p.n - M;
      if (next <= r) break;
      r = next;
    }
    p.x += p.x_step, p.w += p.w_step, p.out += ITG_PANEL;
    if (METHOD == HALF) p.cross += ITG_QW_CROSS;
  }
#undef WHOLE
}

#define ROWS(M, V)                                                                 \
  static void pairs_##M##x##V(const product *p) { multiply_rows(M, V, PAIRS, p); } \
  static void fours_##M##x##V(const product *p) { multiply_rows(M, V, FOURS, p); }
#define HALF_ROWS(M, V) \
  static void half_##M##x##V(const product *p) { multiply_rows(M, V, HALF, p); }
#if defined(ISA_avx512vnni)
enum { WIDEST = 4 };
#define EACH(T) \
  T(1, 1)       \
  T(2, 1)       \
  T(4, 1)       \
  T(6, 1)       \
  T(8, 1)       \
  T(1, 2)       \
  T(2, 2)       \
  T(4, 2)       \
  T(6, 2)       \
  T(8, 2) T(1, 3) T(2, 3) T(4, 3) T(6, 3) T(8, 3) T(1, 4) T(2, 4) T(3, 4) T(4, 4) T(5, 4) T(6, 4)
#define EACH_HALF(T) \
  T(1, 1)            \
  T(2, 1)            \
  T(4, 1)            \
  T(6, 1)            \
  T(8, 1)            \
  T(1, 2)            \
  T(2, 2) T(4, 2) T(6, 2) T(8, 2) T(1, 3) T(2, 3) T(4, 3) T(6, 3) T(1, 4) T(2, 4) T(3, 4) T(4, 4)
EACH_HALF(HALF_ROWS)
#elif defined(ISA_avx512)
enum { WIDEST = 2 };
#define EACH(T) T(1, 1) T(2, 1) T(4, 1) T(6, 1) T(8, 1) T(1, 2) T(2, 2) T(4, 2) T(6, 2) T(8, 2)
#define EACH_HALF(T)
#else
enum { WIDEST = 1 };
#define EACH(T) T(1, 1) T(2, 1) T(3, 1) T(4, 1) T(5, 1) T(6, 1)
#define EACH_HALF(T)
#endif
EACH(ROWS)

// Chooses the number of rows per tile with the least cost for n rows.
static rows_fn rows_of(int64_t n, int64_t panels, method how) {
#define ENTRY(M, V) [PAIRS][V - 1][M] = pairs_##M##x##V, [FOURS][V - 1][M] = fours_##M##x##V,
#define HALF_ENTRY(M, V) [HALF][V - 1][M] = half_##M##x##V,
  static const rows_fn all[3][WIDEST][9] = {EACH(ENTRY) EACH_HALF(HALF_ENTRY)};
  int64_t best = 1, least = INT64_MAX;
  for (int64_t m = 1; m <= 8 && m <= n; m++) {
    const int64_t cost = (n + m - 1) / m * (m * panels + 2);
    if (all[how][panels - 1][m] && cost <= least) best = m, least = cost;
  }
  return all[how][panels - 1][best];
}
#elif defined(ISA_rvv)
#include "qrvv.h"
enum { WIDEST = 1 };

INLINE void multiply_rows(const int M, const method METHOD, const product *all) {
  product p = *all;
  for (int64_t point = p.first; point < p.last; point++) {
    const uint32_t *start = point == SIZE + 1 ? p.start : p.zeros;
    for (int64_t r = 0;;) {
      const int16_t *w = (const int16_t *)p.w, *row[QR_ROWS];
      vi sum[QR_ROWS];
      FOR_UNROLLED (16, int m = 0; m < M; m++) {
        row[m] = (const int16_t *)p.x + (r + m) * p.row;
        sum[m] = *(const vi_any *)start;
      }
      for (int64_t k = 0; k < p.pairs; k++, w += ITG_QW_PAIR) {
        const qr_pairs both = *(const qr_pairs *)w;
        const vec_i16 first = QR_SECOND(both, 0), second = QR_SECOND(both, 1);
        const int64_t at = METHOD == PAIRS ? 2 * k : k % 2 * p.pairs + k / 2 * 2;
        FOR_UNROLLED (16, int m = 0; m < M; m++) {
          sum[m] = qr_madd(sum[m], first, row[m][at]);
          sum[m] = qr_madd(sum[m], second, row[m][at + 1]);
        }
      }
      FOR_UNROLLED (16, int m = 0; m < M; m++) *(vi_any *)(p.out + (r + m) * p.span) = sum[m];
      const int64_t next = r + 2 * M <= p.n ? r + M : p.n - M;  // the last tile may repeat rows
      if (next <= r) break;
      r = next;
    }
    p.x += p.x_step, p.w += p.w_step, p.out += ITG_PANEL;
  }
}

#define ROWS(M)                                                           \
  static void pairs_##M(const product *p) { multiply_rows(M, PAIRS, p); } \
  static void fours_##M(const product *p) { multiply_rows(M, FOURS, p); }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)

static rows_fn rows_of(int64_t n, int64_t panels, method how) {
  (void)panels;
  static const rows_fn all[2][QR_ROWS] = {{pairs_1, pairs_2, pairs_3, pairs_4, pairs_5},
                                          {fours_1, fours_2, fours_3, fours_4, fours_5}};
  const int64_t tiles = (n + QR_ROWS - 1) / QR_ROWS;
  return all[how == FOURS][(n + tiles - 1) / tiles - 1];
}
#else
enum { WIDEST = 1 };

INLINE void multiply_rows(const method METHOD, const product *all) {
  product p = *all;
  for (int64_t point = p.first; point < p.last; point++) {
    for (int64_t r = 0; r < p.n; r++) {
      uint32_t *out = p.out + r * p.span;
      memcpy(out, point == SIZE + 1 ? p.start : p.zeros, ITG_PANEL * sizeof *out);
      for (int64_t k = 0; k < p.pairs; k++) {
        const uint16_t *x =
            p.x + r * p.row + (METHOD == PAIRS ? 2 * k : k % 2 * p.pairs + k / 2 * 2);
        const int16_t *w = (const int16_t *)p.w + k * ITG_QW_PAIR;
        for (int c = 0; c < ITG_PANEL; c++)
          out[c] += (uint32_t)((int16_t)x[0] * w[2 * c]) + (uint32_t)((int16_t)x[1] * w[2 * c + 1]);
      }
    }
    p.x += p.x_step, p.w += p.w_step, p.out += ITG_PANEL;
  }
}

static void pairs_1x1(const product *p) { multiply_rows(PAIRS, p); }
static void fours_1x1(const product *p) { multiply_rows(FOURS, p); }
static rows_fn rows_of(int64_t n, int64_t panels, method how) {
  (void)n, (void)panels;
  return how == PAIRS ? pairs_1x1 : fours_1x1;
}
#endif

// Initial sums of panels [first, last) at point (1, 1), which the output transform adds to all
// pixels of a tile. They are 576 times the bias, plus the head if products are saved. The bias is
// that of u8 inputs; i8 inputs are 128 smaller, so 128 times the sum of the weights is added. The
// transformed weights at that point are 16 times the sum of the nine taps.
static void find_start(const itg_qwinograd *g, const uint16_t *w, const int32_t *bias,
                       bool is_signed, bool half, int64_t first, int64_t last, uint32_t *start) {
  memset(start, 0, (size_t)(g->panels * ITG_PANEL) * sizeof *start);
  for (int64_t i = first * ITG_PANEL; i < last * ITG_PANEL && i < g->channels; i++)
    start[i] = (uint32_t)bias[i] * 576;
  for (int64_t p = first; p < last; p++) {
    const int16_t *two = (const int16_t *)w + ((SIZE + 1) * g->panels + p) * g->panel;
    uint32_t *to = start + p * ITG_PANEL;
    for (int c = 0; c < ITG_PANEL && half; c++) to[c] += ((const uint32_t *)two)[c];
    two += g->head * ITG_QW_PAIR;
    for (int64_t k = 0; k < g->pairs && is_signed; k++, two += ITG_QW_PAIR)
      for (int c = 0; c < ITG_PANEL; c++)
        to[c] += (uint32_t)(two[2 * c] + two[2 * c + 1]) * (576 * 128 / 16);
  }
}

// Multiplies the rows of n tiles with panels [first, last) at every point. `cross` is NULL to use
// all products, else memory for the cross terms of the rows; fresh: they are not computed yet.
static void multiply(const itg_qwinograd *g, const uint16_t *w, const uint32_t *start,
                     uint32_t *cross, bool fresh, const uint16_t *in, uint32_t *out, int64_t n,
                     int64_t first, int64_t last) {
  static const uint32_t zeros[ITG_QW_PANELS * ITG_PANEL];
  const int64_t spans = (last - first + WIDEST - 1) / WIDEST,
                points =
                    spans > 1 ? 1 : POINTS;  // 1: all panels use the rows while they are cached
  const method how = cross ? HALF : g->head ? FOURS : PAIRS;
  w += g->head * ITG_QW_PAIR;
  for (int64_t k = 0; k < POINTS; k += points)
    for (int64_t i = 0; i < spans; i++) {
      const int64_t a = itg_split(last - first, spans, i),
                    b = itg_split(last - first, spans, i + 1);
      const product p = {.x = in + k * g->in_step,
                         .w = w + (k * g->panels + first + a) * g->panel,
                         .start = start + (first + a) * ITG_PANEL,
                         .zeros = zeros,
                         .cross = cross ? cross + k * ITG_QW_CROSS : NULL,
                         .fresh = fresh && i == 0,
                         .out = out + (a * POINTS + k) * ITG_PANEL,
                         .first = k,
                         .last = k + points,
                         .n = n,
                         .pairs = g->pairs,
                         .panel = g->panel,
                         .row = g->row,
                         .span = g->span,
                         .x_step = g->in_step,
                         .w_step = g->panels * g->panel};
      rows_of(n, b - a, how)(&p);
    }
}
