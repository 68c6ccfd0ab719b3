// Direct convolution and transposed convolution of channel-last f32, bf16 or f16 images, without
// im2col. For each tap of the window the register tile (gemm/tile.h) gets the addresses of the
// input pixels of a few output pixels. Taps that lie in the padding for all of these pixels are
// skipped.
#include <string.h>

#include "conv.h"

enum { BLOCK = 16, MERGE = 64 };

typedef struct layout {  // scratch memory of one thread, in bytes
  int64_t taps, block;   // most taps of a tile; tiles that are multiplied with a panel together
  bool merged;  // a row of the window is one tap: its few channels are contiguous in memory
  uint64_t zeros, lists, edges, axes, total;
} layout;

static layout layout_of(const itg_conv *c) {
  const itg_window *w = &c->w;
  layout l = {0};
  l.merged = !c->transposed && c->groups == 1 && w->kernel[2] > 1 && w->dilation[2] == 1 &&
             w->kernel[2] * c->deep <= MERGE;
  l.taps = l.merged ? w->kernel[0] * w->kernel[1] : itg_taps(w);
  // Weights that fit into the cache are read for every few tiles; larger ones for every block of
  // tiles whose inputs fit into the cache.
  const int64_t skip =
      c->transposed || w->stride[2] == 1 ? 1 : 4;  // input pixels per output pixel, roughly
  const int64_t pixel = c->deep * skip * ITG_TILE_ROWS + 1;
  int64_t fit = c->depth * c->per <= 96 << 10 ? 4 : (64 << 10) / pixel, lists = 1024 / l.taps;
  if (fit > lists) fit = lists;
  l.block = fit < 1 ? 1 : fit > BLOCK ? BLOCK : fit;
  uint64_t run = (uint64_t)(l.merged ? w->kernel[2] * c->deep : c->deep) * sizeof(float);
  l.zeros = (run + 63) & ~(uint64_t)63;
  l.lists = (uint64_t)(l.block * l.taps) * sizeof(itg_tap);
  l.edges =
      l.merged ? ((uint64_t)(l.block * ITG_TILE_ROWS * l.taps) * run + 63) & ~(uint64_t)63 : 0;
  l.axes = ((uint64_t)(w->kernel[0] + w->kernel[1] + w->kernel[2]) * 2 * sizeof(int64_t) + 63) &
           ~(uint64_t)63;
  l.total = l.zeros + l.lists + l.edges + l.axes;
  return l;
}

#if defined(ISA_scalar) && !defined(ITG_HALF)  // the same for all, so once is enough
static uint64_t scratch(itg_conv *c, uint8_t dtype, const itg_tensor *out, uint32_t parts) {
  if ((dtype != ITG_F32 && dtype != ITG_BF16 && dtype != ITG_F16) || !itg_count(out)) return 0;
  if (dtype != ITG_F32) itg_in_pairs(c);
  return layout_of(c).total * parts;
}

uint64_t itg_scratch_conv(const itg_call *call, uint32_t parts) {
  itg_conv c;
  itg_tensor out;
  return itg_conv_of(call, &c, &out) ? 0 : scratch(&c, call->in[0]->dtype, &out, parts);
}

uint64_t itg_scratch_conv_transpose(const itg_call *call, uint32_t parts) {
  itg_conv c;
  itg_tensor out;
  return itg_conv_transpose_of(call, &c, &out) ? 0 : scratch(&c, call->in[0]->dtype, &out, parts);
}
#endif

typedef struct task {
  const itg_conv *c;
  const layout *l;
  const itg_way *way;
  const float *x, *zeros;
} task;

typedef struct cursor {  // an output pixel
  int64_t batch, q[ITG_AXES];
} cursor;

static cursor cursor_at(const task *t, int64_t r) {
  cursor at = {r, {0}};
  for (int i = ITG_AXES - 1; i >= 0; i--) {
    at.q[i] = at.batch % t->way[i].count;
    at.batch /= t->way[i].count;
  }
  return at;
}

typedef struct run {  // pixels [from, to) of a tile, all in one output line
  int from, to;
  int64_t image, z, y, x;  // origin of the window of the first pixel
  const float *line;       // input line of the current tap, or NULL for padding
} run;

