// The sizes of a matrix product.
#pragma once
#include "kernel.h"

// numpy's rules: a vector counts as a row on the left and as a column on the right, and the result
// has no axis for it.
typedef struct matrices {
  int64_t m, k, n;
  bool vector_a, vector_b;
} matrices;

static inline matrices matrices_of(const itg_tensor *a, const itg_tensor *b) {
  bool va = a->rank == 1, vb = b->rank == 1;
  return (matrices){va ? 1 : a->shape[a->rank - 2], a->shape[a->rank - 1],
                    vb ? 1 : b->shape[b->rank - 1], va, vb};
}
