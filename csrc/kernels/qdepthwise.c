// Convolution of a channel-last 8-bit image in which each channel has a window of its own. Four taps at a time are
// interleaved byte by byte, so that each lane has what one channel sees of them. In steps of one vectors run over whole
// lines (qlines.h), else over the channels of a pixel.
#include "qconv.h"
#include "qlines.h"

typedef struct task {
  itg_window w;
  int64_t channels, taps;
  const uint8_t *x;
  const int8_t *weights;
  uint8_t *out;
  itg_requantize end;
  int flip;
  uint8_t fill;
} task;

#if defined(ITG_QVECTORS)
enum { FOURS = ITG_QTAPS / 4 };

typedef struct block {  // what the pixels of one block of channels share
  vq weights[FOURS][4];
  vq bias[4];
  vf scale[4];
  int64_t n;  // channels
} block;

INLINE vq some_bytes(const uint8_t *p, int64_t n) {
#if defined(ISA_avx512)
  return _mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - n), p);
#else
  uint8_t bytes[QBYTES] = {0};
  memcpy(bytes, p, (size_t)n);
  return vq_load(bytes);
#endif
}

// Four vectors of bytes -> four of lanes; within 128 bits lane i of vector v is byte 4 * v + i.
INLINE void interleave(vq a, vq b, vq c, vq d, vq *to) {
  const vq ab = vq_unpacklo8(a, b), cd = vq_unpacklo8(c, d), ab2 = vq_unpackhi8(a, b), cd2 = vq_unpackhi8(c, d);
  to[0] = vq_unpacklo16(ab, cd);
  to[1] = vq_unpackhi16(ab, cd);
  to[2] = vq_unpacklo16(ab2, cd2);
  to[3] = vq_unpackhi16(ab2, cd2);
}

static void prepare(const task *t, int64_t c, int64_t n, block *b) {
  const vq none = vq_set(0);
  b->n = n;
  for (int64_t k = 0; k < t->taps; k += 4) {
    vq w[4];
    for (int i = 0; i < 4; i++)
      w[i] = k + i < t->taps ? some_bytes((const uint8_t *)t->weights + (k + i) * t->channels + c, n) : none;
    interleave(w[0], w[1], w[2], w[3], b->weights[k / 4]);
  }
  int32_t bias[4 * QL] = {0};
  float scale[4 * QL] = {0};
  for (int64_t i = 0; i < n; i++) {  // in the order of the lanes
    const int64_t to = i / 4 % 4 * QL + i / 16 * 4 + i % 4;
    bias[to] = t->end.bias[c + i];
    scale[to] = t->end.scale[c + i];
  }
  for (int v = 0; v < 4; v++) {
    b->bias[v] = vq_load(bias + v * QL);
    b->scale[v] = vload(scale + v * QL);
  }
}

INLINE void pixel(const task *t, const block *b, const uint8_t *const *taps, const int TAPS, const int WHOLE,
                  uint8_t *out) {
  const int64_t n = b->n, count = TAPS ? TAPS : t->taps;
  const vq flip = vq_set((int32_t)(t->flip * 0x01010101u));
  vq sum[4];
  UNROLL for (int v = 0; v < 4; v++) sum[v] = b->bias[v];
  UNROLL for (int64_t k = 0; k < count; k += 4) {
    vq x[4], lanes[4];
    UNROLL for (int i = 0; i < 4; i++) {  // taps behind the last have weights of zero: any bytes do
      const uint8_t *from = taps[k + i < count ? k + i : count - 1];
      x[i] = vq_xor(WHOLE ? vq_load(from) : some_bytes(from, n), flip);
    }
    interleave(x[0], x[1], x[2], x[3], lanes);
    UNROLL for (int v = 0; v < 4; v++)
      sum[v] = vq_dot(sum[v], vq_inputs(lanes[v]), vq_weights(b->weights[k / 4][v]));
  }
  const vq_end end = vq_end_of(&t->end);
  const vq bytes = t->end.saturates ? vq_bytes(sum[0], sum[1], sum[2], sum[3], b->scale, true, end)
                                    : vq_bytes(sum[0], sum[1], sum[2], sum[3], b->scale, false, end);
  if (WHOLE) {
    vq_store(out, bytes);
  } else {
#if defined(ISA_avx512)
    _mm512_mask_storeu_epi8(out, ~(__mmask64)0 >> (64 - n), bytes);
#else
    uint8_t all[QBYTES];
    vq_store(all, bytes);
    memcpy(out, all, (size_t)n);
#endif
  }
}
#else
enum { QBYTES = 64 };

