// Types, shapes and refusals of quantize_linear, dequantize_linear and integer products.
#include "integer_sizes.h"
#include "quantize.h"

// ---- quantize_linear, dequantize_linear ---------------------------------------------------------
static itg_words check_grain(const itg_call *call, int64_t axis, int64_t block) {
  const itg_tensor *x = call->in[0], *scale = call->in[1], *zero = itg_input(call, 2);
  REFUSE(!itg_is_wide_float(scale->dtype), "the scale must be a float");
  REFUSE(zero && itg_count(zero) != itg_count(scale), "scale and zero must have one shape");
  REFUSE(block < 0, "block_size must not be negative");
  if (!block && itg_count(scale) == 1) return NULL;
  const int a = itg_axis(axis, x->rank);
  REFUSE(a < 0, "axis is not an axis of the data");
  if (!block) {
    REFUSE(scale->rank != 1 || scale->shape[0] != x->shape[a],
           "the scale must be one number, or one per index of axis");
    return NULL;
  }
  REFUSE(scale->rank != x->rank, "a blocked scale must have the rank of the data");
  for (int i = 0; i < x->rank; i++)
    REFUSE(scale->shape[i] != (i == a && x->shape[i] ? (x->shape[i] - 1) / block + 1 : x->shape[i]),
           "a blocked scale must have the shape of the data, divided by block_size along axis");
  return NULL;
}

static bool is_quantized(int64_t dtype) {
  switch (dtype) {
    case ITG_I8:
    case ITG_U8:
    case ITG_I16:
    case ITG_U16:
    case ITG_I4:
    case ITG_U4:
    case ITG_I2:
    case ITG_U2:
    case ITG_F8E4M3FN:
    case ITG_F8E4M3FNUZ:
    case ITG_F8E5M2:
    case ITG_F8E5M2FNUZ:
    case ITG_F4E2M1FN: return true;
    default: return false;
  }
}

itg_words itg_infer_quantize_linear(const itg_call *call, itg_tensor *out) {
  TAKES(2, 3, 1);
  const itg_attrs_quantize_linear *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *zero = itg_input(call, 2);
  itg_words wrong = check_grain(call, attrs->axis, attrs->block_size);
  if (wrong) return wrong;
  REFUSE(!itg_is_wide_float(x->dtype) && x->dtype != ITG_I32, "the data must be floats or i32");
  REFUSE(!is_quantized(attrs->dtype),
         "dtype must be an integer of at most 16 bits or a float of at most 8");
  REFUSE(zero && zero->dtype != attrs->dtype, "the zero must have the element type of the result");
  itg_copy_type(out, x);
  out->dtype = (uint8_t)attrs->dtype;
  return NULL;
}

itg_words itg_infer_dequantize_linear(const itg_call *call, itg_tensor *out) {
  TAKES(2, 3, 1);
  const itg_attrs_dequantize_linear *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *zero = itg_input(call, 2);
  itg_words wrong = check_grain(call, attrs->axis, attrs->block_size);
  if (wrong) return wrong;
  REFUSE(!is_quantized(x->dtype) && x->dtype != ITG_I32,
         "the data must be i32, or what quantize_linear makes");
  REFUSE(attrs->dtype < ITG_F32 || attrs->dtype > ITG_BF16, "dtype must be f32, f64, f16 or bf16");
  REFUSE(zero && zero->dtype != x->dtype, "the zero must have the element type of the data");
  itg_copy_type(out, x);
  out->dtype = (uint8_t)attrs->dtype;
  return NULL;
}

// ---- products of 8-bit matrices -----------------------------------------------------------------
static bool is_byte(const itg_tensor *t) { return t->dtype == ITG_I8 || t->dtype == ITG_U8; }

static itg_words product_shape(const itg_tensor *a, const itg_tensor *b, itg_tensor *out) {
  REFUSE(!is_byte(a) || !is_byte(b), "operands must be i8 or u8");
  REFUSE(a->rank < 1 || b->rank < 1, "operands must have at least one axis");
  const int64_t depth = b->shape[b->rank > 1 ? b->rank - 2 : 0];
  REFUSE(a->shape[a->rank - 1] != depth,
         "columns of the first operand and rows of the second differ");
  const int batch_a = a->rank > 1 ? a->rank - 2 : 0, batch_b = b->rank > 1 ? b->rank - 2 : 0;
  const int batch = batch_a > batch_b ? batch_a : batch_b;
  itg_set_type(out, ITG_I32, batch + (a->rank > 1) + (b->rank > 1));
  for (int i = 0; i < batch; i++) {
    const int64_t m = i - batch + batch_a < 0 ? 1 : a->shape[i - batch + batch_a];
    const int64_t n = i - batch + batch_b < 0 ? 1 : b->shape[i - batch + batch_b];
    REFUSE(m != n && m != 1 && n != 1, "the batch axes of the operands cannot be broadcast");
    out->shape[i] = m == 1 ? n : m;
  }
  if (a->rank > 1) out->shape[batch] = a->shape[a->rank - 2];
  if (b->rank > 1) out->shape[out->rank - 1] = b->shape[b->rank - 1];
  return NULL;
}

