// Depthwise convolutions and pools of the TIU.
#include "cv18xx_sums.h"

CLONES void itg_cv18xx_requantize(const int32_t *sums, int64_t count, int32_t bias,
                                  int32_t multiplier, int shift, int relu, int is_signed,
                                  uint8_t *out) {
  if (shift > 31) multiplier = 0, shift = 0;  // nothing is left of numbers below 2^31
  uint32_t half = shift ? 1U << (shift - 1) : 0;
  int32_t low = relu || !is_signed ? 0 : -128, high = is_signed ? 127 : 255;
  int32_t made[LONGEST];
  for (int64_t first = 0; first < count; first += LONGEST) {
    int64_t here = count - first < LONGEST ? count - first : LONGEST;
    for (int64_t i = 0; i < here; i++) {
      int64_t v = ((int64_t)(int32_t)(sums[first + i] + bias) * multiplier + (1LL << 30)) >> 31;
      int32_t narrow = (int32_t)v, sign = narrow >> 31;  // |v| is below 2^31
      int32_t shifted = (int32_t)(((uint32_t)((narrow ^ sign) - sign) + half) >> shift);
      int32_t y = (shifted ^ sign) - sign;
      made[i] = y < low ? low : y > high ? high : y;
    }
    for (int64_t i = 0; i < here; i++) out[first + i] = (uint8_t)made[i];
  }
}

enum { MAX_POOL = 0, AVERAGE_POOL = 1, DEPTHWISE = 2, MIN_POOL = 3 };

// The padded plane of a channel in parts: pixels whose line and column have the same rest by the
// steps of the windows lie in a part of their own, so that neighbouring results read neighbouring
// numbers at every tap. Results are computed as one run, with those between two lines.
typedef struct {
  const itg_cv18xx_tiu *t;
  window s;
  view x, w, y, q;
  int64_t rows, pitch, size, run, taps;
  int64_t *at;  // of each tap in the parts
  int32_t *plane, *sums, *weights;
  uint8_t *bytes;
} work;

enum { LINE = 16, LINES = 4 };
typedef int32_t ints __attribute__((vector_size(LINE * sizeof(int32_t)), aligned(4)));
typedef enum { ADD, MOST, LEAST } combination;

