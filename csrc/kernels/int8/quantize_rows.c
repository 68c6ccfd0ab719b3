// quantize_rows: dynamic quantisation, one scale per row.
#include "quantize_rows.h"

#include "infer.h"

ITG_FN(quantize_rows, f32) {
  const itg_tensor *x = call->in[0];
  const int64_t k = x->shape[x->rank - 1];
  int64_t row, end;
  if (itg_empty(call->out[1])) return NULL;
  itg_share(itg_count(call->out[1]), 1, part, parts, &row, &end);
  for (; row < end; row++)
    ((float *)call->out[1]->data)[row] = itg_quantize_row((const float *)x->data + row * k, k,
                                                          (uint8_t *)call->out[0]->data + row * k);
  return NULL;
}
