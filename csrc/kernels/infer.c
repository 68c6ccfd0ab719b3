// Functions that infer output types and are shared by several operations.
#include "elementwise/chain.h"
#include "infer.h"
#include "normalize/normalize.h"

static itg_words one_to_one(const itg_call *call) {
  return call->n_in == 1 && call->n_out == 1 && call->in[0] ? NULL
                                                            : "takes one input and one output";
}

itg_words itg_infer_same(const itg_call *call, itg_tensor *out) {
  itg_words bad = one_to_one(call);
  if (bad) return bad;
  itg_copy_type(&out[0], call->in[0]);
  return NULL;
}

#define SAME_IF(name, fits, words)                                    \
  itg_words itg_infer_##name(const itg_call *call, itg_tensor *out) { \
    itg_words bad = itg_infer_same(call, out);                        \
    return bad ? bad : (fits)(out[0].dtype) ? NULL : words;           \
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
  if (itg_item((uint8_t)a->dtype) != itg_item(out[0].dtype))
    return "the element types have different sizes";
  out[0].dtype = (uint8_t)a->dtype;
  return NULL;
}

// ---- two operands of one type, broadcast together -----------------------------------------------
itg_words itg_infer_compare(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  REFUSE(call->in[0]->dtype != call->in[1]->dtype, "the operands have different element types");
  REFUSE(!itg_broadcast_shapes(call->in[0], call->in[1], out),
         "the shapes of the operands cannot be broadcast together");
  out->dtype = ITG_BOOL;
  FITS(out);
  return NULL;
}

#define BROADCAST_IF(name, fits, words)                               \
  itg_words itg_infer_##name(const itg_call *call, itg_tensor *out) { \
    itg_words bad = itg_infer_compare(call, out);                     \
    if (bad) return bad;                                              \
    REFUSE(!(fits)(call->in[0]->dtype), words);                       \
    out->dtype = call->in[0]->dtype;                                  \
    FITS(out);                                                        \
    return NULL;                                                      \
  }
BROADCAST_IF(numbers, is_number, "takes numbers, not bools")
BROADCAST_IF(integers, itg_is_integer, "takes integers only")
BROADCAST_IF(bools, is_bool, "takes bools only")

itg_words itg_infer_prelu(const itg_call *call, itg_tensor *out) {
  itg_words bad = itg_infer_numbers(call, out);
  if (bad) return bad;
  REFUSE(!itg_same_shape(out, call->in[0]),
         "the slope does not broadcast to the shape of the data");
  return NULL;
}

itg_words itg_infer_where(const itg_call *call, itg_tensor *out) {
  TAKES(3, 3, 1);
  REFUSE(call->in[2]->dtype != ITG_BOOL, "the condition must be bool");
  REFUSE(call->in[0]->dtype != call->in[1]->dtype, "the operands have different element types");
  REFUSE(!itg_broadcast_shapes(call->in[0], call->in[1], out) ||
             !itg_broadcast_shapes(out, call->in[2], out),
         "the shapes of the operands cannot be broadcast together");
  out->dtype = call->in[0]->dtype;
  FITS(out);
  return NULL;
}

itg_words itg_infer_chain(const itg_call *call, itg_tensor *out) {
  const itg_attrs_chain *a = call->attrs;
  REFUSE(call->n_in > ITG_CHAIN_INPUTS, "a chain has more than 8 inputs");
  REFUSE(call->n_in < 1 || !itg_arity(call, call->n_in, call->n_in, 1),
         "takes 1 to 8 inputs and makes one output");
  REFUSE(a->n_ops < 1 || a->n_ops > ITG_CHAIN_OPS, "a chain has 1 to 16 instructions");
  REFUSE(a->n_args != 2 * a->n_ops || (a->n_params && a->n_params != 2 * a->n_ops),
         "an instruction has two operands, and two parameters or none");
  for (int64_t i = 0; i < a->n_ops; i++) {
    REFUSE(!itg_is_instruction(a->ops[i]), "an instruction is unknown");
    for (int k = 0; k < 2; k++)
      REFUSE(a->args[2 * i + k] < 0 || a->args[2 * i + k] >= call->n_in + i,
             "an instruction reads what comes later");
  }
  itg_copy_type(out, call->in[0]);
  for (uint32_t k = 0; k < call->n_in; k++) {
    REFUSE(call->in[k]->dtype != ITG_F32, "takes f32 only");
    REFUSE(!itg_broadcast_shapes(out, call->in[k], out),
           "the shapes of the operands cannot be broadcast together");
  }
  FITS(out);
  return NULL;
}

uint64_t itg_scratch_chain(const itg_call *call,
                           uint32_t parts) {  // a block for every operand and result
  const itg_attrs_chain *a = call->attrs;
  return (uint64_t)(call->n_in + a->n_ops) * ITG_CHAIN_BLOCK * sizeof(float) * parts;
}

// ---- softmax and norms --------------------------------------------------------------------------
itg_words itg_infer_softmax(const itg_call *call, itg_tensor *out) {
  itg_words bad = itg_infer_float_same(call, out);
  if (bad) return bad;
  REFUSE(itg_axis(((const itg_attrs_softmax *)call->attrs)->axis, out->rank) < 0,
         "axis is not an axis of the data");
  return NULL;
}

uint64_t itg_scratch_softmax(const itg_call *call, uint32_t parts) {
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(((const itg_attrs_softmax *)call->attrs)->axis, x->rank);
  if (!itg_needs_copy(x->dtype) || itg_empty(x)) return 0;
  const int64_t inner = itg_count_range(x, axis + 1, x->rank);
  return (uint64_t)(x->shape[axis] * (inner < ITG_COLUMNS ? inner : ITG_COLUMNS)) * parts *
         sizeof(float);
}

static itg_words norm(const itg_call *call, itg_tensor *out, int64_t axis) {
  const itg_tensor *x = call->in[0];
  const int first = itg_axis(axis, x->rank);
  REFUSE(first < 0, "axis is not an axis of the data");
  REFUSE(!itg_is_float(x->dtype), "takes floats only");
  for (uint32_t k = 1; k < call->n_in; k++) {
    const itg_tensor *p = call->in[k];
    REFUSE(p && (p->dtype != x->dtype || !itg_has_shape(p, x->rank - first, x->shape + first)),
           "scale and bias must have the type and shape of the normalised axes");
  }
  itg_copy_type(out, x);
  return NULL;
}
itg_words itg_infer_layer_norm(const itg_call *call, itg_tensor *out) {
  TAKES(1, 3, 1);
  return norm(call, out, ((const itg_attrs_layer_norm *)call->attrs)->axis);
}
itg_words itg_infer_rms_norm(const itg_call *call, itg_tensor *out) {
  TAKES(1, 2, 1);
  return norm(call, out, ((const itg_attrs_rms_norm *)call->attrs)->axis);
}

uint64_t itg_scratch_layer_norm(const itg_call *call, uint32_t parts) {
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(((const itg_attrs_layer_norm *)call->attrs)->axis, x->rank);
  if (!itg_needs_copy(x->dtype) || itg_empty(x)) return 0;
  return (uint64_t)itg_count_range(x, axis, x->rank) * 3 * parts * sizeof(float);
}

itg_words itg_infer_lrn(const itg_call *call, itg_tensor *out) {
  itg_words bad = itg_infer_float_same(call, out);
  if (bad) return bad;
  REFUSE(out->rank < 2, "there is no channel axis");
  REFUSE(((const itg_attrs_lrn *)call->attrs)->size < 1, "size must be 1 or more");
  return NULL;
}
