// Parameters and helpers that the 8-bit convolutions share.
#pragma once
#include "qdepthwise.h"
#include "qtile.h"
#include "window.h"

enum {  // inputs after those of the requantisation
  ITG_QCONV_SECOND = 7,
  ITG_QCONV_ZERO,  // zero point and scale of the image that are known only at run time,
  ITG_QCONV_SCALE,
  ITG_QCONV_SUMS,  // and the sum of the weights of each channel; all three or none
};

enum itg_qrun {
  ITG_QRUN_TAP,
  ITG_QRUN_LINE,
  ITG_QRUN_WINDOW
};  // how much of a window is one contiguous run of inputs

typedef struct itg_qconv {
  itg_window w;
  int64_t batch, channels, groups, deep, per;  // deep, per: input and output channels of a group
  enum itg_qrun joined;
  int64_t run;     // input bytes of a run: of a tap, of a line of the window, or of all of it
  int64_t runs;    // of one window
  int64_t fours;   // groups of four bytes of a run
  int64_t second;  // groups of four bytes whose weights have a second part (second_rows)
  int64_t rows;    // of a packed panel: all groups of four bytes, then the second parts
  int64_t panels;  // of each group
  int flip;        // 0x80 if inputs are i8: xor with it makes them u8
  uint8_t fill;    // byte that stands for padding, of the image's type
  bool direct;     // 1x1 windows without padding: the image is read in place
  bool dynamic;    // the image's zero point and scale are inputs
} itg_qconv;

itg_words itg_qconv_of(const itg_call *call, itg_qconv *c, itg_tensor *out);
// Checks that qconv and qwinograd share: itg_qconv_endings all operands except the shapes of image,
// weights and residual, itg_qconv_residual the residual.
itg_words itg_qconv_endings(const itg_call *call, const itg_attrs_qconv *a, uint8_t weights,
                            itg_tensor *out);
itg_words itg_qconv_residual(const itg_call *call, const itg_attrs_qconv *a, const itg_tensor *out);
itg_words itg_qdepthwise_of(const itg_call *call, itg_qdepth *d, itg_tensor *out);

enum {
  ITG_QIMAGE = 96 << 10,  // bytes of the image that are copied at a time
  ITG_QPIXELS = 128,      // output pixels that are multiplied with all panels before the next ones
  ITG_QCLASSES = 12,      // most sets of taps that lie inside the image (class in qconv.c)
  ITG_QENTRIES = 4096,    // of the largest table
};

typedef struct itg_qlayout {   // scratch memory of one thread, in bytes
  int64_t line, lines, plane;  // copied part of the image: bytes of a line, lines, bytes of a plane
  int64_t rows;                // output lines that need this part
  int64_t taps;                // most taps of a class
  uint64_t image, gather, end, lists, bias, now, total;  // now: bias and scale with those inputs
} itg_qlayout;

