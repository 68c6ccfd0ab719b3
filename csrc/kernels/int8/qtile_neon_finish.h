// What the register tiles of ARM share with the convolution of signs: a span of columns, and the
// conversion of sums to results. Included by qtile_neon.h and xnor_conv.c.
#pragma once
#include "qtile.h"

typedef struct span {  // the columns of one call, padded to a panel
  const uint8_t *b;
  const int8_t *zipped;  // the same for smmla, or NULL
  int32_t bias[ITG_PANEL], w_zero[ITG_PANEL];
  float scale[ITG_PANEL];
  int64_t column, columns;
  uint8_t flip;                // makes inputs i8
  bool plain;                  // bytes without residual and table, of 8 or 16 columns
  bool small;                  // their scaled sums fit 16 bits
  bool bare;                   // results of i8 without bounds of their own
  float twice[2 * ITG_PANEL];  // i8mm: the scales of two columns, twice each
  vq_end end;
} span;

typedef int32x4_t row_sums[4];

INLINE void scaled(const int N, const span *s, const int32x4_t *sum, vf *y) {
  FOR_UNROLLED (4, int v = 0; v < N; v++)
    y[v] = vmul(vcvtq_f32_s32(sum[v]), vload(s->scale + 4 * v));
  FOR_UNROLLED (4, int v = N; v < 4; v++) y[v] = y[0];
}

// Converts and stores m rows by every epilogue but the plain one.
static __attribute__((noinline)) void store_rows(const itg_qproduct *p, const span *s,
                                                 const itg_qrow *rows, int m, const row_sums *sum) {
  const itg_requantize *end = p->end;
  const vq_residual more = vq_residual_of(end);
  const int64_t n = s->columns;
  for (int r = 0; r < m; r++) {
    const int64_t at = rows[r].out + s->column;
    const int32_t *all = (const int32_t *)sum[r];
    if (end->kind == ITG_Q_SUMS) {
      memcpy((int32_t *)p->out + at, all, (size_t)n * 4);
    } else if (end->kind == ITG_Q_FLOATS) {
      for (int64_t c = 0; c < n; c++)
        ((float *)p->out)[at + c] = itg_q_float(end, all[c], s->column + c, at + c);
    } else if (end->pieces || end->entries > 256) {
      for (int64_t c = 0; c < n; c++)
        ((uint8_t *)p->out)[at + c] = itg_q_byte(end, all[c], s->column + c, at + c);
    } else {
      vf y[4];
      scaled(4, s, sum[r], y);
      if (end->residual) {
        uint8_t some[ITG_PANEL] = {0};
        const uint8_t *from = end->residual + at;
        if (n < ITG_PANEL) from = memcpy(some, from, (size_t)n);
        vq_add_residual(more, from, y);
      }
      uint8x16_t bytes = vq_bytes(y, s->end);
      if (end->table) bytes = vq_lookup(bytes, end->table);
      vq_put_some((uint8_t *)p->out + at, bytes, n);
    }
  }
}
