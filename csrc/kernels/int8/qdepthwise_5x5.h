// 5x5 depthwise convolution of bytes, 16 channels at a time. Each group of four image lines is
// interleaved once (qdepthwise.h). A window covers two groups; if it begins i lines below the first
// line of a group, the weights are moved by i bytes. The register tile is M = 4 to 7 neighbouring
// pixels (sum[m]); the weights take 10 registers. The previous M sums (old[m]) are converted to
// bytes between the products. Included by qdepthwise.c.
#if defined(ISA_avx512vnni)
enum {
  FIVE = 5,
  FIVE_TAPS = 2 * FIVE,  // groups of four taps: two groups of lines by five columns
  LOWER = 4,             // lines of a group; a window may begin at each of them
  FIVE_MOST = 7,         // most output pixels of a register tile
};

typedef struct five {          // some output lines, one block of channels
  const uint8_t *places;       // interleaved input: a ring buffer of `slots` groups of four lines
  int64_t slot, slots, first;  // bytes of a group, groups of the buffer, number of the first group
  const vq *weights, *second;  // [LOWER, FIVE_TAPS]: two parts, which are added
  const task *t;
  vq bias;
  vf scale;
  uint8_t *out;
  int64_t lines, pixels, channels;
} five;

INLINE void five_taps(const uint8_t *from, const vq_four *w, const int M, const int STEP, vq *sum) {
  FOR_UNROLLED (16, int x = 0; x < FIVE + (M - 1) * STEP; x++) {
    const vq in = vq_load(from + x * ITG_QPLACE);
    FOR_UNROLLED (16, int k = 0; k < FIVE; k++) {
      const int m = (x - k) / STEP;
      if (x >= k && (x - k) % STEP == 0 && m < M) sum[m] = vq_dot(sum[m], in, w[k]);
    }
  }
}

INLINE void five_end(const five *f, const vq *sum, const int N, uint8_t *to, int64_t pitch,
                     int64_t pixels) {
  const itg_requantize *q = &f->t->end;
  const vq_end end = vq_end_of(q);
  vf y[4];
  FOR_UNROLLED (16, int i = 0; i < N; i++) y[i] = vmul(vq_floats(sum[i]), f->scale);
  if (!q->saturates)
    FOR_UNROLLED (16, int i = 0; i < N; i++) y[i] = vmin(vmax(y[i], end.lo), end.hi);
  vq bytes = vq_narrow(y, N, end);
  if (f->t->table) bytes = vq_lookup(bytes, f->t->table);
  bytes = by_fours(bytes);
  const __m128i part[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                           _mm512_extracti32x4_epi32(bytes, 2),
                           _mm512_extracti32x4_epi32(bytes, 3)};
  const int64_t n = f->channels;
  FOR_UNROLLED (16, int p = 0; p < N; p++) {
    if (p >= pixels) break;
    if (n == 16) _mm_storeu_si128((__m128i *)(to + p * pitch), part[p]);
    else if (n == 8) _mm_storel_epi64((__m128i *)(to + p * pitch), part[p]);
    else _mm_mask_storeu_epi8(to + p * pitch, (__mmask16)((1u << n) - 1), part[p]);
  }
}

