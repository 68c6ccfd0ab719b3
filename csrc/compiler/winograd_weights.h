// Transforms of convolution weights, for the compiler.
#pragma once
#include "intaglio.h"

// Transforms weights w [m][c][3][3] to G w Gt with G = g [size][3], stored as made
// [points][panels][c][16]. The last panel of 16 outputs is padded with zeros. Sums are computed in
// double in the order (a + b) + c on every CPU. Returns false if `size` is not 4, 6 or 8.
ITG_API int itg_weights_at_points(const float *w, const double *g, uint64_t m, uint64_t c,
                                  uint32_t size, float *made);

// Transforms weights of bytes to 16-bit integers with G = g [6][3], stored as made
// [36][panels][pairs of c][16][2]. In w, taps are `tap` bytes apart, channels `channel` bytes and
// outputs 9 * c bytes. With a head (int8/qwinograd_products.h) made is [36][panels][1 +
// pairs][16][2]: c is padded to a multiple of four, pairs of its two halves alternate, and the head
// holds the negated sums of the products of the halves, i32.
ITG_API void itg_bytes_at_points(const int8_t *w, const int32_t *g, uint64_t m, uint64_t c,
                                 uint64_t channel, uint64_t tap, uint64_t head, int16_t *made);

// For every row of w [rows][n]: the sum of positive and the sum of negative weights.
ITG_API void itg_signed_sums(const int8_t *w, uint64_t rows, uint64_t n, int64_t *above,
                             int64_t *below);
