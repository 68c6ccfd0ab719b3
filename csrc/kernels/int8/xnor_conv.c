// Convolution of signs (xnor_conv.h). The lines that a few output lines need are packed with their
// padding; then every window is a list of words at fixed distances from its pixel.
#include "xnor_conv.h"
#if defined(ISA_neon)
#if defined(ISA_armv7)
enum { MOST_ROWS = 1 };
#else
enum { MOST_ROWS = 4 };
#endif
enum { ITG_XNOR_ROWS = MOST_ROWS };
#include "qtile_neon_finish.h"
#elif defined(ITG_QVECTORS)
#include "qtile_span.h"
#if defined(ISA_avx512)
#define TWO_PANELS
enum { ITG_XNOR_ROWS = 8, WIDE = 2 };
#else
enum { ITG_XNOR_ROWS = 4, WIDE = 1 };
#endif
#elif defined(ISA_rvv)
#include "qrvv.h"
#endif
#include "xnor_bits.h"

enum { PIXELS = 64 };  // output pixels that are counted with all panels before the next ones

typedef struct class {  // pixels whose windows have the same taps inside the image
  int64_t y[2], x[2];   // these taps
  int32_t *start;       // their initial sums
} class;

typedef struct task {
  const itg_xnor *c;
  itg_signs signs;
  const uint8_t *x;
  const uint32_t *w;
  const int32_t *padding;  // or NULL
  uint8_t *image, flip;
  int8_t above;
  int32_t step, *starts;  // starts: of the inside, then of the classes
  itg_requantize to;
  void *out;
  class classes[ITG_XNOR_CLASSES];
  int n_classes;
} task;

typedef struct pixels {  // some output pixels
  int64_t n;
  itg_qrow rows[PIXELS];
  const int32_t *start[PIXELS];
} pixels;

static void pack_lines(const task *t, int64_t batch, int64_t oy, int64_t rows) {
  const itg_xnor *c = t->c;
  const itg_window *w = &c->w;
  const int64_t lines = (rows - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilation[1] + 1;
  const int64_t room = c->line / c->pixel - w->before[2], n = room < w->in[2] ? room : w->in[2];
  for (int64_t j = 0; j < lines; j++) {
    const int64_t y = oy * w->stride[1] - w->before[1] + j;
    uint8_t *to = t->image + j * c->line;
    if (y < 0 || y >= w->in[1] || n <= 0) {
      memset(to, 0, (size_t)c->line);
      continue;
    }
    const int64_t before = w->before[2] * c->pixel, after = before + n * c->pixel;
    memset(to, 0, (size_t)before);
    pack_pixels(to + before, t->x + (batch * w->in[1] + y) * w->in[2] * c->deep, n, c->deep,
                t->flip, t->above);
    memset(to + after, 0, (size_t)(c->line - after));
  }
}

// The initial sums of pixels with taps [y[0], y[1]) and [x[0], x[1]) inside the image.
static const int32_t *start_of(task *t, const int64_t *y, const int64_t *x) {
  const itg_xnor *c = t->c;
  const int64_t high = c->w.kernel[1], wide = c->w.kernel[2], columns = c->panels * ITG_PANEL;
  if (!t->padding || (y[0] == 0 && y[1] == high && x[0] == 0 && x[1] == wide)) return t->starts;
  for (int i = 0; i < t->n_classes; i++) {
    const class *one = &t->classes[i];
    if (one->y[0] == y[0] && one->y[1] == y[1] && one->x[0] == x[0] && one->x[1] == x[1])
      return one->start;
  }
  class *one = &t->classes[t->n_classes++];
  *one = (class){{y[0], y[1]}, {x[0], x[1]}, t->starts + t->n_classes * columns};
  memcpy(one->start, t->starts, (size_t)columns * 4);
  for (int64_t j = 0; j < high; j++)
    for (int64_t i = 0; i < wide; i++) {
      if (j >= y[0] && j < y[1] && i >= x[0] && i < x[1]) continue;
      const int32_t *more = t->padding + (j * wide + i) * c->channels;
      for (int64_t k = 0; k < c->channels; k++)
        one->start[k] = (int32_t)((uint32_t)one->start[k] + (uint32_t)more[k]);
    }
  return one->start;
}

// ---- tiles --------------------------------------------------------------------------------------
#if defined(ITG_QVECTORS) || defined(ISA_neon)
#if defined(ISA_neon)
enum { WIDE = 1 };
#endif
// Computes M pixels and V vectors of columns, which begin at `column`.
INLINE void tile(const int M, const int V, const int MASKED, const task *t, const itg_qproduct *p,
                 const span *s, const uint32_t *w, const itg_qrow *rows,
                 const int32_t *const *start) {
  vq sum[ITG_XNOR_ROWS][VECTORS];
  const vq less = vq_set(-t->step);
  count_words(M, V, MASKED, &t->signs, w, rows, sum);
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < V; v++)
      sum[m][v] = vq_add(vq_load(start[m] + s->column + v * QL), vq_mul(sum[m][v], less));
#if defined(ISA_neon)
  row_sums kept[MOST_ROWS];
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < V; v++) kept[m][v] = vq_signed(sum[m][v]);
  store_rows(p, s, rows, M, (const row_sums *)kept);
