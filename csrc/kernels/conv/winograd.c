// Winograd convolution of f32 images (winograd.h). In all three steps a vector holds VL channels of
// one pixel or point. The transforms process VL channels of a tile at a time: first its lines, then
// its columns, with half[line][point] in between. The products use the register tile of
// gemm/tile.h.
#include "winograd.h"

#include <string.h>

#include "vec.h"

enum { SIZE = 8, TILE = 6 };  // of the largest tile

// ---- one line of a tile -------------------------------------------------------------------------
// The points are 0, pairs of p and -p, and infinity. A polynomial with the even part e and the odd
// part o has the value e + o at p and e - o at -p, so a pair costs little more than one point.
INLINE void pair(vf e, vf o, vf *y) {
  y[0] = vadd(e, o);
  y[1] = vsub(e, o);
}

// a - s * b + p * c: the even or odd part at one pair of points. The polynomial x^4 - s x^2 + p is
// 0 at the other two pairs.
INLINE vf rest(vf a, float s, vf b, float p, vf c) {
  return vfma(vset(-s), b, vfma(vset(p), c, a));
}

// Input transform of one line or column: y = Bt x.
INLINE void points_of(const int tile, const vf *x, vf *y) {
  if (tile == 2) {  // pair 1
    y[0] = vsub(x[2], x[0]);
    pair(x[2], x[1], y + 1);
    y[3] = vsub(x[3], x[1]);
  } else if (tile == 4) {  // pairs 3/4 and 3/2, with squares 9/16 and 9/4
    y[0] = rest(x[4], 2.8125f, x[2], 1.265625f, x[0]);
    pair(vfma(vset(-2.25f), x[2], x[4]), vmul(vset(.75f), vfma(vset(-2.25f), x[1], x[3])), y + 1);
    pair(vfma(vset(-.5625f), x[2], x[4]), vmul(vset(1.5f), vfma(vset(-.5625f), x[1], x[3])), y + 3);
    y[5] = rest(x[5], 2.8125f, x[3], 1.265625f, x[1]);
  } else {  // pairs 1, 2 and 1/2
    y[0] = vfma(vset(5.25f), vsub(x[2], x[4]), vsub(x[6], x[0]));
    pair(vfma(vset(-4.25f), x[4], vadd(x[6], x[2])), vfma(vset(-4.25f), x[3], vadd(x[5], x[1])),
         y + 1);
    pair(rest(x[6], 1.25f, x[4], .25f, x[2]), vmul(vset(2.f), rest(x[5], 1.25f, x[3], .25f, x[1])),
         y + 3);
    pair(rest(x[6], 5.f, x[4], 4.f, x[2]), vmul(vset(.5f), rest(x[5], 5.f, x[3], 4.f, x[1])),
         y + 5);
    y[7] = vfma(vset(5.25f), vsub(x[3], x[5]), vsub(x[7], x[1]));
  }
}

// Output transform of one line or column: y = At x. y[i] is the sum of p^i x over the points p. For
// a pair of points, even powers multiply the sum (s, t, u), odd ones the difference (d, e, f).
INLINE void pixels_of(const int tile, const vf *x, vf *y) {
  const vf s = vadd(x[1], x[2]), d = vsub(x[1], x[2]);
  if (tile == 2) {
    y[0] = vadd(x[0], s);
    y[1] = vadd(d, x[3]);
    return;
  }
  const vf t = vadd(x[3], x[4]), e = vsub(x[3], x[4]);
  if (tile == 4) {
    y[0] = vadd(x[0], vadd(s, t));
    y[1] = vfma(vset(1.5f), e, vmul(vset(.75f), d));
    y[2] = vfma(vset(2.25f), t, vmul(vset(.5625f), s));
    y[3] = vfma(vset(3.375f), e, vfma(vset(.421875f), d, x[5]));
    return;
  }
  const vf u = vadd(x[5], x[6]), f = vsub(x[5], x[6]);
  y[0] = vadd(vadd(x[0], s), vadd(t, u));
  y[1] = vfma(vset(.5f), f, vfma(vset(2.f), e, d));
  y[2] = vfma(vset(.25f), u, vfma(vset(4.f), t, s));
  y[3] = vfma(vset(.125f), f, vfma(vset(8.f), e, d));
  y[4] = vfma(vset(.0625f), u, vfma(vset(16.f), t, s));
  y[5] = vfma(vset(.03125f), f, vfma(vset(32.f), e, vadd(d, x[7])));
}

