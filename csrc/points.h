// Weights of convolutions in tiles, for the compiler.
#pragma once
#include "intaglio.h"

// Weights w [m][c][3][3] at size * size points, G w Gt with G = g [size][3], as made [points][panels][c][16]: panels of 16
// outputs, the last one filled up with zeros. Doubles, each of two products and a third: ((a + b) + c), on every CPU.
// False where `size` is none of 4, 6 and 8.
ITG_API int itg_weights_at_points(const float *w, const double *g, uint64_t m, uint64_t c, uint32_t size, float *made);