// SPLIT: weights have two parts.
INLINE void five_lines(const five *f, const int M, const int STEP, const int SPLIT) {
  enum { EARLY = 4 };
  const itg_window *w = &f->t->d->w;
  const int64_t channels = f->t->d->channels, some = f->pixels < M ? f->pixels : M;
  uint8_t nowhere[16], *to = nowhere;
  int64_t pitch = 0;
  vq sum[FIVE_MOST], old[FIVE_MOST];
  FOR_UNROLLED (16, int m = 0; m < M; m++) old[m] = vq_set(0);
  for (int64_t y = 0; y < f->lines; y++) {
    const int64_t group = f->first + y * STEP / LOWER;
    const uint8_t *above = f->places + group % f->slots * f->slot,
                  *below = f->places + (group + 1) % f->slots * f->slot;
    const vq *from = f->weights + y * STEP % LOWER * FIVE_TAPS,
             *more = f->second + y * STEP % LOWER * FIVE_TAPS;
    vq_four taps[FIVE_TAPS];
    FOR_UNROLLED (16, int k = 0; k < FIVE_TAPS; k++) taps[k] = vq_weights(vq_load(from + k));
    for (int64_t p = 0;;) {
      FOR_UNROLLED (16, int m = 0; m < M; m++) sum[m] = f->bias;
      five_taps(above + p * STEP * ITG_QPLACE, taps, M, STEP, sum);
      if (SPLIT) five_taps(above + p * STEP * ITG_QPLACE, more, M, STEP, sum);
      five_end(f, old, EARLY, to, pitch, some);
      five_taps(below + p * STEP * ITG_QPLACE, taps + FIVE, M, STEP, sum);
      if (SPLIT) five_taps(below + p * STEP * ITG_QPLACE, more + FIVE, M, STEP, sum);
      if (M > EARLY)
        five_end(f, old + EARLY, M > EARLY ? M - EARLY : 1, to + EARLY * pitch, pitch,
                 some - EARLY);
      FOR_UNROLLED (16, int m = 0; m < M; m++) old[m] = sum[m];
      pitch = channels;
      to = f->out + (y * w->out[2] + p) * channels;
      const int64_t next =
          p + 2 * M <= f->pixels ? p + M : f->pixels - M;  // the last tile may repeat a few pixels
      if (next <= p) break;
      p = next;
    }
  }
  five_end(f, old, EARLY, to, pitch, some);
  if (M > EARLY)
    five_end(f, old + EARLY, M > EARLY ? M - EARLY : 1, to + EARLY * pitch, pitch, some - EARLY);
}

typedef void (*five_fn)(const five *f);
#define FIVE_LINES(m, step) \
  static void five_##m##_##step(const five *f) { five_lines(f, m, step, 0); }
FIVE_LINES(4, 1)
FIVE_LINES(5, 1)
FIVE_LINES(6, 1)
FIVE_LINES(7, 1)
FIVE_LINES(4, 2)
FIVE_LINES(5, 2)
FIVE_LINES(6, 2)
FIVE_LINES(7, 2)
static void five_split_1(const five *f) { five_lines(f, 4, 1, 1); }
static void five_split_2(const five *f) { five_lines(f, 4, 2, 1); }

static five_fn five_of(int64_t pixels, int64_t step) {
  static const five_fn all[2][4] = {{five_4_1, five_5_1, five_6_1, five_7_1},
                                    {five_4_2, five_5_2, five_6_2, five_7_2}};
  int64_t best = FIVE_MOST, least = INT64_MAX;
  for (int64_t m = FIVE_MOST; m >= 4; m--) {  // pixels per tile that repeat the fewest pixels
    const int64_t cost = (pixels + m - 1) / m * (m + 1);
    if (cost < least) best = m, least = cost;
  }
  return all[step - 1][best - 4];
}

// The weights of windows that begin 0 to 3 lines below the first line of a group.
static void five_weights(const int8_t *from, vq (*to)[FIVE_TAPS]) {
  for (int k = 0; k < FIVE; k++) {
    const vq above = vq_load(from + k * ITG_QPLACE),
             below = vq_load(from + (FIVE + k) * ITG_QPLACE);
    for (int i = 0; i < LOWER; i++) {
      const __m128i down = _mm_cvtsi32_si128(8 * i),
                    up = _mm_cvtsi32_si128(32 - 8 * i);  // a shift by 32 gives 0
      to[i][k] = _mm512_sll_epi32(above, down);
      to[i][FIVE + k] = _mm512_or_si512(_mm512_srl_epi32(above, up), _mm512_sll_epi32(below, down));
    }
  }
}