// ---- input --------------------------------------------------------------------------------------
typedef struct patch {           // the input pixels of a tile
  const float *first;            // the first pixel if none is padding, else NULL
  int64_t line, pixel;           // floats from line to line, from pixel to pixel
  const float *at[SIZE * SIZE];  // each pixel, if `first` is NULL
} patch;

INLINE vf get(const float *p, int64_t n) { return n >= VL ? vload(p) : vloadn(p, n); }

// Transforms channels c to c + n of a tile to all points.
INLINE void transform_in(const int tile, const bool inside, const patch *p, int64_t c, int64_t n,
                         float *to, int64_t step) {
  const int size = tile + 2;
  vf half[SIZE][SIZE], x[SIZE], y[SIZE];
  FOR_UNROLLED (1, int i = 0; i < size; i++) {
    FOR_UNROLLED (8, int j = 0; j < size; j++)
      x[j] = get((inside ? p->first + i * p->line + j * p->pixel : p->at[i * size + j]) + c, n);
    points_of(tile, x, half[i]);
  }
  FOR_UNROLLED (1, int j = 0; j < size; j++) {
    FOR_UNROLLED (8, int i = 0; i < size; i++) x[i] = half[i][j];
    points_of(tile, x, y);
    FOR_UNROLLED (8, int i = 0; i < size; i++) vstore(to + (i * size + j) * step, y[i]);
  }
}

INLINE void tile_in(const int tile, const patch *p, int64_t deep, float *to, int64_t step) {
  int64_t c = 0;
  if (p->first)
    for (; c + VL <= deep; c += VL) transform_in(tile, true, p, c, VL, to + c, step);
  else
    for (; c + VL <= deep; c += VL) transform_in(tile, false, p, c, VL, to + c, step);
  if (c < deep && p->first) transform_in(tile, true, p, c, deep - c, to + c, step);
  else if (c < deep) transform_in(tile, false, p, c, deep - c, to + c, step);
}

typedef struct place {  // image and first output pixel of a tile
  int64_t batch, y, x;
} place;

static place place_of(const itg_winograd *g, int64_t i) {
  const int64_t image = g->down * g->across, in = i % image;
  return (place){i / image, in / g->across * g->tile, in % g->across * g->tile};
}

static void find_patch(const itg_winograd *g, const float *x, const float *zeros, int64_t number,
                       patch *p) {
  const place at = place_of(g, number);
  const int64_t y0 = at.y - g->w.before[1], x0 = at.x - g->w.before[2], high = g->w.in[1],
                wide = g->w.in[2];
  const float *image = x + at.batch * high * wide * g->deep;
  p->pixel = g->deep;
  p->line = wide * g->deep;
  p->first = NULL;
  if (y0 >= 0 && x0 >= 0 && y0 + g->size <= high && x0 + g->size <= wide) {
    p->first = image + (y0 * wide + x0) * g->deep;
    return;
  }
  for (int64_t i = 0; i < g->size; i++)
    for (int64_t j = 0; j < g->size; j++) {
      const bool inside = y0 + i >= 0 && y0 + i < high && x0 + j >= 0 && x0 + j < wide;
      p->at[i * g->size + j] = inside ? image + ((y0 + i) * wide + x0 + j) * g->deep : zeros;
    }
}

// ---- products -----------------------------------------------------------------------------------
enum { GROUPS = ITG_WINOGRAD_ROWS / 2 + 1 };  // most register tiles of rows
enum { FAR = 128 << 10 };  // floats of weights above which the L2 cache may not keep them

