// bf16 convolutions, pools and matrix products of the TIU, summed up in f32 in the chip's order.
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cv18xx_sums.h"

enum { MAX_POOL = 0, AVERAGE_POOL = 1, DEPTHWISE = 2, MIN_POOL = 3 };

typedef struct {
  const itg_cv18xx_tiu *t;
  window s;
  view x, w, y, bias;
  float *map;
} work;

// A float whose halves are two rows of 16 bits: the high one first.
static float split_float(const uint8_t *p, int64_t step) {
  union {
    uint32_t bits;
    float value;
  } u = {.bits = (uint32_t)read16(p) << 16 | read16(p + step)};
  return u.value;
}

static void pad_map(const itg_cv18xx *m, const work *k, int64_t n, int64_t first, int64_t many) {
  float edge = bf16_float((uint16_t)k->t->opd0_ins_val);
  for (int64_t i = 0; i < many * k->s.high * k->s.wide; i++) k->map[i] = edge;
  for (int64_t c = 0; c < many; c++) {
    const uint8_t *from = channel(m, &k->x, n, first + c);
    float *plane = k->map + c * k->s.high * k->s.wide;
    for (int64_t h = 0; h < k->x.h; h++) {
      float *to = plane + (k->s.top + h * k->s.y_step) * k->s.wide + k->s.left;
      for (int64_t w = 0; w < k->x.w; w++)
        to[w * k->s.x_step] = bf16_float(read16(from + h * k->x.h_str + w * k->x.w_str));
    }
  }
}

static int bias_view(itg_cv18xx *m, work *k) {
  k->bias = place(m, k->t->opd2_addr, 2, k->y.c, 1, 1);
  own_strides(m, &k->bias, 2, CHANNELS);
  return k->t->tsk_opd_num != 3 || inside(m, &k->bias, 2);
}

static void store(const itg_cv18xx_tiu *t, uint8_t *to, float v) {
  if (t->opt_relu_typ && v < 0) v = 0;
  write16(to, float_bf16(v));
}

static int begin(itg_cv18xx *m, work *k, int64_t channels) {
  const itg_cv18xx_tiu *t = k->t;
  if (t->opt_relu_typ > 1) return refuse(m, "only plain relu is supported");
  if (t->ps32_md) return refuse(m, "bf16 windows with sums of 32 bits are not supported");
  k->y = result_view(m, t, 2);
  k->x = operand0_view(m, t, 2);
  if (k->x.n != k->y.n) return refuse(m, "input and result have different batches");
  if (!inside(m, &k->y, 2) || !inside(m, &k->x, 2) || !make_window(m, t, &k->s, &k->y, &k->x))
    return 0;
  int64_t outputs = k->y.n * k->y.c * k->y.h * k->y.w;
  int64_t terms = (int64_t)t->opd1_h * t->opd1_w * channels;
  if (outputs > MOST_WORK / 64 || terms > MOST_WORK / 256 || outputs * terms > 4LL * MOST_WORK)
    return refuse(m, "it computes more than a real command can");
  k->map = malloc((size_t)(channels * k->s.high * k->s.wide) * sizeof(float));
  return k->map || refuse(m, "no memory");
}

// Convolutions take numbers below the smallest normal one as 0.
static float flushed(float v) { return fabsf(v) < FLT_MIN ? copysignf(0, v) : v; }

// The sum, rounded towards zero: convolutions add so.
static float add_truncated(float a, float b) {
  const float sum = a + b, part = sum - a, rest = (a - (sum - part)) + (b - part);
  if (rest == 0 || (rest < 0) == (sum < 0)) return sum;
  union {
    float value;
    uint32_t bits;
  } u = {.value = sum};
  u.bits--;
  return u.value;
}

