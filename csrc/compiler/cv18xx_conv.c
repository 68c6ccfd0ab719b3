// Convolution of the TIU. The input is copied into planes of bytes: with steps of the windows, the
// pixels whose line and column have the same rest by the steps lie in planes of their own, so that
// neighbouring results read neighbouring bytes at every tap. Four channels are interleaved, for
// products of four bytes at once. Results are computed as one long run, with those between the end
// of a line and the next line.
#include <stdlib.h>

#include "built.h"
#include "cv18xx_products.h"
#include "cv18xx_sums.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { OUTPUTS = ITG_CV18XX_OUTPUTS, SLACK = ITG_CV18XX_SLACK, FOUR = 4, RUN = 64 };
enum { HALVES = 3 };  // weights above 127 are the sum of three numbers

typedef struct {
  const itg_cv18xx_tiu *t;
  window s;
  view x, w, y, q;
  int64_t rows, pitch, size;           // of a plane of one channel
  int64_t fours, taps, terms, padded;  // terms of an output; with whole fours of channels
  int is_packed;                       // weights are read where they lie
  uint8_t *planes, *x4, *weights;
  itg_cv18xx_products job;
} work;

static void (*best(const itg_cv18xx *m))(const itg_cv18xx_products *) {
  uint32_t isa = m->isa & itg_cpu_isa();
  void (*run)(const itg_cv18xx_products *) = NULL;
  if (isa & ITG_ISA_avx512vnni) run = ITG_BUILT(avx512vnni, itg_cv18xx_multiply_avx512vnni);
  if (!run && isa & ITG_ISA_avx512) run = ITG_BUILT(avx512, itg_cv18xx_multiply_avx512);
  if (!run && isa & ITG_ISA_avx2) run = ITG_BUILT(avx2, itg_cv18xx_multiply_avx2);
  return run ? run : itg_cv18xx_multiply_scalar;
}

// ---- the input ----------------------------------------------------------------------------------
static uint8_t *part(const work *k, uint8_t *plane, int64_t row, int64_t column) {
  int64_t number = row % k->s.y_str * k->s.x_str + column % k->s.x_str;
  return plane + (number * k->rows + row / k->s.y_str) * k->pitch + column / k->s.x_str;
}

// The padded plane of a channel, in its parts; `to` holds the bytes of the padding already.
CLONES static void place_channel(const work *k, const uint8_t *from, uint8_t *to) {
  int64_t count = k->x.w, left = k->s.left;
  for (int64_t h = 0; h < k->x.h; h++, from += k->x.h_str) {
    int64_t row = k->s.top + h * k->s.y_step;
    uint8_t *out = part(k, to, row, left);
    if (k->x.w_str == 1 && k->s.x_step == 1 && k->s.x_str == 1) {
      memcpy(out, from, (size_t)count);
    } else if (k->x.w_str == 1 && k->s.x_step == 1 && k->s.x_str == 2) {
      uint8_t *odd = part(k, to, row, left + 1);
      for (int64_t w = 0; w < (count + 1) / 2; w++) out[w] = from[2 * w];
      for (int64_t w = 0; w < count / 2; w++) odd[w] = from[2 * w + 1];
    } else {
      for (int64_t w = 0; w < count; w++)
        *part(k, to, row, left + w * k->s.x_step) = from[w * k->x.w_str];
    }
  }
}

// Interleaves n bytes of four streams; `flip` makes signed bytes unsigned.
static void interleave(const uint8_t *const from[FOUR], int64_t n, uint8_t flip, uint8_t *to) {
  int64_t i = 0;
#if defined(__SSE2__)
  const __m128i flips = _mm_set1_epi8((char)flip);
  for (; i + 16 <= n; i += 16) {
    __m128i a[FOUR];
    for (int c = 0; c < FOUR; c++)
      a[c] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(from[c] + i)), flips);
    for (int h = 0; h < 2; h++) {
      const __m128i ab = h ? _mm_unpackhi_epi8(a[0], a[1]) : _mm_unpacklo_epi8(a[0], a[1]);
      const __m128i cd = h ? _mm_unpackhi_epi8(a[2], a[3]) : _mm_unpacklo_epi8(a[2], a[3]);
      __m128i *at = (__m128i *)(to + FOUR * i) + 2 * h;
      _mm_storeu_si128(at, _mm_unpacklo_epi16(ab, cd));
      _mm_storeu_si128(at + 1, _mm_unpackhi_epi16(ab, cd));
    }
  }
