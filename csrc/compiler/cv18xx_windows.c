// Depthwise convolutions and pools of the TIU.
#include "cv18xx_sums.h"

CLONES void itg_cv18xx_requantize(const int32_t *sums, int64_t count, int32_t bias,
                                  int32_t multiplier, int shift, int relu, int is_signed,
                                  uint8_t *out) {
  int64_t half = shift ? 1LL << (shift - 1) : 0;
  int32_t low = relu || !is_signed ? 0 : -128, high = is_signed ? 127 : 255;
  int32_t made[LONGEST];
  for (int64_t i = 0; i < count; i++) {
    int64_t v = ((int64_t)(int32_t)(sums[i] + bias) * multiplier + (1LL << 30)) >> 31;
    int32_t narrow = (int32_t)v, sign = narrow >> 31;  // |v| is below 2^31
    uint64_t size = (uint32_t)((narrow ^ sign) - sign);
    int32_t shifted = (int32_t)((size + (uint64_t)half) >> shift);
    int32_t y = (shifted ^ sign) - sign;
    made[i] = y < low ? low : y > high ? high : y;
  }
  for (int64_t i = 0; i < count; i++) out[i] = (uint8_t)made[i];
}

enum { MAX_POOL = 0, AVERAGE_POOL = 1, DEPTHWISE = 2, MIN_POOL = 3 };

typedef struct {
  const itg_cv18xx_tiu *t;
  window s;
  view x, w, y, q;
  int32_t *plane, *sums;
} work;

CLONES static void widen(const uint8_t *restrict from, int32_t *restrict to, int64_t count,
                         int is_signed) {
  if (is_signed)
    for (int64_t i = 0; i < count; i++) to[i] = (int8_t)from[i];
  else
    for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

static void pad_plane(const itg_cv18xx *m, const work *k, int64_t n, int64_t c) {
  const uint8_t *from = channel(m, &k->x, n, c);
  int32_t edge = edge_byte(k->t);
  for (int64_t i = 0; i < k->s.high * k->s.wide; i++) k->plane[i] = edge;
  for (int64_t h = 0; h < k->x.h; h++) {
    int32_t *to = k->plane + (k->s.top + h * k->s.y_step) * k->s.wide + k->s.left;
    const uint8_t *in = from + h * k->x.h_str;
    if (k->x.w_str == 1 && k->s.x_step == 1) {
      widen(in, to, k->x.w, (int)k->t->opt_opd0_sign);
      continue;
    }
    for (int64_t w = 0; w < k->x.w; w++)
      to[w * k->s.x_step] = read_byte(in + w * k->x.w_str, k->t->opt_opd0_sign);
  }
}

// One tap of every window of a row.
CLONES static void add_tap(int32_t *restrict sums, const int32_t *restrict x, int64_t count,
                           int64_t step, int32_t w) {
  if (step == 1)
    for (int64_t i = 0; i < count; i++) sums[i] += w * x[i];
  else
    for (int64_t i = 0; i < count; i++) sums[i] += w * x[i * step];
}

CLONES static void most_of(int32_t *restrict best, const int32_t *restrict x, int64_t count,
                           int64_t step, int least) {
  for (int64_t i = 0; i < count; i++) {
    int32_t v = x[i * step];
    best[i] = least ? (v < best[i] ? v : best[i]) : (v > best[i] ? v : best[i]);
  }
}

static void one_plane(itg_cv18xx *m, const work *k, int64_t n, int64_t c) {
  const itg_cv18xx_tiu *t = k->t;
  int kind = (int)t->tsk_eu_typ, is_pool = kind == MAX_POOL || kind == MIN_POOL;
  const uint8_t *weights = kind == DEPTHWISE ? channel(m, &k->w, 0, c) : NULL;
  int32_t first = is_pool ? edge_byte(t) : 0;  // the padding value counts in every window
  for (int64_t h = 0; h < k->y.h; h++) {
    for (int64_t i = 0; i < k->y.w; i++) k->sums[i] = first;
    for (int64_t ky = 0; ky < t->opd1_h; ky++)
      for (int64_t kx = 0; kx < t->opd1_w; kx++) {
        const int32_t *x =
            k->plane + (h * k->s.y_str + ky * k->s.y_dil) * k->s.wide + kx * k->s.x_dil;
        if (is_pool) {
          most_of(k->sums, x, k->y.w, k->s.x_str, kind == MIN_POOL);
          continue;
        }
        int32_t w = 1;
        if (kind == DEPTHWISE)
          w = t->opt_opd1_const
                  ? (t->opt_opd1_sign ? (int8_t)t->opd1_addr : (uint8_t)t->opd1_addr)
                  : read_byte(weights + ky * k->w.h_str + kx * k->w.w_str, t->opt_opd1_sign);
        add_tap(k->sums, x, k->y.w, k->s.x_str, w);
      }
    if (kind == DEPTHWISE) {
      finish_pixels(m, t, &k->y, &k->q, n, c, h * k->y.w, k->y.w, k->sums);
      continue;
    }
    uint8_t *to = channel(m, &k->y, n, c) + h * k->y.h_str;
    for (int64_t i = 0; i < k->y.w; i++) {
      int64_t v = k->sums[i];
      if (kind == AVERAGE_POOL)
        v = shift_up(v * (t->opt_opd1_sign ? (int8_t)t->opd1_addr : (uint8_t)t->opd1_addr),
                     (int)t->opt_res_shift);
      if (t->opt_relu_typ && v < 0) v = 0;
      to[i * k->y.w_str] = byte_of(v, t->opt_res0_sign);
    }
  }
}

int itg_cv18xx_windows(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  if (t->tsk_eu_typ > MIN_POOL) return refuse(m, "the kind of pool is not known");
  if (t->opd_typ) return itg_cv18xx_windows_bf16(m, t);
  if (t->opt_relu_typ > 1) return refuse(m, "only plain relu is supported");
  if (t->tsk_eu_typ == AVERAGE_POOL && !t->opt_opd1_const)
    return refuse(m, "an average pool without a constant is not supported");
  work k = {.t = t};
  k.y = result_view(m, t, 1);
  k.x = operand0_view(m, t, 1);
  k.w = operand1_view(m, t, 1);
  if (k.x.n != k.y.n || k.x.c != k.y.c) return refuse(m, "input and result differ in channels");
  if (!inside(m, &k.y, 1) || !inside(m, &k.x, 1)) return 0;
  if (!make_window(m, t, &k.s, &k.y, &k.x)) return 0;
  if (t->tsk_eu_typ == DEPTHWISE) {
    if (!t->opt_opd1_const && (k.w.c != k.y.c || !inside(m, &k.w, 1)))
      return m->why ? 0 : refuse(m, "weights and input have different channels");
    if (!quantization_view(m, t, &k.q, &k.y)) return 0;
  }
  int64_t work_items = k.y.n * k.y.c * k.y.h * k.y.w;
  if (work_items > MOST_WORK / 64 || work_items * t->opd1_h * t->opd1_w > MOST_WORK)
    return refuse(m, "it computes more than a real command can");
  k.plane = itg_cv18xx_scratch(m, (k.s.high * k.s.wide + k.y.w) * (int64_t)sizeof(int32_t));
  if (!k.plane) return 0;
  k.sums = k.plane + k.s.high * k.s.wide;
  for (int64_t n = 0; n < k.y.n; n++)
    for (int64_t c = 0; c < k.y.c; c++) {
      pad_plane(m, &k, n, c);
      one_plane(m, &k, n, c);
    }
  return 1;
}
