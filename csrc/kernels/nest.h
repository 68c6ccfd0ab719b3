// A nest of loops over a dense output and up to three operands with strides of their own (0 where one is broadcast):
// what broadcasting, transposing, slicing and expanding have in common. Loops that can be one are made one.
#pragma once
#include "kernel.h"

enum { ITG_NEST_RANK = 2 * ITG_MAX_RANK };  // tile has two loops per axis

typedef struct itg_nest {
  int rank;                        // number of loops, at least 1
  int64_t size[ITG_NEST_RANK];     // turns of each loop, outermost first
  int64_t step[3][ITG_NEST_RANK];  // elements from one turn to the next, per operand
} itg_nest;

// Where a walk through a nest stands: the turn of every loop but the innermost, and each operand's offset.
typedef struct itg_place {
  int64_t turn[ITG_NEST_RANK];
  int64_t offset[3];
} itg_place;

// Adds a loop inside of those that are there.
static inline void itg_nest_add(itg_nest *n, int64_t size, int64_t a, int64_t b, int64_t c) {
  int last = n->rank - 1;
  if (size == 1) return;
  if (last >= 0 && n->step[0][last] == a * size && n->step[1][last] == b * size && n->step[2][last] == c * size) {
    n->size[last] *= size;
  } else {
    last = n->rank++;
    n->size[last] = size;
  }
  n->step[0][last] = a;
  n->step[1][last] = b;
  n->step[2][last] = c;
}

static inline void itg_nest_close(itg_nest *n) {  // a nest without loops is one turn
  if (n->rank == 0) {
    n->rank = 1;
    n->size[0] = 1;
    n->step[0][0] = n->step[1][0] = n->step[2][0] = 1;
  }
}

// Elements from one index of `axis` of `out` to the next in `t`, which broadcasts to `out`.
static inline int64_t itg_broadcast_step(const itg_tensor *t, const itg_tensor *out, int axis) {
  axis -= out->rank - t->rank;
  return axis < 0 || t->shape[axis] == 1 ? 0 : itg_count_range(t, axis + 1, t->rank);
}

// The loops over `out`, which is not empty, with the first n inputs of `in` broadcast to it.
static inline itg_nest itg_nest_broadcast(const itg_tensor *const *in, int n, const itg_tensor *out) {
  itg_nest nest = {0};
  for (int i = 0; i < out->rank; i++) {
    int64_t s[3] = {0};
    for (int k = 0; k < n; k++) s[k] = itg_broadcast_step(in[k], out, i);
    itg_nest_add(&nest, out->shape[i], s[0], s[1], s[2]);
  }
  itg_nest_close(&nest);
  return nest;
}

// The start of row `row`: a row is all turns of the innermost loop.
static inline itg_place itg_nest_seek(const itg_nest *n, int64_t row) {
  itg_place at = {0};
  for (int i = n->rank - 2; i >= 0; i--) {
    at.turn[i] = row % n->size[i];
    row /= n->size[i];
    for (int k = 0; k < 3; k++) at.offset[k] += at.turn[i] * n->step[k][i];
  }
  return at;
}

static inline void itg_nest_next(const itg_nest *n, itg_place *at) {  // to the start of the next row
  for (int i = n->rank - 2; i >= 0; i--) {
    bool wraps = ++at->turn[i] == n->size[i];
    for (int k = 0; k < 3; k++) at->offset[k] += n->step[k][i] - (wraps ? n->step[k][i] * n->size[i] : 0);
    if (!wraps) return;
    at->turn[i] = 0;
  }
}

// Copies operand 0 of the nest, whose first element is at `from`, to the dense output at `to`: this part's share.
typedef void itg_strided_fn(void *to, const void *from, size_t item, const itg_nest *, uint32_t part, uint32_t parts);
itg_strided_fn itg_strided_copy_scalar, itg_strided_copy_avx2, itg_strided_copy_avx512;
#define itg_strided ITG_NAME(strided, copy, ISA)
