// The register tile, compiled once per ISA: all sums of `M` rows by `V` panels stay in registers from first to last.
#include "tile.h"

#include "vec.h"

#if defined(ISA_avx512) || defined(ISA_avx2)
typedef vf lanes;
enum { LANES = VL };
#define lanes_load(p) vload(p)
#define lanes_store(p, v) vstore(p, v)
#define lanes_set(c) vset(c)
#define lanes_madd(a, b, c) vfma(a, b, c)
#else  // four floats at a time is what every compiler can map to something
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));
enum { LANES = 4 };
#define lanes_load(p) (*(const lanes *)(p))
#define lanes_store(p, v) (*(lanes *)(p) = (v))
#define lanes_set(c) ((lanes){c, c, c, c})
#define lanes_madd(a, b, c) ((a) * (b) + (c))
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
enum { PARTS = ITG_PANEL / LANES };  // vectors per row of a panel

// The first n of LANES floats; the others are 0 or stay as they are.
#if defined(ISA_avx512) || defined(ISA_avx2)
INLINE lanes get(const float *p, int64_t n) { return n >= LANES ? vload(p) : n > 0 ? vloadn(p, n) : vset(0.f); }
INLINE void put(float *p, int64_t n, lanes v) {
  if (n >= LANES) vstore(p, v);
  else if (n > 0) vstoren(p, n, v);
}
INLINE lanes clamp(lanes lo, lanes hi, lanes y) { return vmin(hi, vmax(lo, y)); }  // in this order a NaN passes through
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

// Bounds, residual and stores for sums that have their bias. `columns` is a constant where all panels are full.
INLINE void finish(const int M, const int V, lanes (*sum)[ITG_TILE_PANELS * PARTS], const itg_rows *rows, int64_t column,
                   int64_t columns, float *base, const itg_finish *end) {
  const lanes lo = lanes_set(end->lo), hi = lanes_set(end->hi);
  const float *residual = end->residual ? end->residual + column : NULL;
  const bool before = residual && !end->add_last, after = residual && end->add_last && !end->act;
  UNROLL for (int m = 0; m < M; m++) {
    const int64_t at = rows->out[m];
    float *out = base + at + column;
    if (before)
      UNROLL for (int v = 0; v < V * PARTS; v++)
        sum[m][v] = sum[m][v] + get(residual + at + v * LANES, columns - v * LANES);
    UNROLL for (int v = 0; v < V * PARTS; v++) sum[m][v] = clamp(lo, hi, sum[m][v]);
    if (after)
      UNROLL for (int v = 0; v < V * PARTS; v++)
        sum[m][v] = sum[m][v] + get(residual + at + v * LANES, columns - v * LANES);
    UNROLL for (int v = 0; v < V * PARTS; v++) put(out + v * LANES, columns - v * LANES, sum[m][v]);
  }
}

// Activations that are more than bounds, on what finish has stored.
static __attribute__((noinline)) void activate(const itg_rows *rows, int64_t column, int64_t columns, float *base,
                                               const itg_finish *end) {
  for (int m = 0; m < rows->rows; m++) {
    float *out = base + rows->out[m] + column;
    end->act(out, columns, end->args);
    if (end->residual && end->add_last)
      for (int64_t i = 0; i < columns; i++) out[i] += end->residual[rows->out[m] + column + i];
  }
}

INLINE void tile(const int M, const int V, ITG_TILE_ARGS) {
  lanes sum[ITG_TILE_M][ITG_TILE_PANELS * PARTS];
  const bool full = columns == V * ITG_PANEL;
  if (!end->bias) {
    UNROLL for (int v = 0; v < V * PARTS; v++) sum[0][v] = lanes_set(0.f);
  } else if (full) {
    UNROLL for (int v = 0; v < V * PARTS; v++) sum[0][v] = lanes_load(end->bias + column + v * LANES);
  } else {
    UNROLL for (int v = 0; v < V * PARTS; v++) sum[0][v] = get(end->bias + column + v * LANES, columns - v * LANES);
  }
  UNROLL for (int v = 0; v < V * PARTS; v++)
    UNROLL for (int m = 1; m < M; m++) sum[m][v] = sum[0][v];

  const itg_tap *tap = rows->taps;
  const int64_t depth = rows->depth;
  for (int64_t t = 0; t < rows->n_taps; t++, tap++) {
    const float *row[ITG_TILE_M], *w = b + tap->at;
    UNROLL for (int m = 0; m < M; m++) row[m] = tap->row[m];
    for (int64_t k = 0; k < depth; k++, w += ITG_PANEL) {
      lanes x, y[ITG_TILE_PANELS * PARTS];
      UNROLL for (int v = 0; v < V; v++)
        UNROLL for (int i = 0; i < PARTS; i++) y[v * PARTS + i] = lanes_load(w + v * panel + i * LANES);
      UNROLL for (int m = 0; m < M; m++) {
        x = lanes_set(row[m][k]);
        UNROLL for (int v = 0; v < V * PARTS; v++) sum[m][v] = lanes_madd(x, y[v], sum[m][v]);
      }
    }
  }
  if (full) finish(M, V, sum, rows, column, V * ITG_PANEL, base, end);
  else finish(M, V, sum, rows, column, columns, base, end);
  if (end->act) activate(rows, column, columns, base, end);
}

#define TILE(M, V) \
  static void tile_##M##x##V(ITG_TILE_ARGS) { tile(M, V, rows, b, panel, column, columns, base, end); }
#if defined(ISA_avx512)
#define EACH_ROWS(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V) T(6, V) T(7, V)
#define EACH(T) EACH_ROWS(T, 1) EACH_ROWS(T, 2) EACH_ROWS(T, 3) EACH_ROWS(T, 4)
#elif defined(ISA_avx2)
#define EACH(T) T(1, 1) T(2, 1) T(3, 1) T(4, 1) T(5, 1) T(6, 1)
#else
#define EACH(T) T(1, 1) T(2, 1)
#endif
EACH(TILE)

void itg_tile(ITG_TILE_ARGS) {
#define ENTRY(M, V) [V - 1][M - 1] = tile_##M##x##V,
  static const itg_tile_fn table[ITG_TILE_PANELS][ITG_TILE_M] = {EACH(ENTRY)};
  table[(columns - 1) / ITG_PANEL][rows->rows - 1](rows, b, panel, column, columns, base, end);
}
