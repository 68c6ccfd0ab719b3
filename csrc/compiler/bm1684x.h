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

// A tensor [n][c][h][w]; strides in bytes. Channel c lies in lane (lane + c) % lanes of local
// memory, block (lane + c) / lanes; memory without lanes has lanes = 1.
typedef struct itg_bm_tensor {
  uint8_t *at;
  int64_t n, c, h, w;
  int64_t lane, lanes, type;
} itg_bm_tensor;

enum { ITG_BM_I8, ITG_BM_U8, ITG_BM_I16, ITG_BM_U16, ITG_BM_I32, ITG_BM_U32 };  // types
enum { ITG_BM_CONSTANT = 6, ITG_BM_F32 };  // a constant lies in `at`; none: the tensor is absent
enum { ITG_BM_NONE = 8 };

// What a job does. Up to ITG_BM_MIN: y = a op b, shifted by a constant, rounded, and clamped or
// wrapped. RQ0, RQ1, DQ0: y = a by the numbers of each channel. F_...: y = a op b of f32. CAST: f32
// to integers, halves to even. COPY: elements of 1, 2 or 4 bytes. CONV, DEPTHWISE, MAX_POOL:
// windows.
enum {
  ITG_BM_ADD,
  ITG_BM_SUB,
  ITG_BM_MUL,
  ITG_BM_MAX,
  ITG_BM_MIN,
  ITG_BM_RQ0,
  ITG_BM_RQ1,
  ITG_BM_DQ0,
  ITG_BM_F_ADD,
  ITG_BM_F_SUB,
  ITG_BM_F_MUL,
  ITG_BM_CAST,
  ITG_BM_COPY,
  ITG_BM_CONV,
  ITG_BM_DEPTHWISE,
  ITG_BM_MAX_POOL
};

// A command whose operands are checked.
typedef struct itg_bm_job {
  int64_t op;
  itg_bm_tensor y, a, b;  // windows: b is the tensor that is added to the sums, or absent
  itg_bm_tensor w, bias;  // windows: weights, and one i32 per channel or a constant
  itg_bm_tensor numbers;  // per channel: multiplier, shift, zero; scale, offset; or zero, scale
  int64_t given[3];       // those numbers, if they are constants; f32 as bits
  int64_t packed;         // shift and zero share a number: bits 0 to 7, bits 16 to 31
  int64_t zero_bits;      // 16: zeros of RQ1 are i16, -16: u16
  int64_t swapped;        // DQ0: scale, then zero
  int64_t shape[4];       // of y
  int64_t rounds, mode, shift, saturate, relu;
  int64_t input[3], kernel[2], stride[2], dilation[2], pad[2];  // c h w; y x; up left
  int64_t fill, rotate, at_once;  // the value of padding; inputs whose weights lie side by side
} itg_bm_job;

// Memory that a job needs for its work.
ITG_API int64_t itg_bm_scratch(const itg_bm_job *job);
// Run jobs in order; returns how many ran: the next one has numbers that are not computed here.
ITG_API int64_t itg_bm_run_jobs(const itg_bm_job *jobs, int64_t count, void *scratch, uint32_t isa);
