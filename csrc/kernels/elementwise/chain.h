// The instructions of cpu.chain: elementwise f32 operations on rows, by number.
#pragma once
#include "activate.h"

// The binary ops of a chain; the unary ones are ITG_ACTIVATIONS, with higher numbers. Packages
// store these numbers, so new ops can only be appended to the activations. prelu is a binary op
// here; its number among the activations is unused.
#define ITG_PAIRS(B) \
  B(add) B(sub) B(mul) B(div) B(pow) B(mod) B(fmod) B(minimum) B(maximum) B(prelu)
#define ITG_CHAIN_NO_WORD(name) "|-"
#define ITG_CHAIN_WORDS \
  "none" ITG_PAIRS(ITG_ACT_WORD) ITG_ACTIVATIONS(ITG_ACT_WORD, ITG_CHAIN_NO_WORD)
#define ITG_PAIR_ENUM(name) ITG_PAIR_##name,
enum { ITG_PAIR_none, ITG_PAIRS(ITG_PAIR_ENUM) ITG_PAIR_COUNT };
enum { ITG_CHAIN_COUNT = ITG_PAIR_COUNT + ITG_ACT_COUNT - 1 };

// Whether `op` is the number of an instruction.
static inline bool itg_is_instruction(int64_t op) {
  return op > 0 && op < ITG_CHAIN_COUNT && op != ITG_PAIR_COUNT + ITG_ACT_prelu - 1;
}

enum {
  ITG_CHAIN_OPS = 16,     // instructions that a chain may have
  ITG_CHAIN_INPUTS = 8,   // and operands
  ITG_CHAIN_BLOCK = 512,  // elements of a block: all instructions run on it before the next block
};

static inline bool itg_is_pair(int64_t op) { return op < ITG_PAIR_COUNT; }

// Functions that compute n elements of one operation. `out` may be an operand. A unary function
// takes the op's float attributes, at most two.
enum itg_step { BOTH_MOVE, A_STAYS, B_STAYS };  // which operand is one element for the whole row
typedef void itg_unary_fn(const void *in, void *out, int64_t n, const double *args);
typedef void itg_pair_fn(const void *a, const void *b, void *out, int64_t n, enum itg_step step);
#define ITG_CHAIN_TABLES(isa)                 \
  itg_unary_fn *itg_unary_##isa(int64_t act); \
  itg_pair_fn *itg_pair_##isa(int64_t op);
ITG_CHAIN_TABLES(scalar)
ITG_CHAIN_TABLES(avx2)
ITG_CHAIN_TABLES(neon)
ITG_CHAIN_TABLES(armv7)
ITG_CHAIN_TABLES(rvv)
ITG_CHAIN_TABLES(avx512)
#define ITG_CHAIN_PASTE(what, isa) itg_##what##_##isa
#define ITG_CHAIN_NAME(what, isa) ITG_CHAIN_PASTE(what, isa)
#define itg_unary ITG_CHAIN_NAME(unary, ISA)  // those of the ISA that this source is compiled for
#define itg_pair ITG_CHAIN_NAME(pair, ISA)
