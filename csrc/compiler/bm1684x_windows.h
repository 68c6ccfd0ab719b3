// Convolutions and pools on bytes. The input is copied into planes: with a stride of s, pixels
// whose line and column have the same rest by s lie in planes of their own, so that neighbouring
// results read neighbouring numbers at every tap. Results are computed as one long run, together
// with the few between the end of a line and the next line.
#pragma once
#include "bm1684x_rows.h"
#include "int8/qvec.h"

#if defined(ISA_avx512vnni)
enum { VECTORS = 3 };
#elif defined(ISA_avx512)
enum { VECTORS = 2 };
#else
enum { VECTORS = 1 };
#endif
#ifndef ITG_QVECTORS
enum { QL = 16 };
#endif
enum { BLOCK = 8, STRIP = VECTORS * QL, BEYOND = 64, LINE = 16, LINES = 4 };
enum { PRODUCT = 256 * 256 };  // of two bytes, at most

typedef struct planes {
  int64_t rows, pitch;  // of a plane
  int64_t size, run;    // numbers of all planes of a channel; results, with those between lines
} planes;

INLINE planes planes_of(const itg_bm_job *j) {
  planes p;
  const int64_t high = (j->shape[2] - 1) * j->stride[0] + (j->kernel[0] - 1) * j->dilation[0] + 1;
  const int64_t wide = (j->shape[3] - 1) * j->stride[1] + (j->kernel[1] - 1) * j->dilation[1] + 1;
  p.rows = (high + j->stride[0] - 1) / j->stride[0];
  p.pitch = (wide + j->stride[1] - 1) / j->stride[1];
  p.size = j->stride[0] * j->stride[1] * p.rows * p.pitch;
  p.run = (j->shape[2] - 1) * p.pitch + j->shape[3];
  return p;
}

INLINE int64_t tap_of(const itg_bm_job *j, const planes *p, int64_t y, int64_t x) {
  const int64_t top = y * j->dilation[0], left = x * j->dilation[1];
  const int64_t plane = top % j->stride[0] * j->stride[1] + left % j->stride[1];
  return plane * p->rows * p->pitch + top / j->stride[0] * p->pitch + left / j->stride[1];
}

// Copies a channel into planes; outside is the value of padding.
#define COPY_PLANES(name, number, byte)                                                     \
  SHARED void name(const itg_bm_job *s, const planes *p, const uint8_t *x, number *to,      \
                   number fill) {                                                           \
    for (int64_t py = 0; py < s->stride[0]; py++) {                                         \
      for (int64_t px = 0; px < s->stride[1]; px++) {                                       \
        for (int64_t row = 0; row < p->rows; row++, to += p->pitch) {                       \
          const int64_t line = row * s->stride[0] + py - s->pad[0], shift = px - s->pad[1]; \
          int64_t first = shift < 0 ? (s->stride[1] - 1 - shift) / s->stride[1] : 0;        \
          int64_t last = (s->input[2] - shift + s->stride[1] - 1) / s->stride[1];           \
          last = last < p->pitch ? last : p->pitch;                                         \
          if (line < 0 || line >= s->input[1] || last < first) first = last = 0;            \
          for (int64_t i = 0; i < first; i++) to[i] = fill;                                 \
          const byte *from = (const byte *)(x + line * s->a.h);                             \
          if (s->a.w == 1 && s->stride[1] == 1)                                             \
            for (int64_t i = first; i < last; i++) to[i] = (number)from[i + shift];         \
          else if (s->a.w == 1 && s->stride[1] == 2)                                        \
            for (int64_t i = first; i < last; i++) to[i] = (number)from[2 * i + shift];     \
          else                                                                              \
            for (int64_t i = first; i < last; i++)                                          \
              to[i] = (number)from[(i * s->stride[1] + shift) * s->a.w];                    \
          for (int64_t i = last; i < p->pitch; i++) to[i] = fill;                           \
        }                                                                                   \
      }                                                                                     \
    }                                                                                       \
  }
COPY_PLANES(copy_bytes, uint8_t, uint8_t)
COPY_PLANES(copy_signed, int16_t, int8_t)
COPY_PLANES(copy_unsigned, int16_t, uint8_t)

// Interleaves n bytes of four streams.
SHARED void interleave(const uint8_t *const from[4], int64_t n, uint8_t *to, uint8_t flip) {
  const uint8_t *a = from[0], *b = from[1], *c = from[2], *d = from[3];
  for (int64_t i = 0; i < n; i++) {
    to[4 * i] = a[i] ^ flip;
    to[4 * i + 1] = b[i] ^ flip;
    to[4 * i + 2] = c[i] ^ flip;
    to[4 * i + 3] = d[i] ^ flip;
  }
}

