// Sums of products of f16 or bf16 as the BM1684X adds them.
#include <string.h>

#include "../attributes.h"
#include "bm1684x.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

enum { PIXELS = 16, BLOCK = 6, TAPS = 32 };
enum { EXPONENT = 0x7F800000, BIT = 23, KEPT = 24, BIAS = 127 };  // of f32

typedef float floats __attribute__((vector_size(PIXELS * sizeof(float))));
typedef int32_t ints __attribute__((vector_size(PIXELS * sizeof(int32_t))));

// One output of 16 pixels; weights lie `step` apart.
INLINE void pixels(const itg_bm_blocks *b, const float *x, const float *w, int step, float *y,
                   const float *before, int64_t left) {
  const itg_bm_sums *s = &b->sums;
  floats total = {0}, products[TAPS];
  if (before) memcpy(&total, before, (size_t)left * sizeof(float));
  const int64_t *offsets = s->offsets;
  for (int64_t i = 0; i < b->count; i++) {
    int64_t taps = b->sizes[i];
    ints most = (ints){0} + ((KEPT + 1) << BIT);
    for (int64_t k = 0; k < taps; k++) {
      floats v;
      memcpy(&v, x + offsets[k], sizeof v);
      products[k] = v * w[k * step];
      ints exponent = (ints)products[k] & EXPONENT, more = exponent > most;
      most = (exponent & more) | (most & ~more);
    }
    floats scale = (floats)(((2 * BIAS + KEPT) << BIT) - most),
           unit = (floats)(most - (KEPT << BIT));
    ints sum = {0};
    for (int64_t k = 0; k < taps; k++) sum += __builtin_convertvector(products[k] * scale, ints);
    total += __builtin_convertvector(sum, floats) * unit;
    offsets += taps;
    w += taps * step;
  }
  memcpy(y, &total, (size_t)left * sizeof(float));
}

CLONES void itg_bm_half_sums(const itg_bm_blocks *b) {
  const itg_bm_sums *s = &b->sums;
  int step = s->outputs == 1 ? 1 : BLOCK;
  for (int64_t g = 0; g < s->groups; g++) {
    for (int64_t o = 0; o < s->outputs; o++) {
      const float *w = s->w + g * s->w_group + o / step * step * s->taps + o % step;
      int64_t first = (g * s->outputs + o) * s->pixels;
      for (int64_t p = 0; p < s->pixels; p += PIXELS) {
        int64_t left = s->pixels - p < PIXELS ? s->pixels - p : PIXELS;
        const float *before = s->even ? s->even + first + p : 0;
        pixels(b, s->x + g * s->x_group + p, w, step, (float *)s->y + first + p, before, left);
      }
    }
  }
}
