// Reshape, expand, tile, concat and slice: copies without arithmetic.
#include "infer.h"
#include "loop_nest.h"
#include "short_copy.h"

// ---- the same bytes in the same order -----------------------------------------------------------
static void copy_all(const itg_call *call, uint32_t part, uint32_t parts) {
  const int64_t item = (int64_t)itg_item(call->in[0]->dtype);
  int64_t i, end;
  itg_share(itg_count(call->out[0]), 4096, part, parts, &i, &end);
  const char *from = call->in[0]->data;
  char *to = call->out[0]->data;
  if (from != to && i < end) memmove(to + i * item, from + i * item, (size_t)((end - i) * item));
}

// Replaces the extent that is -1; false if the number of elements does not fit.
static bool resolve(itg_tensor *out, int64_t count) {
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < out->rank; i++) {
    if (out->shape[i] == -1 && open < 0) open = i;
    else if (out->shape[i] < 0 || __builtin_mul_overflow(known, out->shape[i], &known))
      return false;
  }
  if (open < 0) return known == count;
  out->shape[open] = known ? count / known : 0;
  return known * out->shape[open] == count;
}

itg_words itg_infer_reshape(const itg_call *call, itg_tensor *out) {
  const itg_attrs_reshape *a = call->attrs;
  TAKES(1, 1, 1);
  REFUSE(a->n_shape < 0 || a->n_shape > ITG_MAX_RANK, "more than 8 axes");
  itg_set_type(out, call->in[0]->dtype, (int)a->n_shape);
  for (int i = 0; i < out->rank; i++) out->shape[i] = a->shape[i];
  REFUSE(!resolve(out, itg_count(call->in[0])), "the new shape does not hold as many elements");
  FITS(out);
  return NULL;
}
ITG_FN(reshape, any) { return copy_all(call, part, parts), NULL; }

itg_words itg_infer_transpose(const itg_call *call, itg_tensor *out) {
  const itg_attrs_transpose *a = call->attrs;
  TAKES(1, 1, 1);
  const itg_tensor *x = call->in[0];
  uint32_t seen = 0;
  itg_set_type(out, x->dtype, x->rank);
  for (int i = 0; i < x->rank; i++) {
    REFUSE(a->perm[i] < 0 || a->perm[i] >= x->rank || seen >> a->perm[i] & 1,
           "perm is no permutation of the axes");
    seen |= 1u << a->perm[i];
    out->shape[i] = x->shape[a->perm[i]];
  }
  return NULL;
}

// ---- expand and tile ----------------------------------------------------------------------------
itg_words itg_infer_expand(const itg_call *call, itg_tensor *out) {
  const itg_attrs_expand *a = call->attrs;
  TAKES(1, 1, 1);
  REFUSE(a->n_shape < 0 || a->n_shape > ITG_MAX_RANK, "more than 8 axes");
  itg_tensor to = {0};
  itg_set_type(&to, call->in[0]->dtype, (int)a->n_shape);
  for (int i = 0; i < to.rank; i++) to.shape[i] = a->shape[i];
  out->dtype = to.dtype;
  REFUSE(!itg_broadcast_shapes(call->in[0], &to, out),
         "the tensor does not broadcast to the shape");
  FITS(out);
  return NULL;
}

static itg_words expand(const itg_call *call, uint32_t part, uint32_t parts) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_nest nest = itg_nest_broadcast(call->in, 1, call->out[0]);
  itg_strided(call->out[0]->data, call->in[0]->data, itg_item(call->in[0]->dtype), &nest, part,
              parts);
  return NULL;
}
ITG_FN(expand, any) { return expand(call, part, parts); }

itg_words itg_infer_tile(const itg_call *call, itg_tensor *out) {
  const itg_attrs_tile *a = call->attrs;
  TAKES(1, 1, 1);
  itg_copy_type(out, call->in[0]);
  for (int i = 0; i < out->rank; i++)
    REFUSE(
        a->repeats[i] < 0 || __builtin_mul_overflow(out->shape[i], a->repeats[i], &out->shape[i]),
        "repeats are negative or too large");
  FITS(out);
  return NULL;
}

ITG_FN(tile, any) {
  const itg_tensor *x = call->in[0];
  const itg_attrs_tile *a = call->attrs;
  if (itg_empty(call->out[0])) return NULL;
  itg_nest nest = {0};
  for (int i = 0; i < x->rank; i++) {
    itg_nest_add(&nest, a->repeats[i], 0, 0, 0);
    itg_nest_add(&nest, x->shape[i], itg_count_range(x, i + 1, x->rank), 0, 0);
  }
  itg_nest_close(&nest);
  itg_strided(call->out[0]->data, x->data, itg_item(x->dtype), &nest, part, parts);
  return NULL;
}