// Moves the cursor by n pixels of one line.
static void move(const itg_way *way, cursor *at, int64_t n) {
  at->q[2] += n;
  for (int i = ITG_AXES - 1; i >= 0 && at->q[i] == way[i].count; i--) {
    at->q[i] = 0;
    if (i > 0) at->q[i - 1]++;
    else at->batch++;
  }
}

// The number of the pixel in the output.
static int64_t place_of(const task *t, const cursor *at) {
  const itg_window *w = &t->c->w;
  const itg_way *way = t->way;
  const int64_t plane = at->batch * w->out[0] + way[0].first + at->q[0] * way[0].step;
  const int64_t line = plane * w->out[1] + way[1].first + at->q[1] * way[1].step;
  return line * w->out[2] + way[2].first + at->q[2] * way[2].step;
}

// Splits the next n pixels into runs, stores their output offsets, and moves the cursor.
static int find_runs(const task *t, cursor *at, int n, run *runs, int64_t *out) {
  const itg_window *w = &t->c->w;
  const itg_way *way = t->way;
  int count = 0;
  for (int m = 0; m < n;) {
    run *r = &runs[count++];
    const int64_t room = way[2].count - at->q[2];
    r->from = m;
    r->to = room < n - m ? m + (int)room : n;
    r->image = at->batch * itg_places(w->in);
    r->z = at->q[0] * way[0].stride;
    r->y = at->q[1] * way[1].stride;
    r->x = at->q[2] * way[2].stride;
    int64_t place = place_of(t, at);
    for (; m < r->to; m++, place += way[2].step) out[m] = place * t->c->channels;
    move(way, at, r->to - r->from);
  }
  return count;
}

// Copies a row of the window that begins or ends outside the image; padding becomes 0.
static void copy_edge(const task *t, float *to, const float *line, int64_t from) {
  const int64_t deep = t->c->deep, width = t->c->w.in[2], kernel = t->c->w.kernel[2];
  for (int64_t k = 0; k < kernel; k++, to += deep) {
    if (from + k >= 0 && from + k < width)
      memcpy(to, line + (from + k) * deep, (size_t)deep * sizeof *to);
    else memset(to, 0, (size_t)deep * sizeof *to);
  }
}

// Finds the input pixels of one run for a tap at x; false if all of them are padding.
static bool find_pixels(const task *t, const run *r, int64_t x, itg_tap *tap, float **edges) {
  const itg_conv *c = t->c;
  const int64_t pixel = c->deep * c->groups, step = t->way[2].stride, in = c->w.in[2];
  const int64_t width = t->l->merged ? c->w.kernel[2] : 1;
  if (r->line && x >= 0 && x + (r->to - r->from - 1) * step + width <= in) {
    const float *row = r->line + x * pixel;
    for (int m = r->from; m < r->to; m++, row += step * pixel) tap->row[m] = row;
    return true;
  }
  bool any = false;
  for (int m = r->from; m < r->to; m++, x += step) {
    if (!r->line || x <= -width || x >= in) {
      tap->row[m] = t->zeros;
      continue;
    }
    any = true;
    if (x >= 0 && x + width <= in) {
      tap->row[m] = r->line + x * pixel;
    } else {
      copy_edge(t, *edges, r->line, x);
      tap->row[m] = *edges;
      *edges += width * c->deep;
    }
  }
  return any;
}

// Whether the next n pixels are in one line and their windows lie inside it.
static bool inside(const task *t, const cursor *at, int n) {
  const itg_way *way = &t->way[2];
  const int64_t x = at->q[2] * way->stride;
  return at->q[2] + n <= way->count && x + way->low >= 0 &&
         x + (n - 1) * way->stride + way->high < t->c->w.in[2];
}

