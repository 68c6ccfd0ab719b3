// Winograd's convolution: the sizes of one call, as infer, scratch and run agree on them.
//
// The output is cut into tiles of `tile` x `tile` pixels, of which each sees `size` x `size` input
// pixels. Blocks of tiles go through three steps: the input at all size * size points, one row of
// channels per tile and point; at each point, the product of those rows with its packed weights
// [channels, output channels]; and the pixels, from the products.
#pragma once
#include "gemm/tile.h"
#include "window.h"

enum { ITG_WINOGRAD_PANELS = 4, ITG_WINOGRAD_ROWS = 56 };  // that are at work together, at most

typedef struct itg_winograd {
  itg_window w;
  int64_t batch, channels, deep, panels;  // deep: input channels
  int64_t tile, size, points;
  int64_t down, across, tiles;  // tiles along an image, and of all images
  int64_t block;                // tiles that are at work together, at most
  int64_t row, span;            // floats of a row of inputs, of a row of products
  int64_t in_step, out_step;    // floats from one point to the next
  size_t zeros, bytes;          // floats of zeros that stand for padding; scratch bytes of one part
} itg_winograd;

itg_words itg_winograd_of(const itg_call *call, itg_winograd *g, itg_tensor *out);
