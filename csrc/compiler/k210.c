// Layers of the K210: packing of weights, and the limits within which f64 is exact.
#include "k210.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "built.h"

static int64_t terms_of(const itg_k210_layer *l) {
  return (l->depthwise ? 1 : l->channels) * l->kernel * l->kernel;
}

uint64_t itg_k210_weights(const itg_k210_layer *l) {
  const int64_t taps = l->kernel * l->kernel;
  const int64_t blocks = (l->outputs + ITG_K210_BLOCK - 1) / ITG_K210_BLOCK;
  if (l->depthwise) return (uint64_t)(l->outputs * l->kernel * 4);
  return (uint64_t)(blocks * ITG_K210_BLOCK * itg_k210_sizes_of(l).fours * taps * 4);
}

uint64_t itg_k210_scratch(const itg_k210_layer *l) {
  const itg_k210_sizes s = itg_k210_sizes_of(l);
  const int64_t planes = s.phases * s.phases * s.plane;
  const int64_t packed = l->depthwise ? s.phases * s.run * 4 : s.fours * planes * 4;
  const int64_t of_x = s.run * 8, results = ITG_K210_BLOCK * s.run;
  return (uint64_t)(4 * planes + packed + of_x + results + 4 * 2 * ITG_K210_SLACK);
}

// Weights less 128, which are signed: [block][four channels][tap][output][channel], of depthwise
// layers [output][column][row].
static void pack(const itg_k210_layer *l) {
  const int64_t taps = l->kernel * l->kernel, terms = terms_of(l);
  const int64_t fours = itg_k210_sizes_of(l).fours;
  memset(l->weights, 0, (size_t)itg_k210_weights(l));
  for (int64_t o = 0; o < l->outputs; o++) {
    const uint8_t *w = l->w + o * terms;
    if (l->depthwise) {
      for (int64_t t = 0; t < taps; t++)
        l->weights[(o * l->kernel + t % l->kernel) * 4 + t / l->kernel] = (int8_t)(w[t] - 128);
      continue;
    }
    int8_t *block =
        l->weights + (o / ITG_K210_BLOCK * fours * taps * ITG_K210_BLOCK + o % ITG_K210_BLOCK) * 4;
    for (int64_t c = 0; c < l->channels; c++) {
      int8_t *to = block + c / 4 * taps * ITG_K210_BLOCK * 4 + c % 4;
      for (int64_t t = 0; t < taps; t++, to += ITG_K210_BLOCK * 4) *to = (int8_t)(*w++ - 128);
    }
  }
}

static double magnitude(double x) { return x < 0 ? -x : x; }

// The curve's segments that results between `low` and `high` reach; 0 where f64 is not exact.
static int choose_segments(itg_k210_layer *l, double low, double high) {
  int first = 0;
  for (int i = 0; i < ITG_K210_SEGMENTS; i++)
    if ((double)l->curve_start[i] < low) first = i;
  if (first == 0 && l->curve_mul[0] && (double)l->curve_start[0] >= low) return 0;
  l->segments = 0;
  for (int i = first; i < ITG_K210_SEGMENTS; i++) {
    if (i > first && (double)l->curve_start[i] >= high) continue;
    if (l->curve_mul[i] < 0 || (l->curve_mul[i] && l->curve_shift[i] > 43)) return 0;
    if (l->segments > 1 && l->start[l->segments - 1] == (double)l->curve_start[i])
      l->segments--;  // the later one of two that start together holds
    l->start[l->segments] = (double)l->curve_start[i];
    l->factor[l->segments] =
        l->curve_mul[i] ? (double)l->curve_mul[i] / (double)(1LL << l->curve_shift[i]) : 0;
    l->bias[l->segments++] = (double)l->curve_bias[i];
  }
  l->lowest = -INFINITY;
  if (l->segments == 2 && l->factor[0] == 0 && l->bias[0] == l->bias[1]) {  // like ReLU
    l->start[0] = l->start[1];
    l->factor[0] = l->factor[1];
    l->lowest = 0;
    l->segments = 1;
  }
  return 1;
}

void itg_k210_prepare(itg_k210_layer *l) {
  const int64_t terms = terms_of(l), deep = l->depthwise ? 1 : l->channels;
  const double arg_x = magnitude((double)l->arg_x);
  // sums hold the weights less 128: a layer whose arg_x is -128 needs no sums of x
  const double from_x =
      l->arg_x == -128 && !l->shr_x ? 0 : (128 + arg_x) * 255.0 * (double)terms + 1;
  double low = 0, high = 0;
  pack(l);
  for (int64_t o = 0; o < l->outputs; o++) {
    int64_t sum = 0, above = 0;  // of the weights, of those less 128 that are positive
    for (int64_t t = 0; t < terms; t++) {
      const int64_t w = l->w[o * terms + t];
      sum += w;
      above += w > 128 ? w - 128 : 0;
    }
    const int64_t below = sum - 128 * terms - above;
    const double mul = (double)l->mul[o], add = (double)l->add[o];
    l->of_w[o] = (double)((l->arg_w * sum >> l->shr_w) + l->arg_add * deep);
    l->scale[o] = mul / (double)(1LL << l->shift[o]);
    const double least = 255.0 * (double)below - from_x + l->of_w[o];
    const double most = 255.0 * (double)above + from_x + l->of_w[o];
    const double far = magnitude(least) > magnitude(most) ? magnitude(least) : magnitude(most);
    const double a = least * l->scale[o] + add, b = most * l->scale[o] + add;
    const double last = (a < b ? a : b) - 1, next = (a < b ? b : a) + 1;
    // products below 2^52; results below 2^46, whose products with a slope are beyond 255 if f64
    // does not hold them
    l->exact[o] = (far + magnitude(l->of_w[o])) * (magnitude(mul) + 1) < 4503599627370496.0 &&
                  last > -70368744177664.0 && next < 70368744177664.0;
    if (!l->exact[o]) continue;
    low = last < low ? last : low;
    high = next > high ? next : high;
  }
  if (!choose_segments(l, low, high)) memset(l->exact, 0, (size_t)l->outputs);
}

#define K210_FORM(isa)                                                                 \
  void itg_k210_layer_##isa(const itg_k210_layer *layer, const uint8_t *x, uint8_t *y, \
                            void *scratch);
K210_FORM(scalar)
K210_FORM(avx2)
K210_FORM(avx512)
K210_FORM(avx512vnni)

void itg_k210_run(const itg_k210_layer *layer, const uint8_t *x, uint8_t *y, void *scratch,
                  uint32_t isa) {
  void (*run)(const itg_k210_layer *, const uint8_t *, uint8_t *, void *) = NULL;
  if (isa & ITG_ISA_avx512vnni) run = ITG_BUILT(avx512vnni, itg_k210_layer_avx512vnni);
  if (!run && isa & ITG_ISA_avx512) run = ITG_BUILT(avx512, itg_k210_layer_avx512);
  if (!run && isa & ITG_ISA_avx2) run = ITG_BUILT(avx2, itg_k210_layer_avx2);
  if (!run) run = itg_k210_layer_scalar;
  run(layer, x, y, scratch);
}