// ---- concat -------------------------------------------------------------------------------------
itg_words itg_infer_concat(const itg_call *call, itg_tensor *out) {
  REFUSE(call->n_in < 1 || call->n_out != 1 || !call->in[0],
         "takes one input or more and one output");
  itg_copy_type(out, call->in[0]);
  const int axis = itg_axis(((const itg_attrs_concat *)call->attrs)->axis, out->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  for (uint32_t k = 1; k < call->n_in; k++) {
    const itg_tensor *x = call->in[k];
    REFUSE(!x || x->dtype != out->dtype || x->rank != out->rank,
           "the inputs differ in element type or rank");
    for (int i = 0; i < out->rank; i++)
      REFUSE(i != axis && x->shape[i] != out->shape[i],
             "the inputs differ off the axis along which they are joined");
    REFUSE(__builtin_add_overflow(out->shape[axis], x->shape[axis], &out->shape[axis]),
           "the result is too large");
  }
  FITS(out);
  return NULL;
}

static void join_rows(const itg_call *call, int axis, int64_t slab, int64_t row, int64_t from,
                      int64_t to) {
  enum { BLOCK = 32 };
  for (int64_t i = from; i < to; i += BLOCK) {
    const int64_t end = to - i < BLOCK ? to : i + BLOCK;
    char *at = (char *)call->out[0]->data + i * row;
    for (uint32_t k = 0; k < call->n_in; k++) {
      const int64_t width = call->in[k]->shape[axis] * slab;
      const char *x = (const char *)call->in[k]->data + i * width;
      itg_copy_runs(at, row, x, width, width, end - i);
      at += width;
    }
  }
}

ITG_FN(concat, any) {
  const itg_tensor *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int axis = itg_axis(((const itg_attrs_concat *)call->attrs)->axis, out->rank);
  const int64_t item = (int64_t)itg_item(out->dtype),
                slab = itg_count_range(out, axis + 1, out->rank) * item;
  const int64_t row = out->shape[axis] * slab, rows = itg_count_range(out, 0, axis);
  int64_t i, end;
  if (rows >= 16 * (int64_t)parts &&
      row <= 4096) {  // some short rows of one input, then the same of the next
    itg_share(rows, 1, part, parts, &i, &end);
    join_rows(call, axis, slab, row, i, end);
    return NULL;
  }
  itg_share(itg_count(out), 4096, part, parts, &i, &end);
  i *= item, end *= item;
  uint32_t k = 0;
  int64_t before = 0;  // bytes of one row that lie before input k
  while (i < end) {
    const int64_t outer = i / row, col = i % row;
    if (col < before) k = 0, before = 0;
    while (col >= before + call->in[k]->shape[axis] * slab)
      before += call->in[k++]->shape[axis] * slab;
    const int64_t width = call->in[k]->shape[axis] * slab, left = width - (col - before);
    const int64_t n = left < end - i ? left : end - i;
    memcpy((char *)out->data + i, (const char *)call->in[k]->data + outer * width + col - before,
           (size_t)n);
    i += n;
  }
  return NULL;
}

// ---- slice --------------------------------------------------------------------------------------
// Python's slicing: the first index and the number of indices of range(extent)[start:stop:step].
static void cut(int64_t extent, int64_t start, int64_t stop, int64_t step, int64_t *first,
                int64_t *count) {
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
  if (start < 0) start += extent;
  if (stop < 0) stop += extent;
  start = start < low ? low : start > high ? high : start;
  stop = stop < low ? low : stop > high ? high : stop;
  *first = start;
  if (step > 0) *count = stop > start ? (stop - start - 1) / step + 1 : 0;
  else *count = start > stop ? (start - stop - 1) / (step == INT64_MIN ? INT64_MAX : -step) + 1 : 0;
}

itg_words itg_infer_slice(const itg_call *call, itg_tensor *out) {
  const itg_attrs_slice *a = call->attrs;
  TAKES(1, 1, 1);
  itg_copy_type(out, call->in[0]);
  for (int i = 0; i < out->rank; i++) {
    int64_t first;
    REFUSE(a->step[i] == 0, "a step is 0");
    cut(call->in[0]->shape[i], a->start[i], a->stop[i], a->step[i], &first, &out->shape[i]);
  }
  return NULL;
}

static void slice(const itg_call *call, const int64_t *start, const int64_t *stop,
                  const int64_t *step, uint32_t part, uint32_t parts) {
  const itg_tensor *x = call->in[0];
  if (itg_empty(call->out[0])) return;
  itg_nest nest = {0};
  int64_t offset = 0;
  for (int i = 0; i < x->rank; i++) {
    const int64_t stride = itg_count_range(x, i + 1, x->rank);
    int64_t first, count;
    cut(x->shape[i], start[i], stop[i], step[i], &first, &count);
    offset += first * stride;
    itg_nest_add(&nest, count, count > 1 ? stride * step[i] : 0, 0, 0);
  }
  itg_nest_close(&nest);
  const int64_t item = (int64_t)itg_item(x->dtype);
  itg_strided(call->out[0]->data, (const char *)x->data + offset * item, (size_t)item, &nest, part,
              parts);
}
ITG_FN(slice, any) {
  const itg_attrs_slice *a = call->attrs;
  return slice(call, a->start, a->stop, a->step, part, parts), NULL;
}

// ---- shapes that are tensors --------------------------------------------------------------------
static bool within(const itg_tensor *out, const int64_t *bound) {
  for (int i = 0; i < out->rank; i++)
    if (out->shape[i] < 0 || out->shape[i] > bound[i]) return false;
  return true;
}
static bool is_vector(const itg_tensor *t, int64_t n) {
  return t->rank == 1 && itg_is_index(t->dtype) && t->shape[0] == n;
}
// Whether the values are known: at bind only those of constants are. An empty tensor has none that
// could be unknown.
static bool has_values(const itg_tensor *t) { return t->data || itg_empty(t); }
#define EXCEEDS "the shape exceeds the one that the model declares"

itg_words itg_infer_shape_of(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 1);
  itg_set_type(out, ITG_I64, 1);
  out->shape[0] = call->in[0]->rank;
  return NULL;
}
ITG_FN(shape_of, any) {
  if (part == 0)
    memcpy(call->out[0]->data, call->in[0]->shape, call->in[0]->rank * sizeof(int64_t));
  return NULL;
}

