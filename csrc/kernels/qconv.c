// Convolution of channel-last 8-bit images: the register tile is given, per tap, where the input pixels of a few output
// pixels lie. Padding is read from a pixel of zeros (of the image's zero), which the bias counts on.
#include "qconv.h"

typedef struct task {
  const itg_qconv *c;
  const uint8_t *x, *w, *fill;
  const uint8_t *stop, *copy;  // the image's end, and a copy of its last bytes that can be read beyond it
  uint8_t *out;
  itg_requantize end;
} task;

static inline const uint8_t *readable(const task *t, const uint8_t *run) {
  const int64_t read = t->c->fours * ITG_FOUR, left = t->stop - run;
  return left >= read ? run : t->copy + read - left;
}

// A line of the window that hangs over the image's left or right end.
static void copy_edge(const itg_qconv *c, uint8_t *to, const uint8_t *line, int64_t from) {
  for (int64_t k = 0; k < c->w.kernel[2]; k++, to += c->deep) {
    if (from + k >= 0 && from + k < c->w.in[2]) memcpy(to, line + (from + k) * c->deep, (size_t)c->deep);
    else memset(to, c->fill, (size_t)c->deep);
  }
}

// Where the runs of n pixels lie: of one line of the output, with windows within the image: only the first
// must be found.
static void find_inner_rows(const task *t, const uint8_t *first, int n, itg_qtap *tap) {
  const itg_qconv *c = t->c;
  const itg_window *w = &c->w;
  const int64_t pixel = c->deep * c->groups, line = w->in[2] * pixel, plane = w->in[1] * line;
  const int64_t step = w->stride[2] * pixel;
  const int64_t across = c->run > c->deep ? 1 : w->kernel[2];
  for (int64_t i = 0; i < w->kernel[0]; i++)
    for (int64_t j = 0; j < w->kernel[1]; j++) {
      const uint8_t *from = first + i * w->dilation[0] * plane + j * w->dilation[1] * line;
      for (int64_t k = 0; k < across; k++, tap++, from += w->dilation[2] * pixel)
        for (int m = 0; m < n; m++) tap->row[m] = from + m * step;
    }
}

// The taps of output pixels [r, r + n), for input channels from `channel` on.
static void find_rows(const task *t, int64_t r, int n, int64_t channel, itg_qtap *taps, uint8_t *edges,
                      itg_qrows *rows) {
  const itg_qconv *c = t->c;
  const itg_window *w = &c->w;
  const int64_t pixel = c->deep * c->groups, line = w->in[2] * pixel, plane = w->in[1] * line;
  const bool lines = c->run > c->deep;
  const int64_t across = lines ? 1 : w->kernel[2], reach = lines ? w->kernel[2] : 1;
  rows->taps = taps;
  rows->n_taps = c->taps;
  rows->fours = c->fours;
  rows->rows = n;
  int64_t ox = r % w->out[2], oy = r / w->out[2] % w->out[1], oz = r / w->out[2] / w->out[1] % w->out[0];
  const uint8_t *image = t->x + r / w->out[2] / w->out[1] / w->out[0] * w->in[0] * plane + channel;
  const int64_t first[ITG_AXES] = {oz * w->stride[0] - w->before[0], oy * w->stride[1] - w->before[1],
                                   ox * w->stride[2] - w->before[2]};
  bool inner = ox + n <= w->out[2];
  for (int i = 0; i < ITG_AXES; i++) {
    const int64_t last = first[i] + (w->kernel[i] - 1) * w->dilation[i] + (i == 2 ? (n - 1) * w->stride[2] : 0);
    inner &= first[i] >= 0 && last < w->in[i] - (i == 2 ? ITG_FOUR - 1 : 0);  // what is read behind a run is image too
  }
  if (inner) {
    find_inner_rows(t, image + first[0] * plane + first[1] * line + first[2] * pixel, n, taps);
    for (int m = 0; m < n; m++) rows->out[m] = (r + m) * c->channels;
    return;
  }
  for (int m = 0; m < n; m++, r++) {
    rows->out[m] = r * c->channels;
    itg_qtap *tap = taps;
    for (int64_t i = 0; i < w->kernel[0]; i++)
      for (int64_t j = 0; j < w->kernel[1]; j++) {
        const int64_t z = oz * w->stride[0] - w->before[0] + i * w->dilation[0];
        const int64_t y = oy * w->stride[1] - w->before[1] + j * w->dilation[1];
        const bool inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
        const uint8_t *from = inside ? image + z * plane + y * line : NULL;
        int64_t x = ox * w->stride[2] - w->before[2];
        for (int64_t k = 0; k < across; k++, x += w->dilation[2], tap++) {
          if (!inside || x <= -reach || x >= w->in[2]) {
            tap->row[m] = t->fill;
          } else if (x >= 0 && x + reach <= w->in[2]) {
            tap->row[m] = readable(t, from + x * pixel);
          } else {
            copy_edge(c, edges, from, x);
            tap->row[m] = edges;
            edges += c->fours * ITG_FOUR;
          }
        }
      }
    if (++ox < w->out[2]) continue;  // on to the next pixel
    ox = 0;
    if (++oy < w->out[1]) continue;
    oy = 0;
    if (++oz < w->out[0]) continue;
    oz = 0;
    image += w->in[0] * plane;
  }
}

