// Convolution of the TIU. Products are summed up in f32, 256 at a time: such a sum of products of
// bytes is below 2^24, so it is exact.
#include <stdlib.h>

#include "cv18xx_sums.h"

enum { PIXELS = 16, OUTPUTS = 8, TILES = 4, EXACT = 256 };  // a tile; terms of a f32 sum
enum { MOST_KEPT = 2 << 20 };                               // bytes of tiles that are kept

typedef float floats __attribute__((vector_size(PIXELS * sizeof(float)), aligned(4)));

// sums[o][tile][p] += w[o][t] * x[tile][t][p]
static inline __attribute__((always_inline)) void multiply(const float *x, const float *w,
                                                           int64_t stride, int64_t terms,
                                                           int32_t *sums, const int outputs,
                                                           const int tiles) {
  for (int64_t start = 0; start < terms; start += EXACT) {
    int64_t end = start + EXACT < terms ? start + EXACT : terms;
    floats acc[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++) acc[i] = (floats){0};
    for (int64_t t = start; t < end; t++)
      for (int i = 0; i < tiles; i++) {
        floats a = *(const floats *)(x + (i * terms + t) * PIXELS);
        for (int o = 0; o < outputs; o++) acc[i * outputs + o] += a * w[o * stride + t];
      }
    for (int i = 0; i < tiles; i++)
      for (int o = 0; o < outputs; o++)
        for (int p = 0; p < PIXELS; p++)
          sums[(o * TILES + i) * PIXELS + p] += (int32_t)acc[i * outputs + o][p];
  }
}

CLONES static void multiply_8x1(const float *x, const float *w, int64_t stride, int64_t terms,
                                int32_t *sums) {
  multiply(x, w, stride, terms, sums, 8, 1);
}

CLONES static void multiply_4x2(const float *x, const float *w, int64_t stride, int64_t terms,
                                int32_t *sums) {
  multiply(x, w, stride, terms, sums, 4, 2);
}

CLONES static void multiply_2x4(const float *x, const float *w, int64_t stride, int64_t terms,
                                int32_t *sums) {
  multiply(x, w, stride, terms, sums, 2, 4);
}

typedef struct {
  const itg_cv18xx_tiu *t;
  window s;
  view x, w, y, q;
  int64_t groups, terms, stride;  // stride: floats from one output's weights to the next
  int64_t across;  // positions of a row that are computed: with steps of 1, the padding's too
  int64_t pixels;
  int is_kept;  // the tiles are those of the command before, or become those of the next one
  float *map, *weights, *tiles;
  int64_t *offsets;
} work;

CLONES static void to_floats(const uint8_t *restrict from, float *restrict to, int64_t count,
                             int is_signed) {
  if (is_signed)
    for (int64_t i = 0; i < count; i++) to[i] = (float)(int8_t)from[i];
  else
    for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
}

// How many outputs of a group are computed at once.
static int64_t at_once(int64_t outputs) { return outputs > 4 ? 8 : outputs > 2 ? 4 : 2; }

