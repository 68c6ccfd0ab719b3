// Depthwise convolution for other kernels: output lines of one image. The image may be a ring
// buffer of a few lines.
#pragma once
#include "gemm/tile.h"
#include "window.h"

typedef struct itg_depthwise_task {
  itg_window w;
  itg_finish end;
  int64_t channels;
  const itg_element *image;
  int64_t ring;  // lines of the ring buffer `image`: line y is at y % ring; 0: it has all lines
  const float *weights;
  void *out;
} itg_depthwise_task;

itg_words itg_depthwise_of(const itg_call *call, itg_window *w, itg_tensor *out);

#if !defined(ITG_BF16) && !defined(ITG_HALF)
#define ITG_DEPTHWISE_PASTE(isa) itg_depthwise_lines_##isa
#define ITG_DEPTHWISE_NAME(isa) ITG_DEPTHWISE_PASTE(isa)
#define itg_depthwise_lines ITG_DEPTHWISE_NAME(ISA)
// Computes output lines [from, to) of one image with two axes; line `from` goes to the start of
// `out`.
void itg_depthwise_lines(const itg_depthwise_task *t, int64_t from, int64_t to);
#endif
