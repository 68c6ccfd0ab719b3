// deform_conv on f32.
#include "deform_conv.h"
#include "gemm/dot_products.h"

typedef float real;
#define dots dots_f32
static inline float load(const itg_tensor *t, int64_t i) { return ((const float *)t->data)[i]; }
static inline void store(const itg_tensor *t, int64_t i, float v) { ((float *)t->data)[i] = v; }

#include "deform_conv_core.h"

ITG_FN(deform_conv, f32) {
  if (itg_empty(call->out[0])) return NULL;
  return deform(call, call->in[1]->data, (float *)call->scratch + part * itg_deform_room(call),
                part, parts);
}
