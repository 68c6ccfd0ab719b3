// 3x3 depthwise convolution of bytes in vectors of 64 channels. A column of three lines is read,
// interleaved in registers (qdepthwise.h) and added to all output pixels that need it. The register
// tile is three output pixels (s0, s1, s2) by four vectors of 16 channels; weights are 3 x 4
// vectors. With at most 32 (16) channels a vector holds two (four) parts of the output line, which
// are called runs. Included by qdepthwise.c.
#if defined(ISA_avx512)
// Parameters of up to 64 channels, or of 32 channels of two runs, or of 16 channels of four. The
// order of the lanes is that of interleave().
typedef struct chunk {
  vq weights[3][4], second[3][4];  // [column of the window][vector]; two parts, which are added
  vq bias[4];
  vf scale[4];
  int64_t c, n;  // channels
  int runs;
  bool split;  // the second part is not zero
} chunk;

typedef struct columns {   // one output line
  const uint8_t *rows[3];  // first column of run 0 in each input line, or padding
  int64_t step[3];         // bytes from one column to the next
  int64_t run[3];          // bytes from one run to the next
  bool inside[3];          // the line is no padding
  int64_t first, width;    // first image column of run 0, columns of the image
  int64_t distance;        // columns between runs
  uint8_t *out;
  int64_t out_step, out_run;
  int64_t pixels;  // of a run
  bool last;       // at the end of the image: bytes past the last channel must not be read
} columns;

// Transposes 4 x 4 lanes of 128 bits: vectors of 16 channels to the order of interleave().
INLINE void transpose(const vq *in, vq *out) {
  const vq a = _mm512_shuffle_i32x4(in[0], in[1], 0x88),
           b = _mm512_shuffle_i32x4(in[0], in[1], 0xdd);
  const vq c = _mm512_shuffle_i32x4(in[2], in[3], 0x88),
           d = _mm512_shuffle_i32x4(in[2], in[3], 0xdd);
  out[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  out[1] = _mm512_shuffle_i32x4(b, d, 0x88);
  out[2] = _mm512_shuffle_i32x4(a, c, 0xdd);
  out[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

static chunk chunk_of(const task *t, int64_t c) {
  chunk k;
  const int64_t left = t->d->channels - c, blocks = (left + 15) / 16;
  k.c = c;
  k.runs = left > 32 ? 1 : left > 16 ? 2 : 4;
  k.n = left < 64 / k.runs ? left : 64 / k.runs;
  k.split = false;
  for (int64_t b = 0; b < 4 / k.runs && b < blocks; b++) k.split |= is_split(t, c / 16 + b);
  vq in[4], out[4];
  for (int w = k.split ? -3 : 0; w < 5; w++) {  // columns of the second part have w < 0
    for (int i = 0; i < 4; i++) {
      const int64_t b = i % (4 / k.runs), at = c + b * 16, n = left - b * 16;
      const __mmask16 some = n >= 16 ? 0xffff : n > 0 ? (__mmask16)((1u << n) - 1) : 0;
      if (w == 3) in[i] = _mm512_maskz_loadu_epi32(some, t->end.bias + at);
      else if (w == 4) in[i] = _mm512_maskz_loadu_epi32(some, t->end.scale + at);
      else
        in[i] = b < blocks ? vq_load(t->weights + ((c / 16 + b) * t->d->outs * t->d->parts * 3 +
                                                   (w < 0 ? w + 6 : w)) *
                                                      ITG_QPLACE)
                           : vq_set(0);
    }
    transpose(in, out);
    for (int v = 0; v < 4; v++)
      if (w < 0) k.second[w + 3][v] = out[v];
      else if (w < 3) k.weights[w][v] = out[v];
      else if (w == 3) k.bias[v] = out[v];
      else k.scale[v] = _mm512_castsi512_ps(out[v]);
  }
  return k;
}

// Loads one pixel of each run.
INLINE vq whole_column(const uint8_t *p, int64_t run, const int RUNS) {
  if (RUNS == 1) return vq_load(p);
  if (RUNS == 2)
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p)),
                              _mm256_loadu_si256((const __m256i *)(p + run)), 1);
#define RUN(r) _mm_loadu_si128((const __m128i *)(p + (r) * run))
  const __m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(RUN(0)), RUN(1), 1);
  const __m256i b = _mm256_inserti128_si256(_mm256_castsi128_si256(RUN(2)), RUN(3), 1);
