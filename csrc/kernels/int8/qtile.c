// The register tile of 8-bit products, compiled once per ISA. Sums stay in registers until they are
// requantised. qtile_sum.h multiplies, qtile_finish.h converts sums to results, and
// qtile_pipelined.h overlaps both.
#include "qtile.h"

#if defined(ISA_neon)
#include "qtile_neon.h"
#elif defined(ITG_QVECTORS)
#include "qtile_sizes.h"
#include "qtile_span.h"
#include "qtile_sum.h"

typedef void (*tile_fn)(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n);

// ---- tiles for long sums ------------------------------------------------------------------------
// AVX512-VBMI only has faster table lookups: it uses the tiles of AVX512-VNNI with its own
// store_bytes.
#define STRIPS_PASTE(isa) itg_qtile_strips_##isa
#define STRIPS_NAME(isa) STRIPS_PASTE(isa)
#if defined(ISA_avx512vbmi)
#define run_strips STRIPS_NAME(avx512vnni)
#else
#define run_strips STRIPS_NAME(ISA)
#endif
void run_strips(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n);

#if !defined(ISA_avx512vbmi)
INLINE void end_tile(const int M, const int N, const itg_qproduct *p, const span *s,
                     const itg_qrow *rows, vq (*sum)[VECTORS]) {
#if defined(ISA_avx512)
  if (s->plain) {
    finish_plain(M, N, p, s, rows, sum);
    return;
  }
#endif
  vq kept[MOST_ROWS][VECTORS];
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < N; v++) kept[m][v] = sum[m][v];
  s->store(M, N, p, s, rows, &kept[0][0]);
}

// Computes n rows, M at a time; the last tile may repeat a few rows. The row pointers of the next
// tile are loaded before the epilogue of this one: the epilogue is too long for out-of-order
// execution to reach those loads.
INLINE void strip(const int M, const int N, const int HALF, const itg_qproduct *p, const span *s,
                  const itg_qrow *rows, int64_t n) {
  const itg_qtap none = {0, 0, 0}, first = p->n_taps ? p->taps[0] : none;
  const itg_qtap *end = p->taps + p->n_taps;
  const int64_t panel = p->panel;
  const vq flip = vq_flip(p);
  const uint8_t *row[MOST_ROWS], *b = s->b;
  FOR_UNROLLED (16, int m = 0; m < M; m++) row[m] = rows[m].x;
  for (int64_t i = 0;;) {
    vq sum[MOST_ROWS][VECTORS];
    start(M, N, s, rows + i, sum);
    sum_up(M, N, HALF, first, panel, flip, b, row, sum);
    for (const itg_qtap *tap = p->taps + 1; tap < end; tap++)
      sum_up(M, N, HALF, *tap, panel, flip, b, row, sum);
    const int64_t next = i + 2 * M <= n ? i + M : n - M;
    FOR_UNROLLED (16, int m = 0; m < M; m++) row[m] = rows[next + m].x;
    end_tile(M, N, p, s, rows + i, sum);
    if (next <= i) return;
    i = next;
  }
}

#define TILE(M, V, H)                                                                          \
  static void tile_##M##x##V##_##H(const itg_qproduct *p, const span *s, const itg_qrow *rows, \
                                   int64_t n) {                                                \
    strip(M, V * PARTS, H, p, s, rows, n);                                                     \
  }
EACH(TILE, 0)
HALVES(TILE)

static const tile_fn tiles[2][ITG_QTILE_PANELS][MOST_ROWS] = {// by H, panels, rows
#define ENTRY(M, V, H) [H][V - 1][M - 1] = tile_##M##x##V##_##H,
                                                              EACH(ENTRY, 0) HALVES(ENTRY)};

void run_strips(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n) {
  const int64_t panels = (s->columns + ITG_PANEL - 1) / ITG_PANEL;
  const bool half = panels * ITG_PANEL - s->columns >= ITG_PANEL / 2 && tiles[1][panels - 1][0];
  const tile_fn *with = tiles[half][panels - 1];
  // Chooses the number of rows per tile with the least cost; the last tile may repeat a few rows.
  int64_t best = 1, least = INT64_MAX;
  for (int64_t m = 1; m <= MOST_ROWS && m <= n; m++) {
    const int64_t cost = (n + m - 1) / m * (m * panels + 4);
    if (with[m - 1] && cost <= least) best = m, least = cost;
  }
  with[best - 1](p, s, rows, n);
}
#endif

// ---- small tiles --------------------------------------------------------------------------------
#if defined(ISA_avx512vnni)
#include "qtile_pipelined.h"

