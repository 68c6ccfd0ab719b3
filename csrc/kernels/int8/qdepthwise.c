// Depthwise convolution of channel-last 8-bit images. The image is interleaved (qdepthwise.h), so
// that one instruction multiplies four lines of a window. The register tile is one or two output
// lines by four neighbouring pixels by a vector of QL channels: sum[line][pixel]. The weights of
// small windows stay in registers too.
#include "qconv.h"
#include "qdepthwise.h"

typedef struct task {
  const itg_qdepth *d;
  const uint8_t *x;
  const int8_t *weights;  // [blocks, outs, parts, high, wide, 16 channels, 4 taps]
  uint8_t *out;
  itg_requantize end;
  const uint8_t *table;  // applied to each byte of the result, as u8; or NULL
  int flip;
  uint8_t fill;
  int64_t images;
} task;

#if defined(ISA_neon)
#include "qdepthwise_neon.h"
#elif defined(ITG_QVECTORS)
// Does a block of 16 channels have weights whose second part is not zero?
static bool is_split(const task *t, int64_t block) {
  if (t->d->parts == 1) return false;
  const int64_t part = t->d->high * t->d->wide * ITG_QPLACE;
  const int8_t *second = t->weights + block * t->d->outs * 2 * part + part;
  int8_t any = 0;
  for (int64_t i = 0; i < part; i++) any |= second[i];
  return any;
}

#include "qdepthwise_interleave.h"

#include "qdepthwise_3x3.h"
#include "qdepthwise_5x5.h"

// ---- sums ---------------------------------------------------------------------------------------
typedef struct sums {     // a strip of one or two output lines, one vector of channels
  const uint8_t *places;  // interleaved input
  const int64_t *at;      // offset of each group of four taps in it, in bytes
  const int8_t *weights;  // of the first line; those of the second follow `next` bytes later
  int64_t taps, next;     // taps: groups of four
  int64_t second;         // bytes from weights to their second part; 0: none is added to them
  uint8_t *out;
  int64_t line, pitch;   // distances of output lines and pixels
  int64_t pixels, step;  // step: places from one pixel to the next
  int64_t n;             // channels
} sums;

// Weights of two parts: 16-bit products take their sum. Products of bytes take each group of taps
// twice, once for each part.
INLINE vq_four weights_at(const sums *s, const int8_t *from) {
  vq_four w = vq_weights(vq_load(from));
#if defined(ISA_avx512vnni)
  (void)s;
#else
  if (s->second) {
    const vq_four more = vq_weights(vq_load(from + s->second));
    w.even = vq_add16(w.even, more.even);
    w.odd = vq_add16(w.odd, more.odd);
  }
#endif
  return w;
}

// Sums of four neighbouring pixels. If WIDE (the window's width) is not 0, all loops are unrolled
// and the weights come from registers.
INLINE void four(const sums *s, const uint8_t *places, const vq_four *weights, vq bias,
                 const int TAPS, const int OUTS, const int WIDE, const int STEP, vq (*sum)[4]) {
  FOR_UNROLLED (16, int o = 0; o < OUTS; o++)
    FOR_UNROLLED (16, int p = 0; p < 4; p++) sum[o][p] = bias;
  if (WIDE) {  // each place is loaded once for all taps and pixels that need it
    FOR_UNROLLED (16, int r = 0; r < TAPS / WIDE; r++) {
      const uint8_t *line = places + s->at[r * WIDE];
      FOR_UNROLLED (16, int x = 0; x < WIDE + 3 * STEP; x++) {
        const vq_four in = vq_inputs(vq_load(line + x * ITG_QPLACE));
        FOR_UNROLLED (16, int k = 0; k < WIDE; k++)
          FOR_UNROLLED (16, int o = 0; o < OUTS; o++) {
            const int p = (x - k) / STEP;
            if (x >= k && (x - k) % STEP == 0 && p < 4)
              sum[o][p] = vq_dot(sum[o][p], in, weights[o * TAPS + r * WIDE + k]);
          }
      }
    }
    return;
  }
  for (int64_t k = 0; k < s->taps; k++) {
    const uint8_t *from = places + s->at[k];
    vq_four w[2];
    FOR_UNROLLED (16, int o = 0; o < OUTS; o++)
      w[o] = weights_at(s, s->weights + o * s->next + k * ITG_QPLACE);
    FOR_UNROLLED (16, int p = 0; p < 4; p++) {
      const vq_four in = vq_inputs(vq_load(from + p * s->step * ITG_QPLACE));
      FOR_UNROLLED (16, int o = 0; o < OUTS; o++) sum[o][p] = vq_dot(sum[o][p], in, w[o]);
    }
  }
}

