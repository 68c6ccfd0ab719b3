// deform_conv: types, shapes and refusals, and the kernel for floats other than f32, which computes
// in double.
#include "deform_conv.h"
#include "gemm/dot_products.h"
#include "window.h"

itg_words itg_infer_deform_conv(const itg_call *call, itg_tensor *out) {
  TAKES(3, 5, 1);
  const itg_attrs_deform_conv *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *w = call->in[1], *offset = call->in[2];
  const itg_tensor *bias = itg_input(call, 3), *mask = itg_input(call, 4);
  REFUSE(!itg_is_wide_float(x->dtype), "the data must be floats");
  for (uint32_t i = 1; i < call->n_in; i++)
    REFUSE(call->in[i] && call->in[i]->dtype != x->dtype,
           "all operands must have one element type");
  REFUSE(x->rank != 4 || w->rank != 4, "the data must be images");
  const int64_t groups = attrs->groups, offsets = attrs->offset_groups;
  REFUSE(groups < 1 || w->shape[0] % groups || x->shape[1] % groups ||
             x->shape[1] / groups != w->shape[1],
         "channels and groups do not fit");
  REFUSE(offsets < 1 || x->shape[1] % offsets, "offset_groups must divide the channels");
  itg_set_type(out, x->dtype, 4);
  out->shape[0] = x->shape[0];
  out->shape[1] = w->shape[0];
  itg_words wrong = itg_window_shape(2, x->shape + 2, w->shape + 2, attrs->stride, attrs->pad,
                                     attrs->dilation, out->shape + 2);
  if (wrong) return wrong;
  int64_t points = offsets;
  REFUSE(__builtin_mul_overflow(points, w->shape[2], &points) ||
             __builtin_mul_overflow(points, 2 * w->shape[3], &points),
         "the kernel is too large");
  const int64_t shape[4] = {x->shape[0], points, out->shape[2], out->shape[3]};
  REFUSE(!itg_has_shape(offset, 4, shape), "offset must hold (y, x) for every tap and output");
  const int64_t half[4] = {x->shape[0], points / 2, out->shape[2], out->shape[3]};
  REFUSE(mask && !itg_has_shape(mask, 4, half), "mask must hold a factor for every tap and output");
  REFUSE(bias && !itg_has_shape(bias, 1, w->shape),
         "the bias must be one number per output channel");
  return NULL;
}

uint64_t itg_scratch_deform_conv(const itg_call *call, uint32_t parts) {
  const itg_tensor *x = call->in[0], *w = call->in[1];
  if (itg_empty(w)) return (uint64_t)(ITG_DEFORM_ROWS * w->shape[0]) * parts * sizeof(double);
  if (x->dtype == ITG_F32) return (uint64_t)itg_deform_room(call) * parts * sizeof(float);
  return (uint64_t)(itg_deform_room(call) + itg_count(w)) * sizeof(double);  // one part does it all
}

typedef double real;
#define dots dots_f64
static double load(const itg_tensor *t, int64_t i) { return itg_load_f64(t->dtype, t->data, i); }
static void store(const itg_tensor *t, int64_t i, double v) {
  itg_store_f64(t->dtype, t->data, i, v);
}

#include "deform_conv_core.h"

static itg_words deform_all(const itg_call *call, uint32_t part) {
  if (part || itg_empty(call->out[0])) return NULL;
  double *weights = (double *)call->scratch + itg_deform_room(call);
  for (int64_t i = itg_count(call->in[1]); i-- > 0;) weights[i] = load(call->in[1], i);
  return deform(call, weights, call->scratch, 0, 1);
}

ITG_FN(deform_conv, f64) { return deform_all(call, part); }
ITG_FN(deform_conv, f16) { return deform_all(call, part); }
ITG_FN(deform_conv, bf16) { return deform_all(call, part); }