static void conv_output(itg_cv18xx *m, const work *k, int64_t n, int64_t o) {
  const itg_cv18xx_tiu *t = k->t;
  const uint8_t *weights = channel(m, &k->w, 0, o);
  float bias = t->tsk_opd_num == 3 ? split_float(channel(m, &k->bias, 0, o), k->bias.n_str) : 0;
  for (int64_t i = 0; i < k->y.h * k->y.w; i++) {
    int64_t h = i / k->y.w, w = i % k->y.w;
    float sum = 0;
    for (int64_t ky = 0; ky < t->opd1_h; ky++)
      for (int64_t kx = 0; kx < t->opd1_w; kx++)
        for (int64_t c = 0; c < k->x.c; c++) {
          float x = k->map[(c * k->s.high + h * k->s.y_str + ky * k->s.y_dil) * k->s.wide +
                           w * k->s.x_str + kx * k->s.x_dil];
          float w = bf16_float(read16(weights + 2 * ((ky * t->opd1_w + kx) * k->x.c + c)));
          sum = flushed(add_truncated(sum, flushed(flushed(x) * flushed(w))));
        }
    store(t, channel(m, &k->y, n, o) + h * k->y.h_str + w * k->y.w_str, add_truncated(sum, bias));
  }
}

int itg_cv18xx_conv_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  work k = {.t = t};
  if (t->opd1_n != t->opd0_c) return refuse(m, "weights and input have different channels");
  k.w = place(m, t->opd1_addr, 1, t->res0_c, 1, (int64_t)t->opd0_c * t->opd1_h * t->opd1_w);
  strides(&k.w, 0, k.w.w * 2, 0, 2);
  if (!inside(m, &k.w, 2) || !begin(m, &k, t->opd0_c)) return 0;
  int fine = bias_view(m, &k);
  for (int64_t n = 0; fine && n < k.y.n; n++) {
    pad_map(m, &k, n, 0, k.x.c);
    for (int64_t o = 0; o < k.y.c; o++) conv_output(m, &k, n, o);
  }
  free(k.map);
  return fine;
}

static void one_plane(itg_cv18xx *m, const work *k, int64_t n, int64_t c) {
  const itg_cv18xx_tiu *t = k->t;
  int kind = (int)t->tsk_eu_typ;
  const uint8_t *weights = kind == DEPTHWISE ? channel(m, &k->w, 0, c) : NULL;
  float fixed = bf16_float((uint16_t)t->opd1_addr), bias = 0;
  if (kind == DEPTHWISE && t->tsk_opd_num == 3)
    bias = split_float(channel(m, &k->bias, 0, c), k->bias.n_str);
  for (int64_t i = 0; i < k->y.h * k->y.w; i++) {
    int64_t h = i / k->y.w, w = i % k->y.w;
    float v = 0;
    for (int64_t ky = 0; ky < t->opd1_h; ky++)
      for (int64_t kx = 0; kx < t->opd1_w; kx++) {
        float x = k->map[(h * k->s.y_str + ky * k->s.y_dil) * k->s.wide + w * k->s.x_str +
                         kx * k->s.x_dil];
        int first = !ky && !kx;
        if (kind == MAX_POOL) v = first || x > v ? x : v;
        else if (kind == MIN_POOL) v = first || x < v ? x : v;
        else if (kind == AVERAGE_POOL) v += x * fixed;
        else v += x * bf16_float(read16(weights + ky * k->w.h_str + kx * k->w.w_str));
      }
    store(t, channel(m, &k->y, n, c) + h * k->y.h_str + w * k->y.w_str, v + bias);
  }
}

int itg_cv18xx_windows_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  work k = {.t = t};
  k.w = operand1_view(m, t, 2);
  if (t->opd0_c != t->res0_c) return refuse(m, "input and result differ in channels");
  if (t->tsk_eu_typ == DEPTHWISE && (t->opt_opd1_const || k.w.c != t->res0_c))
    return refuse(m, "weights and input have different channels");
  if (t->tsk_eu_typ == DEPTHWISE && !inside(m, &k.w, 2)) return 0;
  if (!begin(m, &k, 1)) return 0;
  int fine = t->tsk_eu_typ != DEPTHWISE || bias_view(m, &k);
  for (int64_t n = 0; fine && n < k.y.n; n++)
    for (int64_t c = 0; c < k.y.c; c++) {
      pad_map(m, &k, n, c, 1);
      one_plane(m, &k, n, c);
    }
  free(k.map);
  return fine;
}