#undef RUN
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

// Loads one pixel of each run if some may be padding or at the end of the image. Bit r of `there`
// says whether the pixel of run r lies inside the image.
INLINE vq edge_column(const uint8_t *p, int64_t run, unsigned there, int64_t n, vq fill,
                      const int RUNS) {
  if (RUNS == 1) return _mm512_mask_loadu_epi8(fill, there & 1 ? ~(__mmask64)0 >> (64 - n) : 0, p);
  if (RUNS == 2) {
    const __m256i none = _mm512_castsi512_si256(fill);
    const __mmask32 some = ~(__mmask32)0 >> (32 - n);
    const __m256i a = _mm256_mask_loadu_epi8(none, there & 1 ? some : 0, p);
    return _mm512_inserti64x4(_mm512_castsi256_si512(a),
                              _mm256_mask_loadu_epi8(none, there & 2 ? some : 0, p + run), 1);
  }
  const __m128i none = _mm512_castsi512_si128(fill);
  const __mmask16 some = (__mmask16)(0xffffu >> (16 - n));
#define RUN(r) _mm_mask_loadu_epi8(none, there >> (r) & 1 ? some : 0, p + (r) * run)
  const __m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(RUN(0)), RUN(1), 1);
  const __m256i b = _mm256_inserti128_si256(_mm256_castsi128_si256(RUN(2)), RUN(3), 1);
#undef RUN
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

INLINE void put_column(uint8_t *to, int64_t run, int64_t n, vq y, const int RUNS) {
  if (RUNS == 1) {
    if (n >= 64) vq_store(to, y);
    else _mm512_mask_storeu_epi8(to, ~(__mmask64)0 >> (64 - n), y);
  } else if (RUNS == 2) {
    const __m256i a = _mm512_castsi512_si256(y), b = _mm512_extracti64x4_epi64(y, 1);
    if (n >= 32) {
      _mm256_storeu_si256((__m256i *)to, a);
      _mm256_storeu_si256((__m256i *)(to + run), b);
    } else {
      const __mmask32 some = ~(__mmask32)0 >> (32 - n);
      _mm256_mask_storeu_epi8(to, some, a);
      _mm256_mask_storeu_epi8(to + run, some, b);
    }
  } else {
    const __mmask16 some = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
    const __m128i part[4] = {_mm512_castsi512_si128(y), _mm512_extracti32x4_epi32(y, 1),
                             _mm512_extracti32x4_epi32(y, 2), _mm512_extracti32x4_epi32(y, 3)};
    FOR_UNROLLED (16, int r = 0; r < 4; r++) _mm_mask_storeu_epi8(to + r * run, some, part[r]);
  }
}