// Whether t has one number, or one per row (column) of `of`, or the rank of `of` with extent 1
// along columns (rows).
static bool fits(const itg_tensor *t, const itg_tensor *of, bool rows, bool vectors) {
  if (!t || itg_count(t) == 1) return true;
  if (!vectors || of->rank < 2) return false;
  const int at = of->rank - (rows ? 2 : 1), other = of->rank - (rows ? 1 : 2);
  if (t->rank == 1) return t->shape[0] == of->shape[at];
  if (t->rank != of->rank) return false;
  for (int i = 0; i < t->rank; i++)
    if (t->shape[i] != 1 && (i == other || t->shape[i] != of->shape[i])) return false;
  return true;
}

itg_words itg_infer_matmul_integer(const itg_call *call, itg_tensor *out) {
  TAKES(2, 4, 1);
  const itg_tensor *a = call->in[0], *b = call->in[1], *a_zero = itg_input(call, 2),
                   *b_zero = itg_input(call, 3);
  itg_words wrong = product_shape(a, b, out);
  if (wrong) return wrong;
  REFUSE((a_zero && a_zero->dtype != a->dtype) || (b_zero && b_zero->dtype != b->dtype),
         "a zero must have the element type of its operand");
  const bool vectors = a->rank > 1 && b->rank > 1;
  REFUSE(!fits(a_zero, a, true, vectors) || !fits(b_zero, b, false, vectors),
         "a zero must be one number, or one per row of a or column of b");
  return NULL;
}

// Scales must be floats, and zeros must have the type of their operand. A result without scale and
// zero is f32.
static itg_words check_qlinear(const itg_call *call, itg_tensor *out) {
  const itg_tensor *const *in = call->in, *y_scale = itg_input(call, 6),
                          *y_zero = itg_input(call, 7);
  REFUSE(!itg_is_wide_float(in[1]->dtype) || !itg_is_wide_float(in[4]->dtype),
         "scales must be floats");
  REFUSE(in[2]->dtype != in[0]->dtype || in[5]->dtype != in[3]->dtype,
         "a zero must have the type of its operand");
  REFUSE(!y_scale != !y_zero, "the result has a scale and a zero, or neither");
  REFUSE(y_scale && !itg_is_wide_float(y_scale->dtype), "scales must be floats");
  REFUSE(y_zero && !is_byte(y_zero), "the zero of the result must be i8 or u8");
  out->dtype = y_zero ? y_zero->dtype : ITG_F32;
  return NULL;
}

itg_words itg_infer_qlinear_matmul(const itg_call *call, itg_tensor *out) {
  TAKES(6, 8, 1);
  const itg_tensor *const *in = call->in;
  itg_words wrong = product_shape(in[0], in[3], out);
  if (!wrong) wrong = check_qlinear(call, out);
  if (wrong) return wrong;
  const bool vectors = in[0]->rank > 1 && in[3]->rank > 1;
  for (uint32_t i = 0; i < 2; i++)
    REFUSE(!fits(in[1 + i], in[0], true, vectors) || !fits(in[4 + i], in[3], false, vectors) ||
               !fits(itg_input(call, 6 + i), out, true, vectors),
           "scales and zeros must be one number, or one per row of a and y or column of b");
  return NULL;
}

// ---- 8-bit convolutions -------------------------------------------------------------------------
// conv_integer and qlinear_conv have the same attributes, so one struct serves both.
static itg_words conv_shape(const itg_tensor *x, const itg_tensor *w,
                            const itg_attrs_conv_integer *attrs, itg_tensor *out) {
  REFUSE(!is_byte(x) || !is_byte(w), "operands must be i8 or u8");
  REFUSE(x->rank < 3 || x->rank > 5 || w->rank != x->rank,
         "operands must have one to three spatial axes");
  REFUSE(attrs->groups < 1 || w->shape[0] % attrs->groups,
         "groups must divide the output channels");
  REFUSE(x->shape[1] % attrs->groups || x->shape[1] / attrs->groups != w->shape[1],
         "channels and groups do not fit");
  itg_set_type(out, ITG_I32, x->rank);
  out->shape[0] = x->shape[0];
  out->shape[1] = w->shape[0];
  itg_window v;
  itg_words wrong = itg_window_of(x, 2, x->rank - 2, w->shape + 2, attrs->stride, attrs->dilation,
                                  attrs->pad, &v);
  return wrong ? wrong : itg_slide(&v, 2, x->rank - 2, attrs->pad, out);
}

