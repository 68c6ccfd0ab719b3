// Convolution of channel-last 8-bit images. The input lines that a few output lines need are first
// copied as u8 with their padding; then each tap has one fixed distance from its output pixel. 1x1
// convolutions read the image in place.
#include "qconv.h"

// Output pixels whose windows have the same taps inside the image. Taps on padding are left out of
// the product; their contribution is added to the bias.
typedef struct class {
  int64_t from[2],
      to[2];  // taps inside the image: lines [from[0], to[0]), columns [from[1], to[1])
  itg_qtap *taps, *left_out;
  int64_t n_taps, n_left_out, rows;  // rows: pixels of the class in this block
} class;

typedef struct task {
  const itg_qconv *c;
  const itg_qlayout *l;
  int64_t batch;                // images to compute
  uint8_t fill;                 // byte that stands for padding
  const uint8_t *x, *w, *stop;  // stop: end of the image
  uint8_t *image, *gather, *end;
  int32_t *bias;  // of each class
  itg_requantize to;
  const int32_t *w_zero;
  const int32_t *second;  // indices of the c.second groups of four whose weights have two parts
  void *out;
  class classes[ITG_QCLASSES];
  int n_classes;
  bool lanes;  // qconv_first_layer.h computes whole lines, with pixels in the lanes of vectors
} task;

// ---- inputs of tiles ----------------------------------------------------------------------------
static void copy_flipped(uint8_t *restrict to, const uint8_t *restrict from, int64_t n,
                         uint8_t flip) {
  if (!flip) memcpy(to, from, (size_t)n);
  else
    for (int64_t i = 0; i < n; i++) to[i] = from[i] ^ flip;
}

// Copies the image lines that output lines [oy, oy + rows) need, with their padding: as u8, or with
// NEON as i8, which VQ_LESS makes of u8 by xor.
static void keep_lines(const task *t, int64_t batch, int64_t oz, int64_t oy, int64_t rows) {
  const itg_window *w = &t->c->w;
  const int64_t pixel = t->c->deep * t->c->groups, line = t->l->line;
  const int64_t before = w->before[2] * pixel < line ? w->before[2] * pixel : line;
  const int64_t inner = w->in[2] * pixel < line - before ? w->in[2] * pixel : line - before;
  const int64_t lines = (rows - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilation[1] + 1;
  const uint8_t flip = (uint8_t)(t->c->flip ^ VQ_LESS), fill = t->fill ^ flip;
  for (int64_t i = 0; i < w->kernel[0]; i++)
    for (int64_t j = 0; j < lines; j++) {
      const int64_t z = oz * w->stride[0] - w->before[0] + i * w->dilation[0];
      const int64_t y = oy * w->stride[1] - w->before[1] + j;
      uint8_t *to = t->image + i * t->l->plane + j * line;
      if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) {
        memset(to, fill, (size_t)line);
        continue;
      }
      memset(to, fill, (size_t)before);
      copy_flipped(to + before, t->x + ((batch * w->in[0] + z) * w->in[1] + y) * w->in[2] * pixel,
                   inner, flip);
      memset(to + before + inner, fill, (size_t)(line - before - inner));
    }
}

// Copies whole windows (im2col): the lines of a window follow each other. Each line is copied as
// CHUNK bytes, so up to 63 bytes past the last window are written.
INLINE void gather_some(const task *t, itg_qrow *rows, int64_t n, const int LINES,
                        const int CHUNK) {
  const itg_window *w = &t->c->w;
  const int64_t bytes = w->kernel[2] * t->c->deep, step = t->c->fours * ITG_FOUR;
  const int64_t high = LINES ? LINES : w->kernel[1], down = w->dilation[1] * t->l->line,
                plane = t->l->plane;
  const int64_t deep = LINES ? 1 : w->kernel[0];
  uint8_t *row = t->gather;
  for (int64_t i = 0; i < n; i++, row += step) {
    const uint8_t *x = rows[i].x;
    uint8_t *to = row;
    for (int64_t k = 0; k < deep; k++)
      FOR_UNROLLED (16, int64_t j = 0; j < high; j++, to += bytes)
        memcpy(to, x + k * plane + j * down, CHUNK);
    rows[i].x = row;
  }
}