// Computes one output line. COLUMN loads and interleaves the next column; BEGIN starts the sums of
// a pixel with the first column of its window, ADD adds column `tap`, END stores the pixel.
// SPLIT: weights have two parts. Bytes are multiplied by each; 16-bit products take their sum.
INLINE void walk(const task *t, const chunk *k, const columns *s_, const int RUNS, const int STEP,
                 const int SPLIT) {
  const columns s = *s_;
  const vq flip = vq_set((int32_t)0x80808080), none = vq_set(0),
           fill = vq_set((int32_t)(t->fill * 0x01010101u));
  const bool flipped = t->flip != 0;
  const uint64_t width = (uint64_t)s.width;
  const vq_end end = vq_end_of(&t->end);
  const bool saturates = t->end.saturates;
  const uint8_t *const table = t->table;
  const int64_t count = (s.pixels - 1) * STEP + 3, n = k->n;
  int64_t begin = s.first < 0 ? -s.first : 0, stop = s.width - s.first - (RUNS - 1) * s.distance;
  if (s.last || stop <= begin) begin = stop = 0;
  vq_four w[3][4];
  FOR_UNROLLED (16, int i = 0; i < 12; i++) {
    vq_four *one = &w[i / 4][i % 4];
    *one = vq_weights(k->weights[i / 4][i % 4]);
#if !defined(ISA_avx512vnni)
    if (SPLIT) {
      const vq_four more = vq_weights(k->second[i / 4][i % 4]);
      one->even = vq_add16(one->even, more.even);
      one->odd = vq_add16(one->odd, more.odd);
    }
#endif
  }
  const uint8_t *a = s.rows[0], *b = s.rows[1], *c = s.rows[2];
  uint8_t *out = s.out;
  vq s0[4], s1[4], s2[4], lanes[4];
  int64_t i = 0;
#define COLUMN                                                                                    \
  {                                                                                               \
    vq x[3];                                                                                      \
    if (i >= begin && i < stop) {                                                                 \
      x[0] = whole_column(a, s.run[0], RUNS), x[1] = whole_column(b, s.run[1], RUNS);             \
      x[2] = whole_column(c, s.run[2], RUNS);                                                     \
    } else {                                                                                      \
      unsigned there = 0;                                                                         \
      for (int j = 0; j < RUNS; j++)                                                              \
        there |= (unsigned)((uint64_t)(s.first + j * s.distance + i) < width) << j;               \
      x[0] = edge_column(a, s.run[0], s.inside[0] ? there : 0, n, fill, RUNS);                    \
      x[1] = edge_column(b, s.run[1], s.inside[1] ? there : 0, n, fill, RUNS);                    \
      x[2] = edge_column(c, s.run[2], s.inside[2] ? there : 0, n, fill, RUNS);                    \
    }                                                                                             \
    a += s.step[0], b += s.step[1], c += s.step[2];                                               \
    if (flipped) x[0] = vq_xor(x[0], flip), x[1] = vq_xor(x[1], flip), x[2] = vq_xor(x[2], flip); \
    interleave(x[0], x[1], x[2], none, lanes);                                                    \
  }
#if defined(ISA_avx512vnni)
#define SECOND(to, tap) \
  if (SPLIT)            \
    FOR_UNROLLED (16, int v = 0; v < 4; v++) to[v] = vq_dot(to[v], lanes[v], k->second[tap][v]);
#else
#define SECOND(to, tap)
#endif
#define BEGIN(to)                                             \
  FOR_UNROLLED (16, int v = 0; v < 4; v++)                    \
    to[v] = vq_dot(k->bias[v], vq_inputs(lanes[v]), w[0][v]); \
  SECOND(to, 0)
#define ADD(to, tap)                                                                              \
  FOR_UNROLLED (16, int v = 0; v < 4; v++) to[v] = vq_dot(to[v], vq_inputs(lanes[v]), w[tap][v]); \
  SECOND(to, tap)
#define END(of)                                                                    \
  {                                                                                \
    vq y = saturates ? vq_bytes(of[0], of[1], of[2], of[3], k->scale, true, end)   \
                     : vq_bytes(of[0], of[1], of[2], of[3], k->scale, false, end); \
    if (table) y = vq_lookup(y, table);                                            \
    put_column(out, s.out_run, n, y, RUNS);                                        \
    out += s.out_step;                                                             \
  }
  if (STEP == 1) {
    COLUMN BEGIN(s0) i++;
    COLUMN ADD(s0, 1) BEGIN(s1) i++;
    for (;;) {
      COLUMN ADD(s0, 2) ADD(s1, 1) BEGIN(s2) END(s0) if (++i == count) break;
      COLUMN ADD(s1, 2) ADD(s2, 1) BEGIN(s0) END(s1) if (++i == count) break;
      COLUMN ADD(s2, 2) ADD(s0, 1) BEGIN(s1) END(s2) if (++i == count) break;
    }
  } else {
    COLUMN BEGIN(s0) i++;
    for (;;) {
      COLUMN ADD(s0, 1) i++;
      COLUMN ADD(s0, 2) BEGIN(s1) END(s0) if (++i == count) break;
      COLUMN ADD(s1, 1) i++;
      COLUMN ADD(s1, 2) BEGIN(s0) END(s1) if (++i == count) break;
    }
  }
#undef COLUMN
#undef SECOND
#undef BEGIN
#undef ADD
#undef END
}