// A row of the result. Sums of 32 bits lie in two planes of 16 bits, the high halves first.
static void matmul_row(itg_cv18xx *m, const work *k, int64_t n, int64_t depth, float *sums) {
  const itg_cv18xx_tiu *t = k->t;
  int64_t wide = k->y.w, plane = k->y.n * k->y.n_str;
  for (int64_t i = 0; i < k->y.c * wide; i++) sums[i] = 0;
  for (int64_t i = 0; i < depth; i++) {
    float left = bf16_float(read16(channel(m, &k->x, n, i / t->opd0_w) + i % t->opd0_w * 2));
    for (int64_t c = 0; c < k->y.c; c++) {
      const uint8_t *right = channel(m, &k->w, i, c);
      for (int64_t j = 0; j < wide; j++)
        sums[c * wide + j] += left * bf16_float(read16(right + 2 * j));
    }
  }
  for (int64_t c = 0; c < k->y.c; c++) {
    uint8_t *out = channel(m, &k->y, n, c);
    const uint8_t *bias = t->tsk_opd_num == 3 ? channel(m, &k->bias, 0, c) : NULL;
    for (int64_t j = 0; j < wide; j++, out += 2) {
      float v = sums[c * wide + j];
      if (t->ps32_md & SUMS_IN) v += split_float(out, plane);
      if (t->ps32_md & SUMS_OUT) {
        uint32_t bits;
        memcpy(&bits, &v, 4);
        write16(out, (uint16_t)(bits >> 16));
        write16(out + plane, (uint16_t)bits);
        continue;
      }
      if (bias) v += split_float(bias + 2 * j, k->bias.n_str);
      if (t->opt_res_add) v += bf16_float(read16(out));
      store(t, out, v);
    }
  }
}

int itg_cv18xx_matmul_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  if (t->opt_relu_typ > 1) return refuse(m, "only plain relu is supported");
  work k = {.t = t, .x = operand0_view(m, t, 2), .y = result_view(m, t, 2)};
  k.w = place(m, t->opd1_addr, t->opd1_n, t->opd1_c, 1, t->res0_w);
  own_strides(m, &k.w, 2, AUTOMATIC);
  k.bias = place(m, t->opd2_addr, 2, t->res0_c, 1, t->res0_w);
  own_strides(m, &k.bias, 2, AUTOMATIC);
  int64_t depth = (int64_t)t->opd0_w * ((int64_t)t->opd0_c - 1) + t->opd1_w;
  if (!t->opd0_c || t->opd1_w > t->opd0_w) return refuse(m, "the left matrix is not valid");
  if (t->opd1_n != depth) return refuse(m, "the matrices do not fit each other");
  if (t->opd0_n != t->res0_n || t->opd1_c != t->res0_c) return refuse(m, "the result does not fit");
  view last = k.y;
  last.offset += t->ps32_md ? k.y.n * k.y.n_str : 0;
  if (!inside(m, &k.x, 2) || !inside(m, &k.y, 2) || !inside(m, &last, 2) || !inside(m, &k.w, 2))
    return 0;
  if (t->tsk_opd_num == 3 && !inside(m, &k.bias, 2)) return 0;
  if (k.y.n * depth * k.y.c * k.y.w > 4LL * MOST_WORK)
    return refuse(m, "it computes more than a real command can");
  float *sums = malloc((size_t)(k.y.c * k.y.w) * sizeof(float));
  if (!sums) return refuse(m, "no memory");
  for (int64_t n = 0; n < k.y.n; n++) matmul_row(m, &k, n, depth, sums);
  free(sums);
  return 1;
}