#else
  s->store(M, V, p, s, rows, &sum[0][0]);
#endif
}

INLINE void strip(const int V, const int MASKED, const task *t, const itg_qproduct *p,
                  const span *s, const uint32_t *w, const pixels *all) {
  int64_t i = 0;
  if (all->n >= ITG_XNOR_ROWS) {  // the last tile may repeat a few pixels
    for (;;) {
      tile(ITG_XNOR_ROWS, V, MASKED, t, p, s, w, all->rows + i, all->start + i);
      if (i + ITG_XNOR_ROWS >= all->n) return;
      i = i + 2 * ITG_XNOR_ROWS <= all->n ? i + ITG_XNOR_ROWS : all->n - ITG_XNOR_ROWS;
    }
  }
  for (; i < all->n; i++) tile(1, V, MASKED, t, p, s, w, all->rows + i, all->start + i);
}

static void multiply(const task *t, const pixels *all) {
  const itg_xnor *c = t->c;
  const bool masked = c->last != UINT32_MAX;
  const int EACH = ITG_PANEL / QL;
  const itg_qproduct p = {.bias = t->starts, .end = &t->to, .out = t->out};
  for (int64_t panel = 0; panel < c->panels;) {
    const int64_t wide = c->panels - panel < WIDE ? 1 : WIDE, column = panel * ITG_PANEL;
    const int64_t left = c->channels - column, most = wide * ITG_PANEL;
    const int64_t columns = left < most ? left : most;
    const uint32_t *w = t->w + panel * c->count * ITG_PANEL;
#if defined(ISA_neon)
    span s = {.column = column, .columns = columns};
    if (t->to.scale) memcpy(s.scale, t->to.scale + column, (size_t)columns * 4);
    if (t->to.kind == ITG_Q_BYTES) s.end = vq_end_of(&t->to);
#else
    padded copy;
    const span s = span_of(&p, NULL, column, columns, &copy);
#if defined(TWO_PANELS)
    if (wide == 2 && masked) strip(2 * EACH, 1, t, &p, &s, w, all);
    else if (wide == 2) strip(2 * EACH, 0, t, &p, &s, w, all);
    else
#endif
#endif
    if (masked) strip(EACH, 1, t, &p, &s, w, all);
    else strip(EACH, 0, t, &p, &s, w, all);
    panel += wide;
  }
}
#else
static void multiply(const task *t, const pixels *all) {
  const itg_xnor *c = t->c;
  for (int64_t panel = 0; panel < c->panels; panel++) {
    const int64_t column = panel * ITG_PANEL, left = c->channels - column;
    const int64_t columns = left < ITG_PANEL ? left : ITG_PANEL;
    for (int64_t i = 0; i < all->n; i++) {
      const int64_t at = all->rows[i].out + column;
      uint32_t sum[ITG_PANEL];
      count_words(&t->signs, t->w + panel * c->count * ITG_PANEL, all->rows[i].x, sum);
      for (int k = 0; k < ITG_PANEL; k++)
        sum[k] = (uint32_t)all->start[i][column + k] - (uint32_t)t->step * sum[k];
#if defined(ISA_rvv)
      qr_finish(&t->to, sum, column, at, columns, t->out);
#else
      for (int64_t k = 0; k < columns; k++) {
        const int32_t one = (int32_t)sum[k];
        if (t->to.kind == ITG_Q_SUMS) ((int32_t *)t->out)[at + k] = one;
        else if (t->to.kind == ITG_Q_FLOATS)
          ((float *)t->out)[at + k] = itg_q_float(&t->to, one, column + k, at + k);
        else ((uint8_t *)t->out)[at + k] = itg_q_byte(&t->to, one, column + k, at + k);
      }
#endif
    }
  }
}
#endif

// ---- the work -----------------------------------------------------------------------------------
// Adds a pixel; what came before is computed first if there is no room for one more.
INLINE void add_pixel(task *t, pixels *all, const uint8_t *x, int64_t out, const int32_t *start) {
  if (all->n == PIXELS) {
    multiply(t, all);
    all->n = 0;
  }
  all->rows[all->n].x = x;
  all->rows[all->n].out = out;
  all->start[all->n++] = start;
}

