// Winograd convolution of bytes in exact integers (qwinograd.h), compiled once per ISA. The lanes
// of a vector are channels in all three steps: qwinograd_input.h transforms the inputs,
// qwinograd_products.h multiplies, qwinograd_output.h transforms the products to pixels.
// qwinograd_few_channels.h replaces the last two steps partly if there are few channels.
#include "qwinograd.h"

enum { TILE = ITG_QW_TILE, SIZE = ITG_QW_SIZE, POINTS = ITG_QW_POINTS };
enum {
  LINE_ROWS = 4,                        // tiles that qwinograd_few_channels.h multiplies together
  LINE_SPAN = TILE * SIZE * ITG_PANEL,  // numbers that it stores per tile: 4 lines of 6 points
};
#if defined(ISA_rvv)
#include "qrvv.h"
enum { QL = 16 };
#elif !defined(ITG_QVECTORS) && !defined(ISA_neon)
enum { QL = 4 };  // 32-bit numbers of a vector
#endif
enum { PARTS = ITG_PANEL / QL };
typedef uint32_t vu
    __attribute__((vector_size(QL * 4), may_alias, aligned(4)));  // unsigned, so that sums may wrap
#include "qwinograd_output.h"

// AVX512-VBMI only has faster table lookups: it has its own output transform and uses the other
// steps of AVX512-VNNI.
#define RUN_PASTE(isa) itg_qwinograd_run_##isa
#define RUN_NAME(isa) RUN_PASTE(isa)
#if defined(ISA_avx512vbmi)
#define run_with RUN_NAME(avx512vnni)
#else
#define run_with RUN_NAME(ISA)
#endif
itg_words run_with(const itg_call *call, uint32_t part, uint32_t parts, output_fn bytes);

ITG_FN(qwinograd, any) { return run_with(call, part, parts, out_BYTES); }

#if !defined(ISA_avx512vbmi)
#include "qwinograd_few_channels.h"
#include "qwinograd_input.h"

OUTPUT_ANY(FLOATS)
OUTPUT_FULL(PLAIN)
OUTPUT_FULL(FLOOR)

// ---- the whole ----------------------------------------------------------------------------------
typedef struct task {
  itg_qwinograd g;
  itg_requantize end;
  const uint8_t *x[2];
  const uint16_t *w;
  void *out;
  uint8_t *fill;
  bool is_signed, lines;
  output_fn bytes;  // output transform of all epilogues except floats, PLAIN and FLOOR
  uint16_t *in;
  uint32_t *made, *start, *cross;
} task;

static void run_block(const task *t, int64_t from, int64_t to, int64_t first, int64_t last) {
  const itg_qwinograd *g = &t->g;
  const itg_requantize *end = &t->end;
  tiles_in(g, t->x, t->fill, t->is_signed, from, to, t->in);
  const int64_t most = ITG_QW_PANELS, spans = (last - first + most - 1) / most;
  for (int64_t s = 0; s < spans; s++) {
    const int64_t a = first + itg_split(last - first, spans, s),
                  b = first + itg_split(last - first, spans, s + 1);
    const int64_t column = a * ITG_PANEL,
                  stop = b * ITG_PANEL < g->channels ? b * ITG_PANEL : g->channels;
    if (t->lines) find_lines(g, t->w, t->start, t->in, t->made, to - from, a, b);
    else multiply(g, t->w, t->start, t->cross, s == 0, t->in, t->made, to - from, a, b);
    place at = place_of(g, from);
    for (int64_t i = from; i < to; i++, next_place(g, &at)) {
      const int64_t down = g->w.out[1] - at.y, across = g->w.out[2] - at.x;
      const canvas c = {((at.batch * g->w.out[1] + at.y) * g->w.out[2] + at.x) * g->channels,
                        g->w.out[2] * g->channels, g->channels, down < TILE ? down : TILE,
                        across < TILE ? across : TILE};
      const bool bytes = end->small && end->high && !end->residual && !end->table;
      const bool full = is_full(&c, stop - column);
      const bool plain = full && bytes && end->saturates,
                 floor = full && bytes && end->hi + (float)end->zero == 127;
      (end->kind == ITG_Q_FLOATS ? out_FLOATS
       : plain                   ? full_PLAIN
       : floor ? full_FLOOR
               : t->bytes)(t->lines,
                           t->made + (i - from) * (t->lines ? (b - a) * LINE_SPAN : g->span), &c,
                           column, stop - column, end, t->out);
    }
  }
}

itg_words run_with(const itg_call *call, uint32_t part, uint32_t parts, output_fn bytes) {
  const itg_attrs_qwinograd *a = call->attrs;
  const itg_attrs_qconv like = itg_qwinograd_like(a);
  task t;
  itg_tensor out;
  itg_qwinograd_of(call, &t.g, &out);
  const itg_qwinograd *g = &t.g;
  uint8_t entries[ITG_QENTRIES];
  t.end = itg_qconv_end(call, &like, entries);
  const itg_tensor *more = itg_input(call, 6);
  t.x[0] = call->in[0]->data;
  t.x[1] = more ? more->data : NULL;
  t.w = call->in[1]->data;
  t.out = call->out[0]->data;
  t.is_signed = call->in[0]->dtype == ITG_I8;
  t.lines = lines_pay(g);
  t.bytes = bytes;
  t.fill = (uint8_t *)call->scratch + g->bytes * part;
  t.in = (uint16_t *)(t.fill + g->fill);
  t.made = (uint32_t *)(t.fill + g->fill + g->in);
  t.start = t.made + g->block * g->span;
  t.cross = half_products_pay(g) ? t.start + g->panels * ITG_PANEL : NULL;
  int64_t from = 0, to = g->tiles, first = 0, last = g->panels;
  // With few tiles and many channels threads split the channels: each transforms all of the input,
  // but reads only its own weights.
  if (g->tiles < (int64_t)parts * ITG_QW_ROWS / 2 && last >= 2 * (int64_t)parts)
    itg_share(last, 1, part, parts, &first, &last);
  else itg_share(g->tiles, 1, part, parts, &from, &to);
  if (from >= to || first >= last) return NULL;
  memset(t.fill, (uint8_t)a->x_zero, g->fill);
  find_start(g, t.w, t.end.bias, t.is_signed, t.cross, first, last, t.start);
  // Blocks have nearly equal sizes, in multiples of the register tile's rows.
  const int64_t blocks = (to - from + g->block - 1) / g->block,
                rows = last - first < ITG_QW_PANELS ? 8 : 6;
  const int64_t even = ((to - from + blocks - 1) / blocks + rows - 1) / rows * rows;
  for (const int64_t most = even < g->block ? even : g->block; from < to; from += most)
    run_block(&t, from, from + most < to ? from + most : to, first, last);
  return NULL;
}
#endif