#endif
  for (; i < n; i++)
    for (int c = 0; c < FOUR; c++) to[FOUR * i + c] = from[c][i] ^ flip;
}

static void pack_input(const itg_cv18xx *m, const work *k, int64_t n) {
  const window *s = &k->s;
  int plain = s->high == k->x.h && s->wide == k->x.w && k->x.h_str == k->x.w && k->x.w_str == 1 &&
              s->y_str == 1 && s->x_str == 1;
  uint8_t flip = k->t->opt_opd0_sign ? 128 : 0;
  for (int64_t four = 0; four < k->fours; four++) {
    const uint8_t *from[FOUR];
    for (int64_t i = 0; i < FOUR; i++) {
      int64_t c = FOUR * four + i;
      uint8_t *plane = k->planes + i * k->size;
      from[i] = plane;
      if (c >= k->x.c) continue;  // its weights are zeros
      const uint8_t *bytes = channel(m, &k->x, n, c);
      if (plain) from[i] = bytes;
      else {
        if (!four) memset(plane, edge_byte(k->t), (size_t)k->size);  // others leave it as it is
        place_channel(k, bytes, plane);
      }
    }
    interleave(from, k->size, flip, k->x4 + four * FOUR * k->size);
  }
}

// ---- weights ------------------------------------------------------------------------------------
// The weights of an output as [tap][channels in fours], those above 127 in three parts.
static void pack_output(const itg_cv18xx *m, const work *k, int64_t o, uint8_t *to) {
  const itg_cv18xx_tiu *t = k->t;
  uint8_t fixed = (uint8_t)t->opd1_addr;
  const uint8_t *from = t->opt_opd1_const ? NULL : channel(m, &k->w, 0, o);
  for (int64_t tap = 0; tap < k->taps; tap++, to += FOUR * k->fours) {
    if (from) memcpy(to, from + tap * k->x.c, (size_t)k->x.c);
    else memset(to, fixed, (size_t)k->x.c);
    memset(to + k->x.c, 0, (size_t)(FOUR * k->fours - k->x.c));
  }
  if (t->opt_opd1_sign) return;
  uint8_t *whole = to - k->padded;
  for (int64_t i = 0; i < k->padded; i++) {
    to[i] = whole[i] & 1;
    whole[i] >>= 1;
    to[k->padded + i] = whole[i];
  }
}

static void set_outputs(const itg_cv18xx *m, work *k, int64_t first) {
  int64_t left = k->y.c - first;
  k->job.outputs = left < OUTPUTS ? left : OUTPUTS;
  for (int64_t i = 0; i < OUTPUTS; i++) {
    uint8_t *packed = k->weights + i * FOUR * k->job.steps;
    if (i >= k->job.outputs) k->job.w[i] = k->job.w[0];
    else if (k->is_packed) k->job.w[i] = channel(m, &k->w, 0, first + i);
    else pack_output(m, k, first + i, packed), k->job.w[i] = packed;
  }
}

// What the planes depend on, besides the bytes of the input.
typedef struct {
  window s;
  view x;
  int64_t edge, is_signed;
} input_key;

// Whether the kept planes are those of this command's input; makes room for them if not. Files
// have many commands in a row that read the same input.
static int find_kept(itg_cv18xx *m, work *k, int64_t planes) {
  input_key key;
  memset(&key, 0, sizeof key);
  key.s = k->s, key.x = k->x;
  key.edge = edge_byte(k->t), key.is_signed = k->t->opt_opd0_sign;
  int64_t row = k->x.w, plane = k->x.h * row;
  if (k->x.h_str == row) row = plane;  // its rows lie side by side
  int64_t start = up_to((int64_t)sizeof key + k->x.c * plane, RUN), wanted = start + planes;
  int same = m->kept_bytes >= wanted && !memcmp(m->kept, &key, sizeof key);
  if (m->kept_bytes < wanted) {
    free(m->kept);
    m->kept = malloc((size_t)wanted);
    m->kept_bytes = m->kept ? wanted : 0;
    if (!m->kept) return refuse(m, "no memory");
  }
  k->x4 = (uint8_t *)m->kept + start;
  uint8_t *bytes = (uint8_t *)m->kept + sizeof key;
  for (int64_t c = 0; c < k->x.c; c++) {
    const uint8_t *from = channel(m, &k->x, 0, c);
    for (int64_t h = 0; h < plane / row; h++, from += k->x.h_str, bytes += row) {
      if (same && !memcmp(bytes, from, (size_t)row)) continue;
      same = 0;
      memcpy(bytes, from, (size_t)row);
    }
  }
  memcpy(m->kept, &key, sizeof key);
  return same;
}