// Computes output lines [oy, oy + rows) of an image, whose input lines are packed.
static void run_lines(task *t, int64_t batch, int64_t oy, int64_t rows) {
  const itg_xnor *c = t->c;
  const itg_window *w = &c->w;
  const int64_t wide = w->out[2], step = w->stride[2] * c->pixel;
  // Windows of columns [inner, outer) lie inside the image.
  const int64_t reach = (w->kernel[2] - 1) * w->dilation[2] + 1,
                room = w->in[2] + w->before[2] - reach;
  int64_t inner = (w->before[2] + w->stride[2] - 1) / w->stride[2];
  int64_t outer = room < 0 ? 0 : room / w->stride[2] + 1;
  outer = outer < wide ? outer : wide;
  inner = inner < outer ? inner : outer;
  pixels all = {.n = 0};
  for (int64_t line = 0; line < rows; line++) {
    const int64_t whole[2] = {0, w->kernel[2]};
    int64_t y[2], inside[2];
    if (t->n_classes + w->kernel[2] * (w->kernel[2] + 1) / 2 > ITG_XNOR_CLASSES) {
      if (all.n) multiply(t, &all);
      all.n = t->n_classes = 0;
    }
    itg_taps_inside(w, 1, (oy + line) * w->stride[1] - w->before[1], &y[0], &y[1]);
    const int32_t *start = start_of(t, y, whole);
    const uint8_t *x = t->image + line * w->stride[1] * c->line;
    int64_t out = ((batch * w->out[1] + oy + line) * wide) * c->channels;
    for (int64_t ox = 0; ox < wide; ox++, x += step, out += c->channels) {
      if (ox == inner)
        for (; ox < outer; ox++, x += step, out += c->channels) add_pixel(t, &all, x, out, start);
      if (ox == wide) break;
      itg_taps_inside(w, 2, ox * w->stride[2] - w->before[2], &inside[0], &inside[1]);
      add_pixel(t, &all, x, out, start_of(t, y, inside));
    }
  }
  if (all.n) multiply(t, &all);
}

ITG_FN(xnor_conv, any) {
  const itg_attrs_xnor_conv *a = call->attrs;
  const itg_xnor_prepared *prepared = itg_prepared(call);
  if (prepared->empty) return NULL;
  const itg_xnor *c = &prepared->c;
  const itg_window *w = &c->w;
  const itg_tensor *x = call->in[0], *padding = itg_input(call, ITG_XNOR_PADDING);
  const itg_attrs_qconv like = itg_xnor_like(a);
  uint8_t entries[ITG_QENTRIES];
  char *scratch = (char *)call->scratch + c->total * part;
  int32_t *at = (int32_t *)(scratch + c->image);
  uint32_t *masks = (uint32_t *)(at + c->count);
  task t = {.c = c,
            .signs = {at, masks, c->count},
            .x = x->data,
            .w = call->in[1]->data,
            .padding = padding ? padding->data : NULL,
            .image = (uint8_t *)scratch,
            .flip = x->dtype == ITG_U8 ? 0x80 : 0,
            .above = (int8_t)(a->above - (x->dtype == ITG_U8 ? 128 : 0)),
            .step = (int32_t)a->step,
            .starts = (int32_t *)(scratch + c->image + c->lists),
            .to = itg_qconv_end(call, &like, entries),
            .out = call->out[0]->data};
  memset(t.starts, 0, (size_t)(c->panels * ITG_PANEL) * 4);
  memcpy(t.starts, call->in[2]->data, (size_t)c->channels * 4);
  memset(t.image + c->image - 128, 0, 128);  // words are read beyond the last run
  for (int64_t j = 0, k = 0; j < w->kernel[1]; j++)
    for (int64_t i = 0; i < c->runs; i++)
      for (int64_t word = 0; word < c->words; word++, k++) {
        at[k] = (int32_t)(j * w->dilation[1] * c->line + i * w->dilation[2] * c->pixel + word * 4);
        masks[k] = word + 1 == c->words ? c->last : UINT32_MAX;
      }
  int64_t line, stop;
  itg_share(c->batch * w->out[1], 1, part, parts, &line, &stop);
  while (line < stop) {
    const int64_t oy = line % w->out[1], blocks = (w->out[1] + c->rows - 1) / c->rows;
    int64_t block = 0, end = 0;
    while ((end = itg_split(w->out[1], blocks, block + 1)) <= oy) block++;
    const int64_t rows = end - oy < stop - line ? end - oy : stop - line;
    pack_lines(&t, line / w->out[1], oy, rows);
    run_lines(&t, line / w->out[1], oy, rows);
    line += rows;
  }
  return NULL;
}
