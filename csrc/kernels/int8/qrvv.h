// 8-bit products and requantisation for RISC-V with RVV 1.0, whose widening multiply-add is the
// only product of bytes that it has. A panel of 16 columns is a vector of 16 sums. Weights become
// 16 bits once per step along k; inputs are scalars.
#pragma once
#include "requantize.h"
#include "vec.h"

typedef int8_t qr_bytes __attribute__((ext_vector_type(64), aligned(1), may_alias));
typedef int16_t qr_pairs __attribute__((ext_vector_type(32), aligned(2), may_alias));
enum { QR_ROWS = 5 };  // of a register tile: 5 groups of four registers, and 4 of two for weights

// Every fourth byte of [16 columns][4 along k], from byte i on.
#define QR_FOURTH(v, i)                                                                           \
  vec_to(__builtin_shufflevector(v, v, i, i + 4, i + 8, i + 12, i + 16, i + 20, i + 24, i + 28,   \
                                 i + 32, i + 36, i + 40, i + 44, i + 48, i + 52, i + 56, i + 60), \
         vec_i16)
#define QR_SECOND(v, i)                                                                        \
  __builtin_shufflevector(v, v, i, i + 2, i + 4, i + 6, i + 8, i + 10, i + 12, i + 14, i + 16, \
                          i + 18, i + 20, i + 22, i + 24, i + 26, i + 28, i + 30)

// sum + w * x, wrapping.
INLINE vi qr_madd(vi sum, vec_i16 w, int16_t x) {
  return sum + (vi)(vec_to(w, vm) * vec_to((vec_i16)x, vm));
}

// Adds the products of M rows of u8 (SIGNED: i8), `fours` groups of four bytes each, with one
// panel.
INLINE void qr_sum_up(const int M, const bool SIGNED, const uint8_t *const *row, const uint8_t *w,
                      int64_t fours, vi *sum) {
  for (int64_t k = 0; k < fours * 4; k += 4, w += 64) {
    const qr_bytes all = *(const qr_bytes *)w;
    const vec_i16 y[4] = {QR_FOURTH(all, 0), QR_FOURTH(all, 1), QR_FOURTH(all, 2),
                          QR_FOURTH(all, 3)};
    FOR_UNROLLED (16, int m = 0; m < M; m++)
      FOR_UNROLLED (16, int j = 0; j < 4; j++)
        sum[m] = qr_madd(sum[m], y[j], SIGNED ? (int8_t)row[m][k + j] : row[m][k + j]);
  }
}

// 128 times the sums of the columns of a panel: what i8 inputs lack of u8.
INLINE vi qr_columns(const uint8_t *w, int64_t fours) {
  vi sum = viset(0);
  for (int64_t k = 0; k < fours; k++, w += 64) {
    const qr_bytes all = *(const qr_bytes *)w;
    sum += (vi)vec_to(
        (QR_FOURTH(all, 0) + QR_FOURTH(all, 1)) + (QR_FOURTH(all, 2) + QR_FOURTH(all, 3)), vm);
  }
  return vishl(sum, 7);
}

// Scales n <= 16 sums to floats: `scale` of the first of them, `at` its index in the result.
INLINE vfloat32m4_t qr_scaled(const itg_requantize *q, vint32m4_t sum, const float *scale,
                              int64_t at, size_t n) {
  vfloat32m4_t y =
      __riscv_vfmul_vv_f32m4(__riscv_vfcvt_f_x_v_f32m4(sum, n), __riscv_vle32_v_f32m4(scale, n), n);
  if (!q->residual) return y;
  if (q->kind == ITG_Q_FLOATS)
    return __riscv_vfadd_vv_f32m4(y, __riscv_vle32_v_f32m4((const float *)q->residual + at, n), n);
  const vuint8m1_t bytes =
      __riscv_vxor_vx_u8m1(__riscv_vle8_v_u8m1(q->residual + at, n), (uint8_t)q->r_high, n);
  const vint32m4_t wide = __riscv_vsub_vx_i32m4(
      __riscv_vreinterpret_v_u32m4_i32m4(__riscv_vzext_vf4_u32m4(bytes, n)), q->r_zero, n);
  return __riscv_vfadd_vv_f32m4(
      y, __riscv_vfmul_vf_f32m4(__riscv_vfcvt_f_x_v_f32m4(wide, n), q->r_scale, n), n);
}

// Rounds n scaled sums half to even, looks them up where there is a table, and stores bytes.
INLINE void qr_put_bytes(const itg_requantize *q, vfloat32m4_t y, uint8_t *to, size_t n) {
  y = __riscv_vfmin_vf_f32m4(__riscv_vfmax_vf_f32m4(y, q->lo, n), q->hi, n);
  const vint32m4_t whole = __riscv_vadd_vx_i32m4(__riscv_vfcvt_x_f_v_i32m4(y, n), q->zero, n);
  vuint8m1_t bytes;
  if (q->pieces) {
    int32_t all[16];
    __riscv_vse32_v_i32m4(all, whole, n);
    for (size_t i = 0; i < n; i++) to[i] = itg_q_on_line(q, all[i]);
    return;
  }
  if (q->table)
    bytes = __riscv_vluxei32_v_u8m1(q->table, __riscv_vreinterpret_v_i32m4_u32m4(whole), n);
  else
    bytes = __riscv_vreinterpret_v_i8m1_u8m1(
        __riscv_vncvt_x_x_w_i8m1(__riscv_vncvt_x_x_w_i16m2(whole, n), n));
  __riscv_vse8_v_u8m1(to, bytes, n);
}

// Stores n sums as the kind of result that `q` wants.
INLINE void qr_finish(const itg_requantize *q, const uint32_t *sums, int64_t channel, int64_t at,
                      int64_t n, void *out) {
  const vint32m4_t sum = __riscv_vle32_v_i32m4((const int32_t *)sums, (size_t)n);
  if (q->kind == ITG_Q_SUMS) {
    __riscv_vse32_v_i32m4((int32_t *)out + at, sum, (size_t)n);
    return;
  }
  const vfloat32m4_t y = qr_scaled(q, sum, q->scale + channel, at, (size_t)n);
  if (q->kind == ITG_Q_FLOATS) __riscv_vse32_v_f32m4((float *)out + at, y, (size_t)n);
  else qr_put_bytes(q, y, (uint8_t *)out + at, (size_t)n);
}
