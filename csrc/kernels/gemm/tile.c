// The register tile of float products, compiled once per ISA. It is M rows by V panels of 16
// columns: sum[m][v] holds row m, vector v of the columns, and stays in a register over all of k.
// In each step along k the N vectors of weights are loaded once (y[v]) and the row's input is
// broadcast (x): N + M loads for M * N multiply-adds. AVX-512: up to 7 x 4 = 28 sums, 4 registers
// left; AVX2: 6 rows x 2 vectors of one panel; NEON: 6 rows x 4; RVV: 6 rows x 1.
#include <string.h>

#include "tile.h"
#include "vec_half.h"

#ifdef ITG_VECTORS
typedef vf lanes;
enum { LANES = VL };
#define lanes_load(p) vload(p)
#define lanes_store(p, v) vstore(p, v)
#define lanes_set(c) vset(c)
#if defined(ISA_avx512bf16)
#define lanes_madd(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#define MADD "vdpbf16ps"
#elif defined(ISA_neonbf16)
#define lanes_madd(a, b, c) vbfdotq_f32(c, vreinterpretq_bf16_f32(a), vreinterpretq_bf16_f32(b))
#else
#define lanes_madd(a, b, c) vfma(a, b, c)
#define MADD "vfmadd231ps"
#endif
#else  // vectors of four floats, which compilers map to any CPU
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));
enum { LANES = 4 };
#define lanes_load(p) (*(const lanes *)(p))
#define lanes_store(p, v) (*(lanes *)(p) = (v))
#define lanes_set(c) ((lanes){c, c, c, c})
#define lanes_madd(a, b, c) ((a) * (b) + (c))
#endif

enum {
  PARTS = ITG_PANEL / LANES,          // vectors in a row of a panel
  VECTORS = ITG_TILE_PANELS * PARTS,  // vectors in a row of a tile
};

// Load or store the first n of LANES floats. Other lanes are loaded as 0 and not stored.
#ifdef ITG_VECTORS
INLINE lanes get(const float *p, int64_t n) {
  return n >= LANES ? vload(p) : n > 0 ? vloadn(p, n) : vset(0.f);
}
INLINE void put(float *p, int64_t n, lanes v) {
  if (n >= LANES) vstore(p, v);
  else if (n > 0) vstoren(p, n, v);
}
INLINE lanes clamp(lanes lo, lanes hi, lanes y) {
  return vmin(hi, vmax(lo, y));
}  // this order of operands keeps a NaN
#else
INLINE lanes get(const float *p, int64_t n) {
  lanes v = lanes_set(0.f);
  for (int i = 0; i < LANES && i < n; i++) v[i] = p[i];
  return v;
}
INLINE void put(float *p, int64_t n, lanes v) {
  for (int i = 0; i < LANES && i < n; i++) p[i] = v[i];
}
INLINE lanes clamp(lanes lo, lanes hi, lanes y) {
  for (int i = 0; i < LANES; i++) y[i] = lo[i] > y[i] ? lo[i] : hi[i] < y[i] ? hi[i] : y[i];
  return y;
}
#endif

// Load or store from element `at` of the residual or the output, which are bf16 in the bf16 form.
#if defined(ITG_BF16)
INLINE lanes get_made(const void *p, int64_t at, int64_t n) {
  return n > 0 ? vsome_bf16((const uint16_t *)p + at, n) : lanes_set(0.f);
}
INLINE void put_made(void *p, int64_t at, int64_t n, lanes v) {
  if (n > 0) vkeep_bf16((uint16_t *)p + at, n, v);
}
#elif !defined(ITG_HALF)
#define get_made(p, at, n) get((const float *)(p) + (at), n)
#define put_made(p, at, n, v) put((float *)(p) + (at), n, v)
#endif