#if defined(ISA_avx512vbmi)  // only epilogues with a table; AVX512-VNNI has the other ones
PIPELINES(PIPELINED, 4)
LINES(PIPELINED)
#else
PIPELINES(PIPELINED, 0)
PIPELINES(PIPELINED, 1)
PIPELINES(PIPELINED, 2)
PIPELINES(PIPELINED, 3)
PIPELINES(PIPELINED, 4)
#endif

// The pipelined tile for this call, or NULL if larger tiles are faster. With long sums the epilogue
// costs little, and larger tiles load the weights less often.
static tile_fn pipelined(const itg_qproduct *p, int64_t panels, bool half, int64_t n) {
#define PIPELINED_ENTRY(V, H, K) [K][H][V - 1] = pipelined_##V##_##H##K,
  static const tile_fn all[6][2][ITG_QTILE_PANELS] = {PIPELINES(PIPELINED_ENTRY, 4)
#if defined(ISA_avx512vbmi)
                                                          LINES(PIPELINED_ENTRY)
#else
                                                          PIPELINES(PIPELINED_ENTRY, 0)
                                                              PIPELINES(PIPELINED_ENTRY, 1)
                                                                  PIPELINES(PIPELINED_ENTRY, 2)
                                                                      PIPELINES(PIPELINED_ENTRY, 3)
#endif
  };
  const itg_requantize *end = p->end;
  int64_t fours = 0;
  for (int64_t i = 0; i < p->n_taps; i++) fours += p->taps[i].fours;
  if (!p->n_taps || p->taps[0].fours < STEPS || fours > (panels > 2 ? 64 : 256) ||
      n < 2 * TILE_SUMS / panels)
    return NULL;
  if (end->kind == ITG_Q_SUMS) return NULL;
  half = half && panels == 2;
  if (end->kind == ITG_Q_FLOATS) return end->residual ? NULL : all[ENDS_FLOATS][half][panels - 1];
  if (panels <= 2 && end->pieces && vq_bounds_later(end) && !end->residual && !end->flip)
    return all[ENDS_LINES][half][panels - 1];
  if (end->table) return all[ENDS_TABLE][half][panels - 1];
  if (!end->saturates || (end->residual && !end->high)) return NULL;
  return all[end->residual ? ENDS_RESIDUAL
             : end->high   ? ENDS_SIGNED
                           : ENDS_UNSIGNED][half][panels - 1];
}
#endif

#if defined(ISA_avx512vbmi)
void itg_qtile_avx512vnni(ITG_QTILE_ARGS);
#endif

void itg_qtile(ITG_QTILE_ARGS) {
#if defined(ISA_avx512vbmi)
  if (p->end->kind != ITG_Q_BYTES || !p->end->table) {
    itg_qtile_avx512vnni(p, rows, n, b, column, columns);
    return;
  }
#endif
  padded copy;
  const span s = span_of(p, b, column, columns, &copy);
#if defined(ISA_avx512vnni)
  const int64_t panels = (columns + ITG_PANEL - 1) / ITG_PANEL;
  const tile_fn small = pipelined(p, panels, panels * ITG_PANEL - columns >= ITG_PANEL / 2, n);
  if (small) {
    small(p, &s, rows, n);
    return;
  }
#endif
  run_strips(p, &s, rows, n);
}
#elif defined(ISA_rvv)
#include "qtile_rvv.h"
#else
void itg_qtile(ITG_QTILE_ARGS) {
  const itg_requantize *end = p->end;
  for (int64_t m = 0; m < n; m++) {
    uint32_t sum[ITG_PANEL] = {0};  // unsigned: sums wrap
    for (int64_t t = 0; t < p->n_taps; t++) {
      const itg_qtap *tap = p->taps + t;
      const uint8_t *x = rows[m].x + tap->x;
      const int8_t *w = (const int8_t *)b + tap->w;
      for (int64_t k = 0; k < tap->fours * ITG_FOUR; k++)
        for (int c = 0; c < ITG_PANEL; c++)
          sum[c] += (uint32_t)((x[k] ^ p->flip) *
                               w[k / ITG_FOUR * ITG_QROW + c * ITG_FOUR + k % ITG_FOUR]);
    }
    for (int64_t c = 0; c < columns; c++) {
      const int64_t at = rows[m].out + column + c;
      uint32_t all = sum[c] + (uint32_t)p->bias[column + c];
      if (p->w_zero) all += (uint32_t)p->w_zero[column + c] * (uint32_t)rows[m].sum;
      if (end->kind == ITG_Q_SUMS) ((int32_t *)p->out)[at] = (int32_t)all;
      else if (end->kind == ITG_Q_FLOATS)
        ((float *)p->out)[at] = itg_q_float(end, (int32_t)all, column + c, at);
      else ((uint8_t *)p->out)[at] = itg_q_byte(end, (int32_t)all, column + c, at);
    }
  }
}
#endif
