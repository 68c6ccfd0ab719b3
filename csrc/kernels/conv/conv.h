// Sizes of convolution and transposed convolution. Both are computed as a list of taps and input
// pixels for each output pixel.
#pragma once
#include "gemm/tile.h"
#include "window.h"

typedef struct itg_conv {
  itg_window w;
  int64_t batch, channels, deep, per,
      groups;      // deep: input channels of a group; per: its output channels
  int64_t depth;   // rows of the packed weights: taps * deep
  int64_t panels;  // of each group
  bool transposed;
} itg_conv;

// Counts pairs of channels instead of floats, for 16-bit elements (tile.h).
static inline void itg_in_pairs(itg_conv *c) {
  c->deep /= 2;
  c->depth /= 2;
}

itg_words itg_conv_of(const itg_call *call, itg_conv *c, itg_tensor *out);
itg_words itg_conv_transpose_of(const itg_call *call, itg_conv *c, itg_tensor *out);

// One axis of a set of output pixels with the same taps: pixel q of the set is output pixel
// first + q * step, and its tap i reads input pixel q * stride + at[i]. A convolution has one such
// set, a transposed convolution `stride` of them.
typedef struct itg_way {
  int64_t count, first, step, stride, taps, low, high;  // low, high: smallest and largest at[i]
  int64_t *at, *tap;                                    // tap: which tap of the window it is
} itg_way;

static inline void itg_way_of(const itg_conv *c, int i, int64_t phase, int64_t *space,
                              itg_way *axis) {
  const itg_window *w = &c->w;
  *axis = (itg_way){w->out[i], 0,         1,     w->stride[i],        0,
                    INT64_MAX, INT64_MIN, space, space + w->kernel[i]};
  if (c->transposed) {
    axis->first = phase;
    axis->step = w->stride[i];
    axis->stride = 1;
    axis->count = (w->out[i] - phase + w->stride[i] - 1) / w->stride[i];
  }
  for (int64_t k = 0; k < w->kernel[i]; k++) {
    int64_t at = k * w->dilation[i] - w->before[i];
    if (c->transposed) {
      int64_t reach = phase + w->before[i] - k * w->dilation[i];
      if (reach % w->stride[i]) continue;
      at = reach / w->stride[i];
    }
    if (at < axis->low) axis->low = at;
    if (at > axis->high) axis->high = at;
    axis->at[axis->taps] = at;
    axis->tap[axis->taps++] = k;
  }
  if (!axis->taps) axis->low = axis->high = 0;
}

static inline int64_t itg_phases(const itg_conv *c, int i) {  // sets of pixels along axis i
  if (!c->transposed) return 1;
  return c->w.stride[i] < c->w.out[i] ? c->w.stride[i] : c->w.out[i];
}
