// What calibration wants to know of a tensor: its extremes, how its values are spread, and each channel on its own.
// Linked into the library for the compiler's sake; no model runs it.
#include <math.h>
#include <string.h>

#include "observe.h"

enum { LANES = 16, COPIES = 4, BLOCK = 256, SMALLEST = -100 };

static float least(const float *x, size_t n, float m) {
  float lane[LANES];
  for (int k = 0; k < LANES; k++) lane[k] = m;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] = x[i + k] < lane[k] ? x[i + k] : lane[k];
  for (; i < n; i++) m = x[i] < m ? x[i] : m;
  for (int k = 0; k < LANES; k++) m = lane[k] < m ? lane[k] : m;
  return m;
}

static float most(const float *x, size_t n, float m) {
  float lane[LANES];
  for (int k = 0; k < LANES; k++) lane[k] = m;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  for (; i < n; i++) m = x[i] > m ? x[i] : m;
  for (int k = 0; k < LANES; k++) m = lane[k] > m ? lane[k] : m;
  return m;
}

static double total(const float *x, size_t n) {
  double lane[LANES] = {0}, sum = 0;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] += x[i + k];
  for (; i < n; i++) sum += x[i];
  for (int k = 0; k < LANES; k++) sum += lane[k];
  return sum;
}

// The extremes of x in one pass; 0 where a value is NaN or infinite: a sum of x - x is 0 only where every x is a number.
static int extremes(const float *x, size_t n, float *low, float *high) {
  float lo[LANES], hi[LANES], none[LANES] = {0}, sum = 0;
  for (int k = 0; k < LANES; k++) lo[k] = hi[k] = x[0];
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) {
      const float v = x[i + k];
      lo[k] = v < lo[k] ? v : lo[k];
      hi[k] = v > hi[k] ? v : hi[k];
      none[k] += v - v;
    }
  for (size_t k = i; k < n; k++) sum += x[k] - x[k];
  for (int k = 0; k < LANES; k++) sum += none[k];
  *low = least(x + i, n - i, least(lo, LANES, x[0]));
  *high = most(x + i, n - i, most(hi, LANES, x[0]));
  return sum == 0;
}

int itg_observe(const float *x, uint64_t n, uint32_t bins, uint32_t *counts, itg_spread *spread) {
  *spread = (itg_spread){0};
  if (!n) return 0;
  if (!extremes(x, n, &spread->low, &spread->high)) return 1;
  const float span = fmaxf(-spread->low, spread->high);
  int exponent = SMALLEST;
  if (span > ldexpf(1, SMALLEST)) frexpf(span, &exponent);  // span < 2^exponent
  spread->exponent = exponent;

  // Four histograms in turn: equal values, of which a rectified tensor is full, do not wait for each other.
  uint32_t *const part[COPIES] = {counts, counts + 2 * bins, counts + 4 * bins, counts + 6 * bins};
  memset(counts, 0, (size_t)2 * bins * COPIES * sizeof *counts);
  const float down = ldexpf(1, -exponent), up = (float)bins;  // powers of two: nothing is rounded
  int32_t at[BLOCK];
  uint64_t zeros = 0;
  for (uint64_t i = 0; i < n; i += BLOCK, x += BLOCK) {
    const int some = (int)(n - i < BLOCK ? n - i : BLOCK);
    int32_t none = 0;
    for (int k = 0; k < some; k++) {
      at[k] = (int32_t)(x[k] * down * up) + (int32_t)bins - (x[k] < 0);  // towards 0, but -0.5 not into 0.5's bin
      none += x[k] == 0;
    }
    zeros += (uint64_t)none;
    int k = 0;
    for (; k + COPIES <= some; k += COPIES)
      for (int c = 0; c < COPIES; c++) part[c][at[k + c]]++;
    for (; k < some; k++) counts[at[k]]++;
  }
  for (uint32_t b = 0; b < 2 * bins; b++) counts[b] += part[1][b] + part[2][b] + part[3][b];
  spread->zeros = zeros;
  return 0;
}

void itg_observe_channels(const float *x, uint64_t outer, uint64_t channels, uint64_t inner, float *low, float *high,
                          double *sum) {
  for (uint64_t o = 0; o < outer; o++, x += channels * inner)
    if (inner == 1)
      for (uint64_t c = 0; c < channels; c++) {
        low[c] = x[c] < low[c] ? x[c] : low[c];
        high[c] = x[c] > high[c] ? x[c] : high[c];
        sum[c] += x[c];
      }
    else
      for (uint64_t c = 0; c < channels; c++) {
        const float *row = x + c * inner;
        low[c] = least(row, inner, low[c]);
        high[c] = most(row, inner, high[c]);
        sum[c] += total(row, inner);
      }
}

void itg_observe_all(itg_look *look, uint64_t tensors, uint32_t bins, uint32_t *scratch) {
  for (itg_look *t = look; t < look + tensors; t++) {
    t->wrong = (uint64_t)itg_observe(t->x, t->n, bins, scratch, &t->spread);
    if (t->wrong || !t->n) continue;
    memcpy(t->counts, scratch, (size_t)2 * bins * sizeof *scratch);
    if (t->channels) itg_observe_channels(t->x, t->outer, t->channels, t->inner, t->low, t->high, t->sum);
  }
}

void itg_match(const float *x, const float *y, uint64_t n, double *sums) {
  double xy[LANES / 2] = {0}, xx[LANES / 2] = {0}, yy[LANES / 2] = {0}, off[LANES / 2] = {0};
  for (uint64_t i = 0; i < n; i += LANES / 2) {
    const int some = (int)(n - i < LANES / 2 ? n - i : LANES / 2);
    for (int k = 0; k < some; k++) {
      const double a = x[i + k], b = y[i + k];
      xy[k] += a * b;
      xx[k] += a * a;
      yy[k] += b * b;
      off[k] += (a - b) * (a - b);
    }
  }
  for (int k = 0; k < LANES / 2; k++) {
    sums[0] += xy[k];
    sums[1] += xx[k];
    sums[2] += yy[k];
    sums[3] += off[k];
  }
}
