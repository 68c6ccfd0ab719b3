// Types, shapes and refusals of elementwise, pooling and resizing ops on quantised tensors.
#include "infer.h"
#include "qresize.h"
#include "window.h"

static bool is_byte(const itg_tensor *t) { return t->dtype == ITG_I8 || t->dtype == ITG_U8; }

itg_words itg_infer_lookup(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *table = call->in[1];
  REFUSE(!is_byte(x), "the numbers of entries must be i8 or u8");
  REFUSE(table->rank != 1 || table->shape[0] != 256, "the table must have 256 entries");
  itg_copy_type(out, x);
  out->dtype = table->dtype;
  FITS(out);
  return NULL;
}

itg_words itg_infer_lookup_wide(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *table = call->in[1];
  const int64_t base = ((const itg_attrs_lookup_wide *)call->attrs)->base;
  REFUSE(x->dtype != ITG_I16, "the numbers of entries must be i16");
  REFUSE(table->rank != 1 || table->shape[0] < 1 || table->shape[0] > 4096,
         "the table must have 1 to 4096 entries");
  REFUSE(base < INT16_MIN || base > INT16_MAX, "the base must be a number of i16");
  itg_copy_type(out, x);
  out->dtype = table->dtype;
  FITS(out);
  return NULL;
}

// Checks scale and zero of a tensor of bytes: the scale is one float, the zero one number of type
// `dtype`.
static itg_words check_quant(const itg_tensor *scale, const itg_tensor *zero, uint8_t dtype) {
  REFUSE(!itg_is_wide_float(scale->dtype) || itg_count(scale) != 1, "a scale must be one float");
  REFUSE(zero->dtype != dtype || itg_count(zero) != 1,
         "a zero must be one number of the type of its tensor");
  return NULL;
}

itg_words itg_infer_qlinear_pair(const itg_call *call, itg_tensor *out) {
  TAKES(8, 8, 1);
  const itg_tensor *const *in = call->in;
  REFUSE(!is_byte(in[0]) || !is_byte(in[3]) || !is_byte(in[7]),
         "operands and result must be i8 or u8");
  itg_words wrong = check_quant(in[1], in[2], in[0]->dtype);
  if (!wrong) wrong = check_quant(in[4], in[5], in[3]->dtype);
  if (!wrong) wrong = check_quant(in[6], in[7], in[7]->dtype);
  if (wrong) return wrong;
  REFUSE(!itg_broadcast_shapes(in[0], in[3], out),
         "the shapes of the operands cannot be broadcast");
  out->dtype = in[7]->dtype;
  FITS(out);
  return NULL;
}

static itg_words check_one(const itg_call *call) {
  const itg_tensor *const *in = call->in;
  REFUSE(!is_byte(in[0]) || !is_byte(in[4]), "operand and result must be i8 or u8");
  itg_words wrong = check_quant(in[1], in[2], in[0]->dtype);
  return wrong ? wrong : check_quant(in[3], in[4], in[4]->dtype);
}

itg_words itg_infer_qlinear_mean(const itg_call *call, itg_tensor *out) {
  TAKES(5, 5, 1);
  const itg_attrs_qlinear_mean *a = call->attrs;
  const itg_tensor *x = call->in[0];
  itg_words wrong = check_one(call);
  if (wrong) return wrong;
  REFUSE(a->n_axes < 1 || a->n_axes > x->rank, "there must be axes to reduce");
  int rank = 0;
  for (int i = 0; i < a->n_axes; i++)
    REFUSE(a->axes[i] < 0 || a->axes[i] >= x->rank || (i && a->axes[i] != a->axes[i - 1] + 1),
           "the axes must follow each other");
  REFUSE(a->keepdims != 0 && a->keepdims != 1, "keepdims must be 0 or 1");
  int64_t shape[ITG_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    const bool gone = i >= a->axes[0] && i <= a->axes[a->n_axes - 1];
    REFUSE(gone && x->shape[i] < 1, "there must be something to reduce");
    if (!gone || a->keepdims) shape[rank++] = gone ? 1 : x->shape[i];
  }
  itg_set_type(out, call->in[4]->dtype, rank);
  for (int i = 0; i < rank; i++) out->shape[i] = shape[i];
  FITS(out);
  return NULL;
}

itg_words itg_qpool_of(const itg_call *call, itg_window *w, itg_tensor *out) {
  const itg_attrs_qpool *a = call->attrs;
  const itg_tensor *x = call->in[0];
  REFUSE(x->rank < 3 || x->rank > 5, "takes images of one to three spatial axes");
  itg_words wrong = itg_window_of(x, 1, x->rank - 2, a->kernel, a->stride, a->dilation, a->pad, w);
  if (wrong) return wrong;
  itg_copy_type(out, x);
  out->dtype = call->in[4]->dtype;
  return itg_slide(w, 1, x->rank - 2, a->pad, out);
}

itg_words itg_infer_qpool(const itg_call *call, itg_tensor *out) {
  TAKES(5, 5, 1);
  const itg_attrs_qpool *a = call->attrs;
  itg_window w;
  itg_words wrong = check_one(call);
  if (wrong) return wrong;
  REFUSE(a->count_include_pad != 0 && a->count_include_pad != 1,
         "count_include_pad must be 0 or 1");
  return itg_qpool_of(call, &w, out);
}

itg_words itg_infer_qlinear_softmax(const itg_call *call, itg_tensor *out) {
  TAKES(4, 4, 1);
  const itg_attrs_qlinear_softmax *a = call->attrs;
  const itg_tensor *const *in = call->in;
  REFUSE(!is_byte(in[0]) || !is_byte(in[3]), "operand and result must be i8 or u8");
  REFUSE(in[1]->dtype != ITG_I32 || in[1]->rank != 1 || in[1]->shape[0] != 256,
         "the table must have 256 entries of i32");
  REFUSE(itg_axis(a->axis, in[0]->rank) < 0, "there is no such axis");
  itg_words wrong = check_quant(in[2], in[3], in[3]->dtype);
  if (wrong) return wrong;
  itg_copy_type(out, in[0]);
  out->dtype = in[3]->dtype;
  FITS(out);
  return NULL;
}

uint64_t itg_scratch_qlinear_resize(const itg_call *call, uint32_t parts) {
  const itg_attrs_qlinear_resize *a = call->attrs;
  const itg_tensor *x = call->in[0], *out = call->out[0];
  if (itg_empty(x) || itg_empty(out)) return 0;
  return parts * itg_resize_bytes(x, out, itg_axis(a->axis, x->rank));
}

itg_words itg_infer_qlinear_resize(const itg_call *call, itg_tensor *out) {
  TAKES(9, 9, 1);
  const itg_attrs_qlinear_resize *a = call->attrs;
  const itg_tensor *const *in = call->in, *x = in[0];
  itg_words wrong = check_one(call);
  if (wrong) return wrong;
  const int axis = itg_axis(a->axis, x->rank);
  REFUSE(axis < 0 || axis + 1 >= x->rank, "there are no two such axes");
  itg_copy_type(out, x);
  out->dtype = in[4]->dtype;
  for (int i = 0; i < 2; i++) {
    const itg_tensor *index = in[5 + 2 * i], *weight = in[6 + 2 * i];
    REFUSE(index->dtype != ITG_I32 || weight->dtype != ITG_I32, "indices and weights must be i32");
    REFUSE(index->rank != 2 || index->shape[1] != 2 || !itg_same_shape(index, weight),
           "the tables must be outputs x 2");
    out->shape[axis + i] = index->shape[0];
  }
  FITS(out);
  return NULL;
}