INLINE void strip(const sums *s_, const task *t, vq bias, vf scale, const int TAPS, const int OUTS,
                  const int WIDE, const int STEP) {
  const itg_requantize *q = &t->end;
  const uint8_t *table = t->table;
  const sums s = *s_;
  const vq_end end = vq_end_of(q);
  const vf scales[4] = {scale, scale, scale, scale};
  const bool saturates = q->saturates;
  vq_four weights[TAPS ? TAPS * OUTS : 1];
  FOR_UNROLLED (16, int o = 0; o < OUTS; o++)
    FOR_UNROLLED (16, int k = 0; k < TAPS; k++)
      weights[o * TAPS + k] = weights_at(&s, s.weights + o * s.next + k * ITG_QPLACE);
  for (int64_t p = 0; p < s.pixels; p += 4) {
    const int64_t at = p + 4 <= s.pixels ? p
                       : s.pixels < 4    ? 0
                                         : s.pixels - 4;  // the last four may repeat some pixels
    vq sum[2][4];
    four(&s, s.places + at * s.step * ITG_QPLACE, weights, bias, TAPS, OUTS, WIDE, STEP, sum);
    FOR_UNROLLED (16, int o = 0; o < OUTS; o++) {
      vq *y = sum[o];
      vq bytes = saturates ? vq_bytes(y[0], y[1], y[2], y[3], scales, true, end)
                           : vq_bytes(y[0], y[1], y[2], y[3], scales, false, end);
      if (table) bytes = vq_lookup(bytes, table);
      put_four(s.out + o * s.line + at * s.pitch, s.pitch, s.n, s.pixels < 4 ? (int)s.pixels : 4,
               bytes);
    }
  }
}

#define STRIP(name, TAPS, OUTS, WIDE, STEP)                           \
  static void name(const sums *s, const task *t, vq bias, vf scale) { \
    strip(s, t, bias, scale, TAPS, OUTS, WIDE, STEP);                 \
  }
STRIP(strip_3x3, 3, 1, 3, 1)
STRIP(strip_3x3_twice, 3, 2, 3, 1)
STRIP(strip_any, 0, 1, 0, 1)
STRIP(strip_any_twice, 0, 2, 0, 1)
typedef void (*strip_fn)(const sums *s, const task *t, vq bias, vf scale);

#if defined(ISA_avx512vnni)  // its registers hold all weights of a 5x5 window for two lines
STRIP(strip_5x5, 10, 1, 5, 1)
STRIP(strip_5x5_twice, 10, 2, 5, 1)
STRIP(strip_5x5_2, 10, 1, 5, 2)

static strip_fn strip_of_5x5(int64_t lines, int64_t step) {
  return step == 2 ? strip_5x5_2 : lines == 2 ? strip_5x5_twice : strip_5x5;
}
#else
static strip_fn strip_of_5x5(int64_t lines, int64_t step) {
  (void)step;
  return lines == 2 ? strip_any_twice : strip_any;
}
#endif

static strip_fn strip_of(const sums *s, int64_t lines, int64_t wide, int64_t dilation) {
  if (dilation == 1 && s->step == 1 && s->taps == 3 && wide == 3)
    return lines == 2 ? strip_3x3_twice : strip_3x3;
  if (dilation == 1 && s->step <= 2 && s->taps == 10 && wide == 5)
    return strip_of_5x5(lines, s->step);
  return lines == 2 ? strip_any_twice : strip_any;
}

typedef struct piece {  // pixels [p, p + n) of some lines, blocks from `block` on
  int64_t p, n, block, channels;
  unsigned split;  // bit i: block + i has weights of two parts
} piece;

// Computes `lines` output lines (at most `outs`) of a piece.
static void strips(const task *t, sums *s, const uint8_t *places, const piece *at, int64_t lines) {
  const itg_qdepth *d = t->d;
  const int64_t once = d->high * d->wide, block = at->block, channels = at->channels;
  const strip_fn plain = strip_of(s, lines, d->wide, d->w.dilation[2]);
  uint8_t *out = s->out;
  s->next = d->parts * once * ITG_QPLACE;
  for (int64_t v = 0; v * QL < channels; v++) {
    const int64_t b = v / HALVES, c = block * ITG_QBLOCK16 + v * QL, half = v % HALVES * (QL * 4);
    strip_fn run = plain;
#if defined(ISA_avx512vnni)
    const bool split = at->split >> b & 1;
    s->taps = split ? 2 * once : once;
    if (split) run = lines == 2 ? strip_any_twice : strip_any;
#else
    s->second = at->split >> b & 1 ? once * ITG_QPLACE : 0;
#endif
    s->n = channels - v * QL < QL ? channels - v * QL : QL;
    const int32_t *bias = t->end.bias + c;
    const float *scale = t->end.scale + c;
    int32_t some_bias[QL];
    float some_scale[QL];
    if (s->n < QL) {
      memset(some_bias, 0, sizeof some_bias);
      memset(some_scale, 0, sizeof some_scale);
      bias = memcpy(some_bias, bias, (size_t)s->n * sizeof *bias);
      scale = memcpy(some_scale, scale, (size_t)s->n * sizeof *scale);
    }
    s->places = places + b * d->columns * ITG_QPLACE + half;
    s->weights = t->weights + (block + b) * d->outs * s->next + half;
    s->out = out + c;
    run(s, t, vq_load(bias), vload(scale));
  }
}

