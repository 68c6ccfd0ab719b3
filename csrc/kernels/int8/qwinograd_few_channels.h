// Products of Winograd convolution of bytes with few channels: 16 input channels, or up to 64 with
// a single panel. Here stores between the steps cost as much as the products. So the six points of
// one column of a tile are multiplied together and transformed to its four lines in registers. 24
// vectors are stored per tile instead of 36, and read once instead of twice.
//
// The register tile is six points by LINE_ROWS tiles: sum[i][m] holds point (i, j) of tile m, 16
// columns.
#pragma once
#include "qwinograd_products.h"

#if defined(ISA_avx512vnni)
static bool lines_pay(const itg_qwinograd *g) {
  const bool few = g->deep == 16 || (g->panels == 1 && (g->deep == 32 || g->deep == 64));
  return few && !g->head && g->block >= 2 * LINE_ROWS;
}

// Multiplies n tiles with one panel. `point`: distance of the weights of neighbouring points;
// `span`: distance of the results of neighbouring tiles.
INLINE void multiply_lines(const int DEEP, const uint16_t *in, int64_t step, const uint16_t *w,
                           const int64_t point, const uint32_t *start, int64_t n, uint32_t *out,
                           const int64_t span) {
  for (int j = 0; j < SIZE; j++, in += step, w += point, out += ITG_PANEL) {
    const uint16_t *x[SIZE] = {in};
    FOR_UNROLLED (16, int i = 1; i < SIZE; i++) x[i] = x[i - 1] + SIZE * step;
    uint32_t *to = out;
    for (int64_t r = 0; r < n; r += LINE_ROWS) {
      vq sum[SIZE][LINE_ROWS];
      FOR_UNROLLED (16, int i = 0; i < SIZE; i++) {
        const vq first = i == 1 && j == 1 ? vq_load(start) : vq_set(0);
        FOR_UNROLLED (16, int m = 0; m < LINE_ROWS; m++) sum[i][m] = first;
      }
      const uint16_t *u = w;
      FOR_UNROLLED (1, int64_t k = 0; k < DEEP; k += 2, u += ITG_QW_PAIR)
        FOR_UNROLLED (16, int i = 0; i < SIZE; i++) {
          const vq y = vq_load(u + i * SIZE * point);
          FOR_UNROLLED (16, int m = 0; m < LINE_ROWS; m++)
            __asm__("vpdpwssd %2%{1to16%}, %1, %0"
                    : "+v"(sum[i][m])
                    : "v"(y), "m"(*(const struct { uint16_t two[2]; } *)(x[i] + k + m * DEEP)));
        }
      FOR_UNROLLED (16, int m = 0; m < LINE_ROWS; m++, to += span) {
        const vu s = (vu)sum[1][m] + (vu)sum[2][m], t = (vu)sum[3][m] + (vu)sum[4][m],
                 last = (vu)sum[5][m];
        const vu d = (vu)sum[1][m] - (vu)sum[2][m], e = (vu)sum[3][m] - (vu)sum[4][m], two = e + e;
        vq_store_halves(to, (vq)((vu)sum[0][m] + s + t));
        vq_store_halves(to + SIZE * ITG_PANEL, (vq)(d + two));
        vq_store_halves(to + 2 * SIZE * ITG_PANEL, (vq)(s + (t << 2)));
        vq_store_halves(to + 3 * SIZE * ITG_PANEL, (vq)(d + (two << 2) + (last + last)));
      }
      FOR_UNROLLED (16, int i = 0; i < SIZE; i++) x[i] += LINE_ROWS * DEEP;
    }
  }
}

// Multiplies n tiles with panels [first, last). Up to three more tiles are computed, with any
// inputs: the scratch memory has inputs for eight more tiles, and 36 vectors of results per tile.
static void find_lines(const itg_qwinograd *g, const uint16_t *w, const uint32_t *start,
                       const uint16_t *in, uint32_t *out, int64_t n, int64_t first, int64_t last) {
  const int64_t span = (last - first) * LINE_SPAN, panel = g->panel;
  if (g->panels == 1) {  // all distances are constants
    if (g->deep == 16)
      multiply_lines(16, in, g->in_step, w, 8 * ITG_QW_PAIR, start, n, out, LINE_SPAN);
    else if (g->deep == 32)
      multiply_lines(32, in, g->in_step, w, 16 * ITG_QW_PAIR, start, n, out, LINE_SPAN);
    else multiply_lines(64, in, g->in_step, w, 32 * ITG_QW_PAIR, start, n, out, LINE_SPAN);
    return;
  }
  for (int64_t p = first; p < last; p++, out += LINE_SPAN)
    multiply_lines(16, in, g->in_step, w + p * panel, g->panels * panel, start + p * ITG_PANEL, n,
                   out, span);
}
#else
static bool lines_pay(const itg_qwinograd *g) { return (void)g, false; }
INLINE void find_lines(const itg_qwinograd *g, const uint16_t *w, const uint32_t *start,
                       const uint16_t *in, uint32_t *out, int64_t n, int64_t first, int64_t last) {
  (void)g, (void)w, (void)start, (void)in, (void)out, (void)n, (void)first, (void)last;
}
#endif