// ---- sums of products ---------------------------------------------------------------------------
typedef struct products {
  const uint8_t *x;         // [fours][plane][4]
  const int64_t *taps;      // where each begins in a plane, in bytes
  const uint8_t *const *w;  // of each output: [blocks of inputs][taps][at_once]
  int64_t n_taps, fours, plane, at_once, rotate;
} products;

INLINE void add_products(const products *g, int64_t p, int32_t *sums, int64_t run,
                         const int vectors) {
#ifdef ITG_QVECTORS
  vq s[BLOCK][VECTORS];
  for (int m = 0; m < BLOCK; m++)
    for (int i = 0; i < vectors; i++) s[m][i] = vq_set(0);
#else
  int32_t s[BLOCK][QL] = {{0}};
#endif
  const int64_t per_block = g->at_once / 4;
  for (int64_t first = 0; first < g->fours; first += per_block) {
    const int64_t last = first + per_block < g->fours ? first + per_block : g->fours;
    for (int64_t t = 0; t < g->n_taps; t++) {
      const int64_t place = g->rotate ? g->n_taps - 1 - t : t;
      const int64_t at = (first * g->n_taps + place * per_block) * 4;
      const uint8_t *x = g->x + first * g->plane + g->taps[t] + 4 * p;
      for (int64_t k = 0; k < last - first; k++, x += g->plane) {
#ifdef ITG_QVECTORS
        vq_four in[VECTORS];
        for (int i = 0; i < vectors; i++) in[i] = vq_inputs(vq_load(x + i * QBYTES));
        for (int m = 0; m < BLOCK; m++) {
          int32_t four;
          memcpy(&four, g->w[m] + at + 4 * k, sizeof four);
          const vq_four weights = vq_weights(vq_set(four));
          for (int i = 0; i < vectors; i++) s[m][i] = vq_dot(s[m][i], in[i], weights);
        }
#else
        for (int m = 0; m < BLOCK; m++)
          for (int i = 0; i < QL; i++)
            for (int c = 0; c < 4; c++) s[m][i] += x[4 * i + c] * (int8_t)g->w[m][at + 4 * k + c];
#endif
      }
    }
  }
  for (int m = 0; m < BLOCK; m++)
#ifdef ITG_QVECTORS
    for (int i = 0; i < vectors; i++) vq_store(sums + m * run + p + i * QL, s[m][i]);
#else
    memcpy(sums + m * run + p, s[m], sizeof s[m]);
#endif
}

// ---- results ------------------------------------------------------------------------------------
SHARED void store_sums(uint8_t *restrict to, const int32_t *restrict from, int64_t count,
                       int32_t bias, int32_t least) {
  for (int64_t i = 0; i < count; i++) {
    const int32_t sum = from[i] + bias, v = sum < least ? least : sum;
    memcpy(to + 4 * i, &v, sizeof v);
  }
}

// Stores the sums of a channel: with its bias and the former result, rounded.
SHARED void finish(const itg_bm_job *j, int64_t n, int64_t c, const int32_t *sums, int64_t pitch,
                   int32_t more) {
  const int before = j->b.type != ITG_BM_NONE;
  int64_t bias = more;
  if (j->bias.type == ITG_BM_CONSTANT) bias += (int64_t)(intptr_t)j->bias.at;
  else if (j->bias.type != ITG_BM_NONE) bias += number_of(&j->bias, c, 0);
  const int64_t channels = j->op == ITG_BM_CONV ? j->input[0] : 1;
  const int64_t most = channels * j->kernel[0] * j->kernel[1] * PRODUCT;
  const int plain = !before && !j->rounds && !j->shift && j->y.type == ITG_BM_I32 &&
                    j->y.w == sizeof *sums && bias < INT32_MAX - most && bias > most - INT32_MAX;
  const rq1 r = j->rounds ? rq1_of(j, c) : (rq1){0};
  uint8_t *first = row_of(&j->y, n, c, 0);
  if (plain && pitch == j->shape[3] && j->y.h == pitch * j->y.w) {
    store_sums(first, sums, j->shape[2] * pitch, (int32_t)bias, j->relu ? 0 : INT32_MIN);
    return;
  }
  for (int64_t h = 0; h < j->shape[2]; h++) {
    uint8_t *to = first + h * j->y.h;
    const int32_t *from = sums + h * pitch;
    if (plain) {
      store_sums(to, from, j->shape[3], (int32_t)bias, j->relu ? 0 : INT32_MIN);
      continue;
    }
    for (int64_t x = 0; x < j->shape[3]; x += STRETCH) {
      const int64_t count = j->shape[3] - x < STRETCH ? j->shape[3] - x : STRETCH;
      int64_t v[STRETCH], old[STRETCH];
      for (int64_t i = 0; i < count; i++) v[i] = from[x + i] + bias;
      if (before) {
        load_64(old, row_of(&j->b, n, c, h) + x * j->b.w, j->b.w, j->b.type, count);
        for (int64_t i = 0; i < count; i++) v[i] += old[i];
      }
      if (j->relu)
        for (int64_t i = 0; i < count; i++) v[i] = v[i] < 0 ? 0 : v[i];
      if (j->rounds) requantise_row(v, count, &r, j->mode);
      else shift_row(v, count, j->shift, j->mode);
      clamp_64(v, count, LOWEST[j->y.type], HIGHEST[j->y.type]);
      store_64(to + x * j->y.w, v, j->y.w, j->y.type, count);
    }
  }
}