CLONES static void widen(const uint8_t *restrict from, int32_t *restrict to, int64_t count,
                         int is_signed) {
  if (is_signed)
    for (int64_t i = 0; i < count; i++) to[i] = (int8_t)from[i];
  else
    for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

// The same of every second byte.
CLONES static void widen_half(const uint8_t *restrict from, int32_t *restrict to, int64_t count,
                              int is_signed) {
  if (is_signed)
    for (int64_t i = 0; i < count; i++) to[i] = (int8_t)from[2 * i];
  else
    for (int64_t i = 0; i < count; i++) to[i] = from[2 * i];
}

static int32_t *part(const work *k, int64_t row, int64_t column) {
  int64_t number = row % k->s.y_str * k->s.x_str + column % k->s.x_str;
  return k->plane + (number * k->rows + row / k->s.y_str) * k->pitch + column / k->s.x_str;
}

static void place_row(const work *k, const uint8_t *in, int64_t row) {
  int is_signed = (int)k->t->opt_opd0_sign;
  int64_t left = k->s.left, count = k->x.w;
  if (k->x.w_str == 1 && k->s.x_step == 1 && k->s.x_str == 1) {
    widen(in, part(k, row, left), count, is_signed);
  } else if (k->x.w_str == 1 && k->s.x_step == 1 && k->s.x_str == 2) {
    widen_half(in, part(k, row, left), (count + 1) / 2, is_signed);
    widen_half(in + 1, part(k, row, left + 1), count / 2, is_signed);
  } else {
    for (int64_t w = 0; w < count; w++)
      *part(k, row, left + w * k->s.x_step) = read_byte(in + w * k->x.w_str, k->t->opt_opd0_sign);
  }
}

static void pad_plane(const itg_cv18xx *m, const work *k, int64_t n, int64_t c) {
  const uint8_t *from = channel(m, &k->x, n, c);
  int32_t edge = edge_byte(k->t);
  for (int64_t i = 0; i < k->size + LINE; i++) k->plane[i] = edge;
  for (int64_t h = 0; h < k->x.h; h++)
    place_row(k, from + h * k->x.h_str, k->s.top + h * k->s.y_step);
}

static inline __attribute__((always_inline)) void add_lines(const work *k, int64_t p,
                                                            const int32_t *first,
                                                            const combination how,
                                                            const int lines) {
  ints total[LINES];
  for (int i = 0; i < lines; i++) total[i] = *(const ints *)first;
  for (int64_t tap = 0; tap < k->taps; tap++) {
    const int32_t *x = k->plane + k->at[tap] + p;
    for (int i = 0; i < lines; i++) {
      const ints v = *(const ints *)(x + i * LINE);
      if (how == ADD) {
        total[i] += v * k->weights[tap];
      } else {
        const ints better = how == MOST ? v > total[i] : v < total[i];
        total[i] = (v & better) | (total[i] & ~better);
      }
    }
  }
  for (int i = 0; i < lines; i++) *(ints *)(k->sums + p + i * LINE) = total[i];
}

static inline __attribute__((always_inline)) void add_run(const work *k, const int32_t *first,
                                                          const combination how) {
  int64_t p = 0;
  for (; p + LINES * LINE <= k->run; p += LINES * LINE) add_lines(k, p, first, how, LINES);
  for (; p < k->run; p += LINE) add_lines(k, p, first, how, 1);
}

// All windows of a plane; `value` is what they begin with.
CLONES static void add_taps(const work *k, int32_t value, combination how) {
  int32_t first[LINE];
  for (int i = 0; i < LINE; i++) first[i] = value;
  if (how == ADD) add_run(k, first, ADD);
  else if (how == MOST) add_run(k, first, MOST);
  else add_run(k, first, LEAST);
}

static void find_weights(const itg_cv18xx *m, const work *k, int64_t c) {
  const itg_cv18xx_tiu *t = k->t;
  const uint8_t fixed = (uint8_t)t->opd1_addr, *weights = channel(m, &k->w, 0, c);
  for (int64_t tap = 0; tap < k->taps; tap++) {
    const uint8_t *w = weights + tap / t->opd1_w * k->w.h_str + tap % t->opd1_w * k->w.w_str;
    k->weights[tap] = read_byte(t->opt_opd1_const ? &fixed : w, t->opt_opd1_sign);
  }
}

// The bytes of a line of a pool.
CLONES static void finish_pool(const itg_cv18xx_tiu *t, const int32_t *restrict sums, int64_t count,
                               int64_t step, uint8_t *restrict to) {
  int32_t least = t->opt_relu_typ || !t->opt_res0_sign ? 0 : -128;
  int32_t most = t->opt_res0_sign ? 127 : 255;
  if (t->tsk_eu_typ == AVERAGE_POOL) {
    int64_t factor = read_byte(&(uint8_t){(uint8_t)t->opd1_addr}, t->opt_opd1_sign);
    for (int64_t i = 0; i < count; i++)
      to[i * step] =
          (uint8_t)within(shift_up(sums[i] * factor, (int)t->opt_res_shift), least, most);
  } else if (step == 1) {
    for (int64_t i = 0; i < count; i++)
      to[i] = (uint8_t)(sums[i] < least ? least : sums[i] > most ? most : sums[i]);
  } else {
    for (int64_t i = 0; i < count; i++) to[i * step] = (uint8_t)within(sums[i], least, most);
  }
}

static void one_plane(itg_cv18xx *m, const work *k, int64_t n, int64_t c) {
  const itg_cv18xx_tiu *t = k->t;
  int kind = (int)t->tsk_eu_typ, is_pool = kind == MAX_POOL || kind == MIN_POOL;
  // the padding value counts in every window of a pool
  add_taps(k, is_pool ? edge_byte(t) : 0, !is_pool ? ADD : kind == MIN_POOL ? LEAST : MOST);
  if (kind == DEPTHWISE) {
    finish_lines(m, t, &k->y, &k->q, n, c, k->sums, k->pitch, k->bytes);
    return;
  }
  uint8_t *to = channel(m, &k->y, n, c);
  for (int64_t h = 0; h < k->y.h; h++)
    finish_pool(t, k->sums + h * k->pitch, k->y.w, k->y.w_str, to + h * k->y.h_str);
}

// Finds the parts of planes and the memory for them; 0: there is none.
static int arrange(itg_cv18xx *m, work *k) {
  const window *s = &k->s;
  k->rows = (s->high + s->y_str - 1) / s->y_str;
  k->pitch = (s->wide + s->x_str - 1) / s->x_str;
  k->size = s->y_str * s->x_str * k->rows * k->pitch;
  k->run = (k->y.h - 1) * k->pitch + k->y.w;
  k->taps = (int64_t)k->t->opd1_h * k->t->opd1_w;
  int64_t numbers = k->size + LINE + up_to(k->run, LINE) + k->taps;
  k->at = itg_cv18xx_scratch(
      m, k->taps * (int64_t)sizeof(int64_t) + numbers * (int64_t)sizeof(int32_t) + k->run);
  if (!k->at) return 0;
  k->plane = (int32_t *)(k->at + k->taps);
  k->sums = k->plane + k->size + LINE;
  k->weights = k->sums + up_to(k->run, LINE);
  k->bytes = (uint8_t *)(k->weights + k->taps);
  for (int64_t tap = 0; tap < k->taps; tap++) {
    int64_t row = tap / k->t->opd1_w * s->y_dil, column = tap % k->t->opd1_w * s->x_dil;
    k->at[tap] = part(k, row, column) - k->plane;
    k->weights[tap] = 1;
  }
  return 1;
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
  if (!arrange(m, &k)) return 0;
  for (int64_t n = 0; n < k.y.n; n++)
    for (int64_t c = 0; c < k.y.c; c++) {
      if (t->tsk_eu_typ == DEPTHWISE) find_weights(m, &k, c);
      pad_plane(m, &k, n, c);
      one_plane(m, &k, n, c);
    }
  return 1;
}
