// Products of f32 rows with a packed matrix of 8- or 4-bit integers. A panel of ITG_PANEL columns
// stores one byte per weight, row by row, or two rows per byte: the low four bits are the first
// row's weight plus 8. Each block of rows has one scale, and optionally one zero, per column.
#pragma once
#include "tile.h"

enum { ITG_WGEMM_SCALE = 5, ITG_WGEMM_ZERO };  // inputs after those of the epilogue
enum { ITG_WGEMM_FEW = 4 };                    // rows up to which weights are decoded in registers

typedef struct itg_wgemm {
  const float *x, *scale, *zero;
  const uint8_t *w;
  int64_t m, n, k, bits, block, blocks, panels;
  int64_t panel;  // bytes of a panel
  bool zeros;     // there is an input of zeros; scratch sizes are asked when it has no address yet
  float *out;
  itg_finish end;
} itg_wgemm;

itg_words itg_wgemm_of(const itg_call *call, itg_wgemm *g, itg_tensor *out);

static inline int64_t itg_wgemm_panels(
    int64_t k) {  // panels that are f32 at a time: half a cache, and few calls
  const int64_t fit = (512 << 10) / (k * ITG_PANEL * (int64_t)sizeof(float) + 1);
  return fit < 1 ? 1 : fit > 4 ? 4 : fit;
}

static inline uint64_t itg_wgemm_scratch(const itg_wgemm *g) {  // of one thread, in bytes
  const int64_t floats = g->m <= ITG_WGEMM_FEW ? g->zeros ? g->m * g->blocks : 0
                                               : itg_wgemm_panels(g->k) * g->k * ITG_PANEL;
  return ((uint64_t)floats * sizeof(float) + 63) & ~(uint64_t)63;
}