// ---- rows ---------------------------------------------------------------------------------------
INLINE const uint8_t *line_of(const task *t, int64_t batch, int64_t z, int64_t y) {
  const itg_window *w = &t->d->w;
  if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) return NULL;
  return t->x + ((batch * w->in[0] + z) * w->in[1] + y) * w->in[2] * t->d->channels;
}

#include "qdepthwise_column.h"

static sums begin(const task *t, const piece *at, const int64_t *taps, int64_t row) {
  const itg_window *w = &t->d->w;
  sums s = {.at = taps,
            .taps = t->d->high * t->d->wide,
            .pitch = t->d->channels,
            .line = w->out[2] * t->d->channels,
            .pixels = at->n,
            .step = w->stride[2]};
  s.out = t->out + row * s.line + at->p * s.pitch;
  return s;
}

// Interleaves the input of output rows [row, row + lines) and computes them.
static void lines_of(const task *t, const piece *at, uint8_t *places, int64_t row, int64_t lines) {
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  const int64_t oy = row % w->out[1], oz = row / w->out[1] % w->out[0],
                batch = row / w->out[1] / w->out[0];
  const int64_t count = w->kernel[0] * w->kernel[1] + d->outs - 1;
  const int64_t group = d->groups * d->columns * ITG_QPLACE;
  int64_t taps[2 * ITG_QTAPS];  // the second half repeats the first, for weights of two parts
  for (int64_t g = 0; g < d->high; g++) {
    const uint8_t *rows[4];
    for (int64_t i = 0; i < 4; i++) {
      const int64_t k = g * 4 + i, down = d->outs == 2 ? k : k % w->kernel[1];
      const int64_t z =
          oz * w->stride[0] - w->before[0] + (d->outs == 2 ? 0 : k / w->kernel[1]) * w->dilation[0];
      const int64_t y = oy * w->stride[1] - w->before[1] + down * w->dilation[1];
      rows[i] = k < count ? line_of(t, batch, z, y) : NULL;
    }
    const int64_t columns = (at->n - 1) * w->stride[2] + (d->wide - 1) * w->dilation[2] + 1;
    interleave_padded(t, rows, at->p * w->stride[2] - w->before[2], columns,
                      at->block * ITG_QBLOCK16, at->channels, places + g * group);
    for (int64_t j = 0; j < d->wide; j++)
      taps[g * d->wide + j] = taps[(d->high + g) * d->wide + j] =
          g * group + j * w->dilation[2] * ITG_QPLACE;
  }
  sums s = begin(t, at, taps, row);
  strips(t, &s, places, at, lines);
}

