// Activations that other kernels apply to the rows they have just computed (the epilogues of gemm and conv).
#pragma once
#include "kernel.h"

// The unary ops that may be fused, by name; ENUM(act, ITG_ACT_WORDS) is the attribute field that holds one.
#define ITG_ACTIVATIONS(A) \
  A(relu) A(clip) A(leaky_relu) A(sigmoid) A(tanh) A(swish) A(hardswish) A(hard_sigmoid) A(gelu) A(gelu_tanh) A(elu) \
  A(selu) A(celu) A(mish) A(softplus) A(softsign) A(thresholded_relu) A(shrink) A(abs) A(neg) A(exp) A(log) A(sqrt) \
  A(erf) A(sin) A(cos) A(floor) A(ceil) A(round) A(sign) A(reciprocal)
#define ITG_ACT_WORD(name) "|" #name
#define ITG_ACT_WORDS "none" ITG_ACTIVATIONS(ITG_ACT_WORD) "|prelu"
#define ITG_ACT_ENUM(name) ITG_ACT_##name,
// prelu has slopes of its own as an operand (tile.h); epilogues alone know it. infer refuses every other index.
enum { ITG_ACT_none, ITG_ACTIVATIONS(ITG_ACT_ENUM) ITG_ACT_COUNT, ITG_ACT_prelu = ITG_ACT_COUNT };

// Applies the activation to n floats in place. `args` are the op's own float attributes in their order, at most two.
typedef void (*itg_act_fn)(float *row, int64_t n, const double *args);
itg_act_fn itg_act_scalar(int64_t act);  // NULL for none
itg_act_fn itg_act_avx2(int64_t act);
itg_act_fn itg_act_avx512(int64_t act);
// prelu: a slope for each of the n floats.
void itg_slopes_scalar(float *row, const float *slope, int64_t n);
void itg_slopes_avx2(float *row, const float *slope, int64_t n);
void itg_slopes_avx512(float *row, const float *slope, int64_t n);
#define ITG_ACT_PASTE(isa) itg_act_##isa
#define ITG_ACT_NAME(isa) ITG_ACT_PASTE(isa)
#define ITG_SLOPES_PASTE(isa) itg_slopes_##isa
#define ITG_SLOPES_NAME(isa) ITG_SLOPES_PASTE(isa)
#if defined(ISA_avx512bf16) || defined(ISA_avx512vnni)  // sums are, or become, f32
#define itg_act itg_act_avx512
#define itg_slopes itg_slopes_avx512
#else  // those of the ISA that this source is compiled for
#define itg_act ITG_ACT_NAME(ISA)
#define itg_slopes ITG_SLOPES_NAME(ISA)
#endif
