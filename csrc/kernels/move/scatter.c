// Scatter: a copy of the data with some elements or slices replaced by, or combined with, updates.
//
// Every share owns a range of the output: it copies that range and applies the updates that fall
// into it, in order. So duplicates combine in the same order however the work is split, and no
// share waits for another.
#include "index.h"
#include "infer.h"

enum reduction { NONE, ADD, MUL, MAX, MIN, REDUCTIONS };

static double reduce_float(int64_t how, double a, double b) {
  switch (how) {
    case ADD: return a + b;
    case MUL: return a * b;
    case MAX: return a > b || a != a ? a : b;  // NaN wins
    default: return a < b || a != a ? a : b;
  }
}

static int64_t reduce_int(int64_t how, bool is_u64, int64_t a, int64_t b) {
  const bool greater = is_u64 ? (uint64_t)a > (uint64_t)b : a > b;
  switch (how) {
    case ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case MAX: return greater ? a : b;
    default: return greater ? b : a;
  }
}

// out[to + i] = reduce(out[to + i], updates[from + i]) for i below n
static void apply(int64_t how, uint8_t dtype, char *out, int64_t to, const char *updates,
                  int64_t from, int64_t n) {
  const int64_t item = (int64_t)itg_item(dtype);
  if (how == NONE) {
    itg_move(out + to * item, updates + from * item, n * item);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    if (itg_is_float(dtype)) {
      double a = itg_load_f64(dtype, out, to + i), b = itg_load_f64(dtype, updates, from + i);
      itg_store_f64(dtype, out, to + i, reduce_float(how, a, b));
    } else {
      int64_t a = itg_load_i64(dtype, out, to + i), b = itg_load_i64(dtype, updates, from + i);
      itg_store_i64(dtype, out, to + i, reduce_int(how, dtype == ITG_U64, a, b));
    }
  }
}

static void copy_share(const itg_call *call, int64_t from, int64_t to) {
  const int64_t item = (int64_t)itg_item(call->in[0]->dtype);
  char *out = call->out[0]->data;
  const char *x = call->in[0]->data;
  if (out != x && to > from)
    memcpy(out + from * item, x + from * item, (size_t)((to - from) * item));
}

static itg_words check_common(const itg_call *call, int64_t reduction) {
  TAKES(3, 3, 1);
  REFUSE(!itg_is_index(call->in[1]->dtype), "indices must be i32 or i64");
  REFUSE(call->in[2]->dtype != call->in[0]->dtype,
         "updates must have the element type of the data");
  REFUSE(reduction < NONE || reduction >= REDUCTIONS, "reduction is unknown");
  return NULL;
}