#if !defined(ITG_HALF)
// Epilogue in registers: residual, bounds and stores of M rows by N vectors of sums, which include
// the bias. Only vectors from LAST on (the last panel) may have fewer than LANES columns.
INLINE void finish(const int M, const int N, const int LAST, lanes (*sum)[VECTORS],
                   const itg_rows *rows, int64_t column, int64_t columns, void *base,
                   const itg_finish *end) {
  const lanes lo = lanes_set(end->lo), hi = lanes_set(end->hi);
  const void *residual = end->residual;
  const bool before = residual && !end->add_last, after = residual && end->add_last && !end->act;
  FOR_UNROLLED (16, int m = 0; m < M; m++) {
    const int64_t at = rows->out[m] + column;
    if (before)
      FOR_UNROLLED (16, int v = 0; v < N; v++)
        sum[m][v] =
            sum[m][v] + get_made(residual, at + v * LANES, v < LAST ? LANES : columns - v * LANES);
    FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = clamp(lo, hi, sum[m][v]);
    if (after)
      FOR_UNROLLED (16, int v = 0; v < N; v++)
        sum[m][v] =
            sum[m][v] + get_made(residual, at + v * LANES, v < LAST ? LANES : columns - v * LANES);
    FOR_UNROLLED (16, int v = 0; v < N; v++)
      put_made(base, at + v * LANES, v < LAST ? LANES : columns - v * LANES, sum[m][v]);
  }
}
#endif

// Load n elements of the output's type as floats.
static void take(float *to, const void *from, int64_t at, int64_t n, bool small, bool half) {
  if (!small) memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
  else if (half)
    for (int64_t i = 0; i < n; i += VL)
      vstore(to + i, vsome_f16((const uint16_t *)from + at + i, n - i));
  else
    for (int64_t i = 0; i < n; i += VL)
      vstore(to + i, vsome_bf16((const uint16_t *)from + at + i, n - i));
}
static void give(void *to, int64_t at, const float *from, int64_t n, bool small, bool half) {
  if (!small) memcpy((float *)to + at, from, (size_t)n * sizeof *from);
  else if (half)
    for (int64_t i = 0; i < n; i += VL) vkeep_f16((uint16_t *)to + at + i, n - i, vload(from + i));
  else
    for (int64_t i = 0; i < n; i += VL) vkeep_bf16((uint16_t *)to + at + i, n - i, vload(from + i));
}

// Epilogue through memory, for outputs of the other type and for activations before rounding.
// `sums` has rows of `stride` floats, which include the bias.
static __attribute__((noinline)) void settle(float *sums, int64_t stride, const itg_rows *rows,
                                             int64_t column, int64_t columns, void *base,
                                             const itg_finish *end) {
  const bool small = (ITG_PAIR == 2) != end->other;
  float extra[ITG_TILE_PANELS * ITG_PANEL];
  for (int m = 0; m < rows->rows; m++) {
    float *row = sums + m * stride;
    if (end->residual && !end->add_last) {
      take(extra, end->residual, rows->out[m] + column, columns, small, end->half);
      for (int64_t i = 0; i < columns; i++) row[i] += extra[i];
    }
    for (int64_t i = 0; i < columns; i++)
      row[i] = row[i] < end->lo ? end->lo : row[i] > end->hi ? end->hi : row[i];
    if (end->act && end->slope) itg_bend(end, row, columns, column, columns);
  }
  if (end->act && !end->slope)
    end->act(sums, rows->rows * stride, end->args);  // one call for all rows
  for (int m = 0; m < rows->rows; m++) {
    float *row = sums + m * stride;
    if (end->residual && end->add_last) {
      take(extra, end->residual, rows->out[m] + column, columns, small, end->half);
      for (int64_t i = 0; i < columns; i++) row[i] += extra[i];
    }
    give(base, rows->out[m] + column, row, columns, small, end->half);
  }
}

#if !defined(ITG_BF16) && !defined(ITG_HALF)
// Applies an activation other than bounds to the rows that `finish` has stored.
static __attribute__((noinline)) void activate(const itg_rows *rows, int64_t column,
                                               int64_t columns, float *base,
                                               const itg_finish *end) {
  for (int m = 0; m < rows->rows;) {
    const int64_t at = rows->out[m] + column;
    int64_t n = columns;  // contiguous rows are one call
    while (++m < rows->rows && rows->out[m] + column == at + n) n += columns;
    itg_bend(end, base + at, n, column, columns);
    if (end->residual && end->add_last)
      for (int64_t i = at; i < at + n; i++) base[i] += ((const float *)end->residual)[i];
  }
}
#endif