// A faster find_rows for pixels that are `inside` and follow a tile that was too: all addresses
// move by the same distance.
static void shift_rows(const task *t, cursor *at, int n, const itg_rows *before, itg_tap *taps,
                       itg_rows *rows) {
  const itg_conv *c = t->c;
  const itg_way *way = &t->way[2];
  const int64_t in = before->rows * way->stride * c->deep * c->groups,
                out = before->rows * way->step * c->channels;
  const itg_tap *from = before->taps;
  rows->n_taps = before->n_taps;
  for (int64_t i = 0; i < rows->n_taps; i++) {
    for (int m = 0; m < n; m++) taps[i].row[m] = from[i].row[m] + in;
    taps[i].at = from[i].at;
  }
  for (int m = 0; m < n; m++) rows->out[m] = before->out[m] + out;
  rows->taps = taps;
  rows->depth = before->depth;
  rows->rows = n;
  rows->ahead = NULL;
  rows->fetch = 0;
  move(t->way, at, n);
}

// Finds taps and output offsets of the next n pixels, for input channels from `channel` on.
static void find_rows(const task *t, cursor *at, int n, int64_t channel, itg_tap *taps,
                      float *edges, itg_rows *rows) {
  const itg_conv *c = t->c;
  const itg_window *w = &c->w;
  const itg_way *way = t->way;
  run runs[ITG_TILE_M];
  const int count = find_runs(t, at, n, runs, rows->out);
  const int64_t last = t->l->merged ? 1 : way[2].taps;
  itg_tap *tap = taps;
  for (int64_t i = 0; i < way[0].taps; i++)
    for (int64_t j = 0; j < way[1].taps; j++) {
      bool any = false;
      for (run *r = runs; r < runs + count; r++) {
        const int64_t z = r->z + way[0].at[i], y = r->y + way[1].at[j];
        const bool inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
        r->line = inside ? t->x + (r->image + (z * w->in[1] + y) * w->in[2]) * c->deep * c->groups +
                               channel
                         : NULL;
        any |= inside;
      }
      for (int64_t k = 0; any && k < last; k++) {
        bool some = false;
        for (run *r = runs; r < runs + count; r++)
          some |= find_pixels(t, r, r->x + way[2].at[k], tap, &edges);
        if (!some) continue;
        int64_t number =
            (way[0].tap[i] * w->kernel[1] + way[1].tap[j]) * w->kernel[2] + way[2].tap[k];
        tap->at = number * c->deep * ITG_PANEL;
        tap++;
      }
    }
  rows->taps = taps;
  rows->n_taps = tap - taps;
  rows->depth = t->l->merged ? w->kernel[2] * c->deep : c->deep;
  rows->rows = n;
  rows->ahead = NULL;
  rows->fetch = 0;
}

// Computes pixels [from, to) of one set and panels [first, last) of group g.
static void run_block(const task *t, const float *w, int64_t g, int64_t first, int64_t last,
                      int64_t from, int64_t to, char *scratch, void *out, const itg_finish *end) {
  const itg_conv *c = t->c;
  const layout *l = t->l;
  itg_rows rows[BLOCK];
  itg_tap *taps = (itg_tap *)(scratch + l->zeros);
  float *edges = (float *)(scratch + l->zeros + l->lists);
  const int64_t edge = l->merged ? ITG_TILE_ROWS * l->taps * c->w.kernel[2] * c->deep : 0;
  const int64_t tiles = (to - from + ITG_TILE_M - 1) / ITG_TILE_M;
  const int wide = itg_tile_panels(to - from < ITG_TILE_M ? (int)(to - from) : ITG_TILE_M);
  const int64_t panel = c->depth * ITG_PANEL, spans = (last - first + wide - 1) / wide;
  if (tiles < 1 || spans < 1) return;
  const int64_t few = (to - from) / tiles,
                more = (to - from) % tiles;  // pixels of a tile; tiles with one more
  const int64_t thin = (last - first) / spans,
                thick = (last - first) % spans;  // panels of a span, the same
  cursor at = cursor_at(t, from);
  const itg_rows *before = NULL;  // the tile before, if it is `inside`
  for (int64_t i = 0; i < tiles; i += l->block) {
    int count = 0;
    for (; count < l->block && i + count < tiles; count++) {
      const int n = (int)few + (i + count < more);
      const bool plain = inside(t, &at, n);
      itg_tap *mine = taps + count * l->taps;
      if (plain && before && n <= before->rows && at.q[2])
        shift_rows(t, &at, n, before, mine, &rows[count]);
      else find_rows(t, &at, n, g * c->deep, mine, edges + count * edge, &rows[count]);
      before = plain ? &rows[count] : NULL;
    }
    for (int64_t s = 0, p = first, q; s < spans; s++, p = q) {
      q = p + thin + (s < thick);
      const int64_t columns = (q * ITG_PANEL < c->per ? q * ITG_PANEL : c->per) - p * ITG_PANEL;
      for (int k = 0; k < count; k++)
        itg_tile(&rows[k], w + (g * c->panels + p) * panel, panel, g * c->per + p * ITG_PANEL,
                 columns, out, end);
    }
  }
}