static void gather_windows(const task *t, itg_qrow *rows, int64_t n) {
  const int64_t bytes = t->c->w.kernel[2] * t->c->deep,
                high = t->c->w.kernel[0] == 1 ? t->c->w.kernel[1] : 0;
  if (high == 3 && bytes <= 16) gather_some(t, rows, n, 3, 16);
  else if (high == 5 && bytes <= 16) gather_some(t, rows, n, 5, 16);
  else if (high == 7 && bytes <= 32) gather_some(t, rows, n, 7, 32);
  else if (high == 6 && bytes <= 32) gather_some(t, rows, n, 6, 32);
  else gather_some(t, rows, n, 0, ITG_QROW);
}

// Sums of all input bytes of each row, for weights with zero points.
static void sum_rows(const task *t, const class *c, itg_qrow *rows, int64_t n) {
  const uint8_t flip = t->c->direct ? (uint8_t)t->c->flip : VQ_LESS;
  for (int64_t i = 0; i < n; i++) {
    int32_t sum = 0;
    for (int64_t k = 0; k < c->n_taps; k++) {
      const uint8_t *x = rows[i].x + c->taps[k].x;
      for (int64_t b = 0; b < t->c->run; b++) sum += x[b] ^ flip;
    }
    rows[i].sum = sum;
  }
}

#include "qconv_few_outputs.h"
#include "qconv_first_layer.h"
#include "qconv_taps.h"
#if defined(ISA_neon)
#include "qconv_neon.h"
#endif

// ---- the work -----------------------------------------------------------------------------------
typedef struct share {  // of the output: panels [first, last) of group g, pixels [from, to)
  int64_t g, first, last, from, to;
} share;

// Initial sums of a class: the bias, plus the products of padding with the taps that it leaves out.
static const int32_t *bias_of(const task *t, const class *c, const uint8_t *b, int64_t panel,
                              int64_t column, int64_t columns) {
  const uint8_t fill = t->fill ^ (uint8_t)t->c->flip;
  if (!c->n_left_out || !fill) return t->to.bias;
  itg_requantize sums = t->to;
  sums.kind = ITG_Q_SUMS;
  int32_t *to = t->bias + (c - t->classes) * t->c->channels;
  const itg_qproduct p = {c->left_out, c->n_left_out, panel, t->to.bias, NULL, &sums,
                          to,          VQ_LESS,       NULL,  NULL};
  const itg_qrow row = {t->end, 0, 0};
  itg_qtile(&p, &row, 1, b, column, columns);
  return to;
}

// Multiplies n rows, which are sorted by class, with all panels of the share.
static void multiply(task *t, const share *s, itg_qrow *rows, int64_t n) {
  const itg_qconv *c = t->c;
  const int64_t panel = c->rows * ITG_QROW, wide = ITG_QTILE_PANELS;
  const int64_t spans = (s->last - s->first + wide - 1) / wide;
  if (c->joined == ITG_QRUN_WINDOW && !c->direct) gather_windows(t, rows, n);
  if (t->w_zero) sum_rows(t, t->classes, rows, n);
  const int8_t *pairs[ITG_QCLASSES] = {NULL};
#if defined(ISA_i8mm)
  int8_t packed[PACKED_ROWS];
  if (spans > 2) pack_classes(t, rows, packed, pairs);
#endif
  for (int64_t i = 0; i < spans; i++) {
    const int64_t p = s->first + itg_split(s->last - s->first, spans, i);
    const int64_t q = s->first + itg_split(s->last - s->first, spans, i + 1);
    const int64_t columns = (q * ITG_PANEL < c->per ? q * ITG_PANEL : c->per) - p * ITG_PANEL;
    const int64_t column = s->g * c->per + p * ITG_PANEL;
    const uint8_t *b = t->w + (s->g * c->panels + p) * panel;
    const itg_qrow *next = rows;
    const int32_t *less = NULL;
#if defined(ISA_neon)
    row_totals totals;
    less = less_of(t, b, totals);
#endif
    for (int k = 0; k < t->n_classes; k++) {
      const class *one = &t->classes[k];
      if (!one->rows) continue;
      const itg_qproduct product = {
          one->taps, one->n_taps, panel,  bias_of(t, one, b, panel, column, columns),
          t->w_zero, &t->to,      t->out, c->direct ? c->flip : VQ_LESS,
          less,      pairs[k]};
      itg_qtile(&product, next, one->rows, b, column, columns);
      next += one->rows;
    }
  }
}

