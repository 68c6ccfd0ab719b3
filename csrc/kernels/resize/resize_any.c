// Types, shapes and refusals of interpolation, and interpolation of any element type.
#include "resize.h"

itg_words itg_infer_interpolate(const itg_call *call, itg_tensor *out) {
  const itg_attrs_interpolate *a = call->attrs;
  TAKES(3, 3, 1);
  const itg_tensor *x = call->in[0], *index = call->in[1], *weight = call->in[2];
  const int axis = itg_axis(a->axis, x->rank);
  REFUSE(axis < 0, "there is no such axis");
  REFUSE(index->dtype != ITG_I32 || weight->dtype != ITG_F32, "needs i32 indices and f32 weights");
  REFUSE(index->rank != 2 || !itg_same_shape(index, weight), "the tables must be outputs x taps");
  REFUSE(index->shape[1] < 1, "an output needs a tap at least");
  REFUSE(index->shape[1] > 1 && !itg_is_float(x->dtype), "mixing elements needs floats");
  itg_copy_type(out, x);
  out->shape[axis] = index->shape[0];
  FITS(out);
  return NULL;
}

itg_words itg_interpolate_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_interpolation t = itg_interpolation_of(call);
  const itg_tensor *x = call->in[0], *out = call->out[0];
  const size_t item = itg_item(x->dtype), row = (size_t)t.inner * item;
  itg_words words = itg_check_indices(&t);
  if (words) return words;
  int64_t i, to;
  itg_share(t.outer * t.places, 1, part, parts, &i, &to);
  for (; i < to; i++) {
    const int64_t base = i / t.places * t.extent, place = i % t.places * t.taps;
    if (t.taps == 1) {
      memcpy((char *)out->data + (size_t)i * row,
             (const char *)x->data + (size_t)(base + t.index[place]) * row, row);
      continue;
    }
    for (int64_t j = 0; j < t.inner; j++) {
      double sum = 0;
      for (int64_t k = 0; k < t.taps; k++)
        sum += itg_load_f64(x->dtype, x->data, (base + t.index[place + k]) * t.inner + j) *
               t.weight[place + k];
      itg_store_f64(out->dtype, out->data, i * t.inner + j, sum);
    }
  }
  return NULL;
}
