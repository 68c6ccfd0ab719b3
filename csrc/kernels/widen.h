// Conversion of blocks between any element type and the wide type that computes for it (f32, f64,
// i64, u64), so that a kernel is written for four types and works on twenty-three. Blocks of
// ITG_BLOCK elements stay in the L1 cache.
#pragma once
#include "scalar.h"

enum { ITG_BLOCK = 256 };
enum itg_wide { ITG_WIDE_F32, ITG_WIDE_F64, ITG_WIDE_I64, ITG_WIDE_U64 };

// f16, bf16 and all smaller floats compute in f32; integers in 64 bits of their signedness; bool in
// u64.
static inline enum itg_wide itg_wide(uint8_t dtype) {
  switch (dtype) {
    case ITG_F64: return ITG_WIDE_F64;
    case ITG_I8:
    case ITG_I16:
    case ITG_I32:
    case ITG_I64:
    case ITG_I4:
    case ITG_I2: return ITG_WIDE_I64;
    case ITG_U8:
    case ITG_U16:
    case ITG_U32:
    case ITG_U64:
    case ITG_U4:
    case ITG_U2:
    case ITG_BOOL: return ITG_WIDE_U64;
    default: return ITG_WIDE_F32;
  }
}
static inline bool itg_is_integer(uint8_t dtype) {
  return !itg_is_float(dtype) && dtype != ITG_BOOL;
}
static inline size_t itg_wide_item(enum itg_wide w) { return w == ITG_WIDE_F32 ? 4 : 8; }

// A block of any wide type.
typedef union itg_block {
  float f32[ITG_BLOCK];
  double f64[ITG_BLOCK];
  int64_t i64[ITG_BLOCK];
  uint64_t u64[ITG_BLOCK];
} itg_block;

// Converts n elements of `dtype` at `from` to the wide type itg_wide(dtype) at `wide`, or back.
// Narrowing wraps integers and rounds floats half to even. Numbers too large for a small float
// become its largest value (saturate), or inf or NaN.
typedef void itg_widen_fn(void *wide, const void *from, uint8_t dtype, int64_t n);
typedef void itg_narrow_fn(void *to, const void *wide, uint8_t dtype, int64_t n, bool saturate);
itg_widen_fn itg_block_widen_scalar, itg_block_widen_avx2, itg_block_widen_avx512,
    itg_block_widen_neon, itg_block_widen_armv7, itg_block_widen_rvv;
itg_narrow_fn itg_block_narrow_scalar, itg_block_narrow_avx2, itg_block_narrow_avx512,
    itg_block_narrow_neon, itg_block_narrow_armv7, itg_block_narrow_rvv;
#define itg_widen ITG_NAME(block, widen, ISA)
#define itg_narrow ITG_NAME(block, narrow, ISA)
