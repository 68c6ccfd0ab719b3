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

// What is left to do with a row of sums once it lies in memory; `out` has the bias already.
static void finish_row(float *out, const float *sums, const float *residual, int64_t n, const itg_finish *end) {
  for (int64_t i = 0; i < n; i++) {
    float y = sums[i];
    if (residual && !end->add_last) y += residual[i];
    y = end->lo > y ? end->lo : y;  // in this order a NaN passes through
    y = end->hi < y ? end->hi : y;
    out[i] = y;
  }
  if (end->act) end->act(out, n, end->args);
  if (residual && end->add_last)
    for (int64_t i = 0; i < n; i++) out[i] += residual[i];
}

INLINE void tile(const int M, const int V, ITG_TILE_ARGS) {
  lanes sum[ITG_TILE_M][ITG_TILE_PANELS * PARTS];
  float padded[ITG_TILE_PANELS * ITG_PANEL];
  const float *bias = padded;
  if (end->bias && columns == V * ITG_PANEL) {
    bias = end->bias + column;
  } else {
    memset(padded, 0, sizeof padded);
    if (end->bias) memcpy(padded, end->bias + column, (size_t)columns * sizeof *padded);
  }
  UNROLL for (int v = 0; v < V * PARTS; v++) {
    sum[0][v] = lanes_load(bias + v * LANES);
    UNROLL for (int m = 1; m < M; m++) sum[m][v] = sum[0][v];
  }

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

#if defined(ISA_avx512) || defined(ISA_avx2)
  if (columns == V * ITG_PANEL) {
    const lanes lo = vset(end->lo), hi = vset(end->hi);
    UNROLL for (int m = 0; m < M; m++) {
      float *out = base + rows->out[m] + column;
      const float *residual = end->residual ? end->residual + rows->out[m] + column : NULL;
      UNROLL for (int v = 0; v < V * PARTS; v++) {
        lanes y = sum[m][v];
        if (residual && !end->add_last) y = vadd(y, vload(residual + v * LANES));
        y = vmin(hi, vmax(lo, y));
        if (residual && end->add_last && !end->act) y = vadd(y, vload(residual + v * LANES));
        vstore(out + v * LANES, y);
      }
    }
    if (end->act) {
      for (int m = 0; m < M; m++) {
        float *out = base + rows->out[m] + column;
        end->act(out, columns, end->args);
        if (end->residual && end->add_last) {
          const float *residual = end->residual + rows->out[m] + column;
          for (int v = 0; v < V * PARTS; v++)
            vstore(out + v * LANES, vadd(vload(out + v * LANES), vload(residual + v * LANES)));
        }
      }
    }
    return;
  }
#endif
  UNROLL for (int m = 0; m < M; m++) {
    UNROLL for (int v = 0; v < V * PARTS; v++) lanes_store(padded + v * LANES, sum[m][v]);
    finish_row(base + rows->out[m] + column, padded,
               end->residual ? end->residual + rows->out[m] + column : NULL, columns, end);
  }
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
