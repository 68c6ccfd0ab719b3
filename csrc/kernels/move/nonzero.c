// nonzero and compress: the extent of the output depends on the data. infer gives an upper bound;
// run sets the true extent and writes densely.
#include "index.h"
#include "infer.h"

// ---- nonzero: coordinates of the elements that are not 0, one column each -----------------------
itg_words itg_infer_nonzero(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 1);
  itg_set_type(out, ITG_I64, 2);
  out->shape[0] = call->in[0]->rank;
  out->shape[1] = itg_count(call->in[0]);
  return NULL;
}

ITG_FN(nonzero, any) {
  if (part) return NULL;
  const itg_tensor *x = call->in[0];
  const int64_t n = itg_count(x);
  int64_t *out = call->out[0]->data, found = 0, stride[ITG_MAX_RANK];
  for (int64_t i = 0; i < n; i++) found += itg_load_f64(x->dtype, x->data, i) != 0;
  itg_strides(x, stride);
  for (int64_t i = 0, column = 0; i < n; i++) {
    if (itg_load_f64(x->dtype, x->data, i) == 0) continue;
    for (int d = 0; d < x->rank; d++) out[d * found + column] = i / stride[d] % x->shape[d];
    column++;
  }
  call->out[0]->shape[1] = found;
  return NULL;
}

// ---- compress: the slices along an axis whose condition holds -----------------------------------
itg_words itg_infer_compress(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *condition = call->in[1];
  const int axis = itg_axis(((const itg_attrs_compress *)call->attrs)->axis, x->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  REFUSE(condition->dtype != ITG_BOOL || condition->rank != 1,
         "the condition must be a vector of bool");
  itg_copy_type(out, x);
  if (condition->shape[0] < out->shape[axis]) out->shape[axis] = condition->shape[0];
  return NULL;
}

ITG_FN(compress, any) {
  if (part) return NULL;
  const itg_tensor *x = call->in[0], *condition = call->in[1];
  const int axis = itg_axis(((const itg_attrs_compress *)call->attrs)->axis, x->rank);
  const int64_t extent = x->shape[axis], n = condition->shape[0],
                outer = itg_count_range(x, 0, axis);
  const int64_t bytes = itg_count_range(x, axis + 1, x->rank) * (int64_t)itg_item(x->dtype);
  const uint8_t *keep = condition->data;
  int64_t kept = 0;
  for (int64_t i = 0; i < n; i++) {
    REFUSE(keep[i] && i >= extent, "the condition picks beyond the extent of the axis");
    kept += keep[i] != 0;
  }
  char *out = call->out[0]->data;
  for (int64_t o = 0; o < outer && kept && bytes; o++)
    for (int64_t i = 0; i < n; i++) {
      if (!keep[i]) continue;
      itg_move(out, (const char *)x->data + (o * extent + i) * bytes, bytes);
      out += bytes;
    }
  call->out[0]->shape[axis] = kept;
  return NULL;
}
