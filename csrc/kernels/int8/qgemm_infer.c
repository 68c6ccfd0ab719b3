// Types, shapes and refusals of 8-bit products with f32 results.
#include "qgemm.h"

enum { DEPTH = INT32_MAX / (128 * 255) };  // most products of bytes whose sum always fits i32

itg_words itg_infer_quantize_rows(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 2);
  const itg_tensor *x = call->in[0];
  REFUSE(x->dtype != ITG_F32 || x->rank < 1, "takes rows of f32");
  itg_copy_type(&out[0], x);
  itg_copy_type(&out[1], x);
  out[0].dtype = ITG_U8;
  out[1].rank--;
  out[1].shape[out[1].rank] = 0;
  return NULL;
}

static itg_words check_slices(const itg_call *call, int64_t axis) {
  const itg_tensor *x = call->in[0];
  REFUSE(x->dtype != ITG_F32, "takes f32");
  REFUSE(axis < 0 || axis >= x->rank, "axis is not an axis of the data");
  return NULL;
}

itg_words itg_infer_dynamic_fake_quantize(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 1);
  itg_copy_type(out, call->in[0]);
  return check_slices(call, ((const itg_attrs_dynamic_fake_quantize *)call->attrs)->axis);
}

itg_words itg_infer_quantize_dynamic(const itg_call *call, itg_tensor *out) {
  const itg_attrs_quantize_dynamic *a = call->attrs;
  TAKES(1, 1, 3);
  const itg_words wrong = check_slices(call, a->axis);
  if (wrong) return wrong;
  for (int i = 0; i < 3; i++) itg_copy_type(&out[i], call->in[0]);
  out[0].dtype = out[2].dtype = ITG_U8;
  for (int i = 1; i < 3; i++) {
    for (int64_t k = a->axis; k < out[i].rank; k++) out[i].shape[k] = 0;
    out[i].rank = (uint8_t)a->axis;
  }
  return NULL;
}

itg_words itg_infer_qgemm(const itg_call *call, itg_tensor *out) {
  const itg_attrs_qgemm *a = call->attrs;
  TAKES(2, 10, 1);
  REFUSE(call->n_in <= ITG_QGEMM_SUMS || !call->in[ITG_QGEMM_SCALE] || !call->in[ITG_QGEMM_SUMS],
         "needs the scales and sums of its columns");
  const itg_tensor *x = call->in[0], *w = call->in[1], *scale = call->in[ITG_QGEMM_SCALE];
  const itg_tensor *sums = call->in[ITG_QGEMM_SUMS], *rows = itg_input(call, ITG_QGEMM_ROWS);
  const itg_tensor *zero = itg_input(call, ITG_QGEMM_ZERO),
                   *start = itg_input(call, ITG_QGEMM_START);
  REFUSE((x->dtype != ITG_U8 && x->dtype != ITG_I8) || w->dtype != ITG_I8,
         "takes bytes and weights of i8");
  REFUSE(x->rank < 2, "takes a matrix of bytes, or several");
  const int64_t k = x->shape[x->rank - 1], first = x->dtype == ITG_I8 ? -128 : 0;
  REFUSE(k % ITG_FOUR || k > DEPTH,
         "rows must be whole groups of four, few enough for a sum of 32 bits");
  REFUSE(a->n < 0 || a->n > INT64_C(1) << 40, "n is not sane");
  const int64_t panels = a->n / ITG_PANEL + (a->n % ITG_PANEL != 0), whole = panels * ITG_PANEL;
  const int64_t want[3] = {panels, k / ITG_FOUR, ITG_QROW};
  REFUSE(!itg_has_shape(w, 3, want), "the weights are not packed for this product");
  REFUSE(scale->dtype != ITG_F32 || !itg_has_shape(scale, 1, &whole),
         "there must be one f32 scale per column");
  REFUSE(sums->dtype != ITG_I32 || !itg_has_shape(sums, 1, &whole),
         "there must be one i32 sum per column");
  REFUSE(start && (start->dtype != ITG_I32 || !itg_has_shape(start, 1, &whole)),
         "sums start from one i32 per column");
  itg_copy_type(out, x);
  out->dtype = ITG_F32;
  out->shape[out->rank - 1] = a->n;
  FITS(out);
  if (rows) {
    const bool one = rows->rank <= 1 && itg_count(rows) == 1;
    REFUSE(rows->dtype != ITG_F32 || (!one && !itg_has_shape(rows, x->rank - 1, x->shape)),
           "there must be one f32 scale, or one per row");
  }
  if (zero) {
    const bool one = itg_countable(zero) && !itg_empty(zero) && itg_count(zero) == 1;
    REFUSE(zero->dtype != x->dtype || (!one && !itg_has_shape(zero, x->rank - 1, x->shape)),
           "there must be one zero of the rows' type, or one per row");
  }
  REFUSE(a->x_zero < first || a->x_zero > first + 255, "x_zero is no number of the rows' type");
  return itg_check_epilogue(call, out, a->act, a->add_last);
}
