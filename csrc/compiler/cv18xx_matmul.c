// The matrix product of the TIU: rows of the left matrix times the right one.
#include <stdlib.h>

#include "cv18xx_sums.h"

typedef struct {
  const itg_cv18xx_tiu *t;
  view left, right, bias, y;
  int64_t depth;     // columns of the left matrix
  int64_t b_stride;  // from one byte of a wide result to the next
} work;

// One row of the right matrix, one piece (a channel) of it, times a number.
static void add_row(int64_t *restrict sums, const uint8_t *restrict right, int64_t count,
                    int64_t left, uint32_t is_signed) {
  if (is_signed)
    for (int64_t i = 0; i < count; i++) sums[i] += left * (int8_t)right[i];
  else
    for (int64_t i = 0; i < count; i++) sums[i] += left * right[i];
}

static int64_t wide_at(const uint8_t *p, int64_t step, int bytes) {
  uint32_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint32_t)p[i * step] << 8 * i;
  return bytes == 4 ? (int32_t)v : (int16_t)v;
}

static void finish(itg_cv18xx *m, const work *k, int64_t n, int64_t c, const int64_t *sums) {
  const itg_cv18xx_tiu *t = k->t;
  uint8_t *out = channel(m, &k->y, n, c);
  const uint8_t *bias = t->tsk_opd_num == 3 ? channel(m, &k->bias, 0, c) : NULL;
  for (int64_t i = 0; i < k->y.w; i++) {
    int64_t v = sums[i];
    if (t->ps32_md & SUMS_IN) v += wide_at(out + i, k->b_stride, 4);
    if (t->ps32_md & SUMS_OUT) {
      for (int b = 0; b < 4; b++) out[i + b * k->b_stride] = (uint8_t)((uint64_t)v >> 8 * b);
      continue;
    }
    if (bias) {
      int64_t b = wide_at(bias + i, k->bias.n_str, t->opt_chl_quan ? 4 : 2);
      v += !t->opt_chl_quan && !t->opt_opd2_sign ? (uint16_t)b : b;
    }
    if (t->opt_chl_quan) v = (int32_t)(uint32_t)(uint64_t)v;
    if (t->opt_res_add) v += wide_at(out + i, k->b_stride, 2) * (1LL << t->opt_left_shift);
    v = t->opt_chl_quan ? requantize(v, t->quan_m, (int)t->opt_res_shift)
                        : shift_up(v, (int)t->opt_res_shift);
    if (t->opt_relu_typ && v < 0) v = 0;
    if (t->opt_res0_seg) {
      out[i] = byte_of(v, t->opt_res0_sign);
      continue;
    }
    v = t->opt_res0_sign ? within(v, -32768, 32767) : within(v, 0, 65535);
    out[i] = (uint8_t)v;
    out[i + k->b_stride] = (uint8_t)(v >> 8);
  }
}

int itg_cv18xx_matmul(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  if (t->opd_typ) return itg_cv18xx_matmul_bf16(m, t);
  if (t->opt_relu_typ > 1) return refuse(m, "only plain relu is supported");
  work k = {.t = t};
  k.y = result_view(m, t, 1);
  k.left = operand0_view(m, t, 1);
  k.right = place(m, t->opd1_addr, t->opd1_n, t->opd1_c, 1, t->res0_w);
  own_strides(m, &k.right, 1, AUTOMATIC);
  k.depth = (int64_t)t->opd0_w * (t->opd0_c - 1) + t->opd1_w;
  int planes = t->ps32_md ? 4 : t->opt_res0_seg ? 1 : 2;
  int64_t rows = planes == 2 && !t->ps32_md ? t->opd0_n : t->res0_n;
  k.b_stride = rows * k.y.n_str;
  k.y.n = rows;
  if (t->opd0_c == 0 || t->opd1_w > t->opd0_w) return refuse(m, "the left matrix is not valid");
  if (t->opd1_n != k.depth) return refuse(m, "the matrices do not fit each other");
  if (t->opd0_n != rows || t->opd1_c != t->res0_c) return refuse(m, "the result does not fit");
  view taken = k.y;
  taken.offset += (planes - 1) * k.b_stride;
  if (!inside(m, &k.y, 1) || !inside(m, &taken, 1) || !inside(m, &k.left, 1) ||
      !inside(m, &k.right, 1))
    return 0;
  if (t->tsk_opd_num == 3) {
    k.bias = place(m, t->opd2_addr, t->opt_chl_quan ? 4 : 2, t->res0_c, 1, t->res0_w);
    own_strides(m, &k.bias, 1, AUTOMATIC);
    if (!inside(m, &k.bias, 1)) return 0;
  }
  if (rows * k.depth * k.y.c * k.y.w > 4LL * MOST_WORK)
    return refuse(m, "it computes more than a real command can");
  int64_t *sums = malloc((size_t)(k.y.c * k.y.w) * sizeof(int64_t));
  if (!sums) return refuse(m, "no memory");
  for (int64_t n = 0; n < rows; n++) {
    memset(sums, 0, (size_t)(k.y.c * k.y.w) * sizeof(int64_t));
    for (int64_t i = 0; i < k.depth; i++) {
      int64_t left =
          read_byte(channel(m, &k.left, n, i / t->opd0_w) + i % t->opd0_w, t->opt_opd0_sign);
      for (int64_t c = 0; c < k.y.c; c++)
        add_row(sums + c * k.y.w, channel(m, &k.right, i, c), k.y.w, left, t->opt_opd1_sign);
    }
    for (int64_t c = 0; c < k.y.c; c++) finish(m, &k, n, c, sums + c * k.y.w);
  }
  free(sums);
  return 1;
}
