// 3x3 windows by sdot, eight channels at a time, so that all their weights stay in registers: with
// stride 1 a pixel of two output lines, with stride 2 two pixels of one. As in qdepthwise_dotted.h
// the bytes of a column in up to four lines become a lane. Lines outside of the image are a line of
// padding, so that all lines have one pitch. Included by qdepthwise_neon.h.
#pragma once

enum { PADDED = 16 << 10 };          // bytes of a line of padding, at most
typedef int8x16_t eight_columns[2];  // channels 0 to 3 and 4 to 7 of a column

static bool fits_eights(const task *t) {
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  return w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3 && w->dilation[1] == 1 &&
         w->dilation[2] == 1 && w->stride[1] == w->stride[2] && w->stride[2] <= 2 &&
         w->in[0] == 1 && w->out[0] == 1 && w->before[2] <= 3 - w->stride[2] &&
         d->channels % 8 == 0 && w->in[2] * d->channels <= PADDED;
}

INLINE int8x16_t eight_of(const uint8_t *p) {  // the upper half is not used
  return vreinterpretq_s8_u8(vcombine_u8(vld1_u8(p), vdup_n_u8(0)));
}

INLINE void eights_at(const uint8_t *const *at, int64_t x, const int OUTS, const int FLIP,
                      int8x16_t *v) {
  const int8x16_t c = eight_of(at[2] + x), d = OUTS == 2 ? eight_of(at[3] + x) : c,
                  low = vzip1q_s8(eight_of(at[0] + x), eight_of(at[1] + x)), high = vzip1q_s8(c, d);
  v[0] = vreinterpretq_s8_s16(vzip1q_s16(vreinterpretq_s16_s8(low), vreinterpretq_s16_s8(high)));
  v[1] = vreinterpretq_s8_s16(vzip2q_s16(vreinterpretq_s16_s8(low), vreinterpretq_s16_s8(high)));
  if (FLIP) v[0] = veorq_s8(v[0], vdupq_n_s8(-128)), v[1] = veorq_s8(v[1], vdupq_n_s8(-128));
}

typedef struct eights {     // what the windows of eight channels share
  int8x16_t w[2][3][2];     // [output line][column][channels]
  int8x16_t more[2][3][2];  // their second part, in kind EIGHTS_SPLIT
  int32x4_t bias[2];
  vf scale[2];
  vq_end end;
  bool bare;
  const uint8_t *table;
} eights;

enum eights_kind {
  EIGHTS_ANY,
  EIGHTS_SMALL,  // all scaled sums fit 16 bits, and there is no table
  EIGHTS_SPLIT,  // weights have two parts
};

