// Gather: rows, elements or slices selected by index. It moves bytes, so one kernel serves every
// element type.
#include "index.h"
#include "infer.h"

// ---- gather: out[o, i, :] = x[o, indices[i], :] -------------------------------------------------
itg_words itg_infer_gather(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int axis = itg_axis(((const itg_attrs_gather *)call->attrs)->axis, x->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  REFUSE(!itg_is_index(indices->dtype), "indices must be i32 or i64");
  REFUSE(x->rank + indices->rank - 1 > ITG_MAX_RANK, "the result would have more than 8 axes");
  itg_set_type(out, x->dtype, x->rank + indices->rank - 1);
  for (int i = 0; i < axis; i++) out->shape[i] = x->shape[i];
  for (int i = 0; i < indices->rank; i++) out->shape[axis + i] = indices->shape[i];
  for (int i = axis + 1; i < x->rank; i++) out->shape[indices->rank - 1 + i] = x->shape[i];
  return NULL;
}

ITG_FN(gather, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int axis = itg_axis(((const itg_attrs_gather *)call->attrs)->axis, x->rank);
  const int64_t n = itg_count(indices), extent = x->shape[axis],
                outer = itg_count_range(x, 0, axis);
  const int64_t bytes = itg_count_range(x, axis + 1, x->rank) * (int64_t)itg_item(x->dtype);
  const char *from = x->data;
  char *to = call->out[0]->data;
  int64_t row, end;
  itg_share(outer * n, 1, part, parts, &row, &end);
  if (row == end) return NULL;
  from += row / n * extent * bytes;
  for (int64_t i = row % n; row < end; row++) {
    int64_t at = itg_index(indices, i, extent);
    REFUSE(at < 0, ITG_BAD_INDEX);
    itg_move(to + row * bytes, from + at * bytes, bytes);
    if (++i == n) {
      i = 0;
      from += extent * bytes;
    }
  }
  return NULL;
}

// ---- gather_elements: out[i, j, k] = x[i, indices[i, j, k], k] for axis 1 -----------------------
itg_words itg_infer_gather_elements(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int axis = itg_axis(((const itg_attrs_gather_elements *)call->attrs)->axis, x->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  REFUSE(!itg_is_index(indices->dtype), "indices must be i32 or i64");
  REFUSE(indices->rank != x->rank, "indices must have the rank of the data");
  for (int i = 0; i < x->rank; i++)
    REFUSE(i != axis && indices->shape[i] > x->shape[i],
           "indices are larger than the data off the gathered axis");
  itg_copy_type(out, indices);
  out->dtype = x->dtype;
  return NULL;
}

ITG_FN(gather_elements, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int rank = x->rank, last = rank - 1;
  const int axis = itg_axis(((const itg_attrs_gather_elements *)call->attrs)->axis, rank);
  const int64_t item = (int64_t)itg_item(x->dtype), extent = x->shape[axis],
                width = indices->shape[last];
  int64_t stride[ITG_MAX_RANK], row, end;
  itg_strides(x, stride);
  itg_share(itg_count_range(indices, 0, last), 1, part, parts, &row, &end);
  for (; row < end; row++) {
    int64_t base = 0, rest = row;
    for (int d = last - 1; d >= 0; rest /= indices->shape[d--])
      if (d != axis) base += rest % indices->shape[d] * stride[d];
    for (int64_t i = 0; i < width; i++) {
      int64_t at = itg_index(indices, row * width + i, extent);
      REFUSE(at < 0, ITG_BAD_INDEX);
      at = base + at * stride[axis] + (axis == last ? 0 : i);
      itg_move((char *)call->out[0]->data + (row * width + i) * item,
               (const char *)x->data + at * item, item);
    }
  }
  return NULL;
}

// ---- gather_nd: out[b, i, ...] = x[b, indices[b, i, 0], indices[b, i, 1], ..., ...] -------------
itg_words itg_infer_gather_nd(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int64_t batch = ((const itg_attrs_gather_nd *)call->attrs)->batch_dims;
  REFUSE(!itg_is_index(indices->dtype), "indices must be i32 or i64");
  REFUSE(batch < 0 || batch >= indices->rank || batch >= x->rank,
         "batch_dims must be below the rank of both inputs");
  const int64_t depth = indices->shape[indices->rank - 1];
  REFUSE(depth < 0 || depth > x->rank - batch,
         "the last axis of indices selects more axes than the data has");
  for (int i = 0; i < batch; i++)
    REFUSE(x->shape[i] != indices->shape[i], "batch axes of data and indices differ");
  const int lead = indices->rank - 1, from = (int)(batch + depth);
  REFUSE(lead + x->rank - from > ITG_MAX_RANK, "the result would have more than 8 axes");
  itg_set_type(out, x->dtype, lead + x->rank - from);
  for (int i = 0; i < lead; i++) out->shape[i] = indices->shape[i];
  for (int i = from; i < x->rank; i++) out->shape[lead + i - from] = x->shape[i];
  return NULL;
}

ITG_FN(gather_nd, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int batch = (int)((const itg_attrs_gather_nd *)call->attrs)->batch_dims,
            lead = indices->rank - 1;
  const int depth = (int)indices->shape[lead];
  const int64_t slice = itg_count_range(x, batch + depth, x->rank) * (int64_t)itg_item(x->dtype);
  const int64_t per_batch = itg_count_range(indices, batch, lead);
  int64_t row, end;
  itg_share(itg_count_range(indices, 0, lead), 1, part, parts, &row, &end);
  for (; row < end; row++) {
    int64_t from = row / per_batch;
    for (int d = 0; d < depth; d++) {
      int64_t at = itg_index(indices, row * depth + d, x->shape[batch + d]);
      REFUSE(at < 0, ITG_BAD_INDEX);
      from = from * x->shape[batch + d] + at;
    }
    itg_move((char *)call->out[0]->data + row * slice, (const char *)x->data + from * slice, slice);
  }
  return NULL;
}
