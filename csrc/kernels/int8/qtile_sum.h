// Products and sums of the register tile of 8-bit products. Included by qtile.c and
// qtile_pipelined.c.
//
// sum[m][v] keeps row m of the inputs times vector v of the columns, in registers. In every step
// along k each of the N vectors of weights is loaded once and serves all M rows; the four input
// bytes of a row are spread over all lanes and serve all N vectors: M * N products for N + M loads.
#pragma once
#include "qtile_finish.h"

INLINE uint32_t four_at(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return four;
}

// One row's sums meet a group of four along k; the last of N vectors may need but its first half.
INLINE void meet(const int N, const int HALF, vq *sum, vq_four in, const vq_four *y) {
  FOR_UNROLLED (16, int v = 0; v < N; v++)
    sum[v] = HALF && v == N - 1 ? vq_dot_half(sum[v], in, y[v]) : vq_dot(sum[v], in, y[v]);
}

INLINE void start(const int M, const int N, const span *s, const itg_qrow *rows,
                  vq (*sum)[VECTORS]) {
  FOR_UNROLLED (16, int v = 0; v < N; v++) {
    sum[0][v] = vq_load(s->bias + v * QL);
    FOR_UNROLLED (16, int m = 1; m < M; m++) sum[m][v] = sum[0][v];
  }
  if (s->w_zero)
    FOR_UNROLLED (16, int v = 0; v < N; v++)
      FOR_UNROLLED (16, int m = 0; m < M; m++)
        sum[m][v] = vq_add(sum[m][v], vq_mul(vq_load(s->w_zero + v * QL), vq_set(rows[m].sum)));
}

INLINE void sum_up(const int M, const int N, const int HALF, itg_qtap tap, int64_t panel, vq flip,
                   const uint8_t *b, const uint8_t *const *row, vq (*sum)[VECTORS]) {
  const uint8_t *w = b + tap.w;
  for (int64_t k = tap.x, last = k + tap.fours * ITG_FOUR; k < last; k += ITG_FOUR, w += ITG_QROW) {
    vq_four y[VECTORS];
    FOR_UNROLLED (16, int v = 0; v < N; v++)
      y[v] = vq_weights(vq_load(w + v / PARTS * panel + v % PARTS * QBYTES));
    FOR_UNROLLED (16, int m = 0; m < M; m++) {
      meet(N, HALF, sum[m], vq_inputs(vq_xor(vq_set((int32_t)four_at(row[m] + k)), flip)), y);
    }
  }
}

// What makes input bytes u8: nothing, or their upper bits turned over.
INLINE vq vq_flip(const itg_qproduct *p) { return vq_set(p->flip ? (int32_t)0x80808080 : 0); }
