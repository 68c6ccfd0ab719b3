// Sizes of packed 8-bit operands of integer products. Bytes are widened to 16 bits, and their zero
// is subtracted. Two neighbours along k are stored side by side, so that one multiply-add
// instruction (pmaddwd) does two products per 32-bit sum. Sums wrap and are never rounded.
#pragma once
#include "window.h"

enum {
  ITG_TILE_ROWS = 4,
  ITG_TILE_WIDTH = 32,  // columns of one tile
  ITG_CHUNK = 128,      // columns that are packed at a time
  ITG_ROW_CHUNK = 128,  // rows that one packed chunk is used for
};

// Scratch memory of one thread: a chunk of columns and a tile of rows in 16-bit numbers, with
// `depth` rounded up to pairs.
static inline int64_t itg_packed_bytes(int64_t depth) {
  return ((depth + 1) / 2 * 2 * (ITG_CHUNK + ITG_TILE_ROWS) * 2 + 63) / 64 * 64;
}

// conv_integer and qlinear_conv have the same attributes, so one struct serves both. Infer has
// checked them.
static inline itg_window itg_conv8_window(const itg_tensor *x, const itg_tensor *w,
                                          const itg_attrs_conv_integer *attrs,
                                          const itg_tensor *out) {
  itg_window v;
  itg_window_of(x, 2, x->rank - 2, w->shape + 2, attrs->stride, attrs->dilation, attrs->pad, &v);
  for (int i = 2; i < out->rank; i++) v.out[ITG_AXES - out->rank + i] = out->shape[i];
  return v;
}

// ---- depthwise convolution: how the padded image is laid out ------------------------------------
enum { ITG_DEPTHWISE8_TAPS = 64 };

typedef struct itg_planes {  // one plane for each (line, column) modulo the stride
  int64_t planes, rows, pitch;
} itg_planes;

static inline itg_planes itg_planes_of(const itg_window *v) {
  return (itg_planes){v->stride[1] * v->stride[2],
                      v->out[1] + (v->kernel[1] - 1) * v->dilation[1] / v->stride[1],
                      v->out[2] + (v->kernel[2] - 1) * v->dilation[2] / v->stride[2]};
}

// 16-bit numbers of all planes, padded because tiles and the last taps read past the end.
static inline int64_t itg_planes_count(const itg_planes *g) {
  return (g->planes * g->rows * g->pitch + 4 * ITG_TILE_WIDTH + 31) / 32 * 32;
}

static inline int64_t itg_depthwise8_bytes(const itg_window *v) {
  const itg_planes g = itg_planes_of(v);
  return itg_planes_count(&g) * 2 + (v->out[1] * g.pitch * 4 + 63) / 64 * 64;
}

// Whether there is one input channel per group, at most two spatial axes and a small window.
static inline bool itg_is_depthwise8(const itg_tensor *x, const itg_tensor *w,
                                     const itg_window *v) {
  return x->rank < 5 && w->shape[1] == 1 && itg_taps(v) <= ITG_DEPTHWISE8_TAPS &&
         v->stride[1] <= 4 && v->stride[2] <= 4 && v->kernel[1] * v->dilation[1] <= 64 &&
         v->kernel[2] * v->dilation[2] <= 64;
}
