// Operands of 8-bit products with f32 results (weights: qtile.h).
#pragma once
#include "qtile.h"
#include "gemm/tile.h"

enum {
  ITG_QGEMM_SCALE = 5,  // inputs 0 to 4 are x, weights and those of the epilogue
  ITG_QGEMM_SUMS,
  ITG_QGEMM_ROWS,
  ITG_QGEMM_ZERO,
  ITG_QGEMM_START,
};
