// SQuant: rounds weights so that the rounding errors of each kernel and of each output cancel in
// sums.
#include <math.h>

#include "squant.h"

#define WHOLE 6755399441055744.0  // 1.5 * 2^52: adding it rounds to an integer, half to even

enum { LANES = 4 };

// Whether weight a is moved before weight b: the one with the larger error in the direction of the
// sum comes first.
static int sooner(const double *off, double sign, uint32_t a, uint32_t b) {
  const double x = off[a] * sign, y = off[b] * sign;
  return x > y || (x == y && a < b);
}

// Restores the heap below `at`. The weight that is moved last is on top.
static void sink(const double *off, double sign, uint32_t *heap, uint64_t count, uint64_t at) {
  for (uint64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && sooner(off, sign, heap[child], heap[child + 1])) child++;
    if (!sooner(off, sign, heap[at], heap[child])) return;
    const uint32_t other = heap[at];
    heap[at] = heap[child];
    heap[child] = other;
  }
}

// Moves weights by one step until the sum of the errors `off` of all n weights is within half a
// step, or no weight is left to move.
static void cancel(double *off, int16_t *made, uint64_t n, int32_t low, int32_t high,
                   uint32_t *heap) {
  double lane[LANES] = {0}, sum = 0;
  uint64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] += off[i + k];
  for (; i < n; i++) sum += off[i];
  for (int k = 0; k < LANES; k++) sum += lane[k];
  if (!(fabs(sum) > 0.5)) return;
  const double sign = sum > 0 ? 1.0 : -1.0;
  const int32_t step = sum > 0 ? 1 : -1;
  const uint64_t most = (uint64_t)fmin((fabs(sum) + WHOLE) - WHOLE, (double)n);
  uint64_t count = 0;
  double least = 0;  // the smallest error of a weight to be moved
  for (i = 0; i < n; i++) {
    if (!(off[i] * sign > least)) continue;
    const int32_t next = made[i] - step;
    if (next < low || next > high) continue;
    if (count < most) {
      heap[count++] = (uint32_t)i;
      if (count < most) continue;
      for (uint64_t k = count / 2; k-- > 0;) sink(off, sign, heap, count, k);
    } else {
      heap[0] = (uint32_t)i;
      sink(off, sign, heap, count, 0);
    }
    least = off[heap[0]] * sign;
  }
  for (uint64_t k = 0; k < count; k++) {
    made[heap[k]] = (int16_t)(made[heap[k]] - step);
    off[heap[k]] -= step;
  }
}

void itg_squant(const float *w, const float *scale, const float *offset, uint64_t outputs,
                uint64_t inputs, uint64_t kernel, int32_t low, int32_t high, double *off,
                uint32_t *moved, int16_t *made) {
  const uint64_t n = inputs * kernel;
  for (uint64_t o = 0; o < outputs; o++, w += n, made += n) {
    const double by = scale[o], add = (double)offset[o] * by;
    for (uint64_t i = 0; i < n; i++) {
      const double x = (w[i] + add) / by;
      const double inside = x < low ? low : x > high ? high : x;
      const double whole = (inside + WHOLE) - WHOLE;
      off[i] = whole - x;
      made[i] = (int16_t)(int32_t)whole;
    }
    if (kernel > 1)
      for (uint64_t i = 0; i < n; i += kernel) cancel(off + i, made + i, kernel, low, high, moved);
    cancel(off, made, n, low, high, moved);
  }
}
