// Sums of products as the BM1684X adds floats. The build forbids contraction: a product is rounded
// before it is added.
#include <string.h>

#include "../attributes.h"
#include "bm1684x.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

enum { PIXELS = 16, BLOCK = 6, SUMS = 2 };
#define NUMBER float
typedef float totals __attribute__((vector_size(PIXELS * sizeof(float))));
#define FINISH(acc) ((acc)[0] + (acc)[1])
#include "bm1684x_sums.h"

CLONES void itg_bm_float_sums(const itg_bm_sums *s) {
  if (s->outputs == 1) groups(s, 1);
  else groups(s, BLOCK);
}
