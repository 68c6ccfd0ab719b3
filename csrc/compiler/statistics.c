// Statistics of f32 tensors for calibration: extremes, a histogram, and extremes of each channel.
#include <math.h>
#include <string.h>

#include "statistics.h"

#include "attributes.h"

enum { LANES = 16, COPIES = 4, BLOCK = 256, ROWS = 8, SMALLEST = -100 };

// Scalar loops that are inlined into one function per instruction set, where the compiler
// vectorises them. All give the same bits.

INLINE float least(const float *x, size_t n, float m) {
  for (size_t i = 0; i < n; i++) m = x[i] < m ? x[i] : m;
  return m;
}

INLINE float most(const float *x, size_t n, float m) {
  for (size_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
  return m;
}

// Finds the extremes of x in one pass. Returns 0 if a value is NaN or infinite: the sum of all x -
// x is 0 only if all values are finite.
INLINE int extremes(const float *x, size_t n, float *low, float *high) {
  float lo[BLOCK], hi[BLOCK], none[BLOCK],
      sum = 0;  // many lanes: few would be unrolled, not made vectors of
  for (int k = 0; k < BLOCK; k++) lo[k] = hi[k] = x[0], none[k] = 0;
  size_t i = 0;
  for (; i + BLOCK <= n; i += BLOCK)
    for (int k = 0; k < BLOCK; k++) {
      const float v = x[i + k];
      lo[k] = v < lo[k] ? v : lo[k];
      hi[k] = v > hi[k] ? v : hi[k];
      none[k] += v - v;
    }
  for (size_t k = i; k < n; k++) sum += x[k] - x[k];
  for (int k = 0; k < BLOCK; k++) sum += none[k];
  *low = least(x + i, n - i, least(lo, BLOCK, x[0]));
  *high = most(x + i, n - i, most(hi, BLOCK, x[0]));
  return sum == 0;
}

// Computes the histogram of n > 0 finite values between the extremes in `spread`.
INLINE void count(const float *x, uint64_t n, uint32_t bins, uint32_t *counts, itg_spread *spread) {
  const float span = fmaxf(-spread->low, spread->high);
  int exponent = SMALLEST;
  if (span > ldexpf(1, SMALLEST)) frexpf(span, &exponent);  // span < 2^exponent
  spread->exponent = exponent;

  // Four histograms take turns: equal values, frequent after a relu, would otherwise wait for each
  // other's increment.
  uint32_t *const part[COPIES] = {counts, counts + 2 * bins, counts + 4 * bins, counts + 6 * bins};
  memset(counts, 0, (size_t)2 * bins * COPIES * sizeof *counts);
  const float down = ldexpf(1, -exponent), up = (float)bins;  // powers of two: nothing is rounded
  int32_t at[BLOCK];
  uint64_t zeros = 0;
  for (uint64_t i = 0; i < n; i += BLOCK, x += BLOCK) {
    const int some = (int)(n - i < BLOCK ? n - i : BLOCK);
    int32_t none = 0;
    for (int k = 0; k < some; k++) {
      at[k] = (int32_t)(x[k] * down * up) + (int32_t)bins -
              (x[k] < 0);  // towards 0, but -0.5 not into 0.5's bin
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
}

// Updates the extremes and sums of all channels with `rows` pixels.
INLINE void pixels(const float *restrict x, int rows, uint64_t channels, float *restrict low,
                   float *restrict high, double *restrict sum) {
  for (uint64_t c = 0; c < channels; c++) {
    float lo = low[c], hi = high[c];
    double s = sum[c];
    for (int r = 0; r < rows; r++) {
      const float v = x[r * channels + c];
      lo = v < lo ? v : lo;
      hi = v > hi ? v : hi;
      s += v;
    }
    low[c] = lo, high[c] = hi, sum[c] = s;
  }
}

// Updates extremes and sum of one channel with n values.
INLINE void channel(const float *x, size_t n, float *low, float *high, double *sum) {
  double lane[LANES] = {0}, s = 0;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] += x[i + k];
  for (; i < n; i++) s += x[i];
  for (int k = 0; k < LANES; k++) s += lane[k];
  float lo, hi;
  extremes(x, n, &lo, &hi);
  *low = lo < *low ? lo : *low;
  *high = hi > *high ? hi : *high;
  *sum += s;
}

INLINE void observe_channels(const float *x, uint64_t outer, uint64_t channels, uint64_t inner,
                             float *low, float *high, double *sum) {
  uint64_t o = 0;
  if (inner == 1)
    for (; o + ROWS <= outer; o += ROWS, x += ROWS * channels)
      pixels(x, ROWS, channels, low, high, sum);
  for (; o < outer; o++, x += channels * inner)
    if (inner == 1) pixels(x, 1, channels, low, high, sum);
    else
      for (uint64_t c = 0; c < channels; c++)
        channel(x + c * inner, inner, low + c, high + c, sum + c);
}

// The extremes of a tensor are those of its channels. The sum in double is finite if and only if
// all values are.
INLINE int look_at_channels(itg_look *t) {
  for (uint64_t c = 0; c < t->channels; c++)
    t->low[c] = INFINITY, t->high[c] = -INFINITY, t->sum[c] = 0;
  observe_channels(t->x, t->outer, t->channels, t->inner, t->low, t->high, t->sum);
  for (uint64_t c = 0; c < t->channels; c++)
    if (!isfinite(t->sum[c])) return 0;
  t->spread.low = least(t->low, t->channels, t->low[0]);
  t->spread.high = most(t->high, t->channels, t->high[0]);
  return 1;
}

INLINE void look_at(itg_look *t, uint32_t bins, uint32_t *scratch) {
  t->spread = (itg_spread){0};
  t->wrong = 0;
  if (!t->n) return;
  t->wrong =
      !(t->channels ? look_at_channels(t) : extremes(t->x, t->n, &t->spread.low, &t->spread.high));
  if (t->wrong) return;
  count(t->x, t->n, bins, scratch, &t->spread);
  memcpy(t->counts, scratch, (size_t)2 * bins * sizeof *scratch);
}

static void look_plain(itg_look *t, uint32_t bins, uint32_t *scratch) { look_at(t, bins, scratch); }
typedef void Look(itg_look *t, uint32_t bins, uint32_t *scratch);

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void look_avx2(itg_look *t, uint32_t bins,
                                                      uint32_t *scratch) {
  look_at(t, bins, scratch);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void look_avx512(
    itg_look *t, uint32_t bins, uint32_t *scratch) {
  look_at(t, bins, scratch);
}

static Look *best(void) {
  const uint32_t isa = itg_cpu_isa();
  return isa & ITG_ISA_avx512 ? look_avx512 : isa & ITG_ISA_avx2 ? look_avx2 : look_plain;
}
#else
static Look *best(void) { return look_plain; }
#endif

void itg_observe_all(itg_look *look, uint64_t tensors, uint32_t bins, uint32_t *scratch) {
  Look *const one = best();
  for (itg_look *t = look; t < look + tensors; t++) one(t, bins, scratch);
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
