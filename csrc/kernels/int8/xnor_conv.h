// Convolution of signs: inputs and weights are two numbers each, stored as bits. With s = 2 bit - 1
// a sum of products is the number of bits minus twice popcount(x ^ w).
//
// The bits of a pixel take whole bytes. Bits that a line of the window reads lie together, or with
// dilation those of a tap; such a run is padded to words of 32 bits. Weights are
// [panels, words of a window, 16 columns]. Bits of padding are 0: the sums begin with the
// difference that this makes (input `padding`: what each tap adds where it lies on padding).
#pragma once
#include "qconv.h"

enum {
  ITG_XNOR_PADDING = 6,
  ITG_XNOR_KERNEL = 7,
  ITG_XNOR_CLASSES = 64,
  ITG_XNOR_IMAGE = 64 << 10
};

typedef struct itg_xnor {
  itg_window w;  // along axes 1 and 2
  int64_t batch, deep, channels, panels;
  int64_t pixel, run, runs;  // bytes of a pixel, bytes of a run, runs of a line of the window
  int64_t words, count;      // words of a run, of the window
  int64_t line, rows;        // bytes of a packed line; output lines that are computed at a time
  uint32_t last;             // the bits that the last word of a run has
  uint64_t image, lists, starts, total;  // scratch of a thread
} itg_xnor;

typedef struct itg_xnor_prepared {  // itg_prepared(call) of xnor_conv
  itg_xnor c;
  bool empty;
} itg_xnor_prepared;

itg_words itg_xnor_of(const itg_call *call, itg_xnor *c, itg_tensor *out);
itg_attrs_qconv itg_xnor_like(const itg_attrs_xnor_conv *a);  // the same requantisation
