// Transforms of convolution weights, for the compiler.
#pragma once
#include "intaglio.h"

// Weights w [m][c][3][3] at size * size points, G w Gt with G = g [size][3], as made
// [points][panels][c][16]: panels of 16 outputs, the last one filled up with zeros. Doubles, each
// of two products and a third: ((a + b) + c), on every CPU. False where `size` is none of 4, 6
// and 8.
ITG_API int itg_weights_at_points(const float *w, const double *g, uint64_t m, uint64_t c,
                                  uint32_t size, float *made);

// The same of bytes, in whole numbers that fit 16 bits, with G = g [6][3]: made [36][panels][pairs
// of c][16][2]. The taps of a window lie `tap` bytes apart in w, its channels `channel` bytes, and
// outputs 9 * c. With a head, [36][panels][1 + pairs] [16][2]: pairs of both halves of c, a
// multiple of four, in turns, and first minus the sums of the halves' products, i32.
ITG_API void itg_bytes_at_points(const int8_t *w, const int32_t *g, uint64_t m, uint64_t c,
                                 uint64_t channel, uint64_t tap, uint64_t head, int16_t *made);

// For every row of w [rows][n]: the sum of positive and the sum of negative weights.
ITG_API void itg_signed_sums(const int8_t *w, uint64_t rows, uint64_t n, int64_t *above,
                             int64_t *below);
