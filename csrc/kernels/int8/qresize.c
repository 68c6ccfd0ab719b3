// qlinear_resize: each element is a weighted sum of four, with integer weights.
#include "qelements.h"

enum { RUN = 64 };

typedef struct corners {
  const uint8_t *at[4];
  uint32_t weight[4];
} corners;

// The weighted sum of four corners. Unsigned arithmetic, because weights of a hostile file
// overflow.
static void mix(const corners *c, const itg_quant *from, const itg_quant *y, float factor,
                int64_t n, uint8_t *to) {
  const uint8_t *a = c->at[0], *b = c->at[1], *d = c->at[2], *e = c->at[3], flip = from->flip;
  const uint32_t less =
      (uint32_t)from->less * (c->weight[0] + c->weight[1] + c->weight[2] + c->weight[3]);
  for (int64_t i = 0; i < n; i += RUN) {
    const int64_t some = n - i < RUN ? n - i : RUN;
    int32_t sums[RUN];
    uint8_t result[RUN];
    for (int64_t k = 0; k < some; k++)
      sums[k] = (int32_t)((uint32_t)(a[i + k] ^ flip) * c->weight[0] +
                          (uint32_t)(b[i + k] ^ flip) * c->weight[1] +
                          (uint32_t)(d[i + k] ^ flip) * c->weight[2] +
                          (uint32_t)(e[i + k] ^ flip) * c->weight[3] - less);
    for (int64_t k = 0; k < some; k++) result[k] = itg_byte_of(y, (float)sums[k] * factor);
    memcpy(to + i, result, (size_t)some);
  }
}

static bool within(const int32_t *index, int64_t n, int64_t extent) {
  for (int64_t i = 0; i < n; i++)
    if (index[i] < 0 || index[i] >= extent) return false;
  return true;
}

ITG_FN(qlinear_resize, any) {
  const itg_attrs_qlinear_resize *attrs = call->attrs;
  const itg_tensor *const *in = call->in, *x = in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_quant from = itg_quant_of(in[1], in[2]), y = itg_quant_of(in[3], in[4]);
  const float factor = from.scale / (y.scale * 4194304.f);  // 2^22: both weights are in 2^-11
  const int axis = itg_axis(attrs->axis, x->rank);
  const int64_t height = x->shape[axis], width = x->shape[axis + 1], rows = out->shape[axis];
  const int64_t columns = out->shape[axis + 1], inner = itg_count_range(x, axis + 2, x->rank);
  const int32_t *row = in[5]->data, *row_weight = in[6]->data, *column = in[7]->data,
                *column_weight = in[8]->data;
  if (!within(row, 2 * rows, height) || !within(column, 2 * columns, width))
    return "an index is outside of the image";
  int64_t i, end;
  itg_share(itg_count_range(x, 0, axis) * rows, 1, part, parts, &i, &end);
  for (; i < end; i++) {
    const uint8_t *plane = (const uint8_t *)x->data + i / rows * height * width * inner;
    const int64_t r = i % rows;
    for (int64_t c = 0; c < columns; c++) {
      corners four;
      for (int k = 0; k < 4; k++) {
        four.at[k] = plane + ((int64_t)row[2 * r + k / 2] * width + column[2 * c + k % 2]) * inner;
        four.weight[k] =
            (uint32_t)row_weight[2 * r + k / 2] * (uint32_t)column_weight[2 * c + k % 2];
      }
      mix(&four, &from, &y, factor, inner, (uint8_t *)out->data + (i * columns + c) * inner);
    }
  }
  return NULL;
}
