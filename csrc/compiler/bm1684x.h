// The BM1684X's TIU, to the bit, for the simulator: sums of products, and rows of integers.
#pragma once
#include "intaglio.h"

// Sums of products: y[group][output][pixel] = sum over taps of
// w[group][output / block][tap][output % block] * x[group][offsets[tap] + pixel], where a block has
// 6 outputs, or 1 if a group has one output. x is readable 16 numbers beyond the last pixel.
typedef struct itg_bm_sums {
  const float *x, *w;
  void *y;  // i32 for integers, f32 for floats
  const int64_t *offsets;
  int64_t groups, outputs, taps, pixels;
  int64_t x_group, w_group;  // numbers from one group to the next
  int64_t exact;             // integers: so many products stay below 2^24
  const float *even, *odd;   // floats: what these sums begin with, as y; or null for 0
} itg_bm_sums;

// `half` sums have blocks of at most 32 taps, whose sizes these are.
typedef struct itg_bm_blocks {
  itg_bm_sums sums;
  const int64_t *sizes;
  int64_t count;
} itg_bm_blocks;

ITG_API void itg_bm_integer_sums(const itg_bm_sums *sums);
// As the chip adds: products rounded to f32; those of even and of odd taps summed up in order.
ITG_API void itg_bm_float_sums(const itg_bm_sums *sums);

// As the chip adds products of f16 or bf16: those of a block are cut off 24 bits below the leading
// bit of the largest and added exactly; the sums of blocks are added in f32, to `even` first.
ITG_API void itg_bm_half_sums(const itg_bm_blocks *blocks);

// A tensor [n][c][h][w] in local memory; strides in bytes; channel c lies in lane (lane + c) % 64,
// block (lane + c) / 64. A constant has strides 0 and is not in lanes.
typedef struct itg_bm_tensor {
  uint8_t *at;
  int64_t n, c, h, w;
  int64_t lane, type;  // type: 0 i8, 1 u8, 2 i16, 3 u16, 4 i32, 5 u32, 6 constant in `at`
} itg_bm_tensor;

enum { ITG_BM_ADD, ITG_BM_SUB, ITG_BM_MUL, ITG_BM_MAX, ITG_BM_MIN, ITG_BM_RQ0, ITG_BM_RQ1 };

// y = a op b, shifted by a constant, rounded, and clamped or wrapped; or y = requantised a, with
// one multiplier, shift and zero (rq1), or scale and offset (rq0) per channel.
typedef struct itg_bm_rows {
  itg_bm_tensor y, a, b;
  int64_t shape[4];
  int64_t op, mode, shift, saturate;
  const int64_t *multiplier, *by, *zero;  // rq1: [channels]
  const float *scale, *offset;            // rq0: [channels]
} itg_bm_rows;

ITG_API void itg_bm_run_rows(const itg_bm_rows *rows);
