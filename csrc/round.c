// Which integers stand for weights, where errors are to cancel in sums. Linked into the library for the compiler's sake;
// no model runs it.
#include <math.h>

#include "round.h"

#define WHOLE 6755399441055744.0  // 1.5 * 2^52: what is added to it is rounded to whole numbers, halves to even

typedef struct row {
  const double *exact;
  int16_t *made;
  double sign;  // of the errors' sum
} row;

// What moving weight i by one takes off the sum of errors beyond what it costs: the more, the sooner it is moved.
static double gain(const row *r, uint32_t i) { return (r->made[i] - r->exact[i]) * r->sign; }

static int sooner(const row *r, uint32_t a, uint32_t b) {
  const double x = gain(r, a), y = gain(r, b);
  return x > y || (x == y && a < b);
}

// Lets heap[at] sink to where those below it are moved sooner: the last one to be moved is on top.
static void sink(const row *r, uint32_t *heap, uint64_t count, uint64_t at) {
  for (uint64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && sooner(r, heap[child], heap[child + 1])) child++;
    if (!sooner(r, heap[at], heap[child])) return;
    const uint32_t other = heap[at];
    heap[at] = heap[child];
    heap[child] = other;
  }
}

// Moves as many of n weights as it takes for their errors to sum to within half a step, where there are that many.
static void cancel(const double *exact, int16_t *made, uint64_t n, int32_t low, int32_t high, uint32_t *heap) {
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += made[i] - exact[i];
  if (!(fabs(sum) > 0.5)) return;
  const row r = {exact, made, sum > 0 ? 1.0 : -1.0};
  const int32_t step = sum > 0 ? 1 : -1;
  const uint64_t most = (uint64_t)fmin((fabs(sum) + WHOLE) - WHOLE, (double)n);
  uint64_t count = 0;
  for (uint64_t i = 0; i < n; i++) {
    const int32_t next = made[i] - step;
    if (next < low || next > high || !(gain(&r, (uint32_t)i) > 0)) continue;
    if (count < most) {
      heap[count++] = (uint32_t)i;
      if (count == most)
        for (uint64_t k = count / 2; k-- > 0;) sink(&r, heap, count, k);
    } else if (count && sooner(&r, (uint32_t)i, heap[0])) {
      heap[0] = (uint32_t)i;
      sink(&r, heap, count, 0);
    }
  }
  for (uint64_t k = 0; k < count; k++) made[heap[k]] = (int16_t)(made[heap[k]] - step);
}

void itg_squant(const float *w, const float *scale, const float *offset, uint64_t outputs, uint64_t inputs,
                uint64_t kernel, int32_t low, int32_t high, double *exact, uint32_t *moved, int16_t *made) {
  const uint64_t n = inputs * kernel;
  for (uint64_t o = 0; o < outputs; o++, w += n, made += n) {
    const double by = scale[o], add = (double)offset[o] * by;
    for (uint64_t i = 0; i < n; i++) {
      const double x = (w[i] + add) / by;
      const double inside = x < low ? low : x > high ? high : x;
      exact[i] = x;
      made[i] = (int16_t)(int32_t)((inside + WHOLE) - WHOLE);
    }
    if (kernel > 1)
      for (uint64_t i = 0; i < n; i += kernel) cancel(exact + i, made + i, kernel, low, high, moved);
    cancel(exact, made, n, low, high, moved);
  }
}