// Weights as [output][term]; those of outputs beyond the last are zeros.
static void pack_weights(const itg_cv18xx *m, work *k) {
  int is_signed = (int)k->t->opt_opd1_sign;
  uint8_t fixed = (uint8_t)k->t->opd1_addr;
  int64_t last = (k->groups - 1) * OUTPUTS;
  for (int64_t o = 0; o < last + at_once(k->y.c - last); o++) {
    float *to = k->weights + o * k->stride;
    if (o >= k->y.c) memset(to, 0, (size_t)k->terms * sizeof(float));
    else if (!k->t->opt_opd1_const) to_floats(channel(m, &k->w, 0, o), to, k->terms, is_signed);
    else
      for (int64_t i = 0; i < k->terms; i++) to[i] = (float)read_byte(&fixed, (uint32_t)is_signed);
  }
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
CLONES static void gather(const work *k, int64_t first, int64_t many, float *tile) {
  int64_t at[PIXELS], straight = 1;
  for (int64_t p = 0; p < PIXELS; p++) {
    int64_t i = first + (p < many ? p : many - 1);
    at[p] = i / k->across * k->s.y_str * k->s.wide + i % k->across * k->s.x_str;
    straight &= p >= many || at[p] == at[0] + p;
  }
  const float *map = k->map + at[0];
  for (int64_t i = 0; straight && i < k->terms; i++)
    *(floats *)(tile + i * PIXELS) = *(const floats *)(map + k->offsets[i]);
  for (int64_t i = 0; !straight && i < k->terms; i++) {
    const float *from = k->map + k->offsets[i];
    for (int p = 0; p < PIXELS; p++) tile[i * PIXELS + p] = from[at[p]];
  }
}

static int64_t in_tile(const work *k, int64_t first) {
  return k->pixels - first < PIXELS ? k->pixels - first : PIXELS;
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

// Four tiles, from output pixel `first` on.
static void compute(itg_cv18xx *m, const work *k, int64_t n, int64_t first, const float *tiles) {
  for (int64_t g = 0; g < k->groups; g++) {
    int32_t sums[TILES * OUTPUTS * PIXELS] = {0};
    int64_t many = k->y.c - g * OUTPUTS < OUTPUTS ? k->y.c - g * OUTPUTS : OUTPUTS;
    const float *w = k->weights + g * OUTPUTS * k->stride;
    int step = (int)(OUTPUTS / at_once(many));
    for (int i = 0; i < TILES && first + i * PIXELS < k->pixels; i += step) {
      const float *x = tiles + i * k->terms * PIXELS;
      int32_t *to = sums + i * PIXELS;
      if (step == 1) multiply_8x1(x, w, k->stride, k->terms, to);
      else if (step == 2) multiply_4x2(x, w, k->stride, k->terms, to);
      else multiply_2x4(x, w, k->stride, k->terms, to);
    }
    int64_t left = k->pixels - first, here = left < TILES * PIXELS ? left : TILES * PIXELS;
    for (int64_t o = 0; o < many; o++)
      finish_tile(m, k, n, g * OUTPUTS + o, first, here, sums + o * TILES * PIXELS);
  }
}

static void all_tiles(itg_cv18xx *m, const work *k, int64_t n, int is_ready) {
  for (int64_t first = 0; first < k->pixels; first += TILES * PIXELS) {
    float *tiles = k->tiles + (k->is_kept ? first * k->terms : 0);
    for (int64_t i = 0, at = first; !is_ready && i < TILES; i++, at += PIXELS) {
      float *tile = tiles + i * k->terms * PIXELS;
      if (at < k->pixels) gather(k, at, in_tile(k, at), tile);
      else memset(tile, 0, (size_t)(k->terms * PIXELS) * sizeof(float));
    }
    compute(m, k, n, first, tiles);
  }
}

// What tiles depend on, besides the bytes of the input.
typedef struct {
  window s;
  view x;
  int64_t across, pixels, terms, high, wide, edge, is_signed;
} input_key;

// Whether the kept tiles are those of this command's input; makes room for them if not.
static int find_kept(itg_cv18xx *m, work *k, int64_t tile_bytes) {
  input_key key;
  memset(&key, 0, sizeof key);
  key.s = k->s, key.x = k->x;
  key.across = k->across, key.pixels = k->pixels, key.terms = k->terms;
  key.high = k->w.h, key.wide = k->w.w;
  key.edge = edge_byte(k->t), key.is_signed = k->t->opt_opd0_sign;
  int64_t row = k->x.w, plane = k->x.h * row;
  if (k->x.h_str == row) row = plane;  // its rows lie side by side
  int64_t start = up_to((int64_t)sizeof key + k->x.c * plane, 64);
  int same = m->kept_bytes >= start + tile_bytes && !memcmp(m->kept, &key, sizeof key);
  if (m->kept_bytes < start + tile_bytes) {
    free(m->kept);
    m->kept_bytes = start + tile_bytes;
    m->kept = calloc(1, (size_t)m->kept_bytes);
    if (!m->kept) m->kept_bytes = 0;
  }
  k->is_kept = m->kept != NULL;
  if (!k->is_kept) return 0;
  k->tiles = (float *)((uint8_t *)m->kept + start);
  uint8_t *bytes = (uint8_t *)m->kept + sizeof key;
  for (int64_t c = 0; c < k->x.c; c++)
    for (int64_t h = 0; h < plane / row; h++) {
      const uint8_t *from = channel(m, &k->x, 0, c) + h * k->x.h_str;
      uint8_t *to = bytes + c * plane + h * row;
      if (same && !memcmp(to, from, (size_t)row)) continue;
      same = 0;
      memcpy(to, from, (size_t)row);
    }
  memcpy(m->kept, &key, sizeof key);
  return same;
}

static int run(itg_cv18xx *m, work *k) {
  int64_t map = k->x.c * k->s.high * k->s.wide;
  k->pixels = (k->y.h - 1) * k->across + k->y.w;
  k->stride = up_to(k->terms, PIXELS) + PIXELS;  // lines of a cache set: rows differ by one
  int64_t weights = k->groups * OUTPUTS * k->stride, tiles = TILES * k->terms * PIXELS;
  int64_t all = up_to(k->pixels, TILES * PIXELS) * k->terms * (int64_t)sizeof(float);
  int64_t bytes = k->terms * (int64_t)sizeof(int64_t);
  k->offsets =
      itg_cv18xx_scratch(m, bytes + (map + PIXELS + weights + tiles) * (int64_t)sizeof(float));
  if (!k->offsets) return 0;
  k->map = (float *)(k->offsets + k->terms);
  k->weights = k->map + map + PIXELS;
  pack_weights(m, k);
  int is_ready = k->y.n == 1 && k->x.w_str == 1 && all <= MOST_KEPT && find_kept(m, k, all);
  if (!k->is_kept) k->tiles = k->weights + weights;
  int64_t *to = k->offsets;
  for (int64_t tap = 0; !is_ready && tap < k->w.h * k->w.w; tap++) {
    int64_t at = tap / k->w.w * k->s.y_dil * k->s.wide + tap % k->w.w * k->s.x_dil;
    for (int64_t c = 0; c < k->x.c; c++) *to++ = at + c * k->s.high * k->s.wide;
  }
  memset(k->map + map, 0, PIXELS * sizeof(float));
  for (int64_t n = 0; n < k->y.n; n++) {
    if (!is_ready) pad_map(m, k, n);
    all_tiles(m, k, n, is_ready);
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
