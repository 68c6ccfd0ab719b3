// First layers: windows of 25 or 27 bytes (5x5x1, 3x3x3), with VBMI. The 16 lanes of a vector are
// 16 neighbouring output pixels ("a block"). Bytes 4 g to 4 g + 3 of their windows are gathered by
// one byte permutation of the input lines, once for all channels. Weights are broadcast. The
// register tile is two blocks by four channels: sum[block][channel]. Between its products the
// previous eight sums (old) are converted to bytes. Finally 16 channels of 16 pixels are
// transposed. Included by qconv.c.
#if defined(__AVX512VBMI__)
enum { LANES = 16, LANES_FOURS = 7, LANES_LINES_MOST = 5, LANES_CHANNELS = 256 };

typedef struct lanes {
  const task *t;
  int32_t bias[LANES_CHANNELS];  // padded to whole panels
  float scale[LANES_CHANNELS];
  uint8_t places[LANES_FOURS][64];  // of each group of four bytes: byte indices of the permutation
  int64_t first, last;              // panels
} lanes;

enum lanes_end {
  LANES_PLAIN,
  LANES_TABLE,
  LANES_LINES,
  LANES_ANY
};  // PLAIN: i8 without clamp; ANY: all rare epilogues, such as clamps and u8
typedef void (*lanes_fn)(const lanes *l, const uint8_t *const *x, uint8_t *const *out, int64_t n);

// Bytes of an input line that the 16 windows of a block cover.
INLINE int64_t lanes_span(const itg_qconv *c) {
  return ((LANES - 1) * c->w.stride[2] + c->w.kernel[2]) * c->deep;
}

static lanes_fn lanes_kernel(const task *t);

static bool fits_lanes(const task *t) {
  const itg_qconv *c = t->c;
  return c->joined == ITG_QRUN_WINDOW && c->w.kernel[0] == 1 && c->w.out[2] >= LANES &&
         lanes_span(c) <= 128 && c->channels <= LANES_CHANNELS && !t->w_zero &&
         t->to.kind == ITG_Q_BYTES && !t->to.residual && (t->to.entries <= 256 || t->to.pieces) &&
         lanes_kernel(t);
}

static void lanes_of(const task *t, int64_t first, int64_t last, lanes *l) {
  const itg_qconv *c = t->c;
  const int64_t wide = c->w.kernel[2] * c->deep, step = c->w.stride[2] * c->deep;
  memset(l, 0, sizeof *l);
  l->t = t;
  l->first = first;
  l->last = last;
  for (int64_t g = 0; g < c->fours; g++)
    for (int i = 0; i < 64; i++) {
      const int64_t byte = g * ITG_FOUR + i % ITG_FOUR, place = i / ITG_FOUR * step + byte % wide;
      const bool lower =
          lanes_span(c) <= 64 && byte / wide > g * ITG_FOUR / wide;  // on the second of two lines
      if (byte < c->run) l->places[g][i] = (uint8_t)(place + 64 * lower);
    }
  memcpy(l->bias, t->to.bias, (size_t)c->channels * sizeof *l->bias);
  memcpy(l->scale, t->to.scale, (size_t)c->channels * sizeof *l->scale);
}

// Gathers the groups of four bytes of the 16 windows from x on, one vector per group. A group lies
// on one line of the window or on two. A line is one vector, or two if FAR.
INLINE void lanes_gather(const lanes *l, const uint8_t *x, uint8_t *to, const int HIGH,
                         const int WIDE, const int FAR) {
  const int64_t down = l->t->c->w.dilation[1] * l->t->l->line;
  vq line[LANES_LINES_MOST][2];
  FOR_UNROLLED (16, int i = 0; i < HIGH; i++) {
    line[i][0] = vq_load(x + i * down);
    line[i][1] = FAR ? vq_load(x + i * down + 64) : line[i][0];
  }
  FOR_UNROLLED (16, int g = 0; g < (HIGH * WIDE + 3) / 4; g++) {
    const int a = g * 4 / WIDE, b = g * 4 + 3 < HIGH * WIDE ? (g * 4 + 3) / WIDE : HIGH - 1;
    const int here = (a + 1) * WIDE - g * 4;  // bytes of line a
    const vq at = vq_load(l->places[g]);
    vq four;
    if (FAR) {
      four = _mm512_permutex2var_epi8(line[a][0], at, line[a][1]);
      if (b > a)
        four = _mm512_mask_mov_epi8(four, (__mmask64)(0x1111111111111111u * (0xfu << here & 0xfu)),
                                    _mm512_permutex2var_epi8(line[b][0], at, line[b][1]));
    } else {
      four = b > a ? _mm512_permutex2var_epi8(line[a][0], at, line[b][0])
                   : _mm512_permutexvar_epi8(at, line[a][0]);
    }
    vq_store(to + g * 64, four);
  }
}

