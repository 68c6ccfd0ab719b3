// Statistics of f32 tensors, for calibration.
#pragma once
#include "intaglio.h"

typedef struct itg_spread {
  float low, high;   // of all values; 0 where there are none
  int32_t exponent;  // every |x| < 2^exponent, which is the end of the histogram
  int32_t unused;
  uint64_t zeros;  // values that are exactly 0
} itg_spread;

// One tensor to observe: n values as [outer][channels][inner] (channels is 0 if channels are not
// observed), memory for the extremes and the sum of every channel, and 2 * bins counts of values in
// equal bins from -2^exponent to 2^exponent. If a value is NaN or infinite, `wrong` becomes 1 and
// nothing else is set.
typedef struct itg_look {
  const float *x;
  uint64_t n, outer, channels, inner;
  float *low, *high;
  double *sum;
  uint32_t *counts;
  itg_spread spread;
  uint64_t wrong;
} itg_look;

// Observes several tensors; `scratch` has room for 8 * bins counts.
ITG_API void itg_observe_all(itg_look *look, uint64_t tensors, uint32_t bins, uint32_t *scratch);

// Adds the sums of x y, x x, y y and (x - y)^2 to sums[4], for measures of agreement of two
// tensors.
ITG_API void itg_match(const float *x, const float *y, uint64_t n, double *sums);
