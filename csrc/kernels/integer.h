// How products of 8-bit numbers are cut: operands are widened to 16 bits minus their zero, two steps of the depth side
// by side, so that one multiply-add instruction does two products per 32-bit sum. Sums wrap; nothing is ever rounded.
#pragma once
#include <stdint.h>

enum {
  ITG_TILE_ROWS = 4,
  ITG_TILE_WIDTH = 32,  // columns of one tile
  ITG_CHUNK = 128,      // columns that are packed at a time
  ITG_ROW_CHUNK = 128,  // rows that one packed chunk is used for
};

// 16-bit numbers: one chunk of columns, one block of rows, `depth` rounded up to pairs; whole cache lines.
static inline int64_t itg_packed_bytes(int64_t depth) {
  return ((depth + 1) / 2 * 2 * (ITG_CHUNK + ITG_TILE_ROWS) * 2 + 63) / 64 * 64;
}