typedef struct lanes_last {  // constants of the epilogue, in registers
  vq order, zero, most;
  vq_end end;
} lanes_last;

INLINE lanes_last lanes_last_of(const itg_requantize *q) {
  // In 128-bit lane i, dword j becomes pixel 4 j + i. vq_narrow leaves its four channels 4 bytes
  // apart.
  const vq order =
      _mm512_set_epi32(0x3f3b3733, 0x2f2b2723, 0x1f1b1713, 0x0f0b0703, 0x3e3a3632, 0x2e2a2622,
                       0x1e1a1612, 0x0e0a0602, 0x3d393531, 0x2d292521, 0x1d191511, 0x0d090501,
                       0x3c383430, 0x2c282420, 0x1c181410, 0x0c080400);
  return (lanes_last){order, vq_set(q->zero), vq_set16((short)(q->entries - 1)), vq_end_of(q)};
}

// Sums of four channels to bytes [16 pixels, 4 channels], in the order that `lanes_transpose`
// takes. The conversion has three steps, each of which depends on the one before; the caller puts
// products between them.
INLINE void lanes_first(const enum lanes_end END, const lanes *l, const lanes_last *a,
                        const vq *sum, const float *scale, vq *made) {
  const itg_requantize *q = &l->t->to;
  vf y[4];
  FOR_UNROLLED (16, int i = 0; i < 4; i++) y[i] = vmul(vq_floats(sum[i]), vset(scale[i]));
  if (END == LANES_ANY && !q->saturates && !vq_bounds_later(q))
    FOR_UNROLLED (16, int i = 0; i < 4; i++) y[i] = vmin(vmax(y[i], a->end.lo), a->end.hi);
  if (END == LANES_LINES || (END == LANES_ANY && q->pieces)) {
    vq whole[4];
    FOR_UNROLLED (16, int i = 0; i < 4; i++) whole[i] = vq_add(vq_rounded(y[i]), a->zero);
    FOR_UNROLLED (16, int i = 0; i < 2; i++) made[i] = vq_pack_numbers(whole, 4, a->most, i);
    if (END == LANES_ANY) made[0] = vq_on_lines_unordered(made[0], made[1], q);
  } else {
    made[0] = vq_narrow(y, 4, a->end);
  }
}

INLINE void lanes_second(const enum lanes_end END, const lanes *l, vq *made) {
  const itg_requantize *q = &l->t->to;
  if (END == LANES_LINES) {
    const vq at = vq_pieces_of(made[0], made[1], q);
    FOR_UNROLLED (16, int i = 0; i < 3; i++) made[2 + i] = vq_of_128(q->table + i * 128, at);
  } else if (END == LANES_TABLE || (END == LANES_ANY && q->table && !q->pieces)) {
    made[0] = vq_lookup(made[0], q->table);
  }
}

INLINE vq lanes_third(const enum lanes_end END, const lanes_last *a, const vq *made) {
  const vq bytes =
      END == LANES_LINES ? vq_evaluate_lines(made[0], made[1], made[2], made[3], made[4]) : made[0];
  return _mm512_permutexvar_epi8(a->order, bytes);
}

