// Activations that a kernel applies to the rows that it has just computed (epilogues of gemm and
// conv).
#pragma once
#include "kernel.h"

// ITG_ACTIVATIONS, the list of them.
#define UNARY(...)
#define UNARY_INT(...)
#include "elementwise/unary.inc"
#undef UNARY
#undef UNARY_INT

// ENUM(act, ITG_ACT_WORDS) is the attribute field that holds an activation. Python reads the list
// from it.
#define ITG_ACT_WORD(name) "|" #name
#define ITG_ACT_WORDS "none" ITG_ACTIVATIONS(ITG_ACT_WORD, ITG_ACT_WORD)
#define ITG_ACT_ENUM(name) ITG_ACT_##name,
enum { ITG_ACT_none, ITG_ACTIVATIONS(ITG_ACT_ENUM, ITG_ACT_ENUM) ITG_ACT_COUNT };

// Applies the activation to n floats in place. `args` are the op's own float attributes in their
// order, at most two.
typedef void (*itg_act_fn)(float *row, int64_t n, const double *args);
itg_act_fn itg_act_scalar(int64_t act);  // NULL for none
itg_act_fn itg_act_avx2(int64_t act);
itg_act_fn itg_act_neon(int64_t act);
itg_act_fn itg_act_armv7(int64_t act);
itg_act_fn itg_act_rvv(int64_t act);
itg_act_fn itg_act_avx512(int64_t act);
// prelu: a slope for each of the n floats.
void itg_slopes_scalar(float *row, const float *slope, int64_t n);
void itg_slopes_avx2(float *row, const float *slope, int64_t n);
void itg_slopes_neon(float *row, const float *slope, int64_t n);
void itg_slopes_armv7(float *row, const float *slope, int64_t n);
void itg_slopes_rvv(float *row, const float *slope, int64_t n);
void itg_slopes_avx512(float *row, const float *slope, int64_t n);
#define ITG_ACT_PASTE(isa) itg_act_##isa
#define ITG_ACT_NAME(isa) ITG_ACT_PASTE(isa)
#define ITG_SLOPES_PASTE(isa) itg_slopes_##isa
#define ITG_SLOPES_NAME(isa) ITG_SLOPES_PASTE(isa)
#if defined(ISA_avx512bf16) || defined(ISA_avx512vnni)  // sums are, or become, f32
#define itg_act itg_act_avx512
#define itg_slopes itg_slopes_avx512
#elif defined(ISA_dotprod) || defined(ISA_neonfp16) || defined(ISA_neonbf16)
#define itg_act itg_act_neon
#define itg_slopes itg_slopes_neon
#elif defined(ISA_rvvfp16)
#define itg_act itg_act_rvv
#define itg_slopes itg_slopes_rvv
#else  // those of the ISA that this source is compiled for
#define itg_act ITG_ACT_NAME(ISA)
#define itg_slopes ITG_SLOPES_NAME(ISA)
#endif
