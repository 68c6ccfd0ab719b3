// Winograd convolution F(4x4, 3x3) of bytes: the sizes of one call.
//
// The points are 0, 1, -1, 2, -2 and infinity. Transformed inputs are integers below 2^15, and so
// are the transformed weights times 24 (times 12 at infinity). So the sums times 24^2 = 576 = 9 *
// 64 are integers. They are kept modulo 2^32 and multiplied by the inverse of 9, which leaves the
// sums times 64. This is exact while the sums with their bias stay below 2^25, which the compiler
// checks. Scales are divided by 64 instead of the sums.
#pragma once
#include "qconv.h"

enum {
  ITG_QW_TILE = 4,  // output pixels of a tile along an axis
  ITG_QW_SIZE = 6,  // input pixels of a tile along an axis
  ITG_QW_POINTS = 36,
  ITG_QW_PAIR = 2 * ITG_PANEL,  // 16-bit numbers of a row of packed weights: 16 columns, 2 along k
};
enum {
  ITG_QW_PANELS = 4,  // most panels that are multiplied together
  ITG_QW_ROWS = 24,   // most tiles of a block
  ITG_QW_LANES = 16,  // channels are padded to a multiple of this
  ITG_QW_CROSS = 32,  // cross terms per point, at least ITG_QW_ROWS (qwinograd_products.h)
};

typedef struct itg_qwinograd {
  itg_window w;
  int64_t channels, deep;  // output channels, input channels
  int64_t panels, pairs;   // panels of 16 output channels, pairs of input channels (rounded up)
  struct {
    int64_t deep;
    int squares;  // 1: pixels are stored in squares of 2x2, as a transposed convolution writes them
  } image[2];     // the input is image[0], or image[0] and image[1] joined along channels
  int64_t head, panel;  // vectors before the weights of a panel; numbers from one panel to the next
  int64_t down, across, tiles;  // tiles of an image along each axis, tiles of all images
  int64_t block;                // most tiles that go through the three steps together
  int64_t row, in_step;      // inputs of a tile at one point, of all tiles of a block at one point
  int64_t span;              // products of a tile: [panels, points, 16 columns]
  uint64_t fill, in, bytes;  // bytes of padding, of inputs, of all scratch of one thread
} itg_qwinograd;

itg_words itg_qwinograd_of(const itg_call *call, itg_qwinograd *g, itg_tensor *out);
// The attributes of a direct convolution with the same requantisation.
itg_attrs_qconv itg_qwinograd_like(const itg_attrs_qwinograd *a);