typedef struct block {
  int64_t c, n;
} block;

static void prepare(const task *t, int64_t c, int64_t n, block *b) { *b = (block){c, n}; }

INLINE void pixel(const task *t, const block *b, const uint8_t *const *taps, const int TAPS, const int WHOLE,
                  uint8_t *out) {
  uint32_t sum[QBYTES];
  for (int64_t i = 0; i < b->n; i++) sum[i] = (uint32_t)t->end.bias[b->c + i];
  for (int64_t k = 0; k < t->taps; k++) {
    const int8_t *w = t->weights + k * t->channels + b->c;
    for (int64_t i = 0; i < b->n; i++) sum[i] += (uint32_t)((taps[k][i] ^ t->flip) * w[i]);
  }
  for (int64_t i = 0; i < b->n; i++) out[i] = itg_requantized(&t->end, (int32_t)sum[i], b->c + i);
}
#endif

// A row of output pixels of one block of channels, which begins at channel c.
INLINE void row_of(const task *t, const block *b, int64_t c, int64_t row, const int TAPS, const int WHOLE) {
  const itg_window *w = &t->w;
  const int64_t line = w->in[2] * t->channels, oy = row % w->out[1], oz = row / w->out[1] % w->out[0];
  const uint8_t *image = t->x + row / w->out[1] / w->out[0] * w->in[0] * w->in[1] * line + c;
  const int64_t z0 = oz * w->stride[0] - w->before[0], y0 = oy * w->stride[1] - w->before[1];
  uint8_t fill[QBYTES];
  memset(fill, t->fill, sizeof fill);
  const uint8_t *lines[ITG_QTAPS];  // the line of the image that each line of the window meets, or NULL
  const int64_t depth = w->kernel[0] * w->kernel[1], width = w->kernel[2];
  for (int64_t k = 0; k < depth; k++) {
    const int64_t z = z0 + k / w->kernel[1] * w->dilation[0], y = y0 + k % w->kernel[1] * w->dilation[1];
    lines[k] = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1] ? image + (z * w->in[1] + y) * line : NULL;
  }
  uint8_t *out = t->out + row * w->out[2] * t->channels + c;
  for (int64_t ox = 0; ox < w->out[2]; ox++, out += t->channels) {
    const int64_t x0 = ox * w->stride[2] - w->before[2];
    const uint8_t *taps[ITG_QTAPS];
    for (int64_t i = 0, k = 0; i < depth; i++)
      for (int64_t j = 0; j < width; j++, k++) {
        const int64_t x = x0 + j * w->dilation[2];
        taps[k] = lines[i] && x >= 0 && x < w->in[2] ? lines[i] + x * t->channels : fill;
      }
    pixel(t, b, taps, TAPS, WHOLE, out);
  }
}

#define ROWS(name, TAPS, WHOLE)                                                                                     \
  static void name(const task *t, const block *b, int64_t c, int64_t from, int64_t to) { \
    for (int64_t row = from; row < to; row++) row_of(t, b, c, row, TAPS, WHOLE);                                    \
  }
ROWS(rows_nine, 9, 1)
ROWS(rows_nine_some, 9, 0)
ROWS(rows_any, 0, 1)
ROWS(rows_any_some, 0, 0)

