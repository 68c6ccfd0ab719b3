// Types, shapes and refusals of Winograd convolution of bytes, and the size of its blocks of tiles.
#include "qwinograd.h"

enum {
  CACHE = 384 << 10,  // bytes that stay in the L2 cache
  FEWEST = 12,        // tiles that are worth reading the weights for
};

// The number of tiles of a block. Every block reads all weights, so it should be large; but its
// transformed inputs and products should stay in the cache.
static int64_t block_of(const itg_qwinograd *g) {
  int64_t fit = CACHE / (ITG_QW_POINTS * g->row * 2 + g->span * 4);
  fit = fit < FEWEST ? FEWEST : fit > ITG_QW_ROWS ? ITG_QW_ROWS : fit / FEWEST * FEWEST;
  return fit < g->tiles ? fit : g->tiles;
}

itg_attrs_qconv itg_qwinograd_like(const itg_attrs_qwinograd *a) {
  return (itg_attrs_qconv){.channels = a->channels,
                           .x_zero = a->x_zero,
                           .y_zero = a->y_zero,
                           .lo = a->lo,
                           .hi = a->hi,
                           .dtype = a->dtype,
                           .r_zero = a->r_zero,
                           .r_scale = a->r_scale};
}

// The type of an image that is stored in squares, as if it were stored line by line.
static itg_words whole_image(const itg_tensor *x, int64_t square, itg_tensor *whole) {
  REFUSE(x->rank != 4, "takes images of two spatial axes");
  REFUSE(square != 1 && square != 2, "pixels lie in lines or in squares of two by two");
  REFUSE(x->shape[1] > INT64_C(1) << 31 || x->shape[2] > INT64_C(1) << 31,
         "the image is absurdly large");
  REFUSE(x->shape[3] % (square * square), "the channels are not those of whole squares");
  *whole = *x;
  whole->shape[1] *= square;
  whole->shape[2] *= square;
  whole->shape[3] /= square * square;
  return NULL;
}

itg_words itg_qwinograd_of(const itg_call *call, itg_qwinograd *g, itg_tensor *out) {
  const itg_attrs_qwinograd *a = call->attrs;
  const itg_attrs_qconv like = itg_qwinograd_like(a);
  const int64_t kernel[2] = {3, 3}, one[2] = {1, 1};
  TAKES(3, 7, 1);
  itg_call first = *call;  // without input 6: here the second image, in qconv the zeros of weights
  first.n_in = call->n_in < 6 ? call->n_in : 6;
  itg_words words = itg_qconv_endings(&first, &like, ITG_I16, out);
  if (words) return words;
  REFUSE(a->dtype == ITG_I32, "the sums themselves are not kept");
  const itg_tensor *more = itg_input(call, 6);
  itg_tensor x, y = {0};
  words = whole_image(call->in[0], a->square[0], &x);
  if (!words && more) words = whole_image(more, a->square[1], &y);
  if (!words) words = itg_window_of(&x, 1, 2, kernel, one, one, a->pad, &g->w);
  if (words) return words;
  memset(g->image, 0, sizeof g->image);
  g->deep = g->image[0].deep = x.shape[3];
  g->image[0].squares = a->square[0] == 2;
  REFUSE(g->deep < 1 || g->deep > INT64_C(1) << 31, "the image has no channels or absurdly many");
  if (more) {
    REFUSE(y.dtype != x.dtype || y.shape[0] != x.shape[0] || y.shape[1] != x.shape[1] ||
               y.shape[2] != x.shape[2],
           "the second image has not the type and pixels of the first");
    REFUSE(g->deep % ITG_QW_LANES, "a second image begins at no multiple of 16 channels");
    REFUSE(y.shape[3] < 1 || y.shape[3] > INT64_C(1) << 31,
           "the second image has no channels or absurdly many");
    g->image[1].deep = y.shape[3];
    g->image[1].squares = a->square[1] == 2;
    g->deep += y.shape[3];
  }
  g->channels = a->channels;
  g->panels = a->channels / ITG_PANEL + (a->channels % ITG_PANEL != 0);
  // Weights are packed in one of two forms: a head (qwinograd_products.h) and channels padded to a
  // multiple of four, or no head and channels padded to a multiple of two.
  g->pairs = (g->deep + 3) / 4 * 2;
  const int64_t headed[4] = {ITG_QW_POINTS, g->panels, g->pairs + 1, ITG_QW_PAIR};
  g->head = itg_has_shape(call->in[1], 4, headed);
  if (!g->head) g->pairs = (g->deep + 1) / 2;
  g->panel = (g->pairs + g->head) * ITG_QW_PAIR;
  const int64_t bare[4] = {ITG_QW_POINTS, g->panels, g->pairs, ITG_QW_PAIR};
  REFUSE(!g->head && !itg_has_shape(call->in[1], 4, bare),
         "the weights are not packed for this convolution");
  words = itg_slide(&g->w, 1, 2, a->pad, out);
  if (words) return words;
  words = itg_qconv_residual(call, &like, out);
  if (words) return words;
  g->down = (g->w.out[1] + ITG_QW_TILE - 1) / ITG_QW_TILE;
  g->across = (g->w.out[2] + ITG_QW_TILE - 1) / ITG_QW_TILE;
  g->tiles = itg_count(out) ? x.shape[0] * g->down * g->across : 0;
  g->row = (g->deep + ITG_QW_LANES - 1) / ITG_QW_LANES * ITG_QW_LANES;
  g->span = (g->panels < ITG_QW_PANELS ? g->panels : ITG_QW_PANELS) * ITG_PANEL * ITG_QW_POINTS;
  g->block = block_of(g);
  // One cache line more than the rows take: if points lay a power of two apart, they would evict
  // each other from the cache.
  g->in_step = g->block * g->row + 2 * ITG_QW_LANES;
  g->fill = ((uint64_t)g->row + 63) / 64 * 64;
  g->in =
      (uint64_t)(ITG_QW_POINTS * g->in_step + 8 * g->row) * 2;  // find_cross reads 8 rows at once
  g->bytes =
      g->fill + g->in +
      (uint64_t)(g->block * g->span + g->panels * ITG_PANEL + ITG_QW_POINTS * ITG_QW_CROSS) * 4;
  return NULL;
}

itg_words itg_infer_qwinograd(const itg_call *call, itg_tensor *out) {
  itg_qwinograd g;
  return itg_qwinograd_of(call, &g, out);
}

uint64_t itg_scratch_qwinograd(const itg_call *call, uint32_t parts) {
  itg_qwinograd g;
  itg_tensor out;
  return itg_qwinograd_of(call, &g, &out) || !g.tiles ? 0 : g.bytes * parts;
}