// Transposes four vectors of [16 pixels, 4 channels] and stores 16 channels of each pixel.
static void lanes_transpose(const vq *in, uint8_t *to, int64_t pitch, int64_t channels) {
  const vq ab = vq_unpacklo32(in[0], in[1]), cd = vq_unpacklo32(in[2], in[3]);
  const vq ab2 = vq_unpackhi32(in[0], in[1]), cd2 = vq_unpackhi32(in[2], in[3]);
  const vq out[4] = {vq_unpacklo64(ab, cd), vq_unpackhi64(ab, cd), vq_unpacklo64(ab2, cd2),
                     vq_unpackhi64(ab2, cd2)};
  FOR_UNROLLED (16, int i = 0; i < 4; i++) {
    if (pitch == LANES) {
      vq_store_halves(to + i * 64, out[i]);
      continue;
    }
    const __m128i part[4] = {_mm512_castsi512_si128(out[i]), _mm512_extracti32x4_epi32(out[i], 1),
                             _mm512_extracti32x4_epi32(out[i], 2),
                             _mm512_extracti32x4_epi32(out[i], 3)};
    FOR_UNROLLED (16, int k = 0; k < 4; k++) {
      uint8_t *pixel = to + (4 * i + k) * pitch;
      if (channels >= LANES) _mm_storeu_si128((__m128i *)pixel, part[k]);
      else if (channels == 8) _mm_storel_epi64((__m128i *)pixel, part[k]);
      else _mm_mask_storeu_epi8(pixel, (__mmask16)((1u << channels) - 1), part[k]);
    }
  }
}

typedef struct lanes_out {  // results that are ready to store: 16 channels of two blocks
  vq bytes[2][4];
  uint8_t *to[2];
  int64_t pitch, channels;
} lanes_out;

INLINE void lanes_put(const lanes_out *o) {
  if (o->channels)
    for (int i = 0; i < 2; i++) lanes_transpose(o->bytes[i], o->to[i], o->pitch, o->channels);
}

// Computes all panels of n blocks; block i reads its windows from x[i] and writes to out[i].
INLINE void lanes_blocks(const enum lanes_end END, const lanes *l, const uint8_t *const *x,
                         uint8_t *const *out, int64_t n, const int HIGH, const int WIDE,
                         const int FAR) {
  const task *t = l->t;
  const itg_qconv *c = t->c;
  const int64_t panel = c->rows * ITG_QROW;
  const uint8_t *const two = t->gather;
  const float *scale = l->scale;
  lanes_out o = {.pitch = c->channels};
  vq *to[2] = {o.bytes[0], o.bytes[1]};
  lanes_last last = lanes_last_of(&t->to);
  __asm__("" : "+m"(last));             // else GCC broadcasts the constants every time
  vq sum[2][4], old[2][4], made[2][5];  // made: intermediate results of the conversion of `old`
  FOR_UNROLLED (16, int i = 0; i < 8; i++) old[i / 4][i % 4] = vq_set(0);
  for (int64_t k = 0; k < n; k += 2) {
    const int64_t other = k + 1 < n ? k + 1 : k;
    lanes_gather(l, x[k], t->gather, HIGH, WIDE, FAR);
    lanes_gather(l, x[other], t->gather + LANES_FOURS * 64, HIGH, WIDE, FAR);
    for (int64_t p = l->first; p < l->last; p++) {
      const int64_t column = p * ITG_PANEL, left = c->channels - column,
                    columns = left < ITG_PANEL ? left : ITG_PANEL;
      for (int64_t q = 0; q * 4 < columns; q++) {
        const uint8_t *w = t->w + p * panel + q * 16;
        FOR_UNROLLED (16, int i = 0; i < 4; i++)
          sum[0][i] = sum[1][i] = vq_set(l->bias[column + 4 * q + i]);
#define LANES_FOUR_OF(g, row)                                                          \
  {                                                                                    \
    const vq a = vq_load(two + (g) * 64), b = vq_load(two + (LANES_FOURS + (g)) * 64); \
    FOR_UNROLLED (16, int i = 0; i < 4; i++) {                                         \
      int32_t four;                                                                    \
      memcpy(&four, w + (row) * ITG_QROW + 4 * i, sizeof four);                        \
      const vq_four y = vq_weights(vq_set(four));                                      \
      sum[0][i] = vq_dot(sum[0][i], a, y);                                             \
      sum[1][i] = vq_dot(sum[1][i], b, y);                                             \
    }                                                                                  \
  }
#define LANES_FOUR(g) LANES_FOUR_OF(g, g)
        LANES_FOUR(0)
        lanes_first(END, l, &last, old[0], scale, made[0]);
        LANES_FOUR(1)
        lanes_first(END, l, &last, old[1], scale, made[1]);
        LANES_FOUR(2)
        lanes_second(END, l, made[0]);
        LANES_FOUR(3)
        lanes_second(END, l, made[1]);
        LANES_FOUR(4)
        *to[0] = lanes_third(END, &last, made[0]);
        LANES_FOUR(5)
        *to[1] = lanes_third(END, &last, made[1]);
        LANES_FOUR(6)
        for (int64_t s = 0; s < c->second; s++) LANES_FOUR_OF(t->second[s], LANES_FOURS + s)
#undef LANES_FOUR
#undef LANES_FOUR_OF
        if (q == 0) {
          lanes_put(&o);
          o.to[0] = out[k] + column, o.to[1] = out[other] + column;
          o.channels = columns;
        }
        FOR_UNROLLED (16, int i = 0; i < 8; i++) old[i / 4][i % 4] = sum[i / 4][i % 4];
        scale = l->scale + column + 4 * q;
        to[0] = &o.bytes[0][q], to[1] = &o.bytes[1][q];
      }
    }
  }
  FOR_UNROLLED (16, int i = 0; i < 2; i++) {
    lanes_first(END, l, &last, old[i], scale, made[i]);
    lanes_second(END, l, made[i]);
    *to[i] = lanes_third(END, &last, made[i]);
  }
  lanes_put(&o);
}

