// Blocking of softmax and the norms, which scratch and run functions must agree on.
#pragma once
#include "widen.h"

enum {
  ITG_COLUMNS = 256,  // columns that softmax computes together if its axis is not the last
};

// Whether the type is computed on a widened copy in scratch.
static inline bool itg_needs_copy(uint8_t dtype) { return dtype != ITG_F32 && dtype != ITG_F64; }
static inline float *itg_copy(const itg_call *call, uint32_t part,
                              int64_t n) {  // this part's n floats of it, or NULL
  return itg_needs_copy(call->in[0]->dtype) ? (float *)call->scratch + (int64_t)part * n : NULL;
}
