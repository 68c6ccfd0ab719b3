// The register tile of f16 products where arithmetic is that of f16 (vec_half.h). SUMMED products
// are summed in f16, and these sums in f32: errors do not grow with the length of a product, and a
// sum of a thousand numbers of one sign does not stop growing. Included by tile.c.
#pragma once
#include "vec_half.h"

enum {
  HALF_PARTS = ITG_PANEL / VLH,                 // vectors in a row of a panel
  HALF_VECTORS = ITG_TILE_PANELS * HALF_PARTS,  // vectors in a row of a tile
  SUMMED = 64,
};

// Adds n steps along k to the sums of M rows by N vectors.
INLINE void half_steps(const int M, const int N, vh (*sum)[HALF_VECTORS],
                       const uint16_t *const *row, int64_t n, const uint16_t *w, int64_t panel) {
  int64_t k = 0;
#define WEIGHTS(l)                         \
  vh y[HALF_VECTORS];                      \
  FOR_UNROLLED (16, int v = 0; v < N; v++) \
    y[v] = hload(w + v / HALF_PARTS * panel + v % HALF_PARTS * VLH + (l) * ITG_PANEL);
#if defined(ISA_neonfp16)
// Eight inputs of a row are one vector, of which each step takes a lane. By assembly: compilers
// copy the lane to a vector of its own first. "x" is the lower half of the registers.
#define STEP(l)                                                                              \
  {                                                                                          \
    WEIGHTS(l)                                                                               \
    FOR_UNROLLED (16, int m = 0; m < M; m++)                                                 \
      FOR_UNROLLED (16, int v = 0; v < N; v++)                                               \
        __asm__("fmla %0.8h, %1.8h, %2.h[" #l "]" : "+w"(sum[m][v]) : "w"(y[v]), "x"(x[m])); \
  }
  for (; k + 8 <= n; k += 8, w += 8 * ITG_PANEL) {
    vh x[ITG_TILE_M];
    FOR_UNROLLED (16, int m = 0; m < M; m++) x[m] = hload(row[m] + k);
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
  }
#undef STEP
#endif
  for (; k < n; k++, w += ITG_PANEL) {
    WEIGHTS(0)
    FOR_UNROLLED (16, int m = 0; m < M; m++) {
      const vh x = hdup(row[m] + k);
      FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = hfma(x, y[v], sum[m][v]);
    }
  }
#undef WEIGHTS
}

// Adds the sums to rows of floats: from `from`, one row or one for each m, to `to`.
INLINE void half_widen(const int M, const int N, vh (*sum)[HALF_VECTORS], const float *from,
                       int64_t stride, float *to) {
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < N; v++)
      FOR_UNROLLED (16, int i = 0; i < VLH / VL; i++) {
        const int64_t at = v * VLH + i * VL;
        vstore(to + m * N * VLH + at, vadd(vload(from + m * stride + at), hwide(sum[m][v], i)));
      }
}

// The epilogue in registers: what `half_widen` computes, a residual, bounds and stores.
INLINE void half_finish(const int M, const int N, vh (*sum)[HALF_VECTORS], const float *from,
                        int64_t stride, const itg_rows *rows, int64_t column, int64_t columns,
                        uint16_t *base, const itg_finish *end) {
  const vh lo = hset(end->lo), hi = hset(end->hi);  // rounding keeps the order
  const uint16_t *residual = end->residual;
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < N; v++) {
      const int64_t n = columns - v * VLH, some = n < VLH ? n : VLH;
      const int64_t at = rows->out[m] + column + v * VLH;
      vf f[VLH / VL];
      FOR_UNROLLED (16, int i = 0; i < VLH / VL; i++)
        f[i] = vadd(vload(from + m * stride + v * VLH + i * VL), hwide(sum[m][v], i));
      if (residual) {
        const vh more = hsome(residual + at, some);
        FOR_UNROLLED (16, int i = 0; i < VLH / VL; i++) f[i] = vadd(f[i], hwide(more, i));
      }
      hkeep(base + at, some, hclamp(lo, hi, hnarrow(f)));
    }
}

INLINE void tile(const int M, const int V, const int H, ITG_TILE_ARGS) {
  const int N = V * HALF_PARTS - H * (HALF_PARTS / 2);
  vh sum[ITG_TILE_M][HALF_VECTORS];
  float wide[ITG_TILE_M * HALF_VECTORS * VLH], bias[HALF_VECTORS * VLH];
  const float *from = end->bias ? end->bias + column : NULL;  // what sums are added to
  int64_t stride = 0, room = SUMMED;
  if (!from || columns < N * VLH) {
    memset(bias, 0, sizeof bias);
    if (from) memcpy(bias, from, (size_t)columns * sizeof *bias);
    from = bias;
  }
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = hset(0);
  const int64_t depth = rows->depth * ITG_PAIR;
  for (const itg_tap *tap = rows->taps; tap < rows->taps + rows->n_taps; tap++) {
    const uint16_t *w = (const uint16_t *)(b + tap->at);
    for (int64_t done = 0, n; done < depth; done += n) {
      const uint16_t *row[ITG_TILE_M];
      FOR_UNROLLED (16, int m = 0; m < M; m++) row[m] = (const uint16_t *)tap->row[m] + done;
      n = depth - done < room ? depth - done : room;
      half_steps(M, N, sum, row, n, w + done * ITG_PANEL, panel * ITG_PAIR);
      if (room -= n) continue;
      half_widen(M, N, sum, from, stride, wide);
      from = wide;
      stride = N * VLH;
      room = SUMMED;
      FOR_UNROLLED (16, int m = 0; m < M; m++)
        FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = hset(0);
    }
  }
  if (!end->other && !end->act && !(end->residual && end->add_last)) {
    half_finish(M, N, sum, from, stride, rows, column, columns, base, end);
    return;
  }
  half_widen(M, N, sum, from, stride, wide);
  settle(wide, N * VLH, rows, column, columns, base, end);
}