itg_words itg_infer_reshape_to(const itg_call *call, itg_tensor *out) {
  const itg_attrs_reshape_to *a = call->attrs;
  TAKES(2, 2, 1);
  REFUSE(a->n_bound < 0 || a->n_bound > ITG_MAX_RANK, "more than 8 axes");
  REFUSE(!is_vector(call->in[1], a->n_bound),
         "the shape must be a vector of i32 or i64 with an entry per axis");
  itg_set_type(out, call->in[0]->dtype, (int)a->n_bound);
  for (int i = 0; i < out->rank; i++) out->shape[i] = a->bound[i];
  FITS(out);
  if (!has_values(call->in[1])) return NULL;
  for (int i = 0; i < out->rank; i++)
    out->shape[i] = itg_load_i64(call->in[1]->dtype, call->in[1]->data, i);
  REFUSE(!resolve(out, itg_count(call->in[0])), "the new shape does not hold as many elements");
  REFUSE(!within(out, a->bound), EXCEEDS);
  return NULL;
}
ITG_FN(reshape_to, any) { return copy_all(call, part, parts), NULL; }

itg_words itg_infer_expand_to(const itg_call *call, itg_tensor *out) {
  const itg_attrs_expand_to *a = call->attrs;
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *shape = call->in[1];
  REFUSE(shape->rank != 1 || !itg_is_index(shape->dtype),
         "the shape must be a vector of i32 or i64");
  REFUSE(a->n_bound > ITG_MAX_RANK ||
             a->n_bound != (shape->shape[0] > x->rank ? shape->shape[0] : x->rank),
         "the rank is not the declared one");
  itg_set_type(out, x->dtype, (int)a->n_bound);
  for (int i = 0; i < out->rank; i++) out->shape[i] = a->bound[i];
  FITS(out);
  if (!has_values(shape)) return NULL;
  itg_tensor to = {0};
  to.rank = (uint8_t)shape->shape[0];
  for (int i = 0; i < to.rank; i++) to.shape[i] = itg_load_i64(shape->dtype, shape->data, i);
  REFUSE(!itg_broadcast_shapes(x, &to, out), "the tensor does not broadcast to the shape");
  REFUSE(!within(out, a->bound), EXCEEDS);
  return NULL;
}
ITG_FN(expand_to, any) { return expand(call, part, parts); }

// The full-rank start, stop and step of a slice whose parameters are tensors; false where a step is
// 0.
static bool read_cuts(const itg_call *call, int64_t start[], int64_t stop[], int64_t step[]) {
  const itg_attrs_slice_to *a = call->attrs;
  for (int i = 0; i < ITG_MAX_RANK; i++) start[i] = 0, stop[i] = INT64_MAX, step[i] = 1;
  for (int64_t k = 0; k < a->n_axes; k++) {
    const int64_t axis = a->axes[k];
    start[axis] = itg_load_i64(call->in[1]->dtype, call->in[1]->data, k);
    stop[axis] = itg_load_i64(call->in[2]->dtype, call->in[2]->data, k);
    step[axis] = itg_load_i64(call->in[3]->dtype, call->in[3]->data, k);
    if (step[axis] == 0) return false;
  }
  return true;
}