INLINE const uint8_t *weights_of(const itg_bm_job *j, int64_t c) { return row_of(&j->w, 0, c, 0); }

// The sum of an output's weights, for inputs that are stored with 128 added.
INLINE int32_t sum_of_weights(const itg_bm_job *j, const int8_t *w) {
  const int64_t taps = j->kernel[0] * j->kernel[1];
  int32_t total = 0;
  for (int64_t first = 0; first < j->input[0]; first += j->at_once) {
    const int64_t left = j->input[0] - first;
    const int64_t count = left < j->at_once ? left : j->at_once;
    for (int64_t t = 0; t < taps; t++, w += j->at_once)
      for (int64_t i = 0; i < count; i++) total += w[i];
  }
  return total;
}

INLINE int64_t rounded_up(int64_t size) { return (size + 63) / 64 * 64; }
INLINE int64_t fours_of(const itg_bm_job *j) { return (j->input[0] + 3) / 4; }
INLINE int64_t run_of(const planes *p) { return rounded_up(p->run) + BEYOND; }

static int run_conv(const itg_bm_job *j, uint8_t *scratch) {
  const planes p = planes_of(j);
  const int64_t run = run_of(&p), fours = fours_of(j), n_taps = j->kernel[0] * j->kernel[1];
  const uint8_t flip = j->a.type == ITG_BM_I8 ? 0x80 : 0;
  const int direct = j->stride[0] == 1 && j->stride[1] == 1 && j->a.w == 1 &&
                     j->a.h == j->input[2] && p.pitch == j->input[2] && !j->pad[0] && !j->pad[1] &&
                     p.rows <= j->input[1];
  int64_t *taps = (int64_t *)scratch;
  int32_t *sums = (int32_t *)(taps + rounded_up(n_taps));
  uint8_t *bytes = (uint8_t *)(sums + BLOCK * run), *x = bytes + 5 * rounded_up(p.size);
  for (int64_t t = 0; t < n_taps; t++)
    taps[t] = 4 * tap_of(j, &p, t / j->kernel[1], t % j->kernel[1]);
  memset(bytes + 4 * rounded_up(p.size), flip, (size_t)p.size);
  for (int64_t n = 0; n < j->shape[0]; n++) {
    for (int64_t f = 0; f < fours; f++) {
      const uint8_t *from[4];
      for (int64_t i = 0; i < 4; i++) {
        from[i] = bytes + 4 * rounded_up(p.size);
        if (4 * f + i >= j->input[0]) continue;
        const uint8_t *channel = row_of(&j->a, n, 4 * f + i, 0);
        from[i] = direct ? channel : bytes + i * rounded_up(p.size);
        if (!direct) copy_bytes(j, &p, channel, bytes + i * rounded_up(p.size), (uint8_t)j->fill);
      }
      interleave(from, p.size, x + 4 * f * p.size, flip);
    }
    const products all = {.x = x,
                          .taps = taps,
                          .n_taps = n_taps,
                          .fours = fours,
                          .plane = 4 * p.size,
                          .at_once = j->at_once,
                          .rotate = j->rotate};
    for (int64_t c = 0; c < j->shape[1]; c += BLOCK) {
      const uint8_t *w[BLOCK];
      const int64_t left = j->shape[1] - c;
      for (int64_t m = 0; m < BLOCK; m++) w[m] = weights_of(j, c + (m < left ? m : left - 1));
      products g = all;
      g.w = w;
      for (int64_t i = 0; i < p.run; i += STRIP) {
        if (VECTORS > 2 && p.run - i > 2 * QL) add_products(&g, i, sums, run, VECTORS);
        else if (VECTORS > 1 && p.run - i > QL) add_products(&g, i, sums, run, VECTORS < 2 ? 1 : 2);
        else add_products(&g, i, sums, run, 1);
      }
      for (int64_t m = 0; m < BLOCK && m < left; m++) {
        const int32_t more = flip ? -128 * sum_of_weights(j, (const int8_t *)w[m]) : 0;
        finish(j, n, c + m, sums + m * run, p.pitch, more);
      }
    }
  }
  return 1;
}

