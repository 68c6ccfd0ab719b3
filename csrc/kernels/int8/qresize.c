// qlinear_resize: each element is a weighted sum of four, with integer weights. For each output
// row, two input rows are mixed first, then neighbouring columns of that mix. The sums are of whole
// numbers, so their order does not matter; unsigned, because weights of a hostile file overflow.
#include "qelements.h"
#include "qresize.h"

static void mix_rows(const uint8_t *a, const uint8_t *b, const int32_t *weight, uint8_t flip,
                     int64_t n, uint32_t *to) {
  const uint32_t wa = (uint32_t)weight[0], wb = (uint32_t)weight[1];
  for (int64_t i = 0; i < n; i++)
    to[i] = (uint32_t)(a[i] ^ flip) * wa + (uint32_t)(b[i] ^ flip) * wb;
}

// One output pixel. If WHOLE, it writes whole blocks: what is too much belongs to the next pixel,
// which is written later, or to the end of the buffer.
INLINE void mix_columns(const uint32_t *restrict a, const uint32_t *restrict b, uint32_t wa,
                        uint32_t wb, uint32_t less, int64_t n, const bool WHOLE,
                        uint32_t *restrict to) {
  if (WHOLE)
    for (int64_t i = 0; i < n; i += ITG_RESIZE_BLOCK)
      for (int k = 0; k < ITG_RESIZE_BLOCK; k++) to[i + k] = a[i + k] * wa + b[i + k] * wb - less;
  else
    for (int64_t i = 0; i < n; i++) to[i] = a[i] * wa + b[i] * wb - less;
}

// Sums to bytes.
static void finish(const uint32_t *sums, const itg_quant *y, float factor, int64_t n, uint8_t *to) {
  int64_t i = 0;
#ifdef ITG_QELEMENTS
  const qb_end end = qb_end_of(y);
  const vf by = vset(factor), high = vset(ITG_CONVERTS), low = vset(-ITG_CONVERTS);
  for (; i + QBYTES <= n; i += QBYTES) {
    vf real[4];
    FOR_UNROLLED (16, int k = 0; k < 4; k++)
      real[k] = vmax(vmin(vmul(vq_floats(vq_load(sums + i + k * QL)), by), high), low);
    vq_store(to + i, qb_in_order(qb_bytes(real, &end)));
  }
#endif
  for (; i < n; i++) to[i] = itg_byte_of(y, (float)(int32_t)sums[i] * factor);
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
  uint32_t *mixed = (uint32_t *)((char *)call->scratch + part * itg_resize_bytes(x, out, axis));
  uint32_t *sums = mixed + width * inner + ITG_RESIZE_BLOCK;
  int64_t i, end;
  itg_share(itg_count_range(x, 0, axis) * rows, 1, part, parts, &i, &end);
  for (; i < end; i++) {
    const uint8_t *plane = (const uint8_t *)x->data + i / rows * height * width * inner;
    const int32_t *at = row + i % rows * 2, *weight = row_weight + i % rows * 2;
    mix_rows(plane + at[0] * width * inner, plane + at[1] * width * inner, weight, from.flip,
             width * inner, mixed);
    const uint32_t less = (uint32_t)from.less * ((uint32_t)weight[0] + (uint32_t)weight[1]);
    for (int64_t c = 0; c < columns; c++) {
      const uint32_t wa = (uint32_t)column_weight[2 * c], wb = (uint32_t)column_weight[2 * c + 1];
      const uint32_t *a = mixed + column[2 * c] * inner, *b = mixed + column[2 * c + 1] * inner;
      if (inner >= ITG_RESIZE_BLOCK / 2)
        mix_columns(a, b, wa, wb, less * (wa + wb), inner, true, sums + c * inner);
      else mix_columns(a, b, wa, wb, less * (wa + wb), inner, false, sums + c * inner);
    }
    finish(sums, &y, factor, columns * inner, (uint8_t *)out->data + i * columns * inner);
  }
  return NULL;
}
