// Convolution of the TIU. Products are summed up in f32, 256 at a time: such a sum of products of
// bytes is below 2^24, so it is exact.
#include "cv18xx_sums.h"

enum { PIXELS = 16, OUTPUTS = 8, EXACT = 256 };  // a tile; terms of a f32 sum

typedef float floats __attribute__((vector_size(PIXELS * sizeof(float)), aligned(4)));

// sums[o][p] += w[t][o] * x[t][p]
CLONES static void multiply(const float *x, const float *w, int64_t terms, int32_t *sums) {
  for (int64_t start = 0; start < terms; start += EXACT) {
    int64_t end = start + EXACT < terms ? start + EXACT : terms;
    floats acc[OUTPUTS];
    for (int o = 0; o < OUTPUTS; o++) acc[o] = (floats){0};
    for (int64_t t = start; t < end; t++) {
      floats a = *(const floats *)(x + t * PIXELS);
      for (int o = 0; o < OUTPUTS; o++) acc[o] += a * w[t * OUTPUTS + o];
    }
    for (int o = 0; o < OUTPUTS; o++)
      for (int p = 0; p < PIXELS; p++) sums[o * PIXELS + p] += (int32_t)acc[o][p];
  }
}

typedef struct {
  const itg_cv18xx_tiu *t;
  window s;
  view x, w, y, q;
  int64_t groups, terms;
  int64_t across;  // positions of a row that are computed: with steps of 1, the padding's too
  float *map, *weights, *tile;
  int64_t *offsets;
} work;

// Weights as [group of outputs][term][output].
static void pack_weights(const itg_cv18xx *m, work *k) {
  int is_signed = (int)k->t->opt_opd1_sign, fixed = (int)k->t->opt_opd1_const;
  uint8_t constant = (uint8_t)k->t->opd1_addr;
  for (int64_t g = 0; g < k->groups; g++) {
    float *to = k->weights + g * k->terms * OUTPUTS;
    const uint8_t *rows[OUTPUTS];
    int64_t many = k->y.c - g * OUTPUTS < OUTPUTS ? k->y.c - g * OUTPUTS : OUTPUTS;
    for (int64_t o = 0; o < OUTPUTS; o++)
      rows[o] = fixed ? NULL : channel(m, &k->w, 0, g * OUTPUTS + (o < many ? o : many - 1));
    for (int64_t i = 0; i < k->terms; i++)
      for (int o = 0; o < OUTPUTS; o++) {
        uint8_t v = fixed ? constant : rows[o][i];
        to[i * OUTPUTS + o] = is_signed ? (float)(int8_t)v : (float)v;
      }
  }
}

CLONES static void to_floats(const uint8_t *restrict from, float *restrict to, int64_t count,
                             int is_signed) {
  if (is_signed)
    for (int64_t i = 0; i < count; i++) to[i] = (float)(int8_t)from[i];
  else
    for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
}

// The padded input: [channel][row][column] as floats.
static void pad_map(const itg_cv18xx *m, work *k, int64_t n) {
  const window *s = &k->s;
  int is_signed = (int)k->t->opt_opd0_sign;
  int plain = s->high == k->x.h && s->wide == k->x.w && k->x.h_str == k->x.w && k->x.w_str == 1;
  float edge = (float)edge_byte(k->t);
  for (int64_t c = 0; c < k->x.c; c++) {
    float *plane = k->map + c * s->high * s->wide;
    const uint8_t *from = channel(m, &k->x, n, c);
    if (plain) {
      to_floats(from, plane, s->high * s->wide, is_signed);
      continue;
    }
    for (int64_t i = 0; i < s->high * s->wide; i++) plane[i] = edge;
    for (int64_t h = 0; h < k->x.h; h++) {
      float *to = plane + (s->top + h * s->y_step) * s->wide + s->left;
      const uint8_t *in = from + h * k->x.h_str;
      if (s->x_step == 1 && k->x.w_str == 1) to_floats(in, to, k->x.w, is_signed);
      else
        for (int64_t w = 0; w < k->x.w; w++)
          to[w * s->x_step] = (float)read_byte(in + w * k->x.w_str, k->t->opt_opd0_sign);
    }
  }
}

// The terms of up to 16 output pixels from `first` on.
CLONES static void gather(const work *k, int64_t first, int64_t many) {
  int64_t at[PIXELS], straight = 1;
  for (int64_t p = 0; p < PIXELS; p++) {
    int64_t i = first + (p < many ? p : many - 1);
    at[p] = i / k->across * k->s.y_str * k->s.wide + i % k->across * k->s.x_str;
    straight &= p >= many || at[p] == at[0] + p;
  }
  const float *map = k->map + at[0];
  for (int64_t i = 0; straight && i < k->terms; i++)
    *(floats *)(k->tile + i * PIXELS) = *(const floats *)(map + k->offsets[i]);
  for (int64_t i = 0; !straight && i < k->terms; i++) {
    const float *from = k->map + k->offsets[i];
    for (int p = 0; p < PIXELS; p++) k->tile[i * PIXELS + p] = from[at[p]];
  }
}

