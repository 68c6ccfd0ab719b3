// Types, shapes and refusals of products with 4- and 8-bit weights.
#include "wgemm.h"

itg_words itg_wgemm_of(const itg_call *call, itg_wgemm *g, itg_tensor *out) {
  const itg_attrs_wgemm *a = call->attrs;
  TAKES(2, 7, 1);
  REFUSE(call->n_in <= ITG_WGEMM_SCALE || !call->in[ITG_WGEMM_SCALE],
         "needs the scales of its weights");
  const itg_tensor *x = call->in[0], *w = call->in[1], *scale = call->in[ITG_WGEMM_SCALE];
  const itg_tensor *zero = itg_input(call, ITG_WGEMM_ZERO);
  REFUSE(x->dtype != ITG_F32 || x->rank < 2, "takes matrices of f32");
  REFUSE(a->bits != 4 && a->bits != 8, "weights have 4 or 8 bits");
  REFUSE(w->dtype != (a->bits == 8 ? ITG_I8 : ITG_U8),
         "weights must be i8, or u8 with two of them");
  REFUSE(a->n < 0 || a->n > INT64_C(1) << 40, "n is not sane");
  const int64_t k = x->shape[x->rank - 1];
  REFUSE(k < 1 || k > INT64_C(1) << 31, "rows must have numbers, sanely many");
  REFUSE(a->block < 1 || (a->bits == 4 && a->block < k && a->block % 2),
         "blocks must be whole pairs of rows");
  *g = (itg_wgemm){.x = x->data,
                   .scale = scale->data,
                   .zero = zero ? zero->data : NULL,
                   .zeros = zero,
                   .w = w->data,
                   .n = a->n,
                   .k = k,
                   .bits = a->bits,
                   .block = a->block,
                   .blocks = (k - 1) / a->block + 1,
                   .panels = a->n / ITG_PANEL + (a->n % ITG_PANEL != 0)};
  const int64_t rows = a->bits == 8 ? k : k / 2 + k % 2;
  g->panel = rows * ITG_PANEL;
  const int64_t want[3] = {g->panels, rows, ITG_PANEL}, each[3] = {g->panels, g->blocks, ITG_PANEL};
  REFUSE(!itg_has_shape(w, 3, want), "the weights are not packed for this product");
  REFUSE(scale->dtype != ITG_F32 || !itg_has_shape(scale, 3, each),
         "there must be one f32 scale per block of a column");
  REFUSE(zero && (zero->dtype != ITG_F32 || !itg_has_shape(zero, 3, each)),
         "zeros must be f32, one for each scale");
  itg_copy_type(out, x);
  out->shape[out->rank - 1] = a->n;
  FITS(out);
  g->m = itg_count_range(x, 0, x->rank - 1);
  return itg_check_epilogue(call, out, a->act, a->add_last);
}

itg_words itg_infer_wgemm(const itg_call *call, itg_tensor *out) {
  itg_wgemm g;
  return itg_wgemm_of(call, &g, out);
}

uint64_t itg_scratch_wgemm(const itg_call *call, uint32_t parts) {
  itg_wgemm g;
  itg_tensor out;
  if (itg_wgemm_of(call, &g, &out) || itg_empty(&out)) return 0;
  return itg_wgemm_scratch(&g) * parts;
}
