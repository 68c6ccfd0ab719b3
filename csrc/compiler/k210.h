// The K210's KPU: one layer on one map, to the bit, for the simulator.
#pragma once
#include "intaglio.h"

enum { ITG_K210_SEGMENTS = 16 };

// A layer: x [channels][height][width], w [outputs][channels or 1][kernel][kernel] and the result y
// [outputs][height][width] are bytes; batch norm has one mul, shift and add per output. Memory for
// the work: `map` for channels * (height + 2) * (width + 2) + 16 numbers, `weights` for
// (outputs + 3) * channels * kernel * kernel (depthwise: outputs * 4 * kernel * kernel), `of_w` for
// `outputs`, `offsets` for the terms of a sum.
typedef struct itg_k210_layer {
  const uint8_t *x, *w;
  uint8_t *y;
  const int64_t *mul, *shift, *add;
  const int64_t *curve_start, *curve_mul, *curve_shift, *curve_bias;
  float *map, *weights;
  double *of_w;
  int64_t *offsets;
  int64_t channels, height, width, outputs, kernel, depthwise, pad;
  int64_t arg_x, shr_x, arg_w, shr_w, arg_add;
} itg_k210_layer;

ITG_API void itg_k210_run(const itg_k210_layer *layer);