// Rows of neighbouring pixels, four at a time: with few products for each they take a part of the
// time that shows.
INLINE void place_rows(itg_qrow *rows, int64_t n, const uint8_t *x, int64_t step, int64_t out,
                       int64_t channels) {
  for (; n >= 4; n -= 4, rows += 4, x += 4 * step, out += 4 * channels)
    FOR_UNROLLED (4, int i = 0; i < 4; i++) {
      rows[i].x = x + i * step;
      rows[i].out = out + i * channels;
    }
  for (; n > 0; n--, rows++, x += step, out += channels) rows->x = x, rows->out = out;
}

static void run_direct(task *t, const share *s) {
  const itg_qconv *c = t->c;
  const itg_window *w = &c->w;
  const int64_t pixel = c->deep * c->groups, channel = s->g * c->deep, read = c->fours * ITG_FOUR;
  const int64_t blocks = (s->to - s->from + ITG_QPIXELS - 1) / ITG_QPIXELS;
  const bool all = w->stride[0] == 1 && w->stride[1] == 1 && w->stride[2] == 1;
  itg_qrow rows[ITG_QPIXELS];
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t r = s->from + itg_split(s->to - s->from, blocks, i);
    const int64_t n = s->from + itg_split(s->to - s->from, blocks, i + 1) - r;
    // Rows whose last bytes lie in the image are where they are.
    const int64_t most = t->stop - t->x - channel - read, last = most < 0 ? -1 : most / pixel,
                  inside = !all || last < r   ? 0
                           : last - r + 1 < n ? last - r + 1
                                              : n;
    place_rows(rows, inside, t->x + r * pixel + channel, pixel, r * c->channels, c->channels);
    for (int64_t m = inside; m < n; m++) {
      int64_t at = r + m;
      if (!all) {
        const int64_t ox = at % w->out[2], oy = at / w->out[2] % w->out[1],
                      oz = at / w->out[2] / w->out[1] % w->out[0];
        at = at / w->out[2] / w->out[1] / w->out[0] * w->in[0] + oz * w->stride[0];
        at = (at * w->in[1] + oy * w->stride[1]) * w->in[2] + ox * w->stride[2];
      }
      const uint8_t *x = t->x + at * pixel + channel;
      rows[m].x = t->stop - x >= read ? x : t->end + read - (t->stop - x);
      rows[m].out = (r + m) * c->channels;
    }
    t->classes[0].rows = n;
    multiply(t, s, rows, n);
  }
}