#if defined(ITG_QVECTORS)
// ---- whole lines -----------------------------------------------------------------------------------
// What the vector that begins with channel c needs: biases, scales, weights of every four taps; channels go round.
static void prepare_phase(const task *t, int64_t c, vq *to) {
  int32_t bias[4 * QL];
  float scale[4 * QL];
  for (int64_t i = 0, from = c; i < QBYTES; i++, from = from + 1 == t->channels ? 0 : from + 1) {
    const int64_t at = i / 4 % 4 * QL + i / 16 * 4 + i % 4;  // in the order of the lanes
    bias[at] = t->end.bias[from];
    scale[at] = t->end.scale[from];
  }
  memcpy(to, bias, sizeof bias);
  memcpy(to + 4, scale, sizeof scale);
  to += 8;
  for (int64_t k = 0; k < t->taps; k += 4, to += 4) {
    uint8_t w[4][QBYTES] = {{0}};
    for (int64_t i = 0; i < 4 && k + i < t->taps; i++)
      for (int64_t done = 0, from = c, n; done < QBYTES; done += n, from = 0) {
        n = t->channels - from < QBYTES - done ? t->channels - from : QBYTES - done;
        memcpy(w[i] + done, t->weights + (k + i) * t->channels + from, (size_t)n);
      }
    interleave(vq_load(w[0]), vq_load(w[1]), vq_load(w[2]), vq_load(w[3]), to);
  }
}

// A line of the image between its padding.
static void keep_line(const task *t, const itg_qlines *l, const uint8_t *from, uint8_t *to) {
  const int64_t all = l->size, left = t->w.before[2] * t->channels < all ? t->w.before[2] * t->channels : all;
  const int64_t line = t->w.in[2] * t->channels, n = line < all - left ? line : all - left;
  memset(to, t->fill, (size_t)left);
  memcpy(to + left, from, (size_t)n);
  memset(to + left + n, t->fill, (size_t)(all - left - n));
}

INLINE vq line_vector(const task *t, const vq *table, const uint8_t *const *taps, int64_t at, const int TAPS,
                      vq_end end) {
  const int64_t count = TAPS ? TAPS : t->taps;
  const vq flip = vq_set((int32_t)(t->flip * 0x01010101u)), *weights = table + 8;
  vq sum[4];
  vf scale[4];
  UNROLL for (int v = 0; v < 4; v++) {
    sum[v] = vq_load(table + v);
    scale[v] = vload((const float *)(table + 4 + v));
  }
  UNROLL for (int64_t k = 0; k < count; k += 4) {
    vq x[4], lanes[4];
    UNROLL for (int i = 0; i < 4; i++) x[i] = vq_xor(vq_load(taps[k + i < count ? k + i : count - 1] + at), flip);
    interleave(x[0], x[1], x[2], x[3], lanes);
    UNROLL for (int v = 0; v < 4; v++)
      sum[v] = vq_dot(sum[v], vq_inputs(lanes[v]), vq_weights(vq_load(weights + k + v)));
  }
  return t->end.saturates ? vq_bytes(sum[0], sum[1], sum[2], sum[3], scale, true, end)
                          : vq_bytes(sum[0], sum[1], sum[2], sum[3], scale, false, end);
}

