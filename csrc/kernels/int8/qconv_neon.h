// What 8-bit convolutions on ARM prepare once for several panels or classes. Included by qconv.c.
#pragma once

enum { SUMMED = 256 };  // rows of a panel, at most, whose sums several classes share
typedef int32_t row_totals[SUMMED + 1][ITG_PANEL];

// Sums of the first rows of a panel (itg_qproduct.less), if that saves work: for numbers of rows at
// which a tap may begin or end.
static const int32_t *less_of(const task *t, const uint8_t *b, row_totals to) {
  const itg_qconv *c = t->c;
  int classes = 0;
  for (int k = 0; k < t->n_classes; k++) classes += t->classes[k].rows > 0;
  if (classes < 2 || c->rows > SUMMED) return NULL;
  const bool lines = c->joined == ITG_QRUN_LINE && c->deep % ITG_FOUR == 0;
  const int64_t step = lines ? c->deep / ITG_FOUR : c->fours;
  vq sum[4] = {vq_set(0), vq_set(0), vq_set(0), vq_set(0)};
  for (int64_t r = 0;;) {
    FOR_UNROLLED (4, int v = 0; v < 4; v++) vq_store(to[r] + 4 * v, sum[v]);
    if (r == c->rows) return to[0];
    for (int64_t end = r + step; r < end; r++) vq_add_row(sum, (const int8_t *)b + r * ITG_QROW);
  }
}

#if defined(ISA_i8mm)
enum { PACKED_ROWS = 40 << 10 };  // bytes

// Packs the rows of all classes that fit, so that not every panel does.
static void pack_classes(const task *t, const itg_qrow *rows, int8_t *to, const int8_t **pairs) {
  int64_t room = PACKED_ROWS;
  for (int k = 0; k < t->n_classes; k++) {
    const class *one = &t->classes[k];
    const itg_qproduct p = {
        .taps = one->taps, .n_taps = one->n_taps, .flip = t->c->direct ? t->c->flip : VQ_LESS};
    const int64_t bytes = itg_qtile_pairs(&p, rows, one->rows, to, room);
    pairs[k] = bytes ? to : NULL;
    to += bytes, room -= bytes, rows += one->rows;
  }
}
#endif
