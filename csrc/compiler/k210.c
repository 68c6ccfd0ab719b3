// Products are summed up in f32, 256 at a time: such a sum of products of bytes is below 2^24, so
// it is exact. Batch norm and curve are computed in f64 where all numbers are below 2^52, else in
// i64.
#include "k210.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define CLONES
#endif

enum { PIXELS = 16, AT_ONCE = 4, EXACT = 256 };  // a tile; outputs of a tile; products of a f32 sum

typedef float floats __attribute__((vector_size(PIXELS * sizeof(float))));

static const double MAGIC = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds, halves to even

// The curve, and the segments that are ever reached.
typedef struct {
  double start[ITG_K210_SEGMENTS], factor[ITG_K210_SEGMENTS], bias[ITG_K210_SEGMENTS];
  int used;
  int whole;  // f64 is exact
} lines;

static lines prepare_curve(const itg_k210_layer *l) {
  lines c = {.used = 1, .whole = 1};
  for (int i = 0; i < ITG_K210_SEGMENTS; i++) {
    c.start[i] = (double)l->curve_start[i];
    c.factor[i] = (double)l->curve_mul[i] / (double)(1LL << l->curve_shift[i]);
    c.bias[i] = (double)l->curve_bias[i];
    if (l->curve_mul[i] < 0 || (!i && l->curve_mul[i]) || l->curve_shift[i] > 60) c.whole = 0;
    if (i && l->curve_start[i] < (1LL << 35) - 1) c.used = i + 1;
  }
  return c;
}

static uint8_t one_byte(const itg_k210_layer *l, int64_t output, int64_t acc) {
  // numbers beyond the chip's 36 bits wrap, as they do in numpy
  int64_t v = (int64_t)((uint64_t)acc * (uint64_t)l->mul[output]) >> l->shift[output];
  v = (int64_t)((uint64_t)v + (uint64_t)l->add[output]);
  int i = ITG_K210_SEGMENTS - 1;
  while (i && v <= l->curve_start[i]) i--;
  uint64_t above = (uint64_t)v - (uint64_t)l->curve_start[i];
  int64_t product = (int64_t)(above * (uint64_t)l->curve_mul[i]), shift = l->curve_shift[i];
  int64_t whole = product >> shift, rest = product & ((1LL << shift) - 1);
  int64_t half = shift ? 1LL << (shift - 1) : 1;
  if (shift && (rest > half || (rest == half && (whole & 1)))) whole += product < 0 ? -1 : 1;
  int64_t y = whole + l->curve_bias[i];
  return (uint8_t)(y < 0 ? 0 : y > 255 ? 255 : y);
}

// Whether a number of a tile is as large as `most`.
static inline __attribute__((always_inline)) int beyond(const double *x, double most) {
  int64_t found = 0;
  for (int j = 0; j < PIXELS; j++) found |= (x[j] >= most) | (x[j] <= -most);
  return found != 0;
}

// Batch norm and curve of a tile of one output.
static inline __attribute__((always_inline)) void finish(const itg_k210_layer *l, const lines *c,
                                                         int64_t output, const double *acc,
                                                         uint8_t *y, int64_t count) {
  double mul = (double)l->mul[output];
  if (!c->whole || beyond(acc, 4503599627370496.0 / (mul < 0 ? -mul : mul + !mul))) {
    for (int64_t j = 0; j < count; j++) y[j] = one_byte(l, output, (int64_t)acc[j]);
    return;
  }
  double scale = mul / (double)(1LL << l->shift[output]), add = (double)l->add[output];
  double v[PIXELS], r[PIXELS];
  for (int j = 0; j < PIXELS; j++) {
    double t = acc[j] * scale, near = (t + MAGIC) - MAGIC;
    v[j] = (near > t ? near - 1 : near) + add;
    r[j] = (((v[j] - c->start[0]) * c->factor[0] + MAGIC) - MAGIC) + c->bias[0];
  }
  if (beyond(v, 68719476736.0)) {  // 2^36
    for (int64_t j = 0; j < count; j++) y[j] = one_byte(l, output, (int64_t)acc[j]);
    return;
  }
  for (int i = 1; i < c->used; i++) {
    double start = c->start[i], factor = c->factor[i], bias = c->bias[i];
    for (int j = 0; j < PIXELS; j++) {
      double s = (((v[j] - start) * factor + MAGIC) - MAGIC) + bias;
      r[j] = v[j] > start ? s : r[j];
    }
  }
  uint8_t bytes[PIXELS];
  for (int j = 0; j < PIXELS; j++) {
    double y0 = r[j] < 0 ? 0 : r[j];
    bytes[j] = (uint8_t)(int32_t)(y0 > 255 ? 255 : y0);
  }
  memcpy(y, bytes, (size_t)count);
}