// Computes pixels [r, r + n) from the copied lines, which belong to output lines from oy on. Rows
// are sorted by class.
static void run_pixels(task *t, const share *s, int64_t oy, int64_t r, int64_t n) {
  const itg_qconv *c = t->c;
  const itg_window *w = &c->w;
  const int64_t step = w->stride[2] * c->deep * c->groups, wide = w->out[2];
  const bool free = (t->fill ^ c->flip) == 0;  // padding is 0 as u8: leaving it out costs nothing
  const bool skip = c->joined != ITG_QRUN_WINDOW && !t->w_zero && !c->second && (free || n >= 64);
  const bool across =
      skip && free && wide <= 16 && (c->joined == ITG_QRUN_TAP || c->deep % ITG_FOUR == 0);
  // Columns before this one, from the first with all taps on, have all taps.
  const int64_t room = w->in[2] + w->before[2] - (w->kernel[2] - 1) * w->dilation[2] - 1,
                all_taps = room < 0 ? 0 : room / w->stride[2] + 1;
  itg_qrow rows[ITG_QPIXELS];
  uint8_t of[ITG_QPIXELS] = {0};
  for (int k = 0; k < t->n_classes; k++) t->classes[k].rows = 0;
  for (int64_t i = 0, ox = r % wide, y = r / wide % w->out[1]; i < n; y++, ox = 0) {
    int64_t from[2] = {0, 0}, to[2] = {w->kernel[1], w->kernel[2]};
    if (skip) find_taps(w, 1, y, &from[0], &to[0]);
    const uint8_t *x = t->image + (y - oy) * w->stride[1] * t->l->line + ox * step + s->g * c->deep;
    const int64_t stop = n - i < wide - ox ? n : i + wide - ox;
    place_rows(rows + i, stop - i, x, step, (r + i) * c->channels, c->channels);
    class *one = skip ? NULL : t->classes;
    for (int64_t many; i < stop; ox += many) {
      const int64_t left = from[1], right = to[1];
      many = stop - i;
      if (across) {
        find_taps(w, 2, ox, &from[1], &to[1]);
        const int64_t same = from[1] == 0 && to[1] == w->kernel[2] ? all_taps - ox : 1;
        many = same < many ? same : many;
      }
      if (skip && (!one || from[1] != left || to[1] != right)) one = class_of(t, from, to);
      memset(of + i, (int)(one - t->classes), (size_t)many);
      one->rows += many;
      i += many;
    }
  }
  if (t->n_classes == 1 || t->classes[of[0]].rows == n) {
    multiply(t, s, rows, n);
    return;
  }
  itg_qrow sorted[ITG_QPIXELS];
  int64_t next[ITG_QCLASSES] = {0};
  for (int k = 1; k < t->n_classes; k++) next[k] = next[k - 1] + t->classes[k - 1].rows;
  for (int64_t i = 0; i < n; i++) sorted[next[of[i]]++] = rows[i];
  multiply(t, s, sorted, n);
}

// The share that panels [first, last), counted over all groups, have of the group of `first`.
static share share_of(const itg_qconv *c, int64_t first, int64_t last, int64_t from, int64_t to) {
  const int64_t g = first / c->panels, before = g * c->panels;
  return (share){g, first - before,
                 (before + c->panels < last ? before + c->panels : last) - before, from, to};
}

// Computes panels [first, last), counted over all groups, of pixels [from, to). The lines that a
// few output lines need are copied once for all groups.
static void run_windows(task *t, int64_t first, int64_t last, int64_t from, int64_t to) {
  const itg_window *w = &t->c->w;
#if defined(__AVX512VBMI__)
  lanes beside;
  if (t->lanes) lanes_of(t, first, last, &beside);  // only used with one group
#endif
  for (int64_t r = from, stop; r < to; r = stop) {  // t->l->rows output lines at a time
    const int64_t line = r / w->out[2], oy = line % w->out[1], plane = line / w->out[1];
    const int64_t blocks = (w->out[1] + t->l->rows - 1) / t->l->rows;
    int64_t block = 0, end = 0;
    while ((end = itg_split(w->out[1], blocks, block + 1)) <= oy) block++;
    stop = (line - oy + end) * w->out[2];
    stop = stop < to ? stop : to;
    keep_lines(t, plane / w->out[0], plane % w->out[0], oy, (stop - 1) / w->out[2] - line + 1);
#if defined(__AVX512VBMI__)
    if (t->lanes) {
      lanes_lines(&beside, line, (stop - r) / w->out[2]);
      continue;
    }
#endif
    const int64_t parts = (stop - r + ITG_QPIXELS - 1) / ITG_QPIXELS;
    for (int64_t p = first; p < last;) {
      const share s = share_of(t->c, p, last, from, to);
      for (int64_t i = 0; i < parts; i++) {
        const int64_t begin = r + itg_split(stop - r, parts, i);
        run_pixels(t, &s, oy, begin, r + itg_split(stop - r, parts, i + 1) - begin);
      }
      p += s.last - s.first;
    }
  }
}

