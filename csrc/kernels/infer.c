// How output types follow from input types: the functions that several operations share.
#include "infer.h"
#include "wide.h"

static itg_words one_to_one(const itg_call *call) {
  return call->n_in == 1 && call->n_out == 1 && call->in[0] ? NULL : "takes one input and one output";
}

itg_words itg_infer_same(const itg_call *call, itg_tensor *out) {
  itg_words bad = one_to_one(call);
  if (bad) return bad;
  itg_copy_type(&out[0], call->in[0]);
  return NULL;
}

#define SAME_IF(name, fits, words)                                        \
  itg_words itg_infer_##name(const itg_call *call, itg_tensor *out) {     \
    itg_words bad = itg_infer_same(call, out);                            \
    return bad ? bad : (fits)(out[0].dtype) ? NULL : words;               \
  }
static bool is_number(uint8_t dtype) { return dtype && dtype != ITG_BOOL; }
static bool is_bool(uint8_t dtype) { return dtype == ITG_BOOL; }
SAME_IF(float_same, itg_is_float, "takes floats only")
SAME_IF(number_same, is_number, "takes numbers, not bools")
SAME_IF(integer_same, itg_is_integer, "takes integers only")
SAME_IF(bool_same, is_bool, "takes bools only")

itg_words itg_infer_float_test(const itg_call *call, itg_tensor *out) {
  itg_words bad = itg_infer_float_same(call, out);
  out[0].dtype = ITG_BOOL;
  return bad;
}

static bool is_dtype(int64_t code) { return code > 0 && code <= ITG_DTYPE_LAST; }

itg_words itg_infer_cast(const itg_call *call, itg_tensor *out) {
  const itg_attrs_cast *a = call->attrs;
  itg_words bad = itg_infer_same(call, out);
  if (bad) return bad;
  if (!is_dtype(a->dtype)) return "the element type to cast to is unknown";
  out[0].dtype = (uint8_t)a->dtype;
  return NULL;
}

itg_words itg_infer_bitcast(const itg_call *call, itg_tensor *out) {
  const itg_attrs_bitcast *a = call->attrs;
  itg_words bad = itg_infer_same(call, out);
  if (bad) return bad;
  if (!is_dtype(a->dtype)) return "the element type to reinterpret as is unknown";
  if (itg_item((uint8_t)a->dtype) != itg_item(out[0].dtype)) return "the element types have different sizes";
  out[0].dtype = (uint8_t)a->dtype;
  return NULL;
}

// ---- two operands of one type, broadcast together -------------------------------------------------------
itg_words itg_infer_compare(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  REFUSE(call->in[0]->dtype != call->in[1]->dtype, "the operands have different element types");
  REFUSE(!itg_broadcast_shapes(call->in[0], call->in[1], out),
         "the shapes of the operands cannot be broadcast together");
  out->dtype = ITG_BOOL;
  FITS(out);
  return NULL;
}

#define BROADCAST_IF(name, fits, words)                                  \
  itg_words itg_infer_##name(const itg_call *call, itg_tensor *out) {    \
    itg_words bad = itg_infer_compare(call, out);                        \
    if (bad) return bad;                                                 \
    REFUSE(!(fits)(call->in[0]->dtype), words);                          \
    out->dtype = call->in[0]->dtype;                                     \
    FITS(out);                                                           \
    return NULL;                                                         \
  }
BROADCAST_IF(numbers, is_number, "takes numbers, not bools")
BROADCAST_IF(integers, itg_is_integer, "takes integers only")
BROADCAST_IF(bools, is_bool, "takes bools only")

itg_words itg_infer_prelu(const itg_call *call, itg_tensor *out) {
  itg_words bad = itg_infer_numbers(call, out);
  if (bad) return bad;
  REFUSE(!itg_same_shape(out, call->in[0]), "the slope does not broadcast to the shape of the data");
  return NULL;
}

itg_words itg_infer_where(const itg_call *call, itg_tensor *out) {
  TAKES(3, 3, 1);
  REFUSE(call->in[2]->dtype != ITG_BOOL, "the condition must be bool");
  REFUSE(call->in[0]->dtype != call->in[1]->dtype, "the operands have different element types");
  REFUSE(!itg_broadcast_shapes(call->in[0], call->in[1], out) || !itg_broadcast_shapes(out, call->in[2], out),
         "the shapes of the operands cannot be broadcast together");
  out->dtype = call->in[0]->dtype;
  FITS(out);
  return NULL;
}