// ---- channel by channel -------------------------------------------------------------------------
typedef int16_t shorts __attribute__((vector_size(LINE * sizeof(int16_t))));
typedef int32_t ints __attribute__((vector_size(LINE * sizeof(int32_t))));

INLINE void add_taps(const int16_t *x, const int64_t *taps, const int32_t *w, int64_t n_taps,
                     int32_t *sums, const int most, const int lines) {
  ints total[LINES];
  for (int i = 0; i < lines; i++) total[i] = (ints){0};
  for (int64_t t = 0; t < n_taps; t++) {
    for (int i = 0; i < lines; i++) {
      shorts line;
      memcpy(&line, x + taps[t] + i * LINE, sizeof line);
      const ints v = __builtin_convertvector(line, ints);
      if (!most) total[i] += v * w[t];
      else if (!t) total[i] = v;
      else total[i] = (v & (v > total[i])) | (total[i] & ~(v > total[i]));
    }
  }
  memcpy(sums, total, (size_t)lines * sizeof *total);
}

INLINE void add_all_taps(const int16_t *x, const int64_t *taps, const int32_t *w, int64_t n_taps,
                         int64_t run, int32_t *sums, const int most) {
  int64_t i = 0;
  for (; i + LINES * LINE <= run; i += LINES * LINE)
    add_taps(x + i, taps, w, n_taps, sums + i, most, LINES);
  for (; i < run; i += LINE) add_taps(x + i, taps, w, n_taps, sums + i, most, 1);
}

static int run_channels(const itg_bm_job *j, uint8_t *scratch) {
  const planes p = planes_of(j);
  const int64_t n_taps = j->kernel[0] * j->kernel[1];
  int64_t *taps = (int64_t *)scratch;
  int32_t *w = (int32_t *)(taps + rounded_up(n_taps)), *sums = w + rounded_up(n_taps);
  int16_t *x = (int16_t *)(sums + run_of(&p));
  for (int64_t t = 0; t < n_taps; t++) taps[t] = tap_of(j, &p, t / j->kernel[1], t % j->kernel[1]);
  memset(x, 0, (size_t)(rounded_up(p.size) + BEYOND) * sizeof *x);
  for (int64_t c = 0; c < j->shape[1]; c++) {
    for (int64_t t = 0; t < n_taps && j->op == ITG_BM_DEPTHWISE; t++) {
      const int64_t place = j->rotate ? n_taps - 1 - t : t;
      if (j->w.type == ITG_BM_CONSTANT) w[t] = (int32_t)(intptr_t)j->w.at;
      else
        w[t] = j->w.type == ITG_BM_I8 ? (int8_t)weights_of(j, c)[place] : weights_of(j, c)[place];
    }
    for (int64_t n = 0; n < j->shape[0]; n++) {
      const uint8_t *channel = row_of(&j->a, n, c, 0);
      if (j->a.type == ITG_BM_I8) copy_signed(j, &p, channel, x, (int16_t)j->fill);
      else copy_unsigned(j, &p, channel, x, (int16_t)j->fill);
      if (j->op == ITG_BM_MAX_POOL) add_all_taps(x, taps, w, n_taps, p.run, sums, 1);
      else add_all_taps(x, taps, w, n_taps, p.run, sums, 0);
      finish(j, n, c, sums, p.pitch, 0);
    }
  }
  return 1;
}

INLINE int64_t scratch_of(const itg_bm_job *j) {
  const planes p = planes_of(j);
  const int64_t n_taps = rounded_up(j->kernel[0] * j->kernel[1]), run = run_of(&p);
  if (j->op == ITG_BM_CONV)
    return n_taps * 8 + BLOCK * run * 4 + 5 * rounded_up(p.size) + 4 * fours_of(j) * p.size +
           8 * BEYOND;
  return n_taps * 12 + run * 4 + 2 * (rounded_up(p.size) + BEYOND);
}