// Multiplies the rows of `count` tiles with panels [first, last) at every point.
static void multiply(const itg_winograd *g, const float *w, const float *in, float *out,
                     int64_t count, int64_t first, int64_t last) {
  const itg_finish end = {.lo = -__builtin_inff(), .hi = __builtin_inff()};
  itg_tap taps[GROUPS];
  itg_rows rows[GROUPS];
  const int64_t groups = (count + ITG_TILE_M - 1) / ITG_TILE_M, panel = g->deep * ITG_PANEL;
  const int wide = itg_tile_panels(count < ITG_TILE_M ? (int)count : ITG_TILE_M);
  const int64_t columns =
      (last * ITG_PANEL < g->channels ? last * ITG_PANEL : g->channels) - first * ITG_PANEL;
  for (int64_t i = 0; i < groups; i++) {
    const int64_t r = itg_split(count, groups, i);
    rows[i] = (itg_rows){
        &taps[i],          1, g->deep, {0}, (int)(itg_split(count, groups, i + 1) - r), NULL,
        groups > 2 ? 1 : 2};
    taps[i].at = 0;
    for (int m = 0; m < rows[i].rows; m++) {
      taps[i].row[m] = in + (r + m) * g->row;
      rows[i].out[m] = (r + m) * g->span;
    }
  }
  const bool far = g->points * g->panels * panel > FAR;
  for (int64_t k = 0; k < g->points; k++, out += g->out_step) {
    const float *b = w + (k * g->panels + first) * panel;
    // Each register tile prefetches a share of the weights of the next point.
    const float *next = far && k + 1 < g->points ? b + g->panels * panel : NULL;
    const int64_t share =
        (last - first < wide ? last - first : wide) * g->deep / groups * ITG_PANEL;
    for (int64_t p = 0; p < last - first; p += wide, b += wide * panel) {
      const int64_t left = columns - p * ITG_PANEL,
                    n = left < wide * ITG_PANEL ? left : wide * ITG_PANEL;
      for (int64_t i = 0; i < groups; i++) {
        rows[i].ahead = next ? next + p * panel + i * share : NULL;
        itg_tile(&rows[i], b, panel, p * ITG_PANEL, n, out, &end);
      }
    }
    for (int64_t i = 0; i < groups; i++)
      for (int m = 0; m < rows[i].rows; m++) taps[i].row[m] += g->in_step;
  }
}

// ---- output -------------------------------------------------------------------------------------
typedef struct canvas {     // the output pixels of a tile
  int64_t at, line, pixel;  // index of the first pixel; distances of lines and of pixels
  int64_t high, wide;       // lines and columns that are inside the image
} canvas;

INLINE void put(float *p, int64_t n, vf v) {
  if (n >= VL) vstore(p, v);
  else vstoren(p, n, v);
}

// Transforms the products at all points to pixels, for n output channels from `column` on.
INLINE void transform_out(const int tile, const float *from, int64_t step, const canvas *c,
                          int64_t column, int64_t n, float *out, const itg_finish *end) {
  const int size = tile + 2;
  const vf lo = vset(end->lo), hi = vset(end->hi),
           bias = end->bias ? get(end->bias + column, n) : vset(0.f);
  const float *before = end->add_last ? NULL : end->residual,
              *after = end->add_last && !end->act ? end->residual : NULL;
  vf half[SIZE][TILE], x[SIZE], y[TILE];
  FOR_UNROLLED (1, int i = 0; i < size; i++) {
    FOR_UNROLLED (8, int j = 0; j < size; j++) x[j] = vload(from + (i * size + j) * step);
    pixels_of(tile, x, half[i]);
  }
  FOR_UNROLLED (1, int j = 0; j < c->wide; j++) {
    FOR_UNROLLED (8, int i = 0; i < size; i++) x[i] = half[i][j];
    pixels_of(tile, x, y);
    FOR_UNROLLED (8, int i = 0; i < tile; i++) {
      if (i >= c->high) break;
      const int64_t at = c->at + i * c->line + j * c->pixel + column;
      vf sum = vadd(y[i], bias);
      if (before) sum = vadd(sum, get(before + at, n));
      sum = vmin(hi, vmax(lo, sum));
      if (after) sum = vadd(sum, get(after + at, n));
      put(out + at, n, sum);
    }
  }
}

INLINE void tile_out(const int tile, const float *from, int64_t step, const canvas *c,
                     int64_t first, int64_t columns, float *out, const itg_finish *end) {
  int64_t i = 0;
  for (; i + VL <= columns; i += VL)
    transform_out(tile, from + i, step, c, first + i, VL, out, end);
  if (i < columns) transform_out(tile, from + i, step, c, first + i, columns - i, out, end);
}