// Hands the sums of a tile on, without those of positions beyond the end of a row.
static void finish_tile(itg_cv18xx *m, const work *k, int64_t n, int64_t o, int64_t first,
                        int64_t many, const int32_t *sums) {
  if (k->across == k->y.w) {
    finish_pixels(m, k->t, &k->y, &k->q, n, o, first, many, sums);
    return;
  }
  for (int64_t p = 0; p < many;) {
    int64_t row = (first + p) / k->across, column = (first + p) % k->across;
    int64_t left = k->across - column < many - p ? k->across - column : many - p;
    int64_t real = k->y.w - column < left ? k->y.w - column : left;
    if (real > 0) finish_pixels(m, k->t, &k->y, &k->q, n, o, row * k->y.w + column, real, sums + p);
    p += left;
  }
}

static void compute(itg_cv18xx *m, work *k, int64_t n) {
  int64_t pixels = (k->y.h - 1) * k->across + k->y.w;
  for (int64_t first = 0; first < pixels; first += PIXELS) {
    int64_t many = pixels - first < PIXELS ? pixels - first : PIXELS;
    gather(k, first, many);
    for (int64_t g = 0; g < k->groups; g++) {
      int32_t sums[OUTPUTS * PIXELS] = {0};
      multiply(k->tile, k->weights + g * k->terms * OUTPUTS, k->terms, sums);
      for (int64_t o = g * OUTPUTS; o < k->y.c && o < (g + 1) * OUTPUTS; o++)
        finish_tile(m, k, n, o, first, many, sums + (o - g * OUTPUTS) * PIXELS);
    }
  }
}

static int run(itg_cv18xx *m, work *k) {
  int64_t map = k->x.c * k->s.high * k->s.wide;
  int64_t numbers = map + PIXELS + k->groups * k->terms * OUTPUTS + k->terms * PIXELS;
  int64_t bytes = k->terms * (int64_t)sizeof(int64_t);
  k->offsets = itg_cv18xx_scratch(m, bytes + numbers * (int64_t)sizeof(float));
  if (!k->offsets) return 0;
  k->map = (float *)(k->offsets + k->terms);
  k->weights = k->map + map + PIXELS;
  k->tile = k->weights + k->groups * k->terms * OUTPUTS;
  memset(k->tile, 0, (size_t)(k->terms * PIXELS) * sizeof(float));
  memset(k->map + map, 0, PIXELS * sizeof(float));
  for (int64_t i = 0; i < k->terms; i++) {
    int64_t tap = i / k->x.c, c = i % k->x.c;
    k->offsets[i] = c * k->s.high * k->s.wide + tap / k->w.w * k->s.y_dil * k->s.wide +
                    tap % k->w.w * k->s.x_dil;
  }
  pack_weights(m, k);
  for (int64_t n = 0; n < k->y.n; n++) {
    pad_map(m, k, n);
    compute(m, k, n);
  }
  return 1;
}

int itg_cv18xx_conv(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  if (t->opd_typ) return itg_cv18xx_conv_bf16(m, t);
  work k = {.t = t};
  if (t->opt_relu_typ > 1) return refuse(m, "only plain relu is supported");
  k.y = result_view(m, t, 1);
  k.x = operand0_view(m, t, 1);
  k.w = place(m, t->opd1_addr, 1, t->res0_c, t->opd1_h, t->opd1_w);
  k.terms = (int64_t)t->opd0_c * t->opd1_h * t->opd1_w;
  strides(&k.w, 0, k.terms, 0, 1);
  view taken = k.w;
  taken.h = 1;
  taken.w = k.terms;
  if (t->opd1_n != t->opd0_c) return refuse(m, "weights and input have different channels");
  if (k.x.n != k.y.n) return refuse(m, "input and result have different batches");
  if (!inside(m, &k.y, 1) || !inside(m, &k.x, 1)) return 0;
  if (!t->opt_opd1_const && !inside(m, &taken, 1)) return 0;
  if (!make_window(m, t, &k.s, &k.y, &k.x) || !quantization_view(m, t, &k.q, &k.y)) return 0;
  if (k.y.n * k.y.c * k.y.h * k.y.w > MOST_WORK / 64 || k.terms > MOST_WORK / 256)
    return refuse(m, "it computes more than a real command can");
  k.groups = (k.y.c + OUTPUTS - 1) / OUTPUTS;
  k.across = k.s.x_str == 1 && k.s.y_str == 1 ? k.s.wide : k.y.w;
  return run(m, &k);
}