itg_words itg_infer_slice_to(const itg_call *call, itg_tensor *out) {
  const itg_attrs_slice_to *a = call->attrs;
  TAKES(4, 4, 1);
  itg_copy_type(out, call->in[0]);
  REFUSE(a->n_axes < 0 || a->n_axes > out->rank, "more axes than the tensor has");
  int64_t bound[ITG_MAX_RANK], start[ITG_MAX_RANK], stop[ITG_MAX_RANK], step[ITG_MAX_RANK], first;
  for (int i = 0; i < out->rank; i++) bound[i] = out->shape[i];
  for (int64_t k = 0; k < a->n_axes; k++) {
    REFUSE(a->axes[k] < 0 || a->axes[k] >= out->rank, "axes are not axes of the data");
    out->shape[a->axes[k]] = bound[a->axes[k]] = a->bound[a->axes[k]];
  }
  FITS(out);
  bool known = true;
  for (int k = 1; k < 4; k++) {
    REFUSE(!is_vector(call->in[k], a->n_axes),
           "starts, stops and steps must be vectors with an entry per axis");
    known = known && has_values(call->in[k]);
  }
  if (!known) return NULL;
  REFUSE(!read_cuts(call, start, stop, step), "a step is 0");
  for (int i = 0; i < out->rank; i++)
    cut(call->in[0]->shape[i], start[i], stop[i], step[i], &first, &out->shape[i]);
  REFUSE(!within(out, bound), EXCEEDS);
  return NULL;
}

ITG_FN(slice_to, any) {
  int64_t start[ITG_MAX_RANK], stop[ITG_MAX_RANK], step[ITG_MAX_RANK];
  read_cuts(call, start, stop, step);
  slice(call, start, stop, step, part, parts);
  return NULL;
}

// ---- range --------------------------------------------------------------------------------------
static double scalar_f64(const itg_tensor *t) { return itg_load_f64(t->dtype, t->data, 0); }
static int64_t scalar_i64(const itg_tensor *t) { return itg_load_i64(t->dtype, t->data, 0); }

itg_words itg_infer_range(const itg_call *call, itg_tensor *out) {
  const itg_attrs_range *a = call->attrs;
  TAKES(3, 3, 1);
  bool known = true;
  for (int k = 0; k < 3; k++) {
    const itg_tensor *x = call->in[k];
    REFUSE(itg_count(x) != 1 || x->dtype != call->in[0]->dtype,
           "takes three scalars of one element type");
    known = known && x->data;
  }
  REFUSE(call->in[0]->dtype == ITG_BOOL, "takes numbers, not bools");
  itg_set_type(out, call->in[0]->dtype, 1);
  out->shape[0] = a->bound[0];
  FITS(out);
  if (!known) return NULL;
  double count;
  if (itg_is_float(out->dtype)) {
    const double step = scalar_f64(call->in[2]);
    REFUSE(step == 0, "delta is 0");
    count = ceil((scalar_f64(call->in[1]) - scalar_f64(call->in[0])) / step);
  } else {
    const int64_t first = scalar_i64(call->in[0]), last = scalar_i64(call->in[1]),
                  step = scalar_i64(call->in[2]);
    REFUSE(step == 0, "delta is 0");
    const bool runs = step > 0 ? last > first : last < first;
    const uint64_t way =
        step > 0 ? (uint64_t)last - (uint64_t)first : (uint64_t)first - (uint64_t)last;
    const uint64_t pace = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    count = runs ? (double)((way - 1) / pace + 1) : 0;
  }
  REFUSE(!(count <= (double)a->bound[0]), EXCEEDS);
  out->shape[0] = count > 0 ? (int64_t)count : 0;
  return NULL;
}

ITG_FN(range, any) {
  const itg_tensor *out = call->out[0];
  int64_t i, end;
  itg_share(out->shape[0], 1024, part, parts, &i, &end);
  if (itg_is_float(out->dtype)) {
    const double first = scalar_f64(call->in[0]), step = scalar_f64(call->in[2]);
    for (; i < end; i++) itg_store_f64(out->dtype, out->data, i, first + (double)i * step);
  } else {
    const uint64_t first = (uint64_t)scalar_i64(call->in[0]),
                   step = (uint64_t)scalar_i64(call->in[2]);
    for (; i < end; i++)
      itg_store_i64(out->dtype, out->data, i, (int64_t)(first + (uint64_t)i * step));
  }
  return NULL;
}
