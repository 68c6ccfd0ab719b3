// What convolutions and pools share: windows over padded planes, and what becomes of sums.
#pragma once
#include "cv18xx_machine.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define CLONES
#endif

// How windows move over a padded plane.
typedef struct {
  int64_t high, wide;                 // of the padded plane
  int64_t top, left, y_step, x_step;  // where the elements of the input lie in it
  int64_t y_str, x_str, y_dil, x_dil;
} window;

enum { LONGEST = 64 };               // sums that become bytes at once
enum { SUMS_IN = 1, SUMS_OUT = 2 };  // bits of ps32_md: sums of 32 bits are read, are written

int itg_cv18xx_conv_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t);
int itg_cv18xx_windows_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t);
int itg_cv18xx_matmul_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t);
int itg_cv18xx_eltwise_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t);

static inline int32_t edge_byte(const itg_cv18xx_tiu *t) {
  return t->opt_opd0_sign ? (int8_t)t->opd0_ins_val : (uint8_t)t->opd0_ins_val;
}

static inline view result_view(const itg_cv18xx *m, const itg_cv18xx_tiu *t, int64_t bytes) {
  view v = place(m, t->res0_addr, t->res0_n, t->res0_c, t->res0_h, t->res0_w);
  if (t->short_res0_str == MANUAL)
    strides(&v, t->res0_n_str, t->res0_c_str, t->res0_h_str, t->res0_w_str);
  else own_strides(m, &v, bytes, t->short_res0_str);
  return v;
}

static inline view operand0_view(const itg_cv18xx *m, const itg_cv18xx_tiu *t, int64_t bytes) {
  view v = place(m, t->opd0_addr, t->opd0_n, t->opd0_c, t->opd0_h, t->opd0_w);
  if (t->short_opd0_str == MANUAL)
    strides(&v, t->opd0_n_str, t->opd0_c_str, t->opd0_h_str, t->opd0_w_str);
  else own_strides(m, &v, bytes, t->short_opd0_str);
  return v;
}

static inline view operand1_view(const itg_cv18xx *m, const itg_cv18xx_tiu *t, int64_t bytes) {
  view v = place(m, t->opd1_addr, t->opd1_n, t->opd1_c, t->opd1_h, t->opd1_w);
  if (t->short_opd1_str == MANUAL)
    strides(&v, t->opd1_n_str, t->opd1_c_str, t->opd1_h_str, t->opd1_w_str);
  else own_strides(m, &v, bytes, t->short_opd1_str);
  return v;
}

// 0 unless every window of the result lies in the padded plane.
static inline int make_window(itg_cv18xx *m, const itg_cv18xx_tiu *t, window *s, const view *y,
                              const view *x) {
  s->top = t->conv_opd0_up_pad;
  s->left = t->conv_opd0_lf_pad;
  s->y_step = t->conv_opd0_y_ins0 + 1;
  s->x_step = t->conv_opd0_x_ins0 + 1;
  s->y_str = t->conv_op_y_str;
  s->x_str = t->conv_op_x_str;
  int dilates = t->tsk_typ == 0;  // the vendor's simulator ignores it in depthwise convolutions
  s->y_dil = dilates ? t->conv_opd1_y_ins0 + 1 : 1;
  s->x_dil = dilates ? t->conv_opd1_x_ins0 + 1 : 1;
  s->high = s->top + (x->h - 1) * s->y_step + 1 + t->conv_opd0_y_ins0_last + t->conv_opd0_dn_pad;
  s->wide = s->left + (x->w - 1) * s->x_step + 1 + t->conv_opd0_x_ins0_last + t->conv_opd0_rt_pad;
  if (!t->opd1_h || !t->opd1_w) return refuse(m, "the kernel is empty");
  if (t->tsk_typ != 0 && (!s->y_str || !s->x_str)) return refuse(m, "the windows do not move");
  int64_t rows = (y->h - 1) * s->y_str + ((int64_t)t->opd1_h - 1) * s->y_dil + 1;
  int64_t columns = (y->w - 1) * s->x_str + ((int64_t)t->opd1_w - 1) * s->x_dil + 1;
  if (rows > s->high || columns > s->wide)
    return refuse(m, "windows reach beyond the padded input");
  if (x->c * s->high * s->wide > MOST_WORK / 4) return refuse(m, "the padded input is too large");
  return 1;
}

