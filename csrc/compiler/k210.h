// The K210's KPU: one layer on one map, to the bit, for the simulator.
#pragma once
#include "intaglio.h"

enum {
  ITG_K210_SEGMENTS = 16,
  ITG_K210_BLOCK = 8,     // outputs that are computed together
  ITG_K210_SLACK = 1024,  // bytes that are read or written beyond the end of a map
};

typedef struct itg_k210_map {         // of bytes; byte (c, y, x) of it lies at
  int64_t groups, block, pitch, row;  // c / groups * block + c % groups * pitch + y * row + x
} itg_k210_map;

// A layer. w [outputs][channels or 1][kernel][kernel] are bytes; batch norm has one mul, shift and
// add per output. A result of `pick` is computed at every `stride`th pixel from `column` on; other
// pools take the maximum or the mean of size x size results.
typedef struct itg_k210_layer {
  const uint8_t *w;
  const int64_t *mul, *shift, *add;
  const int64_t *curve_start, *curve_mul, *curve_shift, *curve_bias;
  // filled in by itg_k210_prepare
  int8_t *weights;       // itg_k210_weights() bytes
  double *of_w, *scale;  // one per output
  uint8_t *exact;        // one per output: f64 holds all its numbers
  double start[ITG_K210_SEGMENTS], factor[ITG_K210_SEGMENTS], bias[ITG_K210_SEGMENTS];
  double lowest;     // of result less start, if there is one segment
  int64_t segments;  // that these outputs reach
  int64_t channels, height, width, outputs, kernel, depthwise, pad;
  int64_t arg_x, shr_x, arg_w, shr_w, arg_add;
  int64_t pool, size, stride, column;  // pool: 0 pick, 1 max, 2 mean
  itg_k210_map in, out;
} itg_k210_layer;

// Sizes of the computed map, before max and mean pooling.
typedef struct itg_k210_sizes {
  int64_t step;         // pixels from one computed result to the next
  int64_t high, wide;   // computed results
  int64_t rows, pitch;  // of a plane: the pixels whose line and column have the same rest by step
  int64_t phases;       // planes along one axis
  int64_t plane, run;   // bytes of a plane; results from the first to the last, with the unused
  int64_t fours;        // groups of four channels
} itg_k210_sizes;

static inline itg_k210_sizes itg_k210_sizes_of(const itg_k210_layer *l) {
  itg_k210_sizes s = {.step = l->pool ? 1 : l->stride};
  s.high = l->height / s.step;
  s.wide = l->width / s.step;
  s.rows = s.high + (l->kernel - 1) / s.step;
  s.pitch = s.wide + (l->kernel - 1) / s.step;
  s.phases = l->kernel < s.step ? l->kernel : s.step;
  s.plane = s.rows * s.pitch;
  s.run = s.high * s.pitch;
  s.fours = (l->channels + 3) / 4;
  return s;
}

// Bytes of packed weights, and of memory for the work of one layer.
ITG_API uint64_t itg_k210_weights(const itg_k210_layer *layer);
ITG_API uint64_t itg_k210_scratch(const itg_k210_layer *layer);
ITG_API void itg_k210_prepare(itg_k210_layer *layer);
// Computes y from x, which may overlap, with the instruction sets `isa` of this CPU.
ITG_API void itg_k210_run(const itg_k210_layer *layer, const uint8_t *x, uint8_t *y, void *scratch,
                          uint32_t isa);
