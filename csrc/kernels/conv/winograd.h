// Winograd convolution: the sizes of one call, which infer, scratch and run share.
//
// The output is split into tiles of `tile` x `tile` pixels; each depends on `size` x `size` input
// pixels. Blocks of tiles go through three steps. The input transform computes size * size points
// per tile, each a row of input channels. At each point these rows are multiplied by the packed
// weights [input channels, output channels] of the point. The output transform computes the pixels.
#pragma once
#include "gemm/tile.h"
#include "window.h"

enum { ITG_WINOGRAD_PANELS = 4, ITG_WINOGRAD_ROWS = 56 };  // most panels and tiles of a block

typedef struct itg_winograd {
  itg_window w;
  int64_t batch, channels, deep, panels;  // deep: input channels
  int64_t tile, size, points;
  int64_t down, across, tiles;  // tiles of an image along each axis, tiles of all images
  int64_t block;                // most tiles that go through the three steps together
  int64_t row, span;            // floats of a row of inputs, of a row of products
  int64_t in_step, out_step;    // floats from one point to the next, of inputs and of products
  uint64_t zeros, bytes;        // floats of a pixel of padding; scratch bytes of one thread
} itg_winograd;

itg_words itg_winograd_of(const itg_call *call, itg_winograd *g, itg_tensor *out);
