// Depthwise convolution as others call it: lines of one image, which may be kept a few at a time.
#pragma once
#include "gemm/tile.h"
#include "window.h"

typedef struct itg_depthwise_task {
  itg_window w;
  itg_finish end;
  int64_t channels;
  const itg_element *image;
  int64_t ring;  // lines that `image` has room for: line y lies at y % ring; 0: it has them all
  const float *weights;
  void *out;
} itg_depthwise_task;

itg_words itg_depthwise_of(const itg_call *call, itg_window *w, itg_tensor *out);

#if !defined(ISA_avx512bf16) && !defined(ITG_HALF)
#define ITG_DEPTHWISE_PASTE(isa) itg_depthwise_lines_##isa
#define ITG_DEPTHWISE_NAME(isa) ITG_DEPTHWISE_PASTE(isa)
#define itg_depthwise_lines ITG_DEPTHWISE_NAME(ISA)
// Lines [from, to) of the output, of which the first goes to the beginning of `out`. One image of
// two axes.
void itg_depthwise_lines(const itg_depthwise_task *t, int64_t from, int64_t to);
#endif
