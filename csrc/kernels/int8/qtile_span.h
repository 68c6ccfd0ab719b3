// The columns of one call of a register tile (qtile_finish.h), with AVX2 and AVX-512.
#pragma once
#include "qtile_finish.h"

typedef struct padded {  // parameters per column, padded with zeros to whole panels
  int32_t bias[ITG_QTILE_PANELS * ITG_PANEL], w_zero[ITG_QTILE_PANELS * ITG_PANEL];
  float scale[ITG_QTILE_PANELS * ITG_PANEL];
} padded;

static span span_of(const itg_qproduct *p, const uint8_t *b, int64_t column, int64_t columns,
                    padded *copy) {
  const int64_t panels = (columns + ITG_PANEL - 1) / ITG_PANEL;
  span s = {.b = b,
            .bias = p->bias + column,
            .w_zero = p->w_zero ? p->w_zero + column : NULL,
            .scale = p->end->scale,
            .column = column,
            .columns = columns};
  for (int v = 0; v < VECTORS; v++) {
    const int64_t left = columns - v * QL;
#if defined(ISA_avx512)
    s.some[v] = left >= QL ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
#else
    s.some[v] = left >= QL ? QL : left > 0 ? left : 0;
#endif
  }
  if (s.scale) s.scale += column;
  if (columns < panels * ITG_PANEL) {
    memset(copy, 0, sizeof *copy);
    s.bias = memcpy(copy->bias, s.bias, (size_t)columns * sizeof *copy->bias);
    if (s.scale) s.scale = memcpy(copy->scale, s.scale, (size_t)columns * sizeof *copy->scale);
    if (s.w_zero) s.w_zero = memcpy(copy->w_zero, s.w_zero, (size_t)columns * sizeof *copy->w_zero);
  }
  s.store = p->end->kind == ITG_Q_SUMS     ? store_sums
            : p->end->kind == ITG_Q_FLOATS ? store_floats
                                           : store_bytes;
#if defined(ISA_avx512)
  s.plain = p->end->kind == ITG_Q_BYTES && !p->end->table && p->end->high && p->end->saturates &&
            !p->end->residual;
#endif
  return s;
}
