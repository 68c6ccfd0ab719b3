// A loop nest over a dense output and a few strided operands (stride 0: broadcast). Broadcasting,
// transposing, slicing and expanding use it. Neighbouring loops are merged where strides allow.
#pragma once
#include "kernel.h"

#ifndef ITG_NEST_OPERANDS
#define ITG_NEST_OPERANDS 3  // a source that walks more defines it before
#endif
enum { ITG_NEST_RANK = 2 * ITG_MAX_RANK };  // tile has two loops per axis

typedef struct itg_nest {
  int rank;                     // number of loops, at least 1
  int64_t size[ITG_NEST_RANK];  // turns of each loop, outermost first
  int64_t step[ITG_NEST_OPERANDS]
              [ITG_NEST_RANK];  // elements from one turn to the next, per operand
} itg_nest;

// The position in a nest: the index of every loop but the innermost, and the offset of each
// operand.
typedef struct itg_place {
  int64_t turn[ITG_NEST_RANK];
  int64_t offset[ITG_NEST_OPERANDS];
} itg_place;

// Adds an innermost loop; `step` has one entry per operand.
static inline void itg_nest_add_all(itg_nest *n, int64_t size, const int64_t *step) {
  int last = n->rank - 1;
  if (size == 1) return;
  bool joins = last >= 0;
  for (int k = 0; k < ITG_NEST_OPERANDS; k++) joins = joins && n->step[k][last] == step[k] * size;
  if (joins) {
    n->size[last] *= size;
  } else {
    last = n->rank++;
    n->size[last] = size;
  }
  for (int k = 0; k < ITG_NEST_OPERANDS; k++) n->step[k][last] = step[k];
}

static inline void itg_nest_add(itg_nest *n, int64_t size, int64_t a, int64_t b, int64_t c) {
  itg_nest_add_all(n, size, (const int64_t[ITG_NEST_OPERANDS]){a, b, c});
}

static inline void itg_nest_close(itg_nest *n) {  // a nest without loops gets one of size 1
  if (n->rank == 0) {
    n->rank = 1;
    n->size[0] = 1;
    for (int k = 0; k < ITG_NEST_OPERANDS; k++) n->step[k][0] = 1;
  }
}

// Elements from one index of `axis` of `out` to the next in `t`, which broadcasts to `out`.
static inline int64_t itg_broadcast_step(const itg_tensor *t, const itg_tensor *out, int axis) {
  axis -= out->rank - t->rank;
  return axis < 0 || t->shape[axis] == 1 ? 0 : itg_count_range(t, axis + 1, t->rank);
}

// The loops over `out`, which is not empty, with the first n inputs of `in` broadcast to it.
static inline itg_nest itg_nest_broadcast(const itg_tensor *const *in, int n,
                                          const itg_tensor *out) {
  itg_nest nest = {0};
  for (int i = 0; i < out->rank; i++) {
    int64_t step[ITG_NEST_OPERANDS] = {0};
    for (int k = 0; k < n; k++) step[k] = itg_broadcast_step(in[k], out, i);
    itg_nest_add_all(&nest, out->shape[i], step);
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
    for (int k = 0; k < ITG_NEST_OPERANDS; k++) at.offset[k] += at.turn[i] * n->step[k][i];
  }
  return at;
}

static inline void itg_nest_next(const itg_nest *n,
                                 itg_place *at) {  // to the start of the next row
  for (int i = n->rank - 2; i >= 0; i--) {
    bool wraps = ++at->turn[i] == n->size[i];
    for (int k = 0; k < ITG_NEST_OPERANDS; k++)
      at->offset[k] += n->step[k][i] - (wraps ? n->step[k][i] * n->size[i] : 0);
    if (!wraps) return;
    at->turn[i] = 0;
  }
}

// Copies n elements of operand k, from column `col` of position `at` on, to contiguous memory, and
// moves the position.
static inline void itg_nest_collect(const itg_nest *nest, itg_place *at, int64_t col, int k,
                                    const void *from_, void *to_, size_t item, int64_t n) {
  const int last = nest->rank - 1;
  const int64_t inner = nest->size[last], step = nest->step[k][last];
  for (int64_t done = 0; done < n; col = 0) {
    const int64_t m = inner - col < n - done ? inner - col : n - done,
                  base = at->offset[k] + col * step;
#define COLLECT(type)                                         \
  {                                                           \
    const type *from = (const type *)from_ + base;            \
    type *to = (type *)to_ + done;                            \
    if (step == 0) { /* a constant, so that GCC vectorises */ \
      const type same = *from;                                \
      for (int64_t i = 0; i < m; i++) to[i] = same;           \
    } else if (step == 1) {                                   \
      for (int64_t i = 0; i < m; i++) to[i] = from[i];        \
    } else {                                                  \
      for (int64_t i = 0; i < m; i++) to[i] = from[i * step]; \
    }                                                         \
  }
    if (item == 4) COLLECT(uint32_t)
    else if (item == 8) COLLECT(uint64_t)
    else if (item == 2) COLLECT(uint16_t)
    else COLLECT(uint8_t)
#undef COLLECT
    done += m;
    if (col + m == inner) itg_nest_next(nest, at);
  }
}

// Copies this thread's share of operand 0 of the nest, whose first element is at `from`, to the
// dense output at `to`.
typedef void itg_strided_fn(void *to, const void *from, size_t item, const itg_nest *,
                            uint32_t part, uint32_t parts);
itg_strided_fn itg_strided_copy_scalar, itg_strided_copy_avx2, itg_strided_copy_avx512,
    itg_strided_copy_neon, itg_strided_copy_armv7, itg_strided_copy_rvv;
#define itg_strided ITG_NAME(strided, copy, ISA)
