// Depthwise separable convolution: optionally a product that expands the channels, then a depthwise
// convolution, then a product. This file has the sizes of one call, which infer, scratch and run
// share.
//
// A band of output lines is computed at a time, so that intermediate results stay in the L2 cache.
// A ring buffer keeps the lines of the expanded image that a window needs; each line is computed
// once per share.
#pragma once
#include "gemm/tile.h"
#include "window.h"

// Inputs: the image; weights, bias, residual and slopes of the last product; weights and bias of
// the depthwise convolution; weights and bias of the expansion, which may be absent.
enum {
  ITG_SEPARABLE_TAPS = 5,
  ITG_SEPARABLE_TAPS_BIAS,
  ITG_SEPARABLE_EXPAND,
  ITG_SEPARABLE_EXPAND_BIAS
};

typedef struct itg_separable {
  itg_window w;  // of the depthwise convolution
  int64_t batch;
  int64_t deep, middle, channels;  // channels of the image, between the products, of the output
  int64_t panels, wide;            // of the last product's weights, of the expansion's
  int64_t band;                    // output lines of a band
  int64_t ring;                    // lines of the ring buffer; 0: no expansion
  int64_t kept, made;  // floats of the ring buffer; of a band after the depthwise convolution
  uint64_t bytes;      // of one part
} itg_separable;

itg_words itg_separable_of(const itg_call *call, itg_separable *s, itg_tensor *out);
