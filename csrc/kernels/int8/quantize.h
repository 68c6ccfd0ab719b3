// Granularity of quantisation: one scale and zero per tensor, per index of an axis, or per block of
// an axis.
#pragma once
#include "infer.h"

typedef struct itg_grain {
  int64_t extent;         // of the axis; 0: one scale for the whole tensor
  int64_t inner;          // elements per index of the axis
  int64_t block, blocks;  // indices of the axis per block, blocks of the axis; 0: no blocks
} itg_grain;

static inline itg_grain itg_grain_of(const itg_tensor *x, const itg_tensor *scale, int64_t axis,
                                     int64_t block) {
  if (!block && itg_count(scale) == 1) return (itg_grain){0, 1, 0, 0};
  const int a = itg_axis(axis, x->rank);
  const int64_t extent = x->shape[a];
  return (itg_grain){extent, itg_count_range(x, a + 1, x->rank), block,
                     block ? (extent - 1) / block + 1 : 0};
}

// Returns how many elements from `i` on share one scale (*step is 0) or have consecutive scales
// (*step is 1); *at becomes the index of the first scale.
static inline int64_t itg_grain_run(const itg_grain *g, int64_t i, int64_t n, int64_t *at,
                                    int64_t *step) {
  *at = *step = 0;
  if (!g->extent) return n - i;
  const int64_t k = i % g->inner, row = i / g->inner, a = row % g->extent;
  *step = (g->inner == 1) != (g->block > 0);
  if (!g->block) {
    *at = a;
    return g->inner == 1 ? g->extent - a : g->inner - k;
  }
  *at = (row / g->extent * g->blocks + a / g->block) * g->inner + k;
  if (g->inner > 1) return g->inner - k;
  const int64_t left = g->block - a % g->block;
  return left < g->extent - a ? left : g->extent - a;
}