INLINE void run_lines(const task *t_, const itg_qlines *l, char *scratch, int64_t row, int64_t last, const int TAPS) {
  const task task = *t_, *t = &task;  // a copy, so that stores are known not to change it
  const itg_window *w = &t->w;
  const int64_t phases = itg_qphases(t->channels, QBYTES), step = ((t->taps + 3) / 4 + 2) * 4;
  const int64_t line = w->in[2] * t->channels, total = w->out[2] * t->channels;
  vq *tables = (vq *)scratch;
  uint8_t *lines = (uint8_t *)scratch + l->tables, *fill = lines + l->high * l->wide * l->size;
  int64_t kept[ITG_QSLOTS];  // which line of the image each slot has
  for (int i = 0; i < ITG_QSLOTS; i++) kept[i] = -1;
  for (int64_t p = 0; p < phases; p++) prepare_phase(t, p * QBYTES % t->channels, tables + p * step);
  memset(fill, t->fill, (size_t)l->size);
  const vq_end end = vq_end_of(&t->end);
  for (; row < last; row++) {
    const int64_t oy = row % w->out[1], oz = row / w->out[1] % w->out[0], batch = row / w->out[1] / w->out[0];
    const uint8_t *taps[ITG_QTAPS];
    for (int64_t k = 0, i = 0; k < w->kernel[0] * w->kernel[1]; k++) {
      const int64_t z = oz * w->stride[0] - w->before[0] + k / w->kernel[1] * w->dilation[0];
      const int64_t y = oy * w->stride[1] - w->before[1] + k % w->kernel[1] * w->dilation[1];
      const uint8_t *from = fill;
      if (z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1]) {
        const int64_t slot = z % l->high * l->wide + y % l->wide, number = (batch * w->in[0] + z) * w->in[1] + y;
        uint8_t *to = lines + slot * l->size;
        if (kept[slot] != number) keep_line(t, l, t->x + number * line, to);
        kept[slot] = number;
        from = to;
      }
      for (int64_t j = 0; j < w->kernel[2]; j++) taps[i++] = from + j * w->dilation[2] * t->channels;
    }
    uint8_t *out = t->out + row * total;
    const vq *table = tables;
    int64_t at = 0, phase = 0;
    for (; at + QBYTES <= total; at += QBYTES, table += step) {
      if (phase++ == phases) table = tables, phase = 1;
      vq_store(out + at, line_vector(t, table, taps, at, TAPS, end));
    }
    if (at < total) {
      uint8_t some[QBYTES];
      vq_store(some, line_vector(t, phase == phases ? tables : table, taps, at, TAPS, end));
      memcpy(out + at, some, (size_t)(total - at));
    }
  }
}

static void run_lines_nine(const task *t, const itg_qlines *l, char *scratch, int64_t row, int64_t last) {
  run_lines(t, l, scratch, row, last, 9);
}
static void run_lines_any(const task *t, const itg_qlines *l, char *scratch, int64_t row, int64_t last) {
  run_lines(t, l, scratch, row, last, 0);
}
#endif

ITG_FN(qdepthwise, any) {
  const itg_attrs_qdepthwise *a = call->attrs;
  task t;
  itg_tensor type;
  itg_qdepthwise_of(call, &t.w, &type);
  if (itg_empty(&type)) return NULL;
  t.channels = type.shape[type.rank - 1];
  t.taps = itg_taps(&t.w);
  t.x = call->in[0]->data;
  t.weights = call->in[1]->data;
  t.out = call->out[0]->data;
  t.flip = call->in[0]->dtype == ITG_I8 ? 0x80 : 0;
  t.fill = (uint8_t)a->x_zero;
  t.end = itg_requantize_of(call->in[2]->data, call->in[3]->data, t.channels, a->y_zero, a->lo, a->hi,
                            a->dtype == ITG_I8);
  const bool nine = t.taps == 9;
  int64_t row = 0, end = type.shape[0] * t.w.out[0] * t.w.out[1], from = 0, to = t.channels;
  if (end >= 8 * (int64_t)parts) itg_share(end, 1, part, parts, &row, &end);
  else itg_share(t.channels, 64, part, parts, &from, &to);
#if defined(ITG_QVECTORS)
  itg_qlines l;
  if (to - from == t.channels && itg_qlines_of(&t.w, t.channels, &l)) {
    (nine ? run_lines_nine : run_lines_any)(&t, &l, (char *)call->scratch + l.total * part, row, end);
    return NULL;
  }
#endif
  for (int64_t c = from; c < to; c += QBYTES) {
    const int64_t n = to - c < QBYTES ? to - c : QBYTES;
    block b;
    prepare(&t, c, n, &b);
    if (n == QBYTES) (nine ? rows_nine : rows_any)(&t, &b, c, row, end);
    else (nine ? rows_nine_some : rows_any_some)(&t, &b, c, row, end);
  }
  return NULL;
}