// ---- scatter_elements: out[i, indices[i, j, k], k] = updates[i, j, k] for axis 1 ----------------
itg_words itg_infer_scatter_elements(const itg_call *call, itg_tensor *out) {
  const itg_attrs_scatter_elements *attrs = call->attrs;
  itg_words wrong = check_common(call, attrs->reduction);
  if (wrong) return wrong;
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int axis = itg_axis(attrs->axis, x->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  REFUSE(indices->rank != x->rank, "indices must have the rank of the data");
  REFUSE(!itg_same_shape(indices, call->in[2]), "updates must have the shape of indices");
  for (int i = 0; i < x->rank; i++)
    REFUSE(i != axis && indices->shape[i] > x->shape[i],
           "indices are larger than the data off the scattered axis");
  itg_copy_type(out, x);
  return NULL;
}

ITG_FN(scatter_elements, any) {
  const itg_attrs_scatter_elements *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int rank = x->rank, last = rank - 1, axis = itg_axis(attrs->axis, rank);
  const int64_t width = indices->shape[last], rows = itg_count_range(indices, 0, last);
  int64_t stride[ITG_MAX_RANK], begin, end;
  itg_strides(x, stride);
  itg_share(itg_count(x), 1, part, parts, &begin, &end);
  copy_share(call, begin, end);
  if (itg_empty(indices)) return NULL;
  for (int64_t row = 0; row < rows; row++) {
    int64_t base = 0, rest = row;
    for (int d = last - 1; d >= 0; rest /= indices->shape[d--])
      if (d != axis) base += rest % indices->shape[d] * stride[d];
    for (int64_t i = 0; i < width; i++) {
      int64_t at = itg_index(indices, row * width + i, x->shape[axis]);
      REFUSE(at < 0, ITG_BAD_INDEX);
      at = base + at * stride[axis] + (axis == last ? 0 : i);
      if (at >= begin && at < end)
        apply(attrs->reduction, x->dtype, call->out[0]->data, at, call->in[2]->data,
              row * width + i, 1);
    }
  }
  return NULL;
}

// ---- scatter_nd: out[indices[i, 0], indices[i, 1], ..., ...] = updates[i, ...] ------------------
itg_words itg_infer_scatter_nd(const itg_call *call, itg_tensor *out) {
  itg_words wrong = check_common(call, ((const itg_attrs_scatter_nd *)call->attrs)->reduction);
  if (wrong) return wrong;
  const itg_tensor *x = call->in[0], *indices = call->in[1], *updates = call->in[2];
  REFUSE(x->rank < 1 || indices->rank < 1, "data and indices must have at least one axis");
  const int lead = indices->rank - 1;
  const int64_t depth = indices->shape[lead];
  REFUSE(depth < 0 || depth > x->rank,
         "the last axis of indices selects more axes than the data has");
  REFUSE(updates->rank != lead + x->rank - depth,
         "updates must have the axes of indices, then those of one slice");
  for (int i = 0; i < updates->rank; i++)
    REFUSE(updates->shape[i] != (i < lead ? indices->shape[i] : x->shape[i - lead + depth]),
           "updates must have the shape of indices without its last axis, then that of one slice");
  itg_copy_type(out, x);
  return NULL;
}

ITG_FN(scatter_nd, any) {
  const int64_t how = ((const itg_attrs_scatter_nd *)call->attrs)->reduction;
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  const int lead = indices->rank - 1, depth = (int)indices->shape[lead];
  const int64_t slice = itg_count_range(x, depth, x->rank),
                rows = itg_count_range(indices, 0, lead);
  int64_t begin, end;
  itg_share(itg_count(x), 1, part, parts, &begin, &end);
  copy_share(call, begin, end);
  if (itg_empty(call->in[2])) return NULL;
  for (int64_t row = 0; row < rows; row++) {
    int64_t at = 0;
    for (int d = 0; d < depth; d++) {
      int64_t i = itg_index(indices, row * depth + d, x->shape[d]);
      REFUSE(i < 0, ITG_BAD_INDEX);
      at = at * x->shape[d] + i;
    }
    at *= slice;
    int64_t from = at > begin ? at : begin, to = at + slice < end ? at + slice : end;
    if (from >= to) continue;
    apply(how, x->dtype, call->out[0]->data, from, call->in[2]->data, row * slice + from - at,
          to - from);
  }
  return NULL;
}

// ---- tensor_scatter: a cache along `axis`, overwritten from position write_indices[batch] on ----
enum { LINEAR, CIRCULAR };

itg_words itg_infer_tensor_scatter(const itg_call *call, itg_tensor *out) {
  TAKES(2, 3, 1);
  const itg_attrs_tensor_scatter *attrs = call->attrs;
  const itg_tensor *past = call->in[0], *update = call->in[1], *at = itg_input(call, 2);
  const int axis = itg_axis(attrs->axis, past->rank);
  REFUSE(axis < 1, "axis is not an axis of the cache, or is its batch axis");
  REFUSE(attrs->mode != LINEAR && attrs->mode != CIRCULAR, "mode must be linear or circular");
  REFUSE(update->dtype != past->dtype || update->rank != past->rank,
         "update must have the type and rank of the cache");
  for (int i = 0; i < past->rank; i++)
    REFUSE(i == axis ? update->shape[i] > past->shape[i] : update->shape[i] != past->shape[i],
           "update does not fit into the cache");
  REFUSE(at && (!itg_is_index(at->dtype) || at->rank != 1 || at->shape[0] != past->shape[0]),
         "write_indices must be one i32 or i64 position per batch");
  itg_copy_type(out, past);
  return NULL;
}

ITG_FN(tensor_scatter, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_attrs_tensor_scatter *attrs = call->attrs;
  const itg_tensor *past = call->in[0], *update = call->in[1], *positions = itg_input(call, 2);
  const int axis = itg_axis(attrs->axis, past->rank);
  const int64_t extent = past->shape[axis], n = update->shape[axis],
                outer = itg_count_range(past, 0, axis);
  const int64_t inner = itg_count_range(past, axis + 1, past->rank),
                per_batch = itg_count_range(past, 1, axis);
  const int64_t bytes = inner * (int64_t)itg_item(past->dtype);
  int64_t row, end;
  itg_share(outer, 1, part, parts, &row, &end);
  copy_share(call, row * extent * inner, end * extent * inner);
  for (; row < end && n; row++) {
    int64_t at = 0;
    if (positions) {
      const int64_t i = row / per_batch;
      at = positions->dtype == ITG_I32 ? ((const int32_t *)positions->data)[i]
                                       : ((const int64_t *)positions->data)[i];
    }
    REFUSE(at < 0 || (attrs->mode == LINEAR && at > extent - n),
           "a write position lies outside of the cache");
    at %= extent;
    char *to = (char *)call->out[0]->data + row * extent * bytes;
    const char *from = (const char *)update->data + row * n * bytes;
    const int64_t first = n < extent - at ? n : extent - at;  // the rest wraps to the front
    memcpy(to + at * bytes, from, (size_t)(first * bytes));
    if (first < n) memcpy(to, from + first * bytes, (size_t)((n - first) * bytes));
  }
  return NULL;
}
