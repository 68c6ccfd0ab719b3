// One-hot vectors, triangular matrices and reversed sequences.
#include "index.h"
#include "infer.h"

// ---- one_hot ------------------------------------------------------------------------------------
itg_words itg_infer_one_hot(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_attrs_one_hot *attrs = call->attrs;
  const itg_tensor *indices = call->in[0], *values = call->in[1];
  REFUSE(indices->rank + 1 > ITG_MAX_RANK, "the result would have more than 8 axes");
  const int axis = itg_axis(attrs->axis, indices->rank + 1);
  REFUSE(axis < 0, "axis is not an axis of the result");
  REFUSE(attrs->depth < 0, "depth must not be negative");
  REFUSE(values->rank != 1 || values->shape[0] != 2, "values must be [off, on]");
  itg_set_type(out, values->dtype, indices->rank + 1);
  for (int i = 0; i < out->rank; i++)
    out->shape[i] = i == axis ? attrs->depth : indices->shape[i - (i > axis)];
  return NULL;
}

ITG_FN(one_hot, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_attrs_one_hot *attrs = call->attrs;
  const itg_tensor *indices = call->in[0], *values = call->in[1];
  const int axis = itg_axis(attrs->axis, indices->rank + 1);
  const int64_t depth = attrs->depth, inner = itg_count_range(indices, axis, indices->rank);
  const int64_t item = (int64_t)itg_item(values->dtype);
  const char *off = values->data, *on = off + item;
  int64_t row, end;  // a row is one (outer, depth) pair
  itg_share(itg_count_range(indices, 0, axis) * depth, 1, part, parts, &row, &end);
  char *to = (char *)call->out[0]->data + row * inner * item;
  for (; row < end; row++) {
    const int64_t first = row / depth * inner, d = row % depth;
    for (int64_t i = 0; i < inner; i++, to += item) {
      int64_t at = itg_load_i64(indices->dtype, indices->data, first + i);
      if (at < 0) at += depth;
      itg_move(to, at == d ? on : off, item);
    }
  }
  return NULL;
}

// ---- trilu --------------------------------------------------------------------------------------
itg_words itg_infer_trilu(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 1);
  REFUSE(call->in[0]->rank < 2, "a triangle needs at least two axes");
  itg_copy_type(out, call->in[0]);
  return NULL;
}

ITG_FN(trilu, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_attrs_trilu *attrs = call->attrs;
  const itg_tensor *x = call->in[0];
  const int64_t height = x->shape[x->rank - 2], width = x->shape[x->rank - 1],
                item = (int64_t)itg_item(x->dtype);
  const int64_t k = attrs->k > width ? width : attrs->k < -height ? -height : attrs->k;
  int64_t row, end;
  itg_share(itg_count_range(x, 0, x->rank - 1), 1, part, parts, &row, &end);
  for (; row < end; row++) {
    // columns [from, to) are kept
    int64_t diagonal = row % height + k + !attrs->upper;
    diagonal = diagonal < 0 ? 0 : diagonal > width ? width : diagonal;
    const int64_t from = attrs->upper ? diagonal : 0, to = attrs->upper ? width : diagonal;
    char *out = (char *)call->out[0]->data + row * width * item;
    const char *in = (const char *)x->data + row * width * item;
    memset(out, 0, (size_t)(from * item));
    if (out != in) memcpy(out + from * item, in + from * item, (size_t)((to - from) * item));
    memset(out + to * item, 0, (size_t)((width - to) * item));
  }
  return NULL;
}

// ---- reverse_sequence ---------------------------------------------------------------------------
itg_words itg_infer_reverse_sequence(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_attrs_reverse_sequence *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *lengths = call->in[1];
  const int batch = itg_axis(attrs->batch_axis, x->rank),
            time = itg_axis(attrs->time_axis, x->rank);
  REFUSE(batch < 0 || time < 0 || batch == time,
         "batch_axis and time_axis must be two axes of the data");
  REFUSE(
      !itg_is_index(lengths->dtype) || lengths->rank != 1 || lengths->shape[0] != x->shape[batch],
      "lengths must be one i32 or i64 per batch");
  itg_copy_type(out, x);
  return NULL;
}

ITG_FN(reverse_sequence, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_attrs_reverse_sequence *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *lengths = call->in[1];
  const int batch = itg_axis(attrs->batch_axis, x->rank),
            time = itg_axis(attrs->time_axis, x->rank);
  const int inner = (batch > time ? batch : time) + 1;  // a row is everything behind both axes
  const int64_t bytes = itg_count_range(x, inner, x->rank) * (int64_t)itg_item(x->dtype);
  const int64_t batch_step = itg_count_range(x, batch + 1, inner),
                time_step = itg_count_range(x, time + 1, inner);
  int64_t row, end;
  itg_share(itg_count_range(x, 0, inner), 1, part, parts, &row, &end);
  for (; row < end; row++) {
    const int64_t b = row / batch_step % x->shape[batch], t = row / time_step % x->shape[time];
    const int64_t n = itg_load_i64(lengths->dtype, lengths->data, b);
    REFUSE(n < 0 || n > x->shape[time], "a length lies outside of the time axis");
    const int64_t from = row + (t < n ? n - 1 - 2 * t : 0) * time_step;
    itg_move((char *)call->out[0]->data + row * bytes, (const char *)x->data + from * bytes, bytes);
  }
  return NULL;
}
