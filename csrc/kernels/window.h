// Sliding windows over one to three spatial axes.
#pragma once
#include "infer.h"

// out[i] = how many windows fit along axis i; pad is (begin..., end...).
static inline itg_words itg_window_shape(int n, const int64_t *extent, const int64_t *kernel, const int64_t *stride,
                                         const int64_t *pad, const int64_t *dilation, int64_t *out) {
  const int64_t most = INT64_C(1) << 30;  // products of two stay far from overflow
  for (int i = 0; i < n; i++) {
    REFUSE(stride[i] < 1 || dilation[i] < 1 || stride[i] > most || dilation[i] > most, "stride or dilation is not sane");
    REFUSE(pad[i] < 0 || pad[n + i] < 0 || pad[i] > most || pad[n + i] > most, "pad is not sane");
    REFUSE(kernel[i] < 1 || kernel[i] > most || extent[i] > most * most, "the window or its tensor is not sane");
    const int64_t room = extent[i] + pad[i] + pad[n + i] - dilation[i] * (kernel[i] - 1) - 1;
    REFUSE(room < 0, "the window does not fit into the padded tensor");
    out[i] = room / stride[i] + 1;
  }
  return NULL;
}
