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
  REFUSE(zero && (zero->dtype != x->dtype || !itg_countable(zero) || itg_empty(zero) ||
                  itg_count(zero) != 1),
         "the zero must be one byte of the rows' type");
  REFUSE(a->x_zero < first || a->x_zero > first + 255, "x_zero is no number of the rows' type");
  return itg_check_epilogue(call, out, a->act, a->add_last);
}
