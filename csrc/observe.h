// Statistics of f32 tensors, for calibration.
#pragma once
#include "intaglio.h"

typedef struct itg_spread {
  float low, high;   // of all values; 0 where there are none
  int32_t exponent;  // every |x| < 2^exponent, which is the end of the histogram
  int32_t unused;
  uint64_t zeros;    // values that are exactly 0
} itg_spread;

// Counts the values of x in 2 * bins equal bins from -2^exponent to 2^exponent; `counts` has room for 8 * bins, of which
// the first 2 * bins are the result. Returns 1, and nothing else, where a value is NaN or infinite.
ITG_API int itg_observe(const float *x, uint64_t n, uint32_t bins, uint32_t *counts, itg_spread *spread);

// One of the tensors that are looked at together: its values, the extents around its channels (channels 0: not one by
// one), where their extremes and sums are, and 2 * bins counts; `spread` and `wrong` are filled in as itg_observe does.
typedef struct itg_look {
  const float *x;
  uint64_t n, outer, channels, inner;
  float *low, *high;
  double *sum;
  uint32_t *counts;
  itg_spread spread;
  uint64_t wrong;
} itg_look;

// Observes several tensors, and the channels of those that have any; `scratch` has room for 8 * bins counts.
ITG_API void itg_observe_all(itg_look *look, uint64_t tensors, uint32_t bins, uint32_t *scratch);

// Takes x [outer][channels][inner] into the lowest and highest value and the sum of every channel so far.
ITG_API void itg_observe_channels(const float *x, uint64_t outer, uint64_t channels, uint64_t inner, float *low,
                                  float *high, double *sum);

// Adds what tells how two tensors agree to sums[4]: of x y, of x x, of y y, of (x - y)^2.
ITG_API void itg_match(const float *x, const float *y, uint64_t n, double *sums);