#define LANES_KERNEL(name, END, HIGH, WIDE, FAR)                                         \
  static void name##_##END(const lanes *l, const uint8_t *const *x, uint8_t *const *out, \
                           int64_t n) {                                                  \
    lanes_blocks((enum lanes_end)END, l, x, out, n, HIGH, WIDE, FAR);                    \
  }
#define LANES_KERNELS(name, HIGH, WIDE, FAR) \
  LANES_KERNEL(name, 0, HIGH, WIDE, FAR)     \
  LANES_KERNEL(name, 1, HIGH, WIDE, FAR)     \
  LANES_KERNEL(name, 2, HIGH, WIDE, FAR)     \
  LANES_KERNEL(name, 3, HIGH, WIDE, FAR)     \
  static const lanes_fn name[4] = {name##_0, name##_1, name##_2, name##_3};
LANES_KERNELS(lanes_3x9, 3, 9, 0)      // 3x3, three input channels, stride 1
LANES_KERNELS(lanes_3x9_far, 3, 9, 1)  // 3x3, three input channels, stride 2
LANES_KERNELS(lanes_5x5, 5, 5, 0)      // 5x5, one input channel

static lanes_fn lanes_kernel(const task *t) {
  const itg_qconv *c = t->c;
  const itg_requantize *q = &t->to;
  const int64_t high = c->w.kernel[1], wide = c->w.kernel[2] * c->deep;
  enum lanes_end end = q->pieces ? LANES_LINES : q->table ? LANES_TABLE : LANES_PLAIN;
  if (q->pieces ? q->pieces != 128 || q->flip || !vq_bounds_later(q) : !q->saturates)
    end = LANES_ANY;
  if (high == 3 && wide == 9) return (lanes_span(c) > 64 ? lanes_3x9_far : lanes_3x9)[end];
  if (high == 5 && wide == 5 && lanes_span(c) <= 64) return lanes_5x5[end];
  return NULL;
}

// Computes `rows` output lines from line number `line` on; their input lines have been copied.
static void lanes_lines(const lanes *l, int64_t line, int64_t rows) {
  enum { BLOCKS = 64 };
  const task *t = l->t;
  const lanes_fn run = lanes_kernel(t);
  const itg_window *w = &t->c->w;
  const int64_t blocks = (w->out[2] + LANES - 1) / LANES, all = rows * blocks,
                step = w->stride[2] * t->c->deep;
  const uint8_t *x[BLOCKS];
  uint8_t *out[BLOCKS];
  for (int64_t k = 0; k < all;) {
    int64_t n = 0;
    for (; n < BLOCKS && k < all; n++, k++) {
      const int64_t y = k / blocks, at = k % blocks * LANES,
                    ox = at + LANES <= w->out[2] ? at : w->out[2] - LANES;
      x[n] = t->image + y * w->stride[1] * t->l->line + ox * step;
      out[n] = (uint8_t *)t->out + ((line + y) * w->out[2] + ox) * t->c->channels;
    }
    run(l, x, out, n);
  }
}
#endif