// Computes a thread's share of t->batch images.
static void compute(task *t, itg_qtap *lists, bool wide, uint32_t part, uint32_t parts) {
  const itg_qconv *c = t->c;
  if (!c->direct) memset(t->end, t->fill ^ c->flip ^ VQ_LESS, t->l->end);
  first_class(t, lists);
  int64_t from = 0, to = t->batch * itg_places(c->w.out), first = 0, last = c->groups * c->panels;
  if (wide && last >= 2 * (int64_t)parts) itg_share(last, 1, part, parts, &first, &last);
  else itg_share(to, t->lanes ? c->w.out[2] : 1, part, parts, &from, &to);
#if defined(ISA_avx512vnni)
  if (fits_few(t) && to - from >= FEW_PIXELS) {
    if (first < last) run_few(t, from, to);
    return;
  }
#endif
  if (first >= last || from >= to) return;
  if (!c->direct) {
    run_windows(t, first, last, from, to);
    return;
  }
  while (first < last) {
    const share s = share_of(c, first, last, from, to);
    run_direct(t, &s);
    first += s.last - s.first;
  }
}

// Computes images whose zero points and scales are inputs, one after the other.
static void compute_dynamic(const itg_call *call, task *t, itg_qtap *lists, bool wide,
                            uint32_t part, uint32_t parts) {
  const uint8_t *zero = call->in[ITG_QCONV_ZERO]->data;
  const float *by = call->in[ITG_QCONV_SCALE]->data, *scales = t->to.scale;
  const int32_t *sums = call->in[ITG_QCONV_SUMS]->data, *start = t->to.bias;
  const int64_t channels = t->c->channels, images = t->batch,
                size = itg_count(call->in[0]) / images, made = itg_places(t->c->w.out) * channels;
  const float *residual = (const float *)t->to.residual;
  int32_t *bias = (int32_t *)((char *)t->bias + t->l->bias);
  float *scale = (float *)(bias + channels), *out = t->out;
  t->to.bias = bias;
  t->to.scale = scale;
  t->batch = 1;
  for (int64_t i = 0; i < images; i++) {
    const uint32_t less = (uint32_t)(zero[i] ^ t->c->flip);
    for (int64_t k = 0; k < channels; k++) {
      bias[k] = (int32_t)((uint32_t)start[k] - less * (uint32_t)sums[k]);
      scale[k] = scales[k] * by[i];
    }
    t->fill = zero[i];
    t->x = (const uint8_t *)call->in[0]->data + i * size;
    t->out = out + i * made;
    if (residual) t->to.residual = (const uint8_t *)(residual + i * made);
    compute(t, lists, wide, part, parts);
  }
}

ITG_FN(qconv, any) {
  const itg_attrs_qconv *a = call->attrs;
  const itg_qconv_prepared *p = itg_prepared(call);
  if (p->empty) return NULL;
  task t;
  const itg_qconv *c = t.c = &p->c;
  const itg_qlayout *l = t.l = &p->l;
  t.batch = c->batch;
  t.fill = c->fill;
  t.image = (uint8_t *)call->scratch + l->total * part;
  t.gather = t.image + l->image;
  t.end = t.gather + l->gather;
  itg_qtap *lists = (itg_qtap *)(t.end + l->end);
  t.bias = (int32_t *)((char *)lists + l->lists);
  t.x = call->in[0]->data;
  t.w = call->in[1]->data;
  t.out = call->out[0]->data;
  const int64_t size = itg_count(call->in[0]), read = c->fours * ITG_FOUR;
  t.stop = t.x + size;
  if (c->direct) {  // copies the last bytes of the image, so that its last runs can be read past
                    // its end; the extra bytes are multiplied by zero
    const int64_t kept = size < read ? size : read;
    memcpy(t.end + read - kept, t.stop - kept, (size_t)kept);
  }
  const itg_tensor *w_zero = itg_input(call, 6), *second = itg_input(call, ITG_QCONV_SECOND);
  uint8_t entries[ITG_QENTRIES];
  t.to = itg_qconv_end(call, a, entries);
  t.w_zero = w_zero ? w_zero->data : NULL;
  t.second = second ? second->data : NULL;
  for (int64_t i = 0; i < c->second; i++)
    REFUSE(t.second[i] < 0 || t.second[i] >= c->runs * c->fours,
           "a row with a second part is no row of the weights");
  t.lanes = false;
#if defined(__AVX512VBMI__)
  t.lanes = fits_lanes(&t);
#endif
  if (c->dynamic) compute_dynamic(call, &t, lists, p->wide, part, parts);
  else compute(&t, lists, p->wide, part, parts);
  return NULL;
}
