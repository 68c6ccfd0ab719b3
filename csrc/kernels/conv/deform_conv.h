// Shared by the kernels of deform_conv.
#pragma once
#include "infer.h"

enum { ITG_DEFORM_ROWS = 16 };  // outputs that are sampled and then multiplied together

// Scratch numbers of one thread: the sampled taps of its rows and their sums.
static inline int64_t itg_deform_room(const itg_call *call) {
  const itg_tensor *x = call->in[0], *w = call->in[1];
  return ITG_DEFORM_ROWS * (x->shape[1] * w->shape[2] * w->shape[3] + w->shape[0]);
}
