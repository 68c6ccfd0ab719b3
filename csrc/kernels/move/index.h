// Reading indices and moving elements of any type.
#pragma once
#include <string.h>

#include "kernel.h"

#define ITG_BAD_INDEX "an index lies outside of the axis it selects from"

// Index i of an i32 or i64 tensor, with negative ones counted from the end of an axis of `extent`;
// -1 if out of range.
static inline int64_t itg_index(const itg_tensor *t, int64_t i, int64_t extent) {
  int64_t at = t->dtype == ITG_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
  if (at < 0) at = at < -extent ? -1 : at + extent;
  return at < extent ? at : -1;
}

static inline void itg_move(void *to, const void *from,
                            int64_t bytes) {  // sizes of one element compile to one move
  switch (bytes) {
    case 1: memcpy(to, from, 1); return;
    case 2: memcpy(to, from, 2); return;
    case 4: memcpy(to, from, 4); return;
    case 8: memcpy(to, from, 8); return;
    default: memcpy(to, from, (size_t)bytes);
  }
}

// Elements between neighbours along each axis.
static inline void itg_strides(const itg_tensor *t, int64_t *stride) {
  int64_t n = 1;
  for (int i = t->rank - 1; i >= 0; i--) {
    stride[i] = n;
    n *= t->shape[i];
  }
}
