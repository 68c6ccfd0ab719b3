// Cumulative sums and products along an axis; types, shapes and refusals of reductions.
#include "infer.h"
#include "widen.h"

// ---- types --------------------------------------------------------------------------------------
itg_words itg_infer_reduce(const itg_call *call, itg_tensor *out) {
  const itg_attrs_reduce_sum *a = call->attrs;
  TAKES(1, 1, 1);
  const itg_tensor *x = call->in[0];
  REFUSE(a->n_axes < 1 || a->n_axes > x->rank, "the number of axes does not fit the rank");
  for (int64_t k = 0; k < a->n_axes; k++)
    REFUSE(a->axes[k] < (k ? a->axes[k - 1] + 1 : 0) || a->axes[k] >= x->rank,
           "axes must be sorted and within the rank");
  int rank = 0;
  for (int i = 0, k = 0; i < x->rank; i++) {
    const bool gone = k < a->n_axes && a->axes[k] == i;
    k += gone;
    if (!gone) out->shape[rank++] = x->shape[i];
    else if (a->keepdims) out->shape[rank++] = 1;
  }
  itg_set_type(out, x->dtype, rank);
  return NULL;
}

itg_words itg_infer_reduce_number(const itg_call *call, itg_tensor *out) {
  itg_words bad = itg_infer_reduce(call, out);
  if (bad) return bad;
  REFUSE(out->dtype == ITG_BOOL, "takes numbers, not bools");
  return NULL;
}

itg_words itg_infer_arg(const itg_call *call, itg_tensor *out) {
  const itg_attrs_argmax *a = call->attrs;
  TAKES(1, 1, 1);
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(a->axis, x->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  REFUSE(x->shape[axis] == 0, "an empty axis has no largest element");
  int rank = 0;
  for (int i = 0; i < x->rank; i++)
    if (i != axis || a->keepdims) out->shape[rank++] = i == axis ? 1 : x->shape[i];
  itg_set_type(out, ITG_I64, rank);
  FITS(out);
  return NULL;
}

itg_words itg_infer_cumulative(const itg_call *call, itg_tensor *out) {
  itg_words bad = itg_infer_number_same(call, out);
  if (bad) return bad;
  REFUSE(itg_axis(((const itg_attrs_cumsum *)call->attrs)->axis, out->rank) < 0,
         "axis is not an axis of the data");
  return NULL;
}

// ---- cumsum, cumprod ----------------------------------------------------------------------------
// Accumulates n elements. If they lie along the axis, all go to one total; otherwise each has its
// own.
#define ACCUMULATE(tag, type)                                                              \
  static void accumulate_##tag(type *total, const type *x, type *y, int64_t n, bool along, \
                               const itg_attrs_cumsum *a, bool product) {                  \
    for (int64_t k = 0; k < n; k++) {                                                      \
      const int64_t i = along && a->reverse ? n - 1 - k : k;                               \
      type *sum = total + (along ? 0 : i);                                                 \
      const type before = *sum;                                                            \
      *sum = product ? before * x[i] : before + x[i];                                      \
      y[i] = a->exclusive ? before : *sum;                                                 \
    }                                                                                      \
  }
ACCUMULATE(f32, float)
ACCUMULATE(f64, double)
ACCUMULATE(u64, uint64_t)

static itg_words cumulate(const itg_call *call, uint32_t part, uint32_t parts, bool product) {
  const itg_attrs_cumsum *a = call->attrs;
  const itg_tensor *x = call->in[0];
  if (itg_empty(x)) return NULL;
  const int axis = itg_axis(a->axis, x->rank);
  const int64_t extent = x->shape[axis], inner = itg_count_range(x, axis + 1, x->rank);
  const int64_t item = (int64_t)itg_item(x->dtype);
  const enum itg_wide wide = itg_wide(x->dtype);
  const bool along = inner == 1;
  const int64_t chunk = along ? ITG_BLOCK : 1,
                chunks = (extent + chunk - 1) / chunk;  // of the axis, widened at once
  int64_t i, end;  // of the running totals: one per position off the axis
  itg_share(itg_count_range(x, 0, axis) * inner, 16, part, parts, &i, &end);
  while (i < end) {
    itg_block total, from, to;
    const int64_t col = i % inner, left = inner - col < end - i ? inner - col : end - i;
    const int64_t totals = left < ITG_BLOCK ? left : ITG_BLOCK,
                  base = i / inner * extent * inner + col;
    for (int64_t k = 0; k < totals; k++) {
      if (wide == ITG_WIDE_F32) total.f32[k] = product;
      else if (wide == ITG_WIDE_F64) total.f64[k] = product;
      else total.u64[k] = product;
    }
    for (int64_t k = 0; k < chunks; k++) {
      const int64_t row = (a->reverse ? chunks - 1 - k : k) * chunk,
                    at = (base + row * inner) * item;
      const int64_t n = !along ? totals : extent - row < chunk ? extent - row : chunk;
      itg_widen(&from, (const char *)x->data + at, x->dtype, n);
      if (wide == ITG_WIDE_F32) accumulate_f32(total.f32, from.f32, to.f32, n, along, a, product);
      else if (wide == ITG_WIDE_F64)
        accumulate_f64(total.f64, from.f64, to.f64, n, along, a, product);
      else accumulate_u64(total.u64, from.u64, to.u64, n, along, a, product);
      itg_narrow((char *)call->out[0]->data + at, &to, x->dtype, n, false);
    }
    i += totals;
  }
  return NULL;
}
ITG_FN(cumsum, any) { return cumulate(call, part, parts, false); }
ITG_FN(cumprod, any) { return cumulate(call, part, parts, true); }
