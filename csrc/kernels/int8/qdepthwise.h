// Layout of depthwise convolutions of bytes. The image is interleaved, so that one instruction
// multiplies four taps of a channel: a place has 64 bytes, [16 channels][4 lines], the bytes of one
// column in four lines of the window. With a vertical stride of one, an interleaved column serves
// two output lines: the weights of the second are those of the first, moved down by one line.
// Weights that need nine bits (u8 with a zero point) are the sum of two parts of i8. The second
// part is zero in most blocks of channels, which then cost no more than weights of one part.
#pragma once
#include "qtile.h"
#include "window.h"

enum { ITG_QTAPS = 64, ITG_QREACH = 4096 };  // largest window: taps, columns between first and last
enum { ITG_QBLOCK16 = 16, ITG_QPLACE = 64 };  // channels of a block, bytes of a place

typedef struct itg_qdepth {
  itg_window w;
  int64_t channels, blocks;          // blocks of 16 channels
  int64_t outs;                      // output lines that one interleaved line serves
  int64_t high, wide;                // groups of four lines of a window, columns of a window
  int64_t parts;                     // of the weights: 1 or 2
  int64_t groups;                    // blocks that are interleaved together
  int64_t strip;                     // output pixels of a line that are computed together
  int64_t columns;                   // places that they need
  int64_t five_columns, five_slots;  // of 5x5 windows (qdepthwise_5x5.h): places of a line, groups
                                     // of four lines that are kept; 0 slots: not used
  uint64_t total;                    // bytes of scratch memory
} itg_qdepth;

// Sizes for 5x5 windows: the L1 cache keeps as many groups of four lines of 64 channels as fit.
static inline void itg_qfives_of(itg_qdepth *d) {
  const itg_window *w = &d->w;
  d->five_slots = 0;
  const bool five = w->kernel[0] == 1 && w->kernel[1] == 5 && w->kernel[2] == 5 &&
                    w->dilation[1] == 1 && w->dilation[2] == 1 && w->stride[1] <= 2 &&
                    w->stride[1] == w->stride[2];
  if (!five || w->out[2] < 1) return;
  const int64_t wide = w->out[2] < 7 ? 7 : w->out[2] > 128 ? 128 : w->out[2], near = 24 << 10;
  d->five_columns = (wide - 1) * w->stride[2] + 5;
  const int64_t slot = 4 * d->five_columns * ITG_QPLACE, slots = near / slot;
  if (w->out[2] <= 128) d->five_slots = slots < 2 ? 2 : slots;
  const uint64_t total = (uint64_t)(slots < 2 ? 2 * slot : near);  // also for narrower lines
  d->total = d->total > total ? d->total : total;
}

// Sizes for a window whose output extents are known.
static inline itg_words itg_qdepth_of(const itg_window *w, int64_t channels, itg_qdepth *d) {
  REFUSE(itg_taps(w) > ITG_QTAPS, "the window has more taps than the kernel keeps at a time");
  REFUSE(w->stride[2] > ITG_QREACH || (w->kernel[2] - 1) * w->dilation[2] > ITG_QREACH,
         "the window reaches too far");
  const int64_t lines = w->kernel[0] * w->kernel[1];
  d->w = *w;
  d->channels = channels;
  d->blocks = channels / ITG_QBLOCK16 + (channels % ITG_QBLOCK16 != 0);
  d->outs = w->kernel[0] == 1 && w->stride[1] == 1 && w->dilation[1] == 1 && lines > 1 && lines % 4
                ? 2
                : 1;
  d->high = (lines + 3) / 4;
  d->wide = w->kernel[2];
  const int64_t step = w->stride[2], reach = (d->wide - 1) * w->dilation[2];
  d->groups = d->blocks < 1 ? 1 : d->blocks < 4 ? d->blocks : 4;
  const int64_t most = (20 << 10) / (d->high * d->groups * ITG_QPLACE);  // 20 KiB of the L1 cache
  d->strip = reach < most ? (most - reach) / step : 0;
  if (d->strip < 8) d->strip = 8;
  if (d->strip > w->out[2]) d->strip = w->out[2];
  // Wider lines never need less: there is room for the longest strip, whatever theirs is.
  const int64_t longest = d->strip < 4 ? 4 : d->strip;  // four are computed at a time
  const int64_t strips = (w->out[2] + d->strip - 1) / (d->strip ? d->strip : 1);
  d->strip = strips ? (w->out[2] + strips - 1) / strips : 0;
  const int64_t pixels = d->strip < 4 ? 4 : d->strip;
  d->columns = (pixels - 1) * step + reach + 1;
  d->total = (uint64_t)(d->high * d->groups * ((longest - 1) * step + reach + 1) * ITG_QPLACE);
  itg_qfives_of(d);
  return NULL;
}
