// Matrix product with a packed right operand, f32, bf16 or f16.
#include "tile.h"

enum {
  BLOCK = 16,  // tiles that share one pass over the panels of a large right operand
  FEW = 4,     // tiles that share one pass over those of a small one
};
enum {
  NEAR = 96 << 10,  // floats of the right operand that the L2 cache keeps
  COLD = 8 << 10,   // floats that are worth prefetching
};
enum { LONG = 320 };  // rows of a panel from which on the hardware prefetches early enough

static int tiles_per_block(int64_t k, int64_t n) {
  if (k * n <= NEAR) return FEW;
  int64_t fit = (64 << 10) / (ITG_TILE_M * k + 1);
  return fit < 1 ? 1 : fit > BLOCK ? BLOCK : (int)fit;
}

void itg_product(const itg_product_task *t, int64_t from, int64_t to, int64_t first, int64_t last) {
  itg_tap taps[BLOCK];
  itg_rows rows[BLOCK];
  const int64_t k = t->k, tiles = (to - from + ITG_TILE_M - 1) / ITG_TILE_M;
  const int wide = itg_tile_panels(to - from < ITG_TILE_M ? (int)(to - from) : ITG_TILE_M);
  const int64_t groups = (last - first + wide - 1) / wide;
  if (tiles < 1 || groups < 1) return;
  const int step = tiles_per_block(k, t->n);
  const int64_t few = (to - from) / tiles,
                more = (to - from) % tiles;  // rows of a tile; tiles with one more
  const int64_t thin = (last - first) / groups,
                thick = (last - first) % groups;  // panels of a group, the same
  for (int i = 0; i < step; i++) {
    taps[i].at = 0;
    rows[i].taps = &taps[i];
    rows[i].n_taps = 1;
    rows[i].depth = k;
  }
  const float *a = t->a + from * t->a_row;
  int64_t out = from * t->out_row;
  for (int64_t i = 0; i < tiles; i += step) {
    int count = 0;
    for (; count < step && i + count < tiles; count++) {
      rows[count].rows = (int)few + (i + count < more);
      for (int m = 0; m < rows[count].rows; m++, a += t->a_row, out += t->out_row) {
        taps[count].row[m] = a;
        rows[count].out[m] = out;
      }
    }
    const bool cold = count > 1 && k <= LONG && k * t->n > (i ? NEAR : COLD);
    for (int64_t g = 0, p = first; g < groups; g++) {
      const int64_t q = p + thin + (g < thick);
      const int64_t columns = (q * ITG_PANEL < t->n ? q * ITG_PANEL : t->n) - p * ITG_PANEL;
      // The first tile that reads the next panels would wait for memory. So each of these tiles
      // prefetches one or two of them.
      const int64_t share = count >= wide ? 1 : 2;
      for (int j = 0; j < count; j++) {
        const int64_t panel = q + j * share;
        rows[j].ahead =
            cold && panel < last && j * share < wide ? t->b + panel * k * ITG_PANEL : NULL;
        rows[j].fetch = (int)share;
        itg_tile(&rows[j], t->b + p * k * ITG_PANEL, k * ITG_PANEL, t->column + p * ITG_PANEL,
                 columns, t->out, &t->end);
      }
      p = q;
    }
  }
}

ITG_FN(gemm, ITG_ELEMENT) {
  const itg_attrs_gemm *attrs = call->attrs;
  const itg_tensor *a = call->in[0], *b = call->in[1], *out = call->out[0];
  const int64_t k = a->shape[a->rank - 1] / ITG_PAIR, n = attrs->n, panels = b->shape[b->rank - 3],
                size = panels * k * ITG_PANEL;
  itg_finish end = itg_finish_of(call, attrs->act, attrs->act_args, attrs->add_last);
  int64_t batches = itg_count_range(out, 0, out->rank - 2), m = out->shape[out->rank - 2];
  if (itg_count_range(b, 0, b->rank - 3) == 1)
    m *= batches,
        batches = 1;  // all batches have the same right operand: one product with more rows
  if (batches == 0 || m == 0 || n == 0) return NULL;
  const size_t item = itg_item(out->dtype);

  int64_t from = 0, to = batches * m, first = 0, last = panels;
  if (batches == 1 && n > m && panels >= 2 * parts)
    itg_share(panels, 1, part, parts, &first, &last);
  else itg_share(to, 1, part, parts, &from, &to);
  for (int64_t batch = from / m; batch * m < to; batch++) {
    const int64_t ia = batches > 1 ? itg_matrix_at(a, 2, out, out->rank - 2, batch) : 0;
    const int64_t ib = batches > 1 ? itg_matrix_at(b, 3, out, out->rank - 2, batch) : 0;
    itg_product_task t = {(const float *)a->data + ia * m * k,
                          k,
                          k,
                          (const float *)b->data + ib * size,
                          n,
                          0,
                          (char *)out->data + (size_t)(batch * m * n) * item,
                          n,
                          end};
    if (end.residual) t.end.residual = (const char *)end.residual + (size_t)(batch * m * n) * item;
    int64_t r = from - batch * m, s = to - batch * m;
    itg_product(&t, r < 0 ? 0 : r, s > m ? m : s, first, last);
  }
  return NULL;
}
