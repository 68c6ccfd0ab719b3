// Layout of depthwise convolutions of bytes. Four bytes that meet four weights of one channel lie
// next to each other: the image is interleaved ("woven"). They are the bytes that four lines of the
// window see in one column; 16 channels of a column are 64 bytes. With a vertical stride of one, an
// interleaved column serves two output lines: the weights of the second are those of the first,
// moved down by one line.
#pragma once
#include "qtile.h"
#include "window.h"

enum { ITG_QTAPS = 64, ITG_QREACH = 4096 };   // of the largest window, and what it spans of a line
enum { ITG_QBLOCK16 = 16, ITG_QPLACE = 64 };  // channels of a block, bytes of four taps of these

typedef struct itg_qdepth {
  itg_window w;
  int64_t channels, blocks;          // blocks of 16 channels
  int64_t outs;                      // lines of output that one weave serves
  int64_t high, wide;                // groups of four taps: down and along
  int64_t groups;                    // blocks that are woven together
  int64_t strip;                     // output pixels of a line that are made together
  int64_t columns;                   // woven places of them
  int64_t five_columns, five_slots;  // of 5x5 windows (qdepthwise_5x5.h): woven places, groups of
                                     // lines; no slots: another way
  size_t total;                      // bytes of scratch memory
} itg_qdepth;

// 5x5 windows whose groups of four lines stay near: as many groups as the first cache keeps of 64
// channels.
static inline void itg_qfives_of(itg_qdepth *d) {
  const itg_window *w = &d->w;
  d->five_slots = 0;
  const bool five = w->kernel[0] == 1 && w->kernel[1] == 5 && w->kernel[2] == 5 &&
                    w->dilation[1] == 1 && w->dilation[2] == 1 && w->stride[1] <= 2 &&
                    w->stride[1] == w->stride[2];
  if (!five || w->out[2] < 1 || w->out[2] > 128) return;
  d->five_columns = ((w->out[2] < 7 ? 7 : w->out[2]) - 1) * w->stride[2] + 5;
  d->five_slots = (24 << 10) / (d->five_columns * 4 * ITG_QPLACE);
  if (d->five_slots < 2) d->five_slots = 2;
  const size_t total = (size_t)(4 * d->five_slots * d->five_columns * ITG_QPLACE);
  d->total = d->total > total ? d->total : total;
}

// `w` has its `out`.
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
  const int64_t most = (20 << 10) / (d->high * d->groups * ITG_QPLACE);  // of the first cache
  d->strip = reach < most ? (most - reach) / step : 0;
  if (d->strip < 8) d->strip = 8;
  if (d->strip > w->out[2]) d->strip = w->out[2];
  const int64_t strips = (w->out[2] + d->strip - 1) / (d->strip ? d->strip : 1);
  d->strip = strips ? (w->out[2] + strips - 1) / strips : 0;
  const int64_t made = d->strip < 4 ? 4 : d->strip;  // pixels come in fours
  d->columns = (made - 1) * step + reach + 1;
  d->total = (size_t)(d->high * d->groups * d->columns * ITG_QPLACE);
  itg_qfives_of(d);
  return NULL;
}
