// out[.., i, ..] = sum over k of weight[i, k] * x[.., index[i, k], ..]. x has outer * extent *
// inner elements.
#pragma once
#include "infer.h"

typedef struct itg_interpolation {
  int64_t outer, extent, inner, places, taps;
  const int32_t *index;  // [places, taps]
  const float *weight;
} itg_interpolation;

static inline itg_interpolation itg_interpolation_of(const itg_call *call) {
  const itg_attrs_interpolate *a = call->attrs;
  const itg_tensor *x = call->in[0], *index = call->in[1];
  const int axis = itg_axis(a->axis, x->rank);
  return (itg_interpolation){itg_count_range(x, 0, axis),
                             x->shape[axis],
                             itg_count_range(x, axis + 1, x->rank),
                             index->shape[0],
                             index->shape[1],
                             index->data,
                             call->in[2]->data};
}

static inline itg_words itg_check_indices(
    const itg_interpolation *t) {  // few: every part looks at all of them
  for (int64_t i = 0; i < t->places * t->taps; i++)
    REFUSE(t->index[i] < 0 || t->index[i] >= t->extent, "an index is outside of the axis");
  return NULL;
}