// Whether the window is 1x1 without stride and padding: the image is then a matrix of pixels.
static bool is_product(const itg_window *w) {
  for (int i = 0; i < ITG_AXES; i++)
    if (w->kernel[i] != 1 || w->stride[i] != 1 || w->before[i] || w->in[i] != w->out[i])
      return false;
  return true;
}

// Computes one set of output pixels with the same taps (itg_way).
static void run_set(const itg_call *call, const task *t, char *scratch, const itg_finish *end,
                    uint32_t part, uint32_t parts) {
  const itg_conv *c = t->c;
  const float *w = call->in[1]->data;
  void *out = call->out[0]->data;
  int64_t from = 0, to = c->batch * t->way[0].count * t->way[1].count * t->way[2].count;
  int64_t first = 0, last = c->groups * c->panels;  // the panels of all groups
  if (c->channels > to && last >= 2 * (int64_t)parts)
    itg_share(last, 1, part, parts, &first, &last);
  else itg_share(to, 1, part, parts, &from, &to);
  while (first < last && from < to) {
    const int64_t g = first / c->panels, before = g * c->panels;
    const int64_t stop = before + c->panels < last ? before + c->panels : last;
    if (is_product(&c->w)) {
      const itg_product_task product = {t->x + g * c->deep,
                                        c->deep * c->groups,
                                        c->deep,
                                        w + before * c->depth * ITG_PANEL,
                                        c->per,
                                        g * c->per,
                                        out,
                                        c->channels,
                                        *end};
      itg_product(&product, from, to, first - before, stop - before);
    } else {
      run_block(t, w, g, first - before, stop - before, from, to, scratch, out, end);
    }
    first = stop;
  }
}

static void convolve(const itg_call *call, const itg_conv *c, const itg_finish *end, uint32_t part,
                     uint32_t parts) {
  const itg_window *w = &c->w;
  const layout l = layout_of(c);
  char *scratch = (char *)call->scratch + l.total * part;
  int64_t *space = (int64_t *)(scratch + l.zeros + l.lists + l.edges);
  memset(scratch, 0, l.zeros);
  for (int64_t i = 0; i < itg_phases(c, 0); i++)
    for (int64_t j = 0; j < itg_phases(c, 1); j++)
      for (int64_t k = 0; k < itg_phases(c, 2); k++) {
        itg_way way[ITG_AXES];
        itg_way_of(c, 0, i, space, &way[0]);
        itg_way_of(c, 1, j, space + 2 * w->kernel[0], &way[1]);
        itg_way_of(c, 2, k, space + 2 * (w->kernel[0] + w->kernel[1]), &way[2]);
        const task t = {c, &l, way, call->in[0]->data, (const float *)scratch};
        run_set(call, &t, scratch, end, part, parts);
      }
}

ITG_FN(conv, ITG_ELEMENT) {
  const itg_attrs_conv *a = call->attrs;
  itg_conv c;
  itg_tensor out;
  itg_conv_of(call, &c, &out);
  itg_finish end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  if (ITG_PAIR == 2) itg_in_pairs(&c);
  if (itg_count(&out)) convolve(call, &c, &end, part, parts);
  return NULL;
}

ITG_FN(conv_transpose, ITG_ELEMENT) {
  const itg_attrs_conv_transpose *a = call->attrs;
  itg_conv c;
  itg_tensor out;
  itg_conv_transpose_of(call, &c, &out);
  itg_finish end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  if (ITG_PAIR == 2) itg_in_pairs(&c);
  if (itg_count(&out)) convolve(call, &c, &end, part, parts);
  return NULL;
}