// Interleaves image lines [y, y + 4), some of which may be padding, in all columns that windows
// cover.
static void interleave_five(const task *t, int64_t batch, int64_t y, int64_t c, int64_t channels,
                            int64_t block, uint8_t *to) {
  const itg_window *w = &t->d->w;
  const int64_t columns = t->d->five_columns, pitch = t->d->channels, before = w->before[2];
  const int64_t begin = before < columns ? before : columns;
  const int64_t end = columns - begin < w->in[2] ? columns : begin + w->in[2];
  uint8_t fill[QBYTES];
  memset(fill, t->fill, sizeof fill);
  const vq beside = vq_set((int32_t)((uint8_t)(t->fill ^ t->flip) * 0x01010101u));
  for (int64_t b = 0; b * ITG_QBLOCK16 < channels; b++) {
    for (int64_t i = 0; i < begin; i++) vq_store(to + b * block + i * ITG_QPLACE, beside);
    for (int64_t i = end; i < columns; i++) vq_store(to + b * block + i * ITG_QPLACE, beside);
  }
  four_lines th;
  for (int k = 0; k < 4; k++) {
    const bool there = y + k >= 0 && y + k < w->in[1];
    th.from[k] = there ? t->x + (batch * w->in[1] + y + k) * w->in[2] * pitch : fill;
    th.step[k] = there ? pitch : 0;
  }
  interleave_lines(&th, c, channels, end - begin, block, t->flip, to + begin * ITG_QPLACE);
}

// Computes output lines [row, end) of one image, blocks [first, last).
static void five_image(const task *t, uint8_t *places, int64_t row, int64_t end, int64_t first,
                       int64_t last) {
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  const int64_t step = w->stride[1], slot = d->five_columns * ITG_QPLACE, slots = d->five_slots,
                block = slots * slot;
  const int64_t oy = row % w->out[1], batch = row / w->out[1], top = oy * step - w->before[1];
  const int64_t most = (slots - 1) * LOWER / step, part = FIVE_TAPS * ITG_QPLACE;
  const five_fn plain = five_of(w->out[2], step), both = step == 1 ? five_split_1 : five_split_2;
  for (int64_t b = first; b < last; b += 4) {
    const int64_t blocks = last - b < 4 ? last - b : 4, c = b * ITG_QBLOCK16,
                  left = d->channels - c;
    const int64_t channels = blocks * ITG_QBLOCK16 < left ? blocks * ITG_QBLOCK16 : left;
    vq weights[4][LOWER][FIVE_TAPS], second[4][LOWER][FIVE_TAPS];
    bool split[4];
    for (int64_t i = 0; i < blocks; i++) {
      const int8_t *from = t->weights + (b + i) * d->outs * d->parts * part;
      five_weights(from, weights[i]);
      split[i] = is_split(t, b + i);
      if (split[i]) five_weights(from + part, second[i]);
    }
    interleave_five(t, batch, top, c, channels, block, places);
    for (int64_t y = 0, group = 0; y < end - row; y += most, group += slots - 1) {
      const int64_t lines = end - row - y < most ? end - row - y : most,
                    groups = (lines - 1) * step / LOWER + 1;
      for (int64_t g = group + 1; g <= group + groups; g++)
        interleave_five(t, batch, top + g * LOWER, c, channels, block, places + g % slots * slot);
      for (int64_t i = 0; i < blocks; i++) {
        const int64_t at = c + i * ITG_QBLOCK16, n = channels - i * ITG_QBLOCK16;
        const __mmask16 some = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
        const five f = {.places = places + i * block,
                        .slot = slot,
                        .slots = slots,
                        .first = group,
                        .weights = weights[i][0],
                        .second = second[i][0],
                        .t = t,
                        .bias = _mm512_maskz_loadu_epi32(some, t->end.bias + at),
                        .scale = _mm512_maskz_loadu_ps(some, t->end.scale + at),
                        .out = t->out + (row + y) * w->out[2] * d->channels + at,
                        .lines = lines,
                        .pixels = w->out[2],
                        .channels = n < 16 ? n : 16};
        (split[i] ? both : plain)(&f);
      }
    }
  }
}

static void five_rows(const task *t, uint8_t *places, int64_t row, int64_t end, int64_t first,
                      int64_t last) {
  const int64_t height = t->d->w.out[1];
  for (int64_t y = row, stop; y < end; y = stop) {
    stop = (y / height + 1) * height;
    stop = stop < end ? stop : end;
    five_image(t, places, y, stop, first, last);
  }
}
#endif
