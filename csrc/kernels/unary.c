// Unary elementwise operations on f32, compiled once per ISA from the formulas in unary.inc.
#include "kernel.h"
#include "vec.h"

#define UNARY(name, formula)                                              \
  ITG_FN(name, f32) {                                                     \
    const float *in = call->in[0]->data;                                  \
    float *out = call->out[0]->data;                                      \
    int64_t i, to;                                                        \
    itg_share(itg_count(call->out[0]), 4096, part, parts, &i, &to);       \
    for (; i + VL <= to; i += VL) {                                       \
      vf x = vload(in + i);                                               \
      vstore(out + i, formula);                                           \
    }                                                                     \
    if (i < to) {                                                         \
      float t[VL] = {0};                                                  \
      memcpy(t, in + i, (size_t)(to - i) * sizeof *t);                    \
      vf x = vload(t);                                                    \
      vstore(t, formula);                                                 \
      memcpy(out + i, t, (size_t)(to - i) * sizeof *t);                   \
    }                                                                     \
    return NULL;                                                          \
  }
#include "unary.inc"