// Where the numbers for quantisation lie, one record for each output channel.
static inline int quantization_view(itg_cv18xx *m, const itg_cv18xx_tiu *t, view *q,
                                    const view *y) {
  int64_t bytes = t->tsk_opd_num == 3 ? 9 : 5;
  *q = place(m, t->opd2_addr, 1, y->c, 1, 1);
  strides(q, 0, bytes, 0, 1);
  if (t->ps32_md) {
    view last = *y;
    last.offset += 3 * (int64_t)t->res0_b_str;
    if (!inside(m, &last, 1)) return 0;
  }
  if (t->ps32_md & SUMS_OUT) return 1;
  if (!t->opt_chl_quan) {
    if (t->tsk_opd_num != 3) return 1;
    strides(q, 0, 1, 0, 1);
    view high = *q;  // the bias has 16 bits, in two planes
    high.offset += (y->c + m->lanes - 1) / m->lanes;
    return inside(m, &high, 1);
  }
  return inside(m, q, bytes);
}

static inline int32_t read32(const uint8_t *p) {
  return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                   (uint32_t)p[3] << 24);
}

// A quantised sum: multiplied by a fraction of 31 bits with halves up, then shifted with halves
// away.
static inline int64_t requantize(int64_t sum, uint32_t multiplier, int shift) {
  int64_t v = (sum * (int64_t)multiplier + (1LL << 30)) >> 31;
  return shift_away(v, shift);
}

// The bytes of `count` sums; |sum + bias| is below 2^31, as is the multiplier.
void itg_cv18xx_requantize(const int32_t *sums, int64_t count, int32_t bias, int32_t multiplier,
                           int shift, int relu, int is_signed, uint8_t *out);

static inline void copy_bytes(uint8_t *to, const uint8_t *from, int64_t count) {
  if (count < 8 || count > 256) {
    if (count > 256) memcpy(to, from, (size_t)count);
    else
      for (int64_t i = 0; i < count; i++) to[i] = from[i];
    return;
  }
  int64_t last = count - 8;
  for (int64_t i = 0; i < last; i += 8) memcpy(to + i, from + i, 8);
  memcpy(to + last, from + last, 8);
}

// Writes the bytes of an output channel, given its sums in lines of `pitch`; `bytes` has room for
// as many.
static inline void finish_lines(itg_cv18xx *m, const itg_cv18xx_tiu *t, const view *y,
                                const view *q, int64_t n, int64_t o, const int32_t *sums,
                                int64_t pitch, uint8_t *bytes) {
  uint8_t *out = channel(m, y, n, o);
  const uint8_t *record = channel(m, q, 0, o);
  int64_t bias = 0;
  uint32_t multiplier = 0;
  int shift = 0;
  if (!(t->ps32_md & SUMS_OUT)) {
    if (t->opt_chl_quan) {
      const uint8_t *at = record;
      if (t->tsk_opd_num == 3) bias = read32(at), at += 4;
      multiplier = (uint32_t)read32(at);
      shift = at[4] & 63;
    } else if (t->tsk_opd_num == 3) {
      uint8_t high = record[(y->c + m->lanes - 1) / m->lanes];
      bias = t->opt_opd2_sign ? (int16_t)(record[0] | high << 8) : record[0] | high << 8;
    }
  }
  if (t->opt_chl_quan && !t->ps32_md && multiplier < 1U << 31 && bias < 1 << 30 &&
      bias > -(1 << 30) && y->w_str == 1) {
    int64_t count = (y->h - 1) * pitch + y->w;
    int whole = y->h == 1 || (y->h_str == y->w && pitch == y->w);
    uint8_t *made = whole ? out : bytes;
    itg_cv18xx_requantize(sums, count, (int32_t)bias, (int32_t)multiplier, shift,
                          (int)t->opt_relu_typ, (int)t->opt_res0_sign, made);
    for (int64_t h = 0; !whole && h < y->h; h++)
      copy_bytes(out + h * y->h_str, made + h * pitch, y->w);
    return;
  }
  int64_t b = t->res0_b_str;
  for (int64_t h = 0; h < y->h; h++, sums += pitch, out += y->h_str) {
    uint8_t *to = out;
    for (int64_t w = 0; w < y->w; w++, to += y->w_str) {
      int64_t v = sums[w];
      if (t->ps32_md & SUMS_IN)
        v += (int32_t)((uint32_t)to[0] | (uint32_t)to[b] << 8 | (uint32_t)to[2 * b] << 16 |
                       (uint32_t)to[3 * b] << 24);
      if (t->ps32_md & SUMS_OUT) {
        for (int i = 0; i < 4; i++) to[i * b] = (uint8_t)((uint64_t)v >> 8 * i);
        continue;
      }
      v += bias;
      if (t->opt_chl_quan) v = (int32_t)(uint32_t)(uint64_t)v;  // sums wrap
      v = t->opt_chl_quan ? requantize(v, multiplier, shift) : shift_up(v, (int)t->opt_res_shift);
      if (t->opt_relu_typ && v < 0) v = 0;
      *to = byte_of(v, t->opt_res0_sign);
    }
  }
}
