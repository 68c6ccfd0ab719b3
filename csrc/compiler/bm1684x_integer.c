// Integers: sums of products in f32 stay exact, as no more than `exact` are added before the sum
// becomes an i32.
#include <string.h>

#include "../attributes.h"
#include "bm1684x.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define CLONES
#endif

enum { PIXELS = 16, BLOCK = 6, SUMS = 1 };
#define NUMBER int32_t
typedef int32_t totals __attribute__((vector_size(PIXELS * sizeof(int32_t))));
#define FINISH(acc) __builtin_convertvector((acc)[0], totals)
#include "bm1684x_sums.h"

CLONES void itg_bm_integer_sums(const itg_bm_sums *s) {
  if (s->outputs == 1) groups(s, 1);
  else groups(s, BLOCK);
}
