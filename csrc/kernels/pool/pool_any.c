// Types, shapes and refusals of pooling, and pooling of any element type.
#include <math.h>

#include "pool.h"

itg_words itg_pool_of(const itg_call *call, itg_window *w, itg_tensor *out) {
  const itg_attrs_pool *a = call->attrs;
  const itg_tensor *x = call->in[0];
  itg_words words = itg_window_of(x, 1, x->rank - 2, a->kernel, a->stride, a->dilation, a->pad, w);
  if (words) return words;
  itg_copy_type(out, x);
  return itg_slide(w, 1, x->rank - 2, a->pad, out);
}

itg_words itg_infer_pool(const itg_call *call, itg_tensor *out) {
  const itg_attrs_pool *a = call->attrs;
  TAKES(1, 1, 1);
  itg_window w;
  REFUSE(a->kind < ITG_POOL_MAX || a->kind > ITG_POOL_LP, "unknown kind of pooling");
  REFUSE(a->count_include_pad != 0 && a->count_include_pad != 1,
         "count_include_pad must be 0 or 1");
  REFUSE(a->p < 1 || a->p > 64, "p must be between 1 and 64");
  REFUSE(a->kind != ITG_POOL_MAX && !itg_is_wide_float(call->in[0]->dtype),
         "only max takes integers");
  return itg_pool_of(call, &w, out);
}

typedef struct best {  // of one window
  double value;
  int64_t at,
      count;  // where the largest was, as a number of the tap's pixel; how many taps met the image
} best;

// Pools one window: sums for avg and lp, the largest for max. Pixel p of the image is element
// `base + p * step`.
static best look(const itg_tensor *x, const itg_window *w, int kind, int64_t p, int64_t base,
                 int64_t step, const int64_t *o) {
  int64_t from[ITG_AXES], begin[ITG_AXES], end[ITG_AXES];
  best b = {kind == ITG_POOL_MAX ? -INFINITY : 0, -1, 0};
  for (int d = 0; d < ITG_AXES; d++) {
    from[d] = o[d] * w->stride[d] - w->before[d];
    itg_taps_inside(w, d, from[d], &begin[d], &end[d]);
  }
  for (int64_t k = begin[0]; k < end[0]; k++)
    for (int64_t j = begin[1]; j < end[1]; j++)
      for (int64_t l = begin[2]; l < end[2]; l++) {
        int64_t line = (from[0] + k * w->dilation[0]) * w->in[1] + from[1] + j * w->dilation[1];
        int64_t pixel = line * w->in[2] + from[2] + l * w->dilation[2];
        double v = itg_load_f64(x->dtype, x->data, base + pixel * step);
        b.count++;
        if (kind == ITG_POOL_AVG) b.value += v;
        else if (kind == ITG_POOL_LP) b.value += pow(fabs(v), (double)p);
        else if (b.at < 0 || v > b.value || (v != v && b.value == b.value))
          b.value = v, b.at = pixel;
      }
  return b;
}

static double lowest(uint8_t dtype) {  // the maximum of a window outside the image
  int64_t lo, hi;
  if (itg_is_float(dtype) || dtype == ITG_I64 || dtype == ITG_U64) return -INFINITY;
  itg_limits(dtype, &lo, &hi);
  return (double)lo;
}

itg_words itg_pool_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_attrs_pool *a = call->attrs;
  itg_window w;
  itg_tensor type;
  itg_pool_of(call, &w, &type);
  const itg_tensor *x = call->in[0], *out = call->out[0];
  const int64_t channels = type.shape[type.rank - 1];
  int64_t i, to;
  itg_share(itg_count(out), 1, part, parts, &i, &to);
  for (; i < to; i++) {
    int64_t place = i / channels, batch = place / itg_places(w.out);
    const int64_t o[ITG_AXES] = {place / w.out[2] / w.out[1] % w.out[0],
                                 place / w.out[2] % w.out[1], place % w.out[2]};
    best b = look(x, &w, (int)a->kind, a->p, batch * itg_places(w.in) * channels + i % channels,
                  channels, o);
    if (a->kind == ITG_POOL_MAX && b.at < 0) b.value = lowest(x->dtype);
    if (a->kind == ITG_POOL_AVG)
      b.value /= (double)(a->count_include_pad ? itg_taps(&w) : b.count ? b.count : 1);
    if (a->kind == ITG_POOL_LP) b.value = pow(b.value, 1 / (double)a->p);
    itg_store_f64(out->dtype, out->data, i, b.value);
  }
  return NULL;
}

// ---- max_pool with indices, channels first ------------------------------------------------------
static itg_words max_pool_of(const itg_call *call, itg_window *w, itg_tensor *out) {
  const itg_attrs_max_pool *a = call->attrs;
  const itg_tensor *x = call->in[0];
  itg_words words = itg_window_of(x, 2, x->rank - 2, a->kernel, a->stride, a->dilation, a->pad, w);
  if (words) return words;
  itg_copy_type(out, x);
  return itg_slide(w, 2, x->rank - 2, a->pad, out);
}

itg_words itg_infer_max_pool(const itg_call *call, itg_tensor *out) {
  const itg_attrs_max_pool *a = call->attrs;
  REFUSE(a->with_indices != 0 && a->with_indices != 1, "with_indices must be 0 or 1");
  REFUSE(a->storage_order != 0 && a->storage_order != 1, "storage_order must be 0 or 1");
  REFUSE(!itg_arity(call, 1, 1, 1 + (uint32_t)a->with_indices),
         "takes one input, and one output or with indices two");
  REFUSE(call->in[0]->dtype == ITG_I64 || call->in[0]->dtype == ITG_U64,
         "takes floats and integers of up to 32 bits");
  itg_window w;
  itg_words words = max_pool_of(call, &w, &out[0]);
  if (words) return words;
  if (a->with_indices) {
    itg_copy_type(&out[1], &out[0]);
    out[1].dtype = ITG_I64;
  }
  return NULL;
}

itg_words itg_max_pool_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_attrs_max_pool *a = call->attrs;
  itg_window w;
  itg_tensor type;
  max_pool_of(call, &w, &type);
  const itg_tensor *x = call->in[0], *out = call->out[0];
  const int64_t plane = itg_places(w.in);
  int64_t *indices = a->with_indices ? call->out[1]->data : NULL;
  int64_t i, to;
  itg_share(itg_count(out), 1, part, parts, &i, &to);
  for (; i < to; i++) {
    const int64_t o[ITG_AXES] = {i / w.out[2] / w.out[1] % w.out[0], i / w.out[2] % w.out[1],
                                 i % w.out[2]};
    const int64_t base = i / itg_places(w.out) * plane;
    best b = look(x, &w, ITG_POOL_MAX, 1, base, 1, o);
    itg_store_f64(out->dtype, out->data, i, b.at < 0 ? lowest(x->dtype) : b.value);
    if (!indices) continue;
    if (a->storage_order && b.at >= 0) {  // counted with the first spatial axis fastest
      int64_t l = b.at % w.in[2], j = b.at / w.in[2] % w.in[1], k = b.at / w.in[2] / w.in[1];
      b.at = (l * w.in[1] + j) * w.in[0] + k;
    }
    indices[i] = base + b.at;
  }
  return NULL;
}
