// Depthwise convolution of bytes for 64-bit ARM: one output pixel by 16 channels at a time, without
// interleaving. Products are of signed bytes. If no weight is -128, the sum of two of them fits 16
// bits, so that pairs of taps are added there first; otherwise, and if weights need nine bits,
// inputs are widened. Included by qdepthwise.c.
#pragma once

typedef struct block {  // of 16 channels
  int8_t w8[ITG_QTAPS][ITG_QBLOCK16];
  int16_t w16[ITG_QTAPS][ITG_QBLOCK16];
  bool narrow;  // pairs of products fit 16 bits
  int32x4_t bias[4];
  vf scale[4];
  vq_end end;
  const uint8_t *table;
  int64_t channel, n;
} block;

// Unpacks the weights and adds to the bias what signed inputs lack.
static void block_of(const task *t, int64_t b, block *to) {
  const itg_qdepth *d = t->d;
  const int64_t once = d->high * d->wide, lines = d->w.kernel[0] * d->w.kernel[1];
  const int8_t *from = t->weights + b * d->outs * d->parts * once * ITG_QPLACE;
  to->channel = b * ITG_QBLOCK16;
  to->n = d->channels - to->channel < ITG_QBLOCK16 ? d->channels - to->channel : ITG_QBLOCK16;
  to->narrow = d->parts == 1;
  int8x16_t least = vdupq_n_s8(0);
  int32x4_t sum[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
  for (int64_t g = 0; g < once; g++, from += ITG_QPLACE) {
    const int8x16x4_t four = vld4q_s8(from);
    const int8x16x4_t more = d->parts == 2 ? vld4q_s8(from + once * ITG_QPLACE) : four;
    FOR_UNROLLED (4, int i = 0; i < 4; i++) {
      const int64_t down = g / d->wide * 4 + i, tap = down * d->wide + g % d->wide;
      if (down >= lines) continue;
      int16x8_t low = vmovl_s8(vget_low_s8(four.val[i])), high = vmovl_high_s8(four.val[i]);
      if (d->parts == 2) {
        low = vaddw_s8(low, vget_low_s8(more.val[i]));
        high = vaddw_high_s8(high, more.val[i]);
      }
      least = vminq_s8(least, four.val[i]);
      vst1q_s8(to->w8[tap], four.val[i]);
      vst1q_s16(to->w16[tap], low);
      vst1q_s16(to->w16[tap] + 8, high);
      sum[0] = vaddw_s16(sum[0], vget_low_s16(low));
      sum[1] = vaddw_high_s16(sum[1], low);
      sum[2] = vaddw_s16(sum[2], vget_low_s16(high));
      sum[3] = vaddw_high_s16(sum[3], high);
    }
  }
  to->narrow = to->narrow && vminvq_s8(least) > -128;
  int32_t bias[ITG_QBLOCK16] = {0};
  float scale[ITG_QBLOCK16] = {0};
  memcpy(bias, t->end.bias + to->channel, (size_t)to->n * sizeof *bias);
  memcpy(scale, t->end.scale + to->channel, (size_t)to->n * sizeof *scale);
  FOR_UNROLLED (4, int v = 0; v < 4; v++) {
    to->bias[v] = vmlaq_n_s32(vld1q_s32(bias + 4 * v), sum[v], VQ_LESS);
    to->scale[v] = vload(scale + 4 * v);
  }
  to->end = vq_end_of(&t->end);
  to->table = t->table;
}

INLINE int8x16_t input(const uint8_t *p, const int FLIP) {
  const uint8x16_t x = vld1q_u8(p);
  return vreinterpretq_s8_u8(FLIP ? veorq_u8(x, vdupq_n_u8(0x80)) : x);
}

INLINE void add_wide(int32x4_t *sum, int16x8_t low, int16x8_t high) {
  sum[0] = vaddw_s16(sum[0], vget_low_s16(low));
  sum[1] = vaddw_high_s16(sum[1], low);
  sum[2] = vaddw_s16(sum[2], vget_low_s16(high));
  sum[3] = vaddw_high_s16(sum[3], high);
}

INLINE void add_one(int32x4_t *sum, int8x16_t x, int8x16_t w) {
  add_wide(sum, vmull_s8(vget_low_s8(x), vget_low_s8(w)), vmull_high_s8(x, w));
}

INLINE void add_two(int32x4_t *sum, int8x16_t x, int8x16_t w, int8x16_t y, int8x16_t v) {
  add_wide(sum, vmlal_s8(vmull_s8(vget_low_s8(x), vget_low_s8(w)), vget_low_s8(y), vget_low_s8(v)),
           vmlal_high_s8(vmull_high_s8(x, w), y, v));
}

INLINE void add_sixteen(int32x4_t *sum, int8x16_t x, const int16_t *w) {
  const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_high_s8(x), a = vld1q_s16(w),
                  b = vld1q_s16(w + 8);
  sum[0] = vmlal_s16(sum[0], vget_low_s16(low), vget_low_s16(a));
  sum[1] = vmlal_high_s16(sum[1], low, a);
  sum[2] = vmlal_s16(sum[2], vget_low_s16(high), vget_low_s16(b));
  sum[3] = vmlal_high_s16(sum[3], high, b);
}

INLINE void put_pixel(const block *b, const int32x4_t *sum, uint8_t *to) {
  vf y[4];
  FOR_UNROLLED (4, int v = 0; v < 4; v++) y[v] = vmul(vcvtq_f32_s32(sum[v]), b->scale[v]);
  uint8x16_t bytes = vq_bytes(y, b->end);
  if (b->table) bytes = vq_lookup(bytes, b->table);
  vq_put_some(to, bytes, b->n);
}

// A pixel of any window: `at` has the inputs of each tap.
static void any_pixel(const block *b, const uint8_t *const *at, int64_t taps, int flip,
                      uint8_t *to) {
  int32x4_t sum[4] = {b->bias[0], b->bias[1], b->bias[2], b->bias[3]};
  const int8x16_t with = vdupq_n_s8(flip ? -128 : 0);
  int64_t k = 0;
  if (b->narrow) {
    for (; k + 2 <= taps; k += 2)
      add_two(sum, veorq_s8(input(at[k], 0), with), vld1q_s8(b->w8[k]),
              veorq_s8(input(at[k + 1], 0), with), vld1q_s8(b->w8[k + 1]));
    if (k < taps) add_one(sum, veorq_s8(input(at[k], 0), with), vld1q_s8(b->w8[k]));
  } else {
    for (; k < taps; k++) add_sixteen(sum, veorq_s8(input(at[k], 0), with), b->w16[k]);
  }
  put_pixel(b, sum, to);
}

// `pixels` neighbours of a line whose 3x3 windows lie inside the image. Weights stay in registers.
INLINE void line_3x3(const block *b, const uint8_t *x, int64_t down, int64_t right, int64_t step,
                     int64_t pixels, int64_t pitch, uint8_t *to, const int FLIP) {
  int8x16_t w[9];
  FOR_UNROLLED (9, int k = 0; k < 9; k++) w[k] = vld1q_s8(b->w8[k]);
  const uint8_t *y = x + down, *z = y + down;
  for (int64_t i = 0; i < pixels; i++, x += step, y += step, z += step, to += pitch) {
    int32x4_t sum[4] = {b->bias[0], b->bias[1], b->bias[2], b->bias[3]};
    add_two(sum, input(x, FLIP), w[0], input(x + right, FLIP), w[1]);
    add_two(sum, input(x + 2 * right, FLIP), w[2], input(y, FLIP), w[3]);
    add_two(sum, input(y + right, FLIP), w[4], input(y + 2 * right, FLIP), w[5]);
    add_two(sum, input(z, FLIP), w[6], input(z + right, FLIP), w[7]);
    add_one(sum, input(z + 2 * right, FLIP), w[8]);
    put_pixel(b, sum, to);
  }
}

static void line_signed(const block *b, const uint8_t *x, int64_t down, int64_t right, int64_t step,
                        int64_t pixels, int64_t pitch, uint8_t *to) {
  line_3x3(b, x, down, right, step, pixels, pitch, to, 0);
}
static void line_unsigned(const block *b, const uint8_t *x, int64_t down, int64_t right,
                          int64_t step, int64_t pixels, int64_t pitch, uint8_t *to) {
  line_3x3(b, x, down, right, step, pixels, pitch, to, 1);
}

// One pixel whose window may leave the image, or whose last 16 bytes may leave its memory.
static void careful_pixel(const task *t, const block *b, const uint8_t *image, const uint8_t *stop,
                          const int64_t *first, uint8_t *to) {
  const itg_window *w = &t->d->w;
  const int64_t channels = t->d->channels;
  uint8_t fill[16], copies[ITG_QTAPS][16];
  const uint8_t *at[ITG_QTAPS];
  memset(fill, t->fill, sizeof fill);
  int64_t n = 0;
  for (int64_t i = 0; i < w->kernel[0]; i++)
    for (int64_t j = 0; j < w->kernel[1]; j++) {
      const int64_t z = first[0] + i * w->dilation[0], y = first[1] + j * w->dilation[1];
      const bool inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
      const uint8_t *line = image + (z * w->in[1] + y) * w->in[2] * channels + b->channel;
      for (int64_t k = 0; k < w->kernel[2]; k++, n++) {
        const int64_t x = first[2] + k * w->dilation[2];
        at[n] = fill;
        if (!inside || x < 0 || x >= w->in[2]) continue;
        at[n] = line + x * channels;
        if (stop - at[n] < 16) at[n] = memcpy(copies[n], at[n], (size_t)b->n);
      }
    }
  any_pixel(b, at, n, !t->flip, to);
}

// The same for 3x3 windows: `line` is the first of its lines, as far as there is one, `x` the
// column of its first tap.
static void careful_3x3(const task *t, const block *b, const uint8_t *line, const uint8_t *stop,
                        int64_t y, int64_t x, int64_t down, const uint8_t *fill, uint8_t *to) {
  const itg_window *w = &t->d->w;
  const int64_t channels = t->d->channels, dx = w->dilation[2], dy = w->dilation[1];
  const uint64_t high = (uint64_t)w->in[1], wide = (uint64_t)w->in[2];
  const bool column[3] = {(uint64_t)x < wide, (uint64_t)(x + dx) < wide,
                          (uint64_t)(x + 2 * dx) < wide};
  const uint8_t *at[9];
  uint8_t copies[9][16];
  FOR_UNROLLED (3, int j = 0; j < 3; j++) {
    const bool inside = (uint64_t)(y + j * dy) < high;
    FOR_UNROLLED (3, int k = 0; k < 3; k++)
      at[3 * j + k] = inside && column[k] ? line + j * down + (x + k * dx) * channels : fill;
  }
  if (b->n < 16)
    for (int k = 0; k < 9; k++)
      if (at[k] != fill && stop - at[k] < 16) at[k] = memcpy(copies[k], at[k], (size_t)b->n);
  const int8x16_t with = vdupq_n_s8(t->flip ? 0 : -128);
  int32x4_t sum[4] = {b->bias[0], b->bias[1], b->bias[2], b->bias[3]};
  FOR_UNROLLED (4, int k = 0; k < 8; k += 2)
    add_two(sum, veorq_s8(input(at[k], 0), with), vld1q_s8(b->w8[k]),
            veorq_s8(input(at[k + 1], 0), with), vld1q_s8(b->w8[k + 1]));
  add_one(sum, veorq_s8(input(at[8], 0), with), vld1q_s8(b->w8[8]));
  put_pixel(b, sum, to);
}

static void run(const task *t, uint8_t *none, int64_t row, int64_t end, int64_t first,
                int64_t last) {
  (void)none;
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  const int64_t wide = w->out[2], pitch = d->channels, size = itg_places(w->in) * pitch;
  const uint8_t *stop = t->x + size * t->images;
  const bool three = w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3;
  const int64_t down = w->dilation[1] * w->in[2] * pitch, right = w->dilation[2] * pitch;
  uint8_t fill[16];
  memset(fill, t->fill, sizeof fill);
  block b;
  for (int64_t i = first; i < last; i++) {
    block_of(t, i, &b);
    for (int64_t r = row; r < end; r++) {
      const int64_t oy = r % w->out[1], oz = r / w->out[1] % w->out[0];
      const uint8_t *image = t->x + r / w->out[1] / w->out[0] * size;
      uint8_t *to = t->out + r * wide * pitch + b.channel;
      int64_t at[3] = {oz * w->stride[0] - w->before[0], oy * w->stride[1] - w->before[1], 0};
      int64_t from = 0, inside = 0;  // pixels [from, inside) have windows inside the image
      if (three && b.narrow && at[0] >= 0 && at[0] < w->in[0] && at[1] >= 0 &&
          at[1] + 2 * w->dilation[1] < w->in[1]) {
        const int64_t room = w->in[2] - 1 - 2 * w->dilation[2] + w->before[2];
        from = (w->before[2] + w->stride[2] - 1) / w->stride[2];
        inside = room < 0 ? 0 : room / w->stride[2] + 1;
        inside = inside < wide ? inside : wide;
      }
      const uint8_t *line = image + (at[0] * w->in[1] + at[1]) * w->in[2] * pitch + b.channel;
      for (; inside > from; inside--) {  // all loads lie in the image's memory
        const int64_t x = (inside - 1) * w->stride[2] - w->before[2];
        if (stop - (line + x * pitch + 2 * down + 2 * right) >= 16) break;
      }
      for (int64_t ox = 0; ox < wide; ox++) {
        if (ox == from && inside > from) {
          (t->flip ? line_signed : line_unsigned)(
              &b, line + (from * w->stride[2] - w->before[2]) * pitch, down, right,
              w->stride[2] * pitch, inside - from, pitch, to + from * pitch);
          ox = inside - 1;
          continue;
        }
        at[2] = ox * w->stride[2] - w->before[2];
        if (three && b.narrow && at[0] >= 0 && at[0] < w->in[0]) {
          careful_3x3(t, &b, line, stop, at[1], at[2], down, fill, to + ox * pitch);
          continue;
        }
        careful_pixel(t, &b, image, stop, at, to + ox * pitch);
      }
    }
  }
}
