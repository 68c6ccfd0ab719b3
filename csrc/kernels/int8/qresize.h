// Scratch of qlinear_resize.
#pragma once
#include "kernel.h"

enum { ITG_RESIZE_BLOCK = 16 };  // elements that are computed at once; buffers end with one more

// Bytes for one thread: a row of the input and a row of the output, both of 32-bit sums.
static inline uint64_t itg_resize_bytes(const itg_tensor *x, const itg_tensor *out, int axis) {
  uint64_t inner = 1;
  for (int i = axis + 2; i < (int)x->rank; i++) inner *= (uint64_t)x->shape[i];
  const uint64_t both = (uint64_t)x->shape[axis + 1] + (uint64_t)out->shape[axis + 1];
  return (4 * (both * inner + 2 * ITG_RESIZE_BLOCK) + 63) / 64 * 64;
}