typedef void (*walk_fn)(const task *t, const chunk *k, const columns *s);
#define WALK(runs, step, split)                                                                 \
  static void walk_##runs##_##step##_##split(const task *t, const chunk *k, const columns *s) { \
    walk(t, k, s, runs, step, split);                                                           \
  }
#define WALKS(split) \
  WALK(1, 1, split)  \
  WALK(2, 1, split)  \
  WALK(4, 1, split) WALK(1, 2, split) WALK(2, 2, split) WALK(4, 2, split)
WALKS(0)
WALKS(1)

static walk_fn walk_of(const chunk *k, int64_t step) {
#define WALKS_BY_STEP(split)                                  \
  {                                                           \
    {walk_1_1_##split, walk_2_1_##split, walk_4_1_##split}, { \
      walk_1_2_##split, walk_2_2_##split, walk_4_2_##split    \
    }                                                         \
  }
  static const walk_fn all[2][2][3] = {WALKS_BY_STEP(0), WALKS_BY_STEP(1)};
#undef WALKS_BY_STEP
  return all[k->split][step - 1][k->runs / 2];
}

static bool walks(const itg_window *w) {
  return w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3 && w->dilation[1] == 1 &&
         w->dilation[2] == 1 && w->stride[1] <= 2 && w->stride[1] == w->stride[2];
}

// Computes channels [from, to) of rows [row, end).
static void walk_rows(const task *t, int64_t row, int64_t end, int64_t from, int64_t to) {
  const itg_window *w = &t->d->w;
  const int64_t channels = t->d->channels, line = w->in[2] * channels, stride = w->stride[2];
  const int64_t near = (256 << 10) / (w->in[1] * line + 1),
                rows = near ? end - row : 8;  // rows before the next channels: all of a small image
  uint8_t fill[64];
  memset(fill, t->fill, sizeof fill);
  for (int64_t first = row; first < end; first += rows)
    for (int64_t c = from; c < to; c += 64) {
      chunk k = chunk_of(t, c);
      const walk_fn run = walk_of(&k, stride);
      const int64_t run_pixels = k.runs == 1 ? 0 : w->out[2] / k.runs;
      for (int64_t y = first; y < end && y < first + rows; y++) {
        const int64_t oy = y % w->out[1], batch = y / w->out[1], x = -w->before[2];
        columns s = {.first = x,
                     .width = w->in[2],
                     .distance = run_pixels * stride,
                     .out_step = channels,
                     .out_run = run_pixels * channels,
                     .pixels = w->out[2] - (k.runs - 1) * run_pixels};
        s.out = t->out + y * w->out[2] * channels + c;
        for (int r = 0; r < 3; r++) {
          const int64_t iy = oy * stride - w->before[1] + r;
          s.inside[r] = iy >= 0 && iy < w->in[1];
          s.rows[r] = s.inside[r] ? t->x + (batch * w->in[1] + iy) * line + x * channels + c : fill;
          s.step[r] = s.inside[r] ? channels : 0;
          s.run[r] = s.inside[r] ? s.distance * channels : 0;
          s.last |= s.inside[r] && (w->in[1] - 1 - iy) * line < 64 &&
                    k.n * k.runs < 64;  // true for several lines if these are short
        }
        run(t, &k, &s);
      }
    }
}
#endif
