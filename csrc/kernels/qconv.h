// What the 8-bit convolutions are given.
#pragma once
#include "qdepth.h"
#include "qtile.h"
#include "window.h"

typedef struct itg_qconv {
  itg_window w;
  int64_t batch, channels, groups, deep, per;  // deep, per: input and output channels of a group
  int64_t run;                                 // bytes that lie together in the image and in a panel: a tap, or a line
  int64_t taps;                                // such runs of one window
  int64_t fours;                               // groups of four of each
  int64_t panels;                              // of each group
  int flip;                                    // what makes an input byte u8
  uint8_t fill;                                // what padding reads as, a byte like those of the image
} itg_qconv;

itg_words itg_qconv_of(const itg_call *call, itg_qconv *c, itg_tensor *out);
itg_words itg_qdepthwise_of(const itg_call *call, itg_qdepth *d, itg_tensor *out);

typedef struct itg_qlayout {  // of the scratch memory that one part of the work has, in bytes
  int64_t block;              // tiles that go through the panels together
  size_t fill, end, lists, edges, total;
} itg_qlayout;

enum { ITG_QBLOCK = 16 };

// The same for every ISA: it speaks of ITG_QTILE_ROWS, not of what one of them has.
static inline itg_qlayout itg_qlayout_of(const itg_qconv *c) {
  itg_qlayout l = {1, 0, 0, 0, 0, 0};
  const int64_t lists = 1024 / c->taps;
  if (c->taps * c->fours * c->per > 96 << 10) {  // weights larger than half a cache: several tiles per pass over them
    l.block = (256 << 10) / (c->deep * ITG_QTILE_ROWS + 1);
    l.block = l.block > ITG_QBLOCK ? ITG_QBLOCK : l.block;
    l.block = l.block > lists ? lists : l.block;
    l.block = l.block < 1 ? 1 : l.block;
  }
  const int64_t read = c->fours * ITG_FOUR;
  l.fill = ((size_t)read + 63) & ~(size_t)63;
  l.end = ((size_t)(2 * read) + 63) & ~(size_t)63;
  l.lists = (size_t)(l.block * c->taps) * sizeof(itg_qtap);
  if (c->run > c->deep) l.edges = (size_t)(l.block * ITG_QTILE_ROWS * c->taps * read);
  l.total = (l.fill + l.end + l.lists + l.edges + 63) & ~(size_t)63;
  return l;
}