// Loads weights and adds to the bias what signed inputs lack.
static enum eights_kind eights_of(const task *t, int64_t c, eights *e) {
  const int64_t outs = t->d->outs, once = 3 * ITG_QPLACE, line = t->d->parts * once;
  const int8_t *from = t->weights + c / ITG_QBLOCK16 * (outs * line) + c % ITG_QBLOCK16 * 4;
  const int8x16_t ones = vdupq_n_s8(1);
  int8x16_t any = vdupq_n_s8(0);
  int32x4_t all[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
  for (int64_t o = 0; o < outs; o++)
    FOR_UNROLLED (3, int k = 0; k < 3; k++)
      FOR_UNROLLED (2, int h = 0; h < 2; h++) {
        const int8_t *at = from + o * line + k * ITG_QPLACE + 16 * h;
        e->w[o][k][h] = vld1q_s8(at);
        if (!o) all[h] = vdotq_s32(all[h], e->w[o][k][h], ones);
        if (t->d->parts == 1) continue;
        e->more[o][k][h] = vld1q_s8(at + once);
        if (!o) all[h] = vdotq_s32(all[h], e->more[o][k][h], ones);
        any = vorrq_s8(any, e->more[o][k][h]);
      }
  vf most = vdupq_n_f32(0);
  FOR_UNROLLED (2, int h = 0; h < 2; h++) {
    e->bias[h] = vmlaq_n_s32(vld1q_s32(t->end.bias + c + 4 * h), all[h], VQ_LESS);
    e->scale[h] = vload(t->end.scale + c + 4 * h);
    const vf sum = vaddq_f32(vabsq_f32(vcvtq_f32_s32(e->bias[h])), vdupq_n_f32(9 * 128 * 128));
    most = vmaxq_f32(most, vmul(sum, vabsq_f32(e->scale[h])));
  }
  if (vmaxvq_u8(vreinterpretq_u8_s8(any))) return EIGHTS_SPLIT;
  return vmaxvq_f32(most) < 32000 && !t->table ? EIGHTS_SMALL : EIGHTS_ANY;
}

// The scaled sums of three columns, as numbers of 16 bits.
INLINE int16x8_t eights_sums(const eights *e, const int O, const enum eights_kind KIND,
                             const int8x16_t *x, const int8x16_t *y, const int8x16_t *z) {
  int32x4_t sum[2];
  FOR_UNROLLED (2, int h = 0; h < 2; h++) {
    sum[h] = vdotq_s32(e->bias[h], x[h], e->w[O][0][h]);
    sum[h] = vdotq_s32(sum[h], y[h], e->w[O][1][h]);
    sum[h] = vdotq_s32(sum[h], z[h], e->w[O][2][h]);
    if (KIND == EIGHTS_SPLIT) {
      sum[h] = vdotq_s32(sum[h], x[h], e->more[O][0][h]);
      sum[h] = vdotq_s32(sum[h], y[h], e->more[O][1][h]);
      sum[h] = vdotq_s32(sum[h], z[h], e->more[O][2][h]);
    }
    sum[h] = vcvtnq_s32_f32(vmul(vcvtq_f32_s32(sum[h]), e->scale[h]));
  }
  const int16x8_t narrow = KIND == EIGHTS_SMALL ? vuzp1q_s16(vreinterpretq_s16_s32(sum[0]),
                                                             vreinterpretq_s16_s32(sum[1]))
                                                : vqmovn_high_s32(vqmovn_s32(sum[0]), sum[1]);
  return vqaddq_s16(narrow, e->end.zero);
}

// Stores the bytes of two windows.
INLINE void eights_store(const eights *e, const enum eights_kind KIND, int16x8_t a, int16x8_t b,
                         uint8_t *first, uint8_t *second) {
  uint8x16_t bytes = vq_bounded(vqmovn_high_s16(vqmovn_s16(a), b), e->end, e->bare);
  if (KIND != EIGHTS_SMALL && e->table) bytes = vq_lookup(bytes, e->table);
  vst1q_lane_u64((uint64_t *)second, vreinterpretq_u64_u8(bytes), 1);
  vst1_u8(first, vget_low_u8(bytes));
}

// Stride 2: a line, two pixels at a time.
INLINE void eights_line(const eights *e, const itg_window *w, const uint8_t *const *at,
                        int64_t pitch, int8x16_t fill, uint8_t *to, const int FLIP,
                        const enum eights_kind KIND) {
  const int64_t wide = w->in[2], pixels = w->out[2], before = w->before[2];
  eight_columns a = {fill, fill}, b, c, d, f;
  if (before == 0) eights_at(at, 0, 1, FLIP, a);
  int64_t x = 1 - before, p = 0, at_x = x * pitch;
  for (; p + 2 <= pixels && x + 3 < wide; p += 2, x += 4, to += 2 * pitch) {
    eights_at(at, at_x, 1, FLIP, b);
    eights_at(at, at_x += pitch, 1, FLIP, c);
    eights_at(at, at_x += pitch, 1, FLIP, d);
    eights_at(at, at_x += pitch, 1, FLIP, f);
    at_x += pitch;
    eights_store(e, KIND, eights_sums(e, 0, KIND, a, b, c), eights_sums(e, 0, KIND, c, d, f), to,
                 to + pitch);
    a[0] = f[0], a[1] = f[1];
  }
  for (; p < pixels; p++, x += 2, to += pitch) {
    b[0] = b[1] = c[0] = c[1] = fill;
    if (x < wide) eights_at(at, x * pitch, 1, FLIP, b);
    if (x + 1 < wide) eights_at(at, (x + 1) * pitch, 1, FLIP, c);
    const int16x8_t one = eights_sums(e, 0, KIND, a, b, c);
    eights_store(e, KIND, one, one, to, to);
    a[0] = c[0], a[1] = c[1];
  }
}

// Stride 1: two output lines; `second` is the first one again if there is no other. Columns take
// turns in three sets of registers.
INLINE void eights_lines(const eights *e, const itg_window *w, const uint8_t *const *at,
                         int64_t pitch, int8x16_t fill, uint8_t *first, uint8_t *second,
                         const int FLIP, const enum eights_kind KIND) {
  const int64_t wide = w->in[2], pixels = w->out[2], before = w->before[2];
  const int64_t room = wide + before - 2, inner = room < 0 ? 0 : room < pixels ? room : pixels;
  eight_columns a = {fill, fill}, b = {fill, fill}, c = {fill, fill};
  if (before == 0 && wide > 0) eights_at(at, 0, 2, FLIP, a);
  if (before <= 1 && wide > 1 - before) eights_at(at, (1 - before) * pitch, 2, FLIP, b);
  int64_t x = (2 - before) * pitch;
  const int64_t stop = x + inner * pitch;
#define WINDOW(A, B, C)                                                                            \
  eights_store(e, KIND, eights_sums(e, 0, KIND, A, B, C), eights_sums(e, 1, KIND, A, B, C), first, \
               second);                                                                            \
  first += pitch, second += pitch;
#define NEXT(A, B, C)                         \
  if (x == stop) {                            \
    FOR_UNROLLED (2, int h = 0; h < 2; h++) { \
      const int8x16_t last = B[h];            \
      a[h] = A[h], b[h] = last;               \
    }                                         \
    break;                                    \
  }                                           \
  eights_at(at, x, 2, FLIP, C);               \
  x += pitch;                                 \
  WINDOW(A, B, C)
  for (;;) {
    NEXT(a, b, c)
    NEXT(b, c, a)
    NEXT(c, a, b)
  }
#undef NEXT
  for (int64_t i = inner; i < pixels; i++) {
    c[0] = c[1] = fill;
    WINDOW(a, b, c)
    FOR_UNROLLED (2, int h = 0; h < 2; h++) a[h] = b[h], b[h] = fill;
  }
#undef WINDOW
}

// Output lines [row, end) of all images, channels [c, c + 8).
INLINE void eights_rows(const task *t, const eights *given, const uint8_t *padding, int64_t row,
                        int64_t end, int64_t c, const int STRIDE, const int FLIP,
                        const enum eights_kind KIND) {
  const itg_window *w = &t->d->w;
  const eights e = *given;
  const int64_t pitch = t->d->channels, line = w->in[2] * pitch, out = w->out[2] * pitch;
  const int8x16_t fill = vdupq_n_s8((int8_t)(t->fill ^ (FLIP ? 0x80 : 0)));
  int64_t oy = row % w->out[1];
  const uint8_t *image = t->x + row / w->out[1] * w->in[1] * line + c;
  uint8_t *to = t->out + row * out + c;
  for (int64_t left = end - row; left > 0;) {
    const bool two = STRIDE == 1 && left > 1 && oy + 1 < w->out[1];
    const uint8_t *at[4];
    FOR_UNROLLED (4, int k = 0; k < 4; k++) {
      const int64_t y = oy * STRIDE - w->before[1] + k;
      at[k] = (uint64_t)y < (uint64_t)w->in[1] ? image + y * line : padding;
    }
    if (STRIDE == 1) eights_lines(&e, w, at, pitch, fill, to, two ? to + out : to, FLIP, KIND);
    else eights_line(&e, w, at, pitch, fill, to, FLIP, KIND);
    to += two ? 2 * out : out;
    oy += 1 + two;
    left -= 1 + two;
    if (oy >= w->out[1]) oy = 0, image += w->in[1] * line;
  }
}

typedef void (*eights_fn)(const task *t, const eights *e, const uint8_t *padding, int64_t row,
                          int64_t end, int64_t c);
#define EIGHTS(STRIDE, FLIP, KIND)                                                                \
  static void eights_##STRIDE##_##FLIP##_##KIND(const task *t, const eights *e,                   \
                                                const uint8_t *padding, int64_t row, int64_t end, \
                                                int64_t c) {                                      \
    eights_rows(t, e, padding, row, end, c, STRIDE, FLIP, (enum eights_kind)KIND);                \
  }
