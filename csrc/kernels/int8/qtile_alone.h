// A row alone, by sdot: sums of the weights are made beside the products, so that weights are
// loaded once. Included by qtile_neon.h.
#pragma once

INLINE void add_alone(int32x4_t *sum, int32x4_t *all, int8x16_t x, const int8_t *from) {
  const int8x16_t ones = vdupq_n_s8(1);
  int8x16_t w[4];
  weights_at(1, 4, from, w);
  FOR_UNROLLED (4, int v = 0; v < 4; v++) {
    sum[v] = vdotq_s32(sum[v], w[v], x);
    all[v] = vdotq_s32(all[v], w[v], ones);
  }
}

#define FOUR_AT(x, lane) vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane))

// Products of one row with all 16 columns, and VQ_LESS times the sums of their weights.
INLINE void sum_alone(const int FLIP, const itg_qproduct *p, const span *s, const uint8_t *row,
                      int32x4_t *sum) {
  int32x4_t all[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
  for (int64_t t = 0; t < p->n_taps; t++) {
    const int8_t *w = (const int8_t *)s->b + p->taps[t].w;
    int64_t k = p->taps[t].x, left = p->taps[t].fours;
    for (; left >= 4; left -= 4, k += 16, w += 4 * ITG_QROW) {
      const int8x16_t x = input(row + k, FLIP);
      add_alone(sum, all, FOUR_AT(x, 0), w);
      add_alone(sum, all, FOUR_AT(x, 1), w + ITG_QROW);
      add_alone(sum, all, FOUR_AT(x, 2), w + 2 * ITG_QROW);
      add_alone(sum, all, FOUR_AT(x, 3), w + 3 * ITG_QROW);
    }
    for (; left > 0; left--, k += 4, w += ITG_QROW)
      add_alone(sum, all, flipped(four_of(row + k), FLIP), w);
  }
  FOR_UNROLLED (4, int v = 0; v < 4; v++) sum[v] = vmlaq_n_s32(sum[v], all[v], VQ_LESS);
}

#define ALONE(FLIP)                                                                      \
  static void alone_##FLIP(const itg_qproduct *p, const span *s, const itg_qrow *rows) { \
    row_sums sum[MOST_ROWS];                                                             \
    start(1, 4, s, rows, p->w_zero != NULL, sum);                                        \
    sum_alone(FLIP, p, s, rows->x, sum[0]);                                              \
    finish(1, 4, p, s, rows, sum, 1);                                                    \
  }
ALONE(0)
ALONE(1)
