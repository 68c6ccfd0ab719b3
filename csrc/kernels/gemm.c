// Matrix product with a packed right operand, f32.
#include "tile.h"

enum { BLOCK = 16 };  // tiles that share one pass over the panels of a large right operand

// How many tiles to carry through each group of panels: one while the packed operand stays in the cache.
static int tiles_per_block(int64_t k, int64_t n) {
  if (k * n <= 96 << 10) return 1;
  int64_t fit = (64 << 10) / (ITG_TILE_M * k + 1);
  return fit < 1 ? 1 : fit > BLOCK ? BLOCK : (int)fit;
}

// Rows [from, to) times columns of the panels [first, last) of one matrix.
static void block(const float *a, int64_t k, int64_t from, int64_t to, const float *b, int64_t n, int64_t first,
                  int64_t last, float *out, const itg_finish *end) {
  itg_tap taps[BLOCK];
  itg_rows rows[BLOCK];
  const int64_t tiles = (to - from + ITG_TILE_M - 1) / ITG_TILE_M, groups = (last - first + ITG_TILE_PANELS - 1) / ITG_TILE_PANELS;
  const int step = tiles_per_block(k, n);
  for (int64_t t = 0; t < tiles; t += step) {
    int count = 0;
    for (; count < step && t + count < tiles; count++) {
      int64_t r = from + (to - from) * (t + count) / tiles, end_row = from + (to - from) * (t + count + 1) / tiles;
      itg_rows *tile = &rows[count];
      *tile = (itg_rows){&taps[count], 1, k, {0}, (int)(end_row - r)};
      taps[count].at = 0;
      for (int m = 0; m < tile->rows; m++) {
        taps[count].row[m] = a + (r + m) * k;
        tile->out[m] = (r + m) * n;
      }
    }
    for (int64_t g = 0; g < groups; g++) {
      int64_t p = first + (last - first) * g / groups, q = first + (last - first) * (g + 1) / groups;
      int64_t column = p * ITG_PANEL, columns = (q * ITG_PANEL < n ? q * ITG_PANEL : n) - column;
      for (int i = 0; i < count; i++)
        itg_tile(&rows[i], b + p * k * ITG_PANEL, k * ITG_PANEL, column, columns, out, end);
    }
  }
}

ITG_FN(gemm, f32) {
  const itg_attrs_gemm *attrs = call->attrs;
  const itg_tensor *a = call->in[0], *b = call->in[1], *out = call->out[0];
  const int64_t k = a->shape[a->rank - 1], n = attrs->n, panels = b->shape[b->rank - 3], size = panels * k * ITG_PANEL;
  itg_finish end = itg_finish_of(call, attrs->act, attrs->act_args, attrs->add_last);
  int64_t batches = itg_count_range(out, 0, out->rank - 2), m = out->shape[out->rank - 2];
  if (itg_count_range(b, 0, b->rank - 3) == 1) m *= batches, batches = 1;  // one matrix for all: one tall product
  if (batches == 0 || m == 0 || n == 0) return NULL;

  int64_t from = 0, to = batches * m, first = 0, last = panels;
  if (batches == 1 && n > m && panels >= 2 * parts) itg_share(panels, 1, part, parts, &first, &last);
  else itg_share(to, 1, part, parts, &from, &to);
  for (int64_t batch = from / m; batch * m < to; batch++) {
    int64_t ia = 0, ib = 0, rest = batch;  // the matrices that this one is made of, where batches are broadcast
    if (batches > 1) {
      int64_t step_a = 1, step_b = 1;
      for (int i = out->rank - 3; i >= 0; i--) {
        int da = i - (out->rank - a->rank), db = i - (out->rank - (b->rank - 1));
        int64_t at = rest % out->shape[i];
        rest /= out->shape[i];
        if (da >= 0 && a->shape[da] > 1) ia += at * step_a;
        if (da >= 0) step_a *= a->shape[da];
        if (db >= 0 && b->shape[db] > 1) ib += at * step_b;
        if (db >= 0) step_b *= b->shape[db];
      }
    }
    itg_finish here = end;
    if (here.residual) here.residual += batch * m * n;
    int64_t r = from - batch * m, s = to - batch * m;
    block((const float *)a->data + ia * m * k, k, r < 0 ? 0 : r, s > m ? m : s, (const float *)b->data + ib * size, n,
          first, last, (float *)out->data + batch * m * n, &here);
  }
  return NULL;
}