#if defined(ITG_HALVES)
#include "tile_half.h"
#else
// Loads of packed weights as f32.
#if defined(ITG_HALF)
#ifdef ITG_VECTORS
#define some_f16 vsome_f16
#else
INLINE lanes some_f16(const uint16_t *p, int64_t n) {
  lanes v = lanes_set(0.f);
  for (int i = 0; i < LANES && i < n; i++) v[i] = itg_f16_to_f32(p[i]);
  return v;
}
#endif
enum {
  UNIT = 2,    // f16 elements per float
  SOME = 128,  // elements of a row that are widened at a time
};
#define panel_load(p) some_f16(p, LANES)
INLINE void widen(float *to, const uint16_t *from, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) {
    if (n - i >= LANES) lanes_store(to + i, some_f16(from + i, LANES));
    else lanes_store(to + i, some_f16(from + i, n - i));
  }
}
#else
enum { UNIT = 1 };
#define panel_load(p) lanes_load(p)
#endif

// Computes a tile of M rows by V panels. If H is 1, only the first half of the last panel is
// computed, so that 24 columns do not cost as much as 32.
INLINE void tile(const int M, const int V, const int H, ITG_TILE_ARGS) {
  const int N = V * PARTS - H * (PARTS / 2);
  lanes sum[ITG_TILE_M][VECTORS];
  const bool full = columns == V * ITG_PANEL;
  if (!end->bias) {
    FOR_UNROLLED (16, int v = 0; v < N; v++) sum[0][v] = lanes_set(0.f);
  } else if (full) {
    FOR_UNROLLED (16, int v = 0; v < N; v++) sum[0][v] = lanes_load(end->bias + column + v * LANES);
  } else {
    FOR_UNROLLED (16, int v = 0; v < N; v++)
      sum[0][v] = get(end->bias + column + v * LANES, columns - v * LANES);
  }
  FOR_UNROLLED (16, int v = 0; v < N; v++)
    FOR_UNROLLED (16, int m = 1; m < M; m++) sum[m][v] = sum[0][v];
#if defined(ISA_avx512)  // half a panel is half a vector
  const int W = N - H;  // whole vectors
  __m256 half[ITG_TILE_M];
  FOR_UNROLLED (16, int m = 0; m < M; m++) half[m] = _mm512_castps512_ps256(sum[m][N - 1]);
#else
  const int W = N;
#endif

  const itg_tap *tap = rows->taps;
  const float *ahead = rows->ahead;
  const int64_t fetch = rows->fetch;
#if defined(ITG_HALF)
  const int64_t all = rows->depth * rows->n_taps * 2;
  float wide[ITG_TILE_M][SOME];
  int64_t done = 0;  // of this tap
  for (int64_t t = 0, depth; t < all; t += depth) {
    const int64_t left = rows->depth * 2 - done;
    depth = left < SOME ? left : SOME;
    const uint16_t *w = (const uint16_t *)(b + tap->at) + done * ITG_PANEL;
    const float *row[ITG_TILE_M];
    FOR_UNROLLED (16, int m = 0; m < M; m++) {
      widen(wide[m], (const uint16_t *)tap->row[m] + done, depth);
      row[m] = wide[m];
    }
    done += depth;
    if (done == rows->depth * 2) done = 0, tap++;
#else
  const int64_t depth = rows->depth;
  for (int64_t t = 0; t < rows->n_taps; t++, tap++) {
    const float *row[ITG_TILE_M], *w = b + tap->at;
    FOR_UNROLLED (16, int m = 0; m < M; m++) row[m] = tap->row[m];
#endif
    for (int64_t k = 0; k < depth; k++, w += ITG_PANEL) {
      lanes y[VECTORS];
      FOR_UNROLLED (16, int v = 0; v < W; v++)
        y[v] = panel_load(w + v / PARTS * (panel * UNIT) + v % PARTS * LANES);
#if defined(ISA_avx512)
      const __m256 z = H ? _mm256_loadu_ps((const float *)w + W * panel) : _mm256_setzero_ps();
#endif
      if (ahead) {
        __builtin_prefetch(ahead, 0, 2);
        if (fetch > 1) __builtin_prefetch(ahead + ITG_PANEL, 0, 2);
        ahead += fetch * ITG_PANEL;
      }
      FOR_UNROLLED (16, int m = 0; m < M; m++) {
#if defined(ISA_avx512)  // few products per input: each broadcasts it from memory
        if (H || V <= 2) {
          const float *x = row[m] + k;
          FOR_UNROLLED (16, int v = 0; v < W; v++)
            __asm__(MADD " %2%{1to16%}, %1, %0" : "+v"(sum[m][v]) : "v"(y[v]), "m"(*x));
          if (H) __asm__(MADD " %2%{1to8%}, %1, %0" : "+v"(half[m]) : "v"(z), "m"(*x));
          continue;
        }
#endif
        const lanes x = lanes_set(row[m][k]);
        FOR_UNROLLED (16, int v = 0; v < W; v++) sum[m][v] = lanes_madd(x, y[v], sum[m][v]);
      }
    }
  }
#if defined(ISA_avx512)
  if (H)
    FOR_UNROLLED (16, int m = 0; m < M; m++) sum[m][N - 1] = _mm512_castps256_ps512(half[m]);
#endif
#if !defined(ITG_HALF)
  if (!end->other && !(end->act && ITG_PAIR == 2)) {
    finish(M, N, (V - 1) * PARTS, sum, rows, column, columns, base, end);
#if !defined(ITG_BF16)
    if (end->act) activate(rows, column, columns, base, end);
#endif
    return;
  }
#endif
  float sums[ITG_TILE_M * VECTORS * LANES];
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < N; v++) lanes_store(sums + (m * N + v) * LANES, sum[m][v]);
  settle(sums, N * LANES, rows, column, columns, base, end);
}
#endif

