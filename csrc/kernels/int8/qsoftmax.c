// qlinear_softmax: exp from a table of integers, an exact sum, one division per element.
#include "qelements.h"

enum { BLOCK = 256 };

ITG_FN(qlinear_softmax, any) {
  const itg_attrs_qlinear_softmax *attrs = call->attrs;
  const itg_tensor *const *in = call->in, *x = in[0];
  if (itg_empty(x)) return NULL;
  const itg_quant y = itg_quant_of(in[2], in[3]);
  const int axis = itg_axis(attrs->axis, x->rank);
  const int64_t n = x->shape[axis], inner = itg_count_range(x, axis + 1, x->rank);
  const uint8_t flip = x->dtype == ITG_I8 ? 0x80 : 0;
  const int32_t *table = in[1]->data;
  int64_t row, end;
  itg_share(itg_count(x) / n, 1, part, parts, &row, &end);
  for (; row < end; row++) {
    const int64_t at = row / inner * n * inner + row % inner;
    const uint8_t *from = (const uint8_t *)x->data + at;
    uint8_t *to = (uint8_t *)call->out[0]->data + at, most = 0;
    int64_t sum = 0;
    if (inner == 1)
      for (int64_t i = 0; i < n; i++)
        most = (from[i] ^ flip) > most ? (uint8_t)(from[i] ^ flip) : most;
    else
      for (int64_t i = 0; i < n; i++)
        most = (from[i * inner] ^ flip) > most ? (uint8_t)(from[i * inner] ^ flip) : most;
    for (int64_t i = 0; i < n; i++) sum += table[most - (from[i * inner] ^ flip)];
    const float whole = (float)sum * y.scale;
    for (int64_t first = 0; first < n; first += BLOCK) {
      const int64_t some = n - first < BLOCK ? n - first : BLOCK;
      float power[BLOCK];
      uint8_t result[BLOCK];
      for (int64_t i = 0; i < some; i++)
        power[i] = (float)table[most - (from[(first + i) * inner] ^ flip)];
      for (int64_t i = 0; i < some; i++) result[i] = itg_byte_of(&y, power[i] / whole);
      for (int64_t i = 0; i < some; i++) to[(first + i) * inner] = result[i];
    }
  }
  return NULL;
}
