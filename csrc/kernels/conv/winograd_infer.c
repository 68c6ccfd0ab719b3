// Types, shapes and refusals of Winograd convolution, and the size of its blocks of tiles.
#include "winograd.h"

enum {
  CACHE = 96 << 10,  // floats that stay in the L2 cache
  FEWEST = 14,       // tiles that are worth reading the weights for
};

// The number of tiles of a block. Every block reads all weights, so it should be large; but its
// transformed inputs and products should stay in the cache.
static int64_t block_of(const itg_winograd *g) {
  int64_t fit = CACHE / (g->points * (g->row + g->span));
  fit = fit < FEWEST              ? FEWEST
        : fit > ITG_WINOGRAD_ROWS ? ITG_WINOGRAD_ROWS
                                  : fit / ITG_TILE_ROWS * ITG_TILE_ROWS;
  return fit < g->tiles ? fit : g->tiles;
}

itg_words itg_winograd_of(const itg_call *call, itg_winograd *g, itg_tensor *out) {
  TAKES(2, 5, 1);
  const itg_attrs_winograd *a = call->attrs;
  const itg_tensor *x = call->in[0], *w = call->in[1];
  const int64_t kernel[2] = {3, 3}, one[2] = {1, 1};
  REFUSE(x->dtype != ITG_F32 || w->dtype != ITG_F32, "takes f32");
  REFUSE(x->rank != 4, "takes images of two spatial axes");
  REFUSE(a->tile != 2 && a->tile != 4 && a->tile != 6, "tile must be 2, 4 or 6");
  REFUSE(a->channels < 0, "the number of output channels is negative");
  itg_words words = itg_window_of(x, 1, 2, kernel, one, one, a->pad, &g->w);
  if (words) return words;
  g->batch = x->shape[0];
  g->deep = x->shape[3];
  g->channels = a->channels;
  g->panels = a->channels / ITG_PANEL + (a->channels % ITG_PANEL != 0);
  g->tile = a->tile;
  g->size = a->tile + 2;
  g->points = g->size * g->size;
  REFUSE(g->deep < 1 || g->deep > INT64_C(1) << 32, "the image has no channels or absurdly many");
  const int64_t want[4] = {g->points, g->panels, g->deep, ITG_PANEL};
  REFUSE(!itg_has_shape(w, 4, want), "the weights are not packed for this convolution");
  itg_copy_type(out, x);
  out->shape[3] = a->channels;
  words = itg_slide(&g->w, 1, 2, a->pad, out);
  if (words) return words;
  g->down = (g->w.out[1] + g->tile - 1) / g->tile;
  g->across = (g->w.out[2] + g->tile - 1) / g->tile;
  g->tiles = itg_count(out) ? g->batch * g->down * g->across : 0;
  g->row = (g->deep + ITG_PANEL - 1) / ITG_PANEL * ITG_PANEL;
  g->span = (g->panels < ITG_WINOGRAD_PANELS ? g->panels : ITG_WINOGRAD_PANELS) * ITG_PANEL;
  g->block = block_of(g);
  // One cache line more than the rows take: if points lay a power of two apart, they would evict
  // each other from the cache.
  g->in_step = g->block * g->row + ITG_PANEL;
  g->out_step = g->block * g->span + ITG_PANEL;
  g->zeros = (uint64_t)g->row;
  g->bytes = (g->zeros + (uint64_t)(g->points * (g->in_step + g->out_step))) * sizeof(float);
  return NULL;
}

itg_words itg_infer_winograd(const itg_call *call, itg_tensor *out) {
  const itg_attrs_winograd *a = call->attrs;
  itg_winograd g;
  itg_words words = itg_winograd_of(call, &g, out);
  return words ? words : itg_check_epilogue(call, out, a->act, a->add_last);
}

uint64_t itg_scratch_winograd(const itg_call *call, uint32_t parts) {
  itg_winograd g;
  itg_tensor out;
  return itg_winograd_of(call, &g, &out) || !g.tiles ? 0 : g.bytes * parts;
}