// The layout is the same for every ISA. Returns false if a size overflows.
// Fewer pixels never need more than more of them: there is room for a whole block, even if the
// lines of a narrower image fill it better.
static inline bool itg_qlayout_of(const itg_qconv *c, itg_qlayout *l) {
  const itg_window *w = &c->w;
  const int64_t most = INT64_C(1) << 31, read = c->fours * ITG_FOUR, pixel = c->deep * c->groups;
  memset(l, 0, sizeof *l);
  l->taps = w->kernel[0] * w->kernel[1] * (c->joined == ITG_QRUN_TAP ? w->kernel[2] : 2);
  l->taps += c->second;
  if (!c->direct) {
    const int64_t reach = (w->kernel[1] - 1) * w->dilation[1] + 1;
    l->line = (w->out[2] - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1;
    if (__builtin_mul_overflow(l->line, pixel, &l->line) || l->line > most) return false;
    l->line = (l->line + 63) / 64 * 64 + 64;  // avoids a power of two, which causes cache conflicts
    l->rows = ITG_QIMAGE / l->line / w->kernel[0];
    l->rows = l->rows > reach ? (l->rows - reach) / w->stride[1] + 1 : 1;
    l->rows = l->rows < w->out[1] ? l->rows : w->out[1];
    l->lines = (l->rows - 1) * w->stride[1] + reach;
    if (__builtin_mul_overflow(l->line, l->lines, &l->plane) || l->plane > most / w->kernel[0])
      return false;
    int64_t room = l->plane * w->kernel[0], whole = (w->out[1] - 1) * w->stride[1] + reach;
    if (__builtin_mul_overflow(whole, l->line * w->kernel[0], &whole) || whole > ITG_QIMAGE)
      whole = ITG_QIMAGE;
    if (room < whole) room = whole;
    l->image = (uint64_t)room + 64 + ((uint64_t)read + 63) / 64 * 64;
  }
  if (read > most / ITG_QPIXELS || l->taps > most / 64) return false;
  if (c->joined == ITG_QRUN_WINDOW) l->gather = (uint64_t)(read * ITG_QPIXELS + 64 + 63) / 64 * 64;
  l->end = ((uint64_t)(2 * read) + 63) / 64 * 64;  // also holds a run of padding
  l->lists = ((uint64_t)(2 * ITG_QCLASSES * l->taps) * sizeof(itg_qtap) + 63) / 64 * 64;
  l->bias = ((uint64_t)(ITG_QCLASSES * c->channels) * 4 + 63) / 64 * 64;
  l->now = c->dynamic ? ((uint64_t)c->channels * 8 + 63) / 64 * 64 : 0;
  l->total = l->image + l->gather + l->end + l->lists + l->bias + l->now;
  return true;
}

typedef struct itg_qconv_prepared {  // itg_prepared(call) of qconv
  itg_qconv c;
  itg_qlayout l;
  bool empty;  // the result has no elements
  bool wide;  // threads split the channels: that saves more bytes of weights than it costs, because
              // every thread then reads the whole image
} itg_qconv_prepared;

typedef struct itg_qdepth_prepared {  // and of qdepthwise
  itg_qdepth d;
  int64_t batch;
  bool empty;
} itg_qdepth_prepared;

// The requantisation of a call. The table is copied to `entries`, padded with zeros.
static inline itg_requantize itg_qconv_end(const itg_call *call, const itg_attrs_qconv *a,
                                           uint8_t entries[ITG_QENTRIES]) {
  const itg_tensor *scale = itg_input(call, 3), *residual = itg_input(call, 4),
                   *table = itg_input(call, 5);
  const bool bytes = a->dtype == ITG_U8 || a->dtype == ITG_I8;
  itg_requantize to =
      itg_requantize_of(call->in[2]->data, scale ? scale->data : NULL, scale ? a->channels : 0,
                        a->y_zero, a->lo, a->hi, a->dtype == ITG_I8);
  to.kind = bytes ? ITG_Q_BYTES : a->dtype == ITG_F32 ? ITG_Q_FLOATS : ITG_Q_SUMS;
  if (residual && bytes)
    itg_requantize_residual(&to, residual->data, a->r_zero, (float)a->r_scale,
                            residual->dtype == ITG_I8);
  else if (residual) to.residual = residual->data;
  if (table) {
    to.entries = a->hi - a->lo + 1;
    to.zero = (int32_t)(a->y_zero - a->lo);
    to.high = 0;
    memset(entries, 0, ITG_QENTRIES);
    to.table = memcpy(entries, table->data, (size_t)itg_count(table));
  }
  if (table && table->rank == 2) {
    to.pieces = (int)table->shape[1];
    to.flip = a->dtype == ITG_I8 ? 0 : 0x80;
    to.saturates = false;  // numbers are not narrowed to bytes before the lookup
    while (((to.entries - 1) >> to.shift) >= to.pieces) to.shift++;
    itg_q_move_lines(&to, entries);
  }
  return to;
}