// ---- the command --------------------------------------------------------------------------------
static int run(itg_cv18xx *m, work *k) {
  itg_cv18xx_products *j = &k->job;
  void (*multiply)(const itg_cv18xx_products *) = best(m);
  int64_t parts = k->t->opt_opd1_sign ? 1 : HALVES;
  k->is_packed = parts == 1 && !k->t->opt_opd1_const && k->x.c % FOUR == 0;
  j->steps = parts * k->taps * k->fours;
  j->run = (k->y.h - 1) * k->pitch + k->y.w;
  j->pitch = up_to(j->run, RUN) + RUN;
  j->less = k->t->opt_opd0_sign ? 128 : 0;
  int64_t x = FOUR * k->fours * k->size + SLACK, planes = FOUR * k->size;
  int64_t weights = k->is_packed ? 0 : OUTPUTS * FOUR * j->steps;
  int64_t sums = OUTPUTS * j->pitch * (int64_t)sizeof(int32_t);
  int64_t steps = j->steps * (int64_t)sizeof(int64_t);
  int keeps = k->y.n == 1 && k->x.w_str == 1, ready = keeps && find_kept(m, k, x);
  if (m->why) return 0;
  int64_t *at = itg_cv18xx_scratch(m, steps + sums + x + planes + weights + j->run);
  if (!at) return 0;
  j->at = at;
  j->sums = (int32_t *)(at + j->steps);
  uint8_t *own = (uint8_t *)(j->sums + OUTPUTS * j->pitch);
  if (!keeps) k->x4 = own;
  j->x = k->x4;
  k->planes = own + x;
  k->weights = k->planes + planes;
  uint8_t *bytes = k->weights + weights;
  for (int64_t i = 0; i < parts; i++)
    for (int64_t tap = 0; tap < k->taps; tap++) {
      int64_t row = tap / k->w.w * k->s.y_dil, column = tap % k->w.w * k->s.x_dil;
      int64_t there = FOUR * (part(k, k->planes, row, column) - k->planes);
      for (int64_t four = 0; four < k->fours; four++) *at++ = there + four * FOUR * k->size;
    }
  if (!ready) {
    memset(k->x4 + x - SLACK, 0, SLACK);
    memset(k->planes, 0, (size_t)planes);
  }
  for (int64_t n = 0; n < k->y.n; n++) {
    if (!ready) pack_input(m, k, n);
    for (int64_t o = 0; o < k->y.c; o += OUTPUTS) {
      set_outputs(m, k, o);
      multiply(j);
      for (int64_t i = 0; i < j->outputs; i++)
        finish_lines(m, k->t, &k->y, &k->q, n, o + i, j->sums + i * j->pitch, k->pitch, bytes);
    }
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
  if (k.y.h == 1) k.s.y_str = 1;
  if (k.y.w == 1) k.s.x_str = 1;
  if (!k.s.y_str || !k.s.x_str) return refuse(m, "the windows do not move");
  k.rows = (k.s.high + k.s.y_str - 1) / k.s.y_str;
  k.pitch = (k.s.wide + k.s.x_str - 1) / k.s.x_str;
  k.size = k.s.y_str * k.s.x_str * k.rows * k.pitch;
  k.fours = (k.x.c + FOUR - 1) / FOUR;
  k.taps = (int64_t)t->opd1_h * t->opd1_w;
  k.padded = k.taps * k.fours * FOUR;
  if (k.fours * k.size > MOST_WORK / 16) return refuse(m, "the padded input is too large");
  return run(m, &k);
}
