#include "cv18xx_products.h"

#include <string.h>

#include "int8/qvec.h"

#if defined(ISA_avx512vnni)
enum { VECTORS = 3 };
#elif defined(ISA_avx512)
enum { VECTORS = 2 };
#else
enum { VECTORS = 1 };
#endif
#ifndef ITG_QVECTORS
enum { QL = 16 };
#endif
enum { MOST = ITG_CV18XX_OUTPUTS };

// What the sums of an output begin with.
static int32_t start_of(const itg_cv18xx_products *k, int64_t output) {
  uint32_t sum = 0;
  if (k->less)
    for (int64_t i = 0; i < 4 * k->steps; i++) sum += (uint32_t)(int8_t)k->w[output][i];
  return (int32_t)(0 - sum * (uint32_t)k->less);
}

INLINE void add_products(const itg_cv18xx_products *k, int64_t p, const int32_t *start,
                         const int outputs, const int vectors) {
  const uint8_t *x = k->x + 4 * p;
#ifdef ITG_QVECTORS
  vq s[MOST][VECTORS];
  for (int m = 0; m < outputs; m++)
    for (int i = 0; i < vectors; i++) s[m][i] = vq_set(start[m]);
  for (int64_t t = 0; t < k->steps; t++) {
    vq_four in[VECTORS];
    for (int i = 0; i < vectors; i++) in[i] = vq_inputs(vq_load(x + k->at[t] + i * QBYTES));
    for (int m = 0; m < outputs; m++) {
      int32_t four;
      memcpy(&four, k->w[m] + 4 * t, sizeof four);
      const vq_four weights = vq_weights(vq_set(four));
      for (int i = 0; i < vectors; i++) s[m][i] = vq_dot(s[m][i], in[i], weights);
    }
  }
  for (int m = 0; m < outputs; m++)
    for (int i = 0; i < vectors; i++) vq_store(k->sums + m * k->pitch + p + i * QL, s[m][i]);
#else
  for (int m = 0; m < outputs; m++) {
    uint32_t s[QL];
    for (int i = 0; i < QL; i++) s[i] = (uint32_t)start[m];
    for (int64_t t = 0; t < k->steps; t++)
      for (int i = 0; i < QL; i++)
        for (int c = 0; c < 4; c++)
          s[i] += (uint32_t)(x[k->at[t] + 4 * i + c] * (int8_t)k->w[m][4 * t + c]);
    memcpy(k->sums + m * k->pitch + p, s, sizeof s);
  }
#endif
}

INLINE void add_run(const itg_cv18xx_products *k, const int32_t *start, const int outputs) {
  int64_t p = 0;
  for (; VECTORS > 1 && p + (VECTORS - 1) * QL < k->run; p += VECTORS * QL)
    add_products(k, p, start, outputs, VECTORS);
  for (; p < k->run; p += QL) add_products(k, p, start, outputs, 1);
}

#define PASTE(isa) itg_cv18xx_multiply_##isa
#define NAME(isa) PASTE(isa)
void NAME(ISA)(const itg_cv18xx_products *k) {
  int32_t start[MOST] = {0};
  for (int64_t m = 0; m < k->outputs; m++) start[m] = start_of(k, m);
  if (k->outputs > 4) add_run(k, start, MOST);
  else if (k->outputs > 2) add_run(k, start, 4);
  else add_run(k, start, 2);
}