static bool per_channel(const itg_tensor *t, const itg_tensor *w) {
  return !t || itg_count(t) == 1 || (t->rank == 1 && t->shape[0] == w->shape[0]);
}

itg_words itg_infer_conv_integer(const itg_call *call, itg_tensor *out) {
  TAKES(2, 4, 1);
  const itg_tensor *x = call->in[0], *w = call->in[1], *x_zero = itg_input(call, 2),
                   *w_zero = itg_input(call, 3);
  itg_words wrong = conv_shape(x, w, call->attrs, out);
  if (wrong) return wrong;
  REFUSE(x_zero && (x_zero->dtype != x->dtype || itg_count(x_zero) != 1),
         "x_zero must be one number of the type of x");
  REFUSE(w_zero && (w_zero->dtype != w->dtype || !per_channel(w_zero, w)),
         "w_zero must be one number, or one per output channel, of the type of w");
  return NULL;
}

static bool is_one(const itg_tensor *t) { return !t || itg_count(t) == 1; }

static itg_words check_residual(const itg_call *call, const itg_tensor *out) {
  const itg_tensor *r = itg_input(call, 9), *scale = itg_input(call, 10),
                   *zero = itg_input(call, 11);
  const bool whole = r && out->dtype != ITG_F32;
  REFUSE((scale != NULL) != whole || (zero != NULL) != whole,
         "a residual of bytes has a scale and a zero, no other");
  if (!r) return NULL;
  REFUSE(!itg_same_shape(r, out), "the residual must have the shape of the result");
  REFUSE(whole ? !is_byte(r) : r->dtype != ITG_F32,
         "the residual must be f32 where the result is, else i8 or u8");
  REFUSE(whole && (!itg_is_wide_float(scale->dtype) || zero->dtype != r->dtype || !is_one(scale) ||
                   !is_one(zero)),
         "scale and zero of the residual must be one float and one number of its type");
  return NULL;
}

itg_words itg_infer_qlinear_conv(const itg_call *call, itg_tensor *out) {
  TAKES(6, 12, 1);
  const itg_tensor *const *in = call->in, *x = in[0], *w = in[3], *bias = itg_input(call, 8);
  itg_words wrong = conv_shape(x, w, call->attrs, out);
  if (!wrong) wrong = check_qlinear(call, out);
  if (wrong) return wrong;
  REFUSE(!is_one(in[1]) || !is_one(in[2]) || !is_one(itg_input(call, 6)) ||
             !is_one(itg_input(call, 7)),
         "scale and zero of x and y must be one number");
  REFUSE(!per_channel(in[4], w) || !per_channel(in[5], w),
         "scale and zero of w must be one, or one per output channel");
  REFUSE(bias && (bias->dtype != ITG_I32 || bias->rank != 1 || bias->shape[0] != w->shape[0]),
         "the bias must be one i32 per output channel");
  return check_residual(call, out);
}

// ---- scratch: both packed operands, for each thread ---------------------------------------------
static uint64_t packed(int64_t depth, uint32_t parts) {
  return (uint64_t)itg_packed_bytes(depth) * parts;
}

uint64_t itg_scratch_matmul_integer(const itg_call *call, uint32_t parts) {
  return itg_empty(call->in[0]) ? 0 : packed(call->in[0]->shape[call->in[0]->rank - 1], parts);
}
uint64_t itg_scratch_qlinear_matmul(const itg_call *call, uint32_t parts) {
  return itg_scratch_matmul_integer(call, parts);
}

static uint64_t conv_scratch(const itg_call *call, const itg_tensor *w, uint32_t parts) {
  const itg_tensor *x = call->in[0];
  const itg_attrs_conv_integer *attrs = call->attrs;
  itg_tensor out = {0};
  if (itg_empty(w) || conv_shape(x, w, attrs, &out)) return 0;
  const itg_window v = itg_conv8_window(x, w, attrs, &out);
  if (!itg_input(call, 9) && itg_is_depthwise8(x, w, &v))
    return (uint64_t)itg_depthwise8_bytes(&v) * parts;
  return packed(itg_count_range(w, 1, w->rank), parts);
}
uint64_t itg_scratch_conv_integer(const itg_call *call, uint32_t parts) {
  return conv_scratch(call, call->in[1], parts);
}
uint64_t itg_scratch_qlinear_conv(const itg_call *call, uint32_t parts) {
  return conv_scratch(call, call->in[3], parts);
}
