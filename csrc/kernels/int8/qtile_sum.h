// Products and sums of the register tile of 8-bit products. Included by qtile.c and
// qtile_pipelined.h.
//
// The tile is M rows by N vectors of columns. Register sum[m][v] holds row m times vector v of the
// columns. Each step along k loads N vectors of weights and broadcasts four input bytes per row to
// all lanes: M * N products for N + M loads.
#pragma once
#include "qtile_finish.h"

INLINE uint32_t four_at(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return four;
}

// Adds the products of one row and one group of four along k. HALF: only the first half of the last
// of N vectors has columns.
INLINE void add_products(const int N, const int HALF, vq *sum, vq_four in, const vq_four *y) {
  FOR_UNROLLED (16, int v = 0; v < N; v++)
    sum[v] = HALF && v == N - 1 ? vq_dot_half(sum[v], in, y[v]) : vq_dot(sum[v], in, y[v]);
}

// Sets the sums to the bias, plus the terms of the weights' zero points.
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

// Adds the products of one tap.
INLINE void sum_up(const int M, const int N, const int HALF, itg_qtap tap, int64_t panel, vq flip,
                   const uint8_t *b, const uint8_t *const *row, vq (*sum)[VECTORS]) {
  const uint8_t *w = b + tap.w;
  for (int64_t k = tap.x, last = k + tap.fours * ITG_FOUR; k < last; k += ITG_FOUR, w += ITG_QROW) {
    vq_four y[VECTORS];
    FOR_UNROLLED (16, int v = 0; v < N; v++)
      y[v] = vq_weights(vq_load(w + v / PARTS * panel + v % PARTS * QBYTES));
    FOR_UNROLLED (16, int m = 0; m < M; m++) {
      add_products(N, HALF, sum[m], vq_inputs(vq_xor(vq_set((int32_t)four_at(row[m] + k)), flip)),
                   y);
    }
  }
}

// Mask that makes input bytes u8 by xor: 0 for u8, the upper bit of each byte for i8.
INLINE vq vq_flip(const itg_qproduct *p) { return vq_set(p->flip ? (int32_t)0x80808080 : 0); }