#define EIGHTS_KINDS(STRIDE, FLIP) \
  EIGHTS(STRIDE, FLIP, 0) EIGHTS(STRIDE, FLIP, 1) EIGHTS(STRIDE, FLIP, 2)
EIGHTS_KINDS(1, 0)
EIGHTS_KINDS(1, 1)
EIGHTS_KINDS(2, 0)
EIGHTS_KINDS(2, 1)

// Output lines [row, end) of blocks [first, last) of 16 channels.
static void run_eights(const task *t, int64_t row, int64_t end, int64_t first, int64_t last) {
#define EIGHTS_ENTRY(STRIDE, FLIP) \
  { eights_##STRIDE##_##FLIP##_0, eights_##STRIDE##_##FLIP##_1, eights_##STRIDE##_##FLIP##_2 }
  static const eights_fn all[2][2][3] = {{EIGHTS_ENTRY(1, 0), EIGHTS_ENTRY(1, 1)},
                                         {EIGHTS_ENTRY(2, 0), EIGHTS_ENTRY(2, 1)}};
  uint8_t padding[PADDED];
  memset(padding, t->fill, (size_t)(t->d->w.in[2] * t->d->channels));
  const int64_t stop = last * ITG_QBLOCK16 < t->d->channels ? last * ITG_QBLOCK16 : t->d->channels;
  eights e = {.end = vq_end_of(&t->end), .bare = vq_is_bare(&t->end), .table = t->table};
  for (int64_t c = first * ITG_QBLOCK16; c < stop; c += 8) {
    const enum eights_kind kind = eights_of(t, c, &e);
    all[t->d->w.stride[2] - 1][!t->flip][kind](t, &e, padding, row, end, c);
  }
}
