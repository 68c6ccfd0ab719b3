// Products of rows of bytes with packed weights (qtile.h), results in f32.
#pragma once
#include "qtile.h"
#include "gemm/tile.h"

enum { ITG_QGEMM_SCALE = 5, ITG_QGEMM_SUMS, ITG_QGEMM_ROWS, ITG_QGEMM_ZERO, ITG_QGEMM_START };  // inputs behind the epilogue's