// Sums of a tile: AT_ONCE rows of weights times the map at the offsets of the terms.
static inline __attribute__((always_inline)) void tile(const int64_t *offsets, int64_t terms,
                                                       const float *weights, const float *map,
                                                       double sums[AT_ONCE][PIXELS]) {
  memset(sums, 0, sizeof(double) * AT_ONCE * PIXELS);
  for (int64_t first = 0; first < terms; first += EXACT) {
    int64_t last = first + EXACT < terms ? first + EXACT : terms;
    floats a = {0}, b = {0}, c = {0}, d = {0}, x;
    for (int64_t t = first; t < last; t++) {
      const float *w = weights + AT_ONCE * t;
      memcpy(&x, map + offsets[t], sizeof x);
      a += w[0] * x;
      b += w[1] * x;
      c += w[2] * x;
      d += w[3] * x;
    }
    for (int j = 0; j < PIXELS; j++) {
      sums[0][j] += (double)a[j];
      sums[1][j] += (double)b[j];
      sums[2][j] += (double)c[j];
      sums[3][j] += (double)d[j];
    }
  }
}

// Adds the terms of the zero points to sums of products.
static inline __attribute__((always_inline)) void add_terms(const itg_k210_layer *l, double *acc,
                                                            const double *of_x, double of_w) {
  for (int j = 0; j < PIXELS; j++) acc[j] += of_w + (double)l->arg_x * of_x[j];
  if (!l->shr_x) return;
  for (int j = 0; j < PIXELS; j++) {
    acc[j] -= (double)l->arg_x * of_x[j];
    acc[j] += (double)(l->arg_x * (int64_t)of_x[j] >> l->shr_x);
  }
}

// All tiles. A map that a 1x1 kernel reads is one long row.
CLONES static void convolve(const itg_k210_layer *l, const lines *c, int64_t wide, int64_t high) {
  int64_t area = l->height * l->width, k2 = l->kernel * l->kernel;
  int64_t height = l->kernel == 1 ? 1 : l->height, width = l->kernel == 1 ? area : l->width;
  int64_t terms = l->depthwise ? k2 : l->channels * k2;
  double sums[AT_ONCE][PIXELS], of_x[PIXELS];
  for (int64_t y = 0; y < height; y++) {
    for (int64_t x = 0; x < width; x += PIXELS) {
      int64_t count = width - x < PIXELS ? width - x : PIXELS, at = y * l->width + x;
      const float *map = l->map + y * wide + x;
      if (l->depthwise) {
        for (int64_t i = 0; i < l->outputs; i++) {  // weights, then ones
          tile(l->offsets, terms, l->weights + i * k2 * AT_ONCE, map + i * high * wide, sums);
          add_terms(l, sums[0], sums[1], l->of_w[i]);
          finish(l, c, i, sums[0], l->y + i * area + at, count);
        }
        continue;
      }
      float added[PIXELS] = {0};  // at most 2^24: exact
      if (l->arg_x) {
        for (int64_t t = 0; t < terms; t++)
          for (int j = 0; j < PIXELS; j++) added[j] += map[l->offsets[t] + j];
      }
      for (int j = 0; j < PIXELS; j++) of_x[j] = (double)added[j];
      for (int64_t i = 0; i < l->outputs; i += AT_ONCE) {
        tile(l->offsets, terms, l->weights + i * terms, map, sums);
        for (int64_t j = 0; j < AT_ONCE && i + j < l->outputs; j++) {
          add_terms(l, sums[j], of_x, l->of_w[i + j]);
          finish(l, c, i + j, sums[j], l->y + (i + j) * area + at, count);
        }
      }
    }
  }
}

void itg_k210_run(const itg_k210_layer *l) {
  int64_t edge = l->kernel / 2, k2 = l->kernel * l->kernel;
  int64_t wide = l->width + 2 * edge, high = l->height + 2 * edge;
  for (int64_t i = 0; i < l->channels * high * wide + PIXELS; i++) l->map[i] = (float)l->pad;
  for (int64_t i = 0; i < l->channels; i++)
    for (int64_t y = 0; y < l->height; y++)
      for (int64_t x = 0; x < l->width; x++)
        l->map[(i * high + y + edge) * wide + x + edge] =
            (float)l->x[(i * l->height + y) * l->width + x];
  int64_t deep = l->depthwise ? 1 : l->channels, terms = deep * k2;
  for (int64_t t = 0; t < terms; t++) {
    int64_t tap = t % k2;
    l->offsets[t] = (t / k2 * high + tap / l->kernel) * wide + tap % l->kernel;
  }
  for (int64_t i = 0; i < l->outputs; i++) {
    int64_t sum = 0;
    for (int64_t t = 0; t < terms; t++) {
      uint8_t w = l->w[i * terms + t];
      sum += w;
      if (l->depthwise)
        for (int j = 0; j < AT_ONCE; j++)
          l->weights[(i * terms + t) * AT_ONCE + j] = j ? 1.0f : (float)w;
      else l->weights[i / AT_ONCE * AT_ONCE * terms + t * AT_ONCE + i % AT_ONCE] = (float)w;
    }
    l->of_w[i] = (double)((l->arg_w * sum >> l->shr_w) + l->arg_add * deep);
  }
  lines c = prepare_curve(l);
  convolve(l, &c, wide, high);
}
