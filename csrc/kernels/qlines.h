// How a depthwise convolution of bytes in steps of one keeps the lines that it reads: padded, so that what a tap sees
// of a whole line of the output is one unbroken run of bytes. Vectors run over pixels and channels alike; channels
// repeat after `phases` vectors.
#pragma once
#include "window.h"

enum { ITG_QSLOTS = 16, ITG_QPHASES = 32, ITG_QVECTOR = 64 };  // QVECTOR: bytes of the widest vector

typedef struct itg_qlines {
  int64_t high, wide;  // lines kept along the outer two axes of the window, dilated
  int64_t size;        // bytes of one, with room to read on
  int64_t phases;      // of the widest vector
  size_t tables, total;
} itg_qlines;

static inline int64_t itg_qphases(int64_t channels, int64_t vector) {
  while (channels % 2 == 0 && vector > 1) channels /= 2, vector /= 2;
  return channels;
}

// false: this convolution goes pixel by pixel
static inline bool itg_qlines_of(const itg_window *w, int64_t channels, itg_qlines *l) {
  const int64_t reach = (w->kernel[2] - 1) * w->dilation[2];
  l->phases = itg_qphases(channels, ITG_QVECTOR);
  if (w->stride[2] != 1 || l->phases > ITG_QPHASES || reach > 64) return false;
  if (w->dilation[0] > ITG_QSLOTS || w->dilation[1] > ITG_QSLOTS) return false;
  l->high = (w->kernel[0] - 1) * w->dilation[0] + 1;
  l->wide = (w->kernel[1] - 1) * w->dilation[1] + 1;
  if (l->high > ITG_QSLOTS || l->wide > ITG_QSLOTS || l->high * l->wide > ITG_QSLOTS) return false;
  l->size = ((w->out[2] + reach) * channels + 2 * ITG_QVECTOR - 1) / ITG_QVECTOR * ITG_QVECTOR;
  const size_t fours = (size_t)(itg_taps(w) + 3) / 4;
  l->tables = (size_t)l->phases * (fours + 2) * 4 * ITG_QVECTOR;
  l->total = l->tables + (size_t)((l->high * l->wide + 1) * l->size);
  return true;
}
