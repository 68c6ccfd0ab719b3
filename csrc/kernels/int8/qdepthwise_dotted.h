// 3x3 windows by sdot: the bytes of a column in four lines become a lane (qdepthwise.h), and serve
// two output lines if the vertical stride is one. Columns outside of the image are padding, so that
// nothing is copied. Included by qdepthwise_neon.h.
#pragma once

typedef struct dotted {
  const uint8_t *at[4];  // column 0 of four lines, or padding
  int64_t pitch[4];      // bytes between columns; 0 for padding
  int64_t first, wide;   // column of the first window, columns of the image
  int64_t pixels, to_pitch, to_line;
  const int8_t *weights[2];  // of the first and of the second output line
  int8x16_t fill;
  uint8_t *to;
} dotted;

static bool fits_dotted(const task *t) {
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  return w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3 && w->dilation[1] == 1 &&
         w->dilation[2] == 1 && w->stride[2] <= 2 && d->parts == 1 &&
         d->channels % ITG_QBLOCK16 == 0;
}

#define ZIP_PAIRS(n, a, b) \
  vreinterpretq_s8_s16(vzip##n##q_s16(vreinterpretq_s16_s8(a), vreinterpretq_s16_s8(b)))

// The bytes of a column: v[i] has channels 4 i to 4 i + 3 of four lines, one line after the other.
INLINE void column_at(const dotted *d, int64_t x, const int OUTS, const int FLIP, int8x16_t *v) {
  if ((uint64_t)x >= (uint64_t)d->wide) {
    FOR_UNROLLED (4, int i = 0; i < 4; i++) v[i] = d->fill;
    return;
  }
  const int8x16_t a = input(d->at[0] + x * d->pitch[0], FLIP),
                  b = input(d->at[1] + x * d->pitch[1], FLIP),
                  c = input(d->at[2] + x * d->pitch[2], FLIP),
                  e = OUTS == 2 ? input(d->at[3] + x * d->pitch[3], FLIP) : c;
  const int8x16_t low = vzip1q_s8(a, b), high = vzip2q_s8(a, b), more = vzip1q_s8(c, e),
                  most = vzip2q_s8(c, e);
  v[0] = ZIP_PAIRS(1, low, more);
  v[1] = ZIP_PAIRS(2, low, more);
  v[2] = ZIP_PAIRS(1, high, most);
  v[3] = ZIP_PAIRS(2, high, most);
}

// Weights are loaded together, for loads of two registers.
INLINE void add_column(int32x4_t *sum, const int8x16_t *x, const int8_t *from) {
  int8x16_t w[4];
  FOR_UNROLLED (4, int i = 0; i < 4; i++) w[i] = vld1q_s8(from + 16 * i);
  FOR_UNROLLED (4, int i = 0; i < 4; i++) sum[i] = vdotq_s32(sum[i], x[i], w[i]);
}

// A window of each output line.
INLINE void windows_at(const block *b, const dotted *d, const int OUTS, const int8x16_t *x,
                       const int8x16_t *y, const int8x16_t *z, uint8_t *to) {
  FOR_UNROLLED (2, int o = 0; o < OUTS; o++) {
    const int8_t *w = d->weights[o];
    int32x4_t sum[4];
    vf by[4];
    FOR_UNROLLED (4, int i = 0; i < 4; i++) sum[i] = b->bias[i];
    add_column(sum, x, w);
    add_column(sum, y, w + ITG_QPLACE);
    add_column(sum, z, w + 2 * ITG_QPLACE);
    FOR_UNROLLED (4, int i = 0; i < 4; i++) by[i] = b->scale[i];
    uint8x16_t bytes = bytes_of(sum, by, b->end, b->bare);
    if (b->table) bytes = vq_lookup(bytes, b->table);
    vst1q_u8(to + o * d->to_line, bytes);
  }
}

// One or two output lines. Columns take turns in three sets of registers.
INLINE void lines_dotted(const block *block_, const dotted *d_, const int OUTS, const int STRIDE,
                         const int FLIP) {
  const block b = *block_;  // stores of bytes may change *block_, as far as the compiler knows
  const dotted d = *d_;
  int8x16_t first[4], second[4], third[4];
  int64_t x = d.first, left = d.pixels;
  uint8_t *to = d.to;
  column_at(&d, x++, OUTS, FLIP, first);
  if (STRIDE == 1) column_at(&d, x++, OUTS, FLIP, second);
#define NEXT(A, B, C)                                 \
  if (STRIDE == 2) column_at(&d, x++, OUTS, FLIP, B); \
  column_at(&d, x++, OUTS, FLIP, C);                  \
  windows_at(&b, &d, OUTS, A, B, C, to);              \
  if (!--left) return;                                \
  to += d.to_pitch;
  while (left > 0) {
    if (STRIDE == 1) {
      NEXT(first, second, third)
      NEXT(second, third, first)
      NEXT(third, first, second)
    } else {
      NEXT(first, second, third)
      NEXT(third, first, second)
      NEXT(second, third, first)
    }
  }
#undef NEXT
}

typedef void (*dotted_fn)(const block *b, const dotted *d);
#define DOTTED(OUTS, STRIDE, FLIP)                                                 \
  static void dotted_##OUTS##_##STRIDE##_##FLIP(const block *b, const dotted *d) { \
    lines_dotted(b, d, OUTS, STRIDE, FLIP);                                        \
  }
DOTTED(1, 1, 0)
DOTTED(1, 1, 1)
DOTTED(1, 2, 0)
DOTTED(1, 2, 1)
DOTTED(2, 1, 0)
DOTTED(2, 1, 1)
DOTTED(2, 2, 0)
DOTTED(2, 2, 1)

// Output lines oy and, if two, oy + 1 of a block; `image` is that of the block's first channel.
static void run_dotted(const task *t, const block *b, int64_t i, const uint8_t *image, int64_t oy,
                       bool two, const uint8_t *fill, uint8_t *to) {
  static const dotted_fn all[2][2][2] = {
      {{dotted_1_1_0, dotted_1_1_1}, {dotted_1_2_0, dotted_1_2_1}},
      {{dotted_2_1_0, dotted_2_1_1}, {dotted_2_2_0, dotted_2_2_1}}};
  const itg_window *w = &t->d->w;
  const int64_t pitch = t->d->channels, y = oy * w->stride[1] - w->before[1];
  dotted d = {.first = -w->before[2], .wide = w->in[2], .pixels = w->out[2], .to_pitch = pitch};
  d.to = to;
  d.to_line = w->out[2] * pitch;
  d.fill = vdupq_n_s8((int8_t)(t->fill ^ (t->flip ? 0 : 0x80)));
  d.weights[0] = t->weights + i * t->d->outs * 3 * ITG_QPLACE;
  d.weights[1] = d.weights[0] + 3 * ITG_QPLACE;
  for (int k = 0; k < 4; k++) {
    const bool inside = (uint64_t)(y + k) < (uint64_t)w->in[1];
    d.at[k] = inside ? image + (y + k) * w->in[2] * pitch : fill;
    d.pitch[k] = inside ? pitch : 0;
  }
  all[two][w->stride[2] - 1][!t->flip](b, &d);
}