// Computes rows [row, end) of blocks [first, last).
static void run(const task *t, uint8_t *places, int64_t row, int64_t end, int64_t first,
                int64_t last) {
  const itg_qdepth *d = t->d;
  const int64_t height = d->w.out[1];
  if (d->w.out[2] == 1 && d->parts == 1) {
    run_column(t, row, end, first, last);
    return;
  }
  for (int64_t b = first; b < last; b += d->groups) {
    const int64_t blocks = last - b < d->groups ? last - b : d->groups,
                  left = d->channels - b * ITG_QBLOCK16;
    unsigned split = 0;
    for (int64_t i = 0; i < blocks; i++) split |= (unsigned)is_split(t, b + i) << i;
    for (int64_t p = 0; p < d->w.out[2]; p += d->strip) {
      const piece at = {p, d->w.out[2] - p < d->strip ? d->w.out[2] - p : d->strip, b,
                        blocks * ITG_QBLOCK16 < left ? blocks * ITG_QBLOCK16 : left, split};
      for (int64_t y = row, lines; y < end; y += lines) {
        lines = d->outs == 2 && y + 1 < end && y % height + 1 < height ? 2 : 1;
        lines_of(t, &at, places, y, lines);
      }
    }
  }
}
#elif defined(ISA_rvv)
#include "qdepthwise_rvv.h"
#else
// Plain C: one output pixel and one block of channels at a time, without interleaving.
static void run(const task *t, uint8_t *none, int64_t row, int64_t end, int64_t first,
                int64_t last) {
  (void)none;
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  const int64_t places = w->out[2], line = w->in[2] * d->channels;
  for (int64_t i = row * places; i < end * places; i++) {
    const int64_t ox = i % places, oy = i / places % w->out[1],
                  oz = i / places / w->out[1] % w->out[0];
    const uint8_t *image = t->x + i / itg_places(w->out) * w->in[0] * w->in[1] * line;
    for (int64_t b = first; b < last; b++) {
      const int64_t c = b * ITG_QBLOCK16,
                    n = d->channels - c < ITG_QBLOCK16 ? d->channels - c : ITG_QBLOCK16;
      uint32_t sum[ITG_QBLOCK16];
      for (int64_t l = 0; l < n; l++) sum[l] = (uint32_t)t->end.bias[c + l];
      for (int64_t k = 0; k < itg_taps(w); k++) {
        const int64_t kx = k % w->kernel[2], ky = k / w->kernel[2] % w->kernel[1],
                      kz = k / w->kernel[2] / w->kernel[1];
        const int64_t z = oz * w->stride[0] - w->before[0] + kz * w->dilation[0];
        const int64_t y = oy * w->stride[1] - w->before[1] + ky * w->dilation[1];
        const int64_t x = ox * w->stride[2] - w->before[2] + kx * w->dilation[2],
                      down = kz * w->kernel[1] + ky;
        const int64_t once = d->high * d->wide;
        const int64_t group = b * d->outs * d->parts * once + down / 4 * d->wide + kx;
        const int8_t *weights = t->weights + group * ITG_QPLACE + down % 4;
        const int64_t second = (d->parts - 1) * once * ITG_QPLACE;  // 0: one part
        const bool inside =
            z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1] && x >= 0 && x < w->in[2];
        const uint8_t *from =
            inside ? image + (z * w->in[1] + y) * line + x * d->channels + c : &t->fill;
        for (int64_t l = 0; l < n; l++)
          sum[l] += (uint32_t)((from[inside ? l : 0] ^ t->flip) *
                               (weights[l * 4] + (second ? weights[second + l * 4] : 0)));
      }
      for (int64_t l = 0; l < n; l++) {
        const uint8_t y = itg_requantized(&t->end, (int32_t)sum[l], c + l);
        t->out[i * d->channels + c + l] = t->table ? t->table[y] : y;
      }
    }
  }
}
#endif

ITG_FN(qdepthwise, any) {
  const itg_attrs_qdepthwise *a = call->attrs;
  const itg_qdepth_prepared *p = itg_prepared(call);
  if (p->empty) return NULL;
  task t;
  t.d = &p->d;
  t.x = call->in[0]->data;
  t.weights = call->in[1]->data;
  t.out = call->out[0]->data;
  t.table = itg_input(call, 4) ? itg_input(call, 4)->data : NULL;
  t.flip = call->in[0]->dtype == ITG_I8 ? 0x80 : 0;
  t.fill = (uint8_t)a->x_zero;
  t.images = p->batch;
  t.end = itg_requantize_of(call->in[2]->data, call->in[3]->data, t.d->channels, a->y_zero, a->lo,
                            a->hi, a->dtype == ITG_I8);
  int64_t row = 0, end = p->batch * t.d->w.out[0] * t.d->w.out[1], from = 0, to = t.d->blocks;
  int64_t lines = t.d->outs, blocks = 4;  // that are computed together: threads split at multiples
#if defined(ISA_avx512)
  const bool walk = walks(&t.d->w);
  if (walk) lines = 1;
#endif
#if defined(ISA_avx512vnni)
  if (!walk && t.d->five_slots) lines = blocks = 1;
#endif
  // Threads split the work as the 1x1 convolution before it does (qconv.c), which mostly has a
  // sixth of the channels as inputs. So each thread finds its inputs in its own cache.
  const bool wide =
      t.d->channels > 7 * p->batch * itg_places(t.d->w.in) && t.d->blocks >= 2 * (int64_t)parts;
  if (!wide && end >= 7 * (int64_t)parts) itg_share(end, lines, part, parts, &row, &end);
  else itg_share(t.d->blocks, blocks, part, parts, &from, &to);
#if defined(ISA_avx512)
  if (walk) {
    walk_rows(&t, row, end, from * ITG_QBLOCK16,
              to < t.d->blocks ? to * ITG_QBLOCK16 : t.d->channels);
    return NULL;
  }
#endif
#if defined(ISA_avx512vnni)
  if (t.d->five_slots) {
    five_rows(&t, (uint8_t *)call->scratch + t.d->total * part, row, end, from, to);
    return NULL;
  }
#endif
  run(&t, (uint8_t *)call->scratch + t.d->total * part, row, end, from, to);
  return NULL;
}