#define TILE(M, V, H)                                          \
  static void tile_##M##x##V##_##H(ITG_TILE_ARGS) {            \
    tile(M, V, H, rows, b, panel, column, columns, base, end); \
  }
#if defined(ISA_rvvfp16)
#define EACH_ROWS(T, V, H) T(1, V, H) T(2, V, H) T(3, V, H) T(4, V, H) T(5, V, H) T(6, V, H)
#define EACH(T, H) EACH_ROWS(T, 1, H) EACH_ROWS(T, 2, H) T(1, 3, H) T(1, 4, H)
#elif defined(ISA_neonfp16)
#define EACH(T, H) \
  T(1, 1, H)       \
  T(2, 1, H) T(3, 1, H) T(4, 1, H) T(5, 1, H) T(6, 1, H) T(7, 1, H) T(1, 2, H) T(1, 3, H) T(1, 4, H)
#elif defined(ISA_avx512)
#define EACH_ROWS(T, V, H) \
  T(1, V, H) T(2, V, H) T(3, V, H) T(4, V, H) T(5, V, H) T(6, V, H) T(7, V, H)
#define EACH(T, H) EACH_ROWS(T, 1, H) EACH_ROWS(T, 2, H) EACH_ROWS(T, 3, H) EACH_ROWS(T, 4, H)
#elif defined(ITG_VECTORS)
#define EACH(T, H) \
  T(1, 1, H) T(2, 1, H) T(3, 1, H) T(4, 1, H) T(5, 1, H) T(6, 1, H) T(1, 2, H) T(1, 3, H) T(1, 4, H)
#else
#define EACH(T, H) T(1, 1, H) T(2, 1, H)
#endif
#if (!defined(ITG_HALF) || defined(ITG_HALVES)) && !defined(ISA_rvv)  // whose vectors are panels
#define HALF_PANELS
#endif
EACH(TILE, 0)
#ifdef HALF_PANELS
EACH(TILE, 1)
#endif

void itg_tile(ITG_TILE_ARGS) {
#define ENTRY(M, V, H) [V - 1][M - 1] = tile_##M##x##V##_##H,
  static const itg_tile_fn table[][ITG_TILE_PANELS][ITG_TILE_M] = {
      {EACH(ENTRY, 0)},
#ifdef HALF_PANELS
      {EACH(ENTRY, 1)},
#endif
  };
  const int64_t last = columns - 1;
  const int half = last % ITG_PANEL < ITG_PANEL / 2 && sizeof table / sizeof *table > 1;
  table[half][last / ITG_PANEL][rows->rows - 1](rows, b, panel, column, columns, base, end);
}
