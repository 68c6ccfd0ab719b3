// Winograd convolution F(4x4, 3x3) of bytes: the sizes of one call.
//
// The points are 0, 1, -1, 2, -2 and infinity. Transformed inputs are integers below 2^15, and so
// are the weights times 24 (times 12 at infinity). So 576 times the sums are integers; they are
// kept modulo 2^32, in which 9 has an inverse. Nothing is lost while the sums with their bias stay
// below 2^25, which the compiler checks. As floats they may stay 64 times as large, because scales
// are divided by 64.
#pragma once
#include "qconv.h"

enum {
  ITG_QW_TILE = 4,  // output pixels of a tile along an axis
  ITG_QW_SIZE = 6,  // input pixels
  ITG_QW_POINTS = 36,
  ITG_QW_PAIR = 2 * ITG_PANEL,  // 16-bit numbers of a row of packed weights
};
enum {
  ITG_QW_PANELS = 4,  // panels that are multiplied together, at most
  ITG_QW_ROWS = 24,   // tiles, at most
  ITG_QW_LANES = 16,
  ITG_QW_ROOM = 32,
};

typedef struct itg_qwinograd {
  itg_window w;
  int64_t channels, deep, panels, pairs;  // deep: input channels; pairs of them, one may be half
  struct {
    int64_t deep;
    int apart;  // 1: its pixels lie in squares of four, line by line, as a transposed convolution
                // makes them
  } image[2];   // channels of the first stand before those of the second, if there is one
  int64_t head, panel;  // vectors before the weights of a panel; numbers from one panel to the next
  int64_t down, across, tiles;  // tiles along an image, and of all images
  int64_t block;                // tiles that are at work together, at most
  int64_t row, in_step;         // numbers of a tile's inputs at a point, from one point to the next
  int64_t span;                 // numbers of a tile's products: of panels, of points, of columns
  size_t fill, in, bytes;       // bytes of padding and of inputs; all scratch of one part
} itg_qwinograd;

itg_words itg_qwinograd_of(const itg_call *call, itg_qwinograd *g, itg_tensor *out);
itg_attrs_qconv itg_qwinograd_like(
    const itg_attrs_qwinograd *a);  // the same end of a plain convolution