// Applies an activation other than bounds to the pixels of a tile.
static void activate(const canvas *c, int64_t first, int64_t columns, float *out,
                     const itg_finish *end) {
  const bool whole = columns == c->pixel;  // all channels: a line is contiguous
  const int64_t runs = whole ? 1 : c->wide, n = whole ? c->wide * columns : columns;
  for (int64_t i = 0; i < c->high; i++)
    for (int64_t j = 0; j < runs; j++) {
      const int64_t at = c->at + i * c->line + j * c->pixel + first;
      itg_bend(end, out + at, n, first, columns);
      if (end->residual && end->add_last)
        for (int64_t k = at; k < at + n; k++) out[k] += ((const float *)end->residual)[k];
    }
}

// ---- the whole ----------------------------------------------------------------------------------
INLINE void run_block(const int tile, const itg_winograd *g, const itg_call *call,
                      const itg_finish *end, float *scratch, int64_t from, int64_t to,
                      int64_t first, int64_t last) {
  float *in = scratch + g->zeros, *made = in + g->points * g->in_step, *out = call->out[0]->data;
  patch p;
  for (int64_t i = from; i < to; i++) {
    find_patch(g, call->in[0]->data, scratch, i, &p);
    tile_in(tile, &p, g->deep, in + (i - from) * g->row, g->in_step);
  }
  const int64_t most = ITG_WINOGRAD_PANELS, spans = (last - first + most - 1) / most;
  for (int64_t s = 0; s < spans; s++) {
    const int64_t a = first + itg_split(last - first, spans, s),
                  b = first + itg_split(last - first, spans, s + 1);
    const int64_t column = a * ITG_PANEL,
                  stop = b * ITG_PANEL < g->channels ? b * ITG_PANEL : g->channels;
    multiply(g, call->in[1]->data, in, made, to - from, a, b);
    for (int64_t i = from; i < to; i++) {
      const place at = place_of(g, i);
      const int64_t down = g->w.out[1] - at.y, across = g->w.out[2] - at.x;
      const canvas c = {((at.batch * g->w.out[1] + at.y) * g->w.out[2] + at.x) * g->channels,
                        g->w.out[2] * g->channels, g->channels, down < tile ? down : tile,
                        across < tile ? across : tile};
      tile_out(tile, made + (i - from) * g->span, g->out_step, &c, column, stop - column, out, end);
      if (end->act) activate(&c, column, stop - column, out, end);
    }
  }
}

#define BLOCK(tile)                                                                            \
  static void block_##tile(const itg_winograd *g, const itg_call *call, const itg_finish *end, \
                           float *scratch, int64_t from, int64_t to, int64_t first,            \
                           int64_t last) {                                                     \
    run_block(tile, g, call, end, scratch, from, to, first, last);                             \
  }
BLOCK(2)
BLOCK(4)
BLOCK(6)

ITG_FN(winograd, f32) {
  const itg_attrs_winograd *a = call->attrs;
  itg_winograd g;
  itg_tensor out;
  itg_winograd_of(call, &g, &out);
  const itg_finish end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  float *scratch = (float *)((char *)call->scratch + g.bytes * part);
  int64_t from = 0, to = g.tiles, first = 0, last = g.panels;
  // With few tiles and many channels threads split the channels: each transforms all of the input,
  // but reads only its own weights.
  if (g.tiles < (int64_t)parts * ITG_WINOGRAD_ROWS / 2 && last >= 2 * (int64_t)parts)
    itg_share(last, 1, part, parts, &first, &last);
  else itg_share(g.tiles, 1, part, parts, &from, &to);
  if (from >= to || first >= last) return NULL;
  memset(scratch, 0, g.zeros * sizeof *scratch);
  const int64_t blocks = (to - from + g.block - 1) / g.block;
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t r = from + itg_split(to - from, blocks, i),
                  s = from + itg_split(to - from, blocks, i + 1);
    (g.tile == 2   ? block_2
     : g.tile == 4 ? block_4
                   : block_6)(&g, call, &end, scratch, r, s, first, last);
  }
  return NULL;
}
