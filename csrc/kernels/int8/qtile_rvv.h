// The register tile of 8-bit products with RVV: up to five rows by one panel. Included by qtile.c.
#pragma once
#include "qrvv.h"

typedef struct span {  // of one call
  const uint8_t *b;
  int32_t start[ITG_PANEL], w_zero[ITG_PANEL];  // zeros after the last column
  int64_t column, n;
} span;

INLINE void rows_of(const int M, const bool SIGNED, const itg_qproduct *p, const span *c,
                    const itg_qrow *rows) {
  vi sum[QR_ROWS];
  FOR_UNROLLED (16, int m = 0; m < M; m++) sum[m] = *(const vi_any *)c->start;
  if (p->w_zero)
    FOR_UNROLLED (16, int m = 0; m < M; m++)
      sum[m] += *(const vi_any *)c->w_zero * viset(rows[m].sum);
  for (const itg_qtap *tap = p->taps; tap < p->taps + p->n_taps; tap++) {
    const uint8_t *row[QR_ROWS];
    FOR_UNROLLED (16, int m = 0; m < M; m++) row[m] = rows[m].x + tap->x;
    qr_sum_up(M, SIGNED, row, c->b + tap->w, tap->fours, sum);
  }
  uint32_t kept[QR_ROWS][ITG_PANEL];
  FOR_UNROLLED (16, int m = 0; m < M; m++) *(vi_any *)kept[m] = sum[m];
  for (int m = 0; m < M; m++)
    qr_finish(p->end, kept[m], c->column, rows[m].out + c->column, c->n, p->out);
}

#define ROWS(M)                                                                      \
  static void rows_##M(const itg_qproduct *p, const span *c, const itg_qrow *rows) { \
    if (p->flip) rows_of(M, true, p, c, rows);                                       \
    else rows_of(M, false, p, c, rows);                                              \
  }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)

void itg_qtile(ITG_QTILE_ARGS) {
  static void (*const all[])(const itg_qproduct *, const span *, const itg_qrow *) = {
      rows_1, rows_2, rows_3, rows_4, rows_5};
  span c = {.b = b, .column = column, .n = columns};
  memcpy(c.start, p->bias + column, (size_t)c.n * sizeof *c.start);
  if (p->w_zero) memcpy(c.w_zero, p->w_zero + column, (size_t)c.n * sizeof *c.w_zero);
  if (p->flip) {
    vi more = *(const vi_any *)c.start;
    for (int64_t t = 0; t < p->n_taps; t++) more += qr_columns(b + p->taps[t].w, p->taps[t].fours);
    *(vi_any *)c.start = more;
  }
  const int64_t tiles = (n + QR_ROWS - 1) / QR_ROWS;
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t m = itg_split(n, tiles, i), next = itg_split(n, tiles, i + 1);
    all[next - m - 1](p, &c, rows + m);
  }
}
