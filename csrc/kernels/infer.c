// How output types follow from input types: the functions that several operations share.
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