// Whether pixels are rows of one matrix.
static bool is_product(const itg_window *w) {
  for (int i = 0; i < ITG_AXES; i++)
    if (w->kernel[i] != 1 || w->stride[i] != 1 || w->before[i] || w->in[i] != w->out[i]) return false;
  return true;
}

static void find_product_rows(const task *t, int64_t r, int n, int64_t channel, itg_qtap *tap, itg_qrows *rows) {
  const int64_t pixel = t->c->deep * t->c->groups;
  rows->taps = tap;
  rows->n_taps = 1;
  rows->fours = t->c->fours;
  rows->rows = n;
  for (int m = 0; m < n; m++) {
    tap->row[m] = readable(t, t->x + (r + m) * pixel + channel);
    rows->out[m] = (r + m) * t->c->channels;
  }
}

// Pixels [from, to), panels [first, last) of group g.
static void run_group(const task *t, const itg_qlayout *l, char *scratch, int64_t g, int64_t first, int64_t last,
                      int64_t from, int64_t to) {
  const itg_qconv *c = t->c;
  itg_qrows rows[ITG_QBLOCK];
  itg_qtap *taps = (itg_qtap *)(scratch + l->fill + l->end);
  uint8_t *edges = (uint8_t *)(taps + l->block * c->taps);
  const bool product = is_product(&c->w);
  const int64_t edge = ITG_QTILE_ROWS * c->taps * c->fours * ITG_FOUR, wide = ITG_QTILE_PANELS;
  const int64_t tiles = (to - from + ITG_QTILE_M - 1) / ITG_QTILE_M;
  const int64_t panel = c->taps * c->fours * ITG_QROW, spans = (last - first + wide - 1) / wide;
  for (int64_t i = 0; i < tiles; i += l->block) {
    int count = 0;
    for (; count < l->block && i + count < tiles; count++) {
      const int64_t r = from + itg_split(to - from, tiles, i + count);
      const int n = (int)(from + itg_split(to - from, tiles, i + count + 1) - r);
      if (product) find_product_rows(t, r, n, g * c->deep, taps + count, &rows[count]);
      else find_rows(t, r, n, g * c->deep, taps + count * c->taps, edges + (l->edges ? count * edge : 0), &rows[count]);
    }
    for (int64_t s = 0; s < spans; s++) {
      const int64_t p = first + itg_split(last - first, spans, s), q = first + itg_split(last - first, spans, s + 1);
      const int64_t columns = (q * ITG_PANEL < c->per ? q * ITG_PANEL : c->per) - p * ITG_PANEL;
      for (int k = 0; k < count; k++)
        itg_qtile(&rows[k], t->w + (g * c->panels + p) * panel, panel, g * c->per + p * ITG_PANEL, columns, t->out,
                  &t->end, c->flip);
    }
  }
}

ITG_FN(qconv, any) {
  const itg_attrs_qconv *a = call->attrs;
  itg_qconv c;
  itg_tensor out;
  itg_qconv_of(call, &c, &out);
  if (itg_empty(&out)) return NULL;
  const itg_qlayout l = itg_qlayout_of(&c);
  char *scratch = (char *)call->scratch + l.total * part;
  memset(scratch, c.fill, l.fill);
  // What the last runs see: the image's last bytes, and a few more that meet weights of zero.
  uint8_t *copy = (uint8_t *)scratch + l.fill;
  const int64_t read = c.fours * ITG_FOUR, size = itg_count(call->in[0]), kept = size < read ? size : read;
  const uint8_t *stop = (const uint8_t *)call->in[0]->data + size;
  memcpy(copy + read - kept, stop - kept, (size_t)kept);
  // Taps are numbered as the weights are packed, so where each one's lie is known beforehand.
  itg_qtap *taps = (itg_qtap *)(scratch + l.fill + l.end);
  for (int64_t t = 0; t < l.block * c.taps; t++) taps[t].at = t % c.taps * c.fours * ITG_QROW;
  const task t = {&c, call->in[0]->data, call->in[1]->data, (uint8_t *)scratch, stop, copy, call->out[0]->data,
                  itg_requantize_of(call->in[2]->data, call->in[3]->data, c.channels, a->y_zero, a->lo, a->hi,
                                    a->dtype == ITG_I8)};
  int64_t from = 0, to = c.batch * itg_places(c.w.out), first = 0, last = c.groups * c.panels;
  if (c.channels > to && last >= 2 * (int64_t)parts) itg_share(last, 1, part, parts, &first, &last);
  else itg_share(to, 1, part, parts, &from, &to);
  while (first < last && from < to) {
    const int64_t g = first / c.panels, before = g * c.panels;
    const int64_t stop = before + c.panels < last ? before + c.panels : last;
    run_group(&t, &l, scratch, g, first - before, stop - before, from, to);
    first = stop;
  }
  return NULL;
}
