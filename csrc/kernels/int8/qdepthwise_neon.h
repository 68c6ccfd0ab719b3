// Depthwise convolution of bytes for 64-bit ARM: one output pixel by 16 channels at a time, without
// interleaving. Products are of signed bytes. If no weight is -128, the sum of two of them fits 16
// bits, so that pairs of taps are added there first; otherwise, and if weights need nine bits,
// inputs are widened. Of images with 8 channels two neighbouring pixels are computed at a time.
// Included by qdepthwise.c.
#pragma once

typedef struct block {  // of 16 channels
  int8_t w8[ITG_QTAPS][ITG_QBLOCK16];
  int16_t w16[ITG_QTAPS][ITG_QBLOCK16];
  bool narrow;  // pairs of products fit 16 bits
  int32x4_t bias[4];
  vf scale[4];
  vq_end end;
  bool bare;  // results of i8 without bounds of their own
  const uint8_t *table;
  int64_t channel, n;
  bool twice;  // has the same 8 channels two times
} block;

// Unpacks the weights and adds to the bias what signed inputs lack.
static void block_of(const task *t, int64_t b, block *to) {
  const itg_qdepth *d = t->d;
  const int64_t once = d->high * d->wide, lines = d->w.kernel[0] * d->w.kernel[1];
  const int8_t *from = t->weights + b * d->outs * d->parts * once * ITG_QPLACE;
  to->channel = b * ITG_QBLOCK16;
  to->n = d->channels - to->channel < ITG_QBLOCK16 ? d->channels - to->channel : ITG_QBLOCK16;
  to->narrow = d->parts == 1;
  to->twice = d->channels == 8;
  int8x16_t least = vdupq_n_s8(0);
  int32x4_t sum[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
  for (int64_t g = 0; g < once; g++, from += ITG_QPLACE) {
    int8x16x4_t four = vld4q_s8(from);
    const int8x16x4_t more = d->parts == 2 ? vld4q_s8(from + once * ITG_QPLACE) : four;
    if (to->twice)
      FOR_UNROLLED (4, int i = 0; i < 4; i++)
        four.val[i] = vcombine_s8(vget_low_s8(four.val[i]), vget_low_s8(four.val[i]));
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
  if (to->twice) {
    memcpy(bias + 8, bias, 8 * sizeof *bias);
    memcpy(scale + 8, scale, 8 * sizeof *scale);
  }
  FOR_UNROLLED (4, int v = 0; v < 4; v++) {
    to->bias[v] = vmlaq_n_s32(vld1q_s32(bias + 4 * v), sum[v], VQ_LESS);
    to->scale[v] = vload(scale + 4 * v);
  }
  to->end = vq_end_of(&t->end);
  to->bare = vq_is_bare(&t->end);
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

INLINE uint8x16_t bytes_of(const int32x4_t *sum, const vf *scale, vq_end end, bool bare) {
  vf y[4];
  FOR_UNROLLED (4, int v = 0; v < 4; v++) y[v] = vmul(vcvtq_f32_s32(sum[v]), scale[v]);
  return vq_bounded(vq_narrow(y, end), end, bare);
}

INLINE void put_pixel(const block *b, const int32x4_t *sum, uint8_t *to) {
  uint8x16_t bytes = bytes_of(sum, b->scale, b->end, b->bare);
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

// The three lines of 3x3 windows. One outside the image is 16 bytes of padding, over which windows
// do not move.
typedef struct lines_3x3 {
  const uint8_t *at[3];       // the first tap of a window
  int64_t right[3], step[3];  // bytes to the next tap, to that of the next window
  int64_t down;               // bytes to the lines of the next output line
} lines_3x3;

typedef struct results {  // of `lines` output lines
  uint8_t *to;
  int64_t lines, pixels, line, pitch;  // bytes of a line, and of a pixel
} results;

// Keeps gcc from copying the halves of a vector before a loop, for which registers do not suffice.
#define IN_PLACE(v) __asm__("" : "+w"(v))

// Neighbouring 3x3 windows between the sides of the image. Weights stay in registers.
INLINE void windows_3x3(const block *b, const lines_3x3 *from, const results *r, const int FLIP) {
  int8x16_t w[9];
  FOR_UNROLLED (9, int k = 0; k < 9; k++) w[k] = vld1q_s8(b->w8[k]);
  // Loaded once: stores of bytes may change *b, as far as the compiler knows.
  int32x4_t bias[4];
  vf scale[4];
  FOR_UNROLLED (4, int k = 0; k < 4; k++) bias[k] = b->bias[k], scale[k] = b->scale[k];
  const vq_end end = b->end;
  const bool bare = b->bare;
  const uint8_t *table = b->table;
  const int64_t n = b->n, pitch = r->pitch, i = from->right[0], j = from->right[1],
                k = from->right[2], a = from->step[0], c = from->step[1], e = from->step[2];
  for (int64_t line = 0; line < r->lines; line++) {
    const int64_t down = line * from->down;
    const uint8_t *x = from->at[0] + down, *y = from->at[1] + down, *z = from->at[2] + down;
    uint8_t *to = r->to + line * r->line;
    for (int64_t left = r->pixels; left > 0; left--, to += pitch) {
      FOR_UNROLLED (9, int v = 0; v < 9; v++) IN_PLACE(w[v]);
      int32x4_t sum[4] = {bias[0], bias[1], bias[2], bias[3]};
      add_two(sum, input(x, FLIP), w[0], input(x + i, FLIP), w[1]);
      add_two(sum, input(x + 2 * i, FLIP), w[2], input(y, FLIP), w[3]);
      add_two(sum, input(y + j, FLIP), w[4], input(y + 2 * j, FLIP), w[5]);
      add_two(sum, input(z, FLIP), w[6], input(z + k, FLIP), w[7]);
      add_one(sum, input(z + 2 * k, FLIP), w[8]);
      uint8x16_t bytes = bytes_of(sum, scale, end, bare);
      if (table) bytes = vq_lookup(bytes, table);
      vq_put_some(to, bytes, n);
      x += a, y += c, z += e;
    }
  }
}

static void windows_signed(const block *b, const lines_3x3 *from, const results *r) {
  windows_3x3(b, from, r, 0);
}
static void windows_unsigned(const block *b, const lines_3x3 *from, const results *r) {
  windows_3x3(b, from, r, 1);
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

// The same for 3x3 windows that begin in column x; `lines` are those of column 0.
static void careful_3x3(const task *t, const block *b, const lines_3x3 *lines, const uint8_t *stop,
                        int64_t x, const uint8_t *fill, uint8_t *to) {
  const int64_t dx = t->d->w.dilation[2];
  const uint8_t *at[9];
  uint8_t copies[9][16];
  FOR_UNROLLED (3, int k = 0; k < 3; k++) {
    const int64_t column = x + k * dx;
    const bool inside = (uint64_t)column < (uint64_t)t->d->w.in[2];
    FOR_UNROLLED (3, int j = 0; j < 3; j++)
      at[3 * j + k] = inside && lines->right[j] ? lines->at[j] + column * t->d->channels : fill;
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

// Pixels of a line, as far as their 3x3 windows lie between the sides of the image.
static void inner_pixels(const task *t, const block *b, const lines_3x3 *lines, const uint8_t *stop,
                         int64_t *from, int64_t *end, uint8_t *to) {
  const itg_window *w = &t->d->w;
  const int64_t pitch = t->d->channels, room = w->in[2] - 1 - 2 * w->dilation[2] + w->before[2];
  const uint8_t *last = NULL;  // of the lines inside the image
  FOR_UNROLLED (3, int j = 0; j < 3; j++)
    if (lines->right[j]) last = lines->at[j];
  if (!last) return;
  const int64_t first = (w->before[2] + w->stride[2] - 1) / w->stride[2];
  int64_t past = room < 0 ? 0 : room / w->stride[2] + 1;
  past = past < w->out[2] ? past : w->out[2];
  for (; past > first; past--) {  // all loads lie in the image's memory
    const int64_t x = (past - 1) * w->stride[2] - w->before[2] + 2 * w->dilation[2];
    if (stop - (last + x * pitch) >= 16) break;
  }
  if (past <= first) return;
  *from = first;
  *end = past;
  lines_3x3 here = *lines;
  FOR_UNROLLED (3, int j = 0; j < 3; j++)
    if (here.right[j]) here.at[j] += (first * w->stride[2] - w->before[2]) * pitch;
  const results r = {to + first * pitch, 1, past - first, 0, pitch};
  (t->flip ? windows_signed : windows_unsigned)(b, &here, &r);
}

// A line of output pixels, whose windows begin in line y of the image.
static void line_of_3x3(const task *t, const block *b, const uint8_t *image, const uint8_t *stop,
                        int64_t y, const uint8_t *fill, uint8_t *to) {
  const itg_window *w = &t->d->w;
  const int64_t pitch = t->d->channels;
  lines_3x3 lines = {.down = 0};
  FOR_UNROLLED (3, int j = 0; j < 3; j++) {
    const int64_t line = y + j * w->dilation[1];
    const bool inside = (uint64_t)line < (uint64_t)w->in[1];
    lines.at[j] = inside ? image + line * w->in[2] * pitch + b->channel : fill;
    lines.right[j] = inside ? w->dilation[2] * pitch : 0;
    lines.step[j] = inside ? w->stride[2] * pitch : 0;
  }
  int64_t from = 0, end = 0;
  inner_pixels(t, b, &lines, stop, &from, &end, to);
  for (int64_t ox = 0; ox < w->out[2]; ox++) {
    if (ox == from && end > from) ox = end;
    if (ox < w->out[2])
      careful_3x3(t, b, &lines, stop, ox * w->stride[2] - w->before[2], fill, to + ox * pitch);
  }
}

#include "qdepthwise_copied.h"
#if defined(ISA_dotprod)
#include "qdepthwise_dotted.h"
#include "qdepthwise_eights.h"
#endif

static void run(const task *t, uint8_t *none, int64_t row, int64_t end, int64_t first,
                int64_t last) {
  (void)none;
#if defined(ISA_dotprod)
  if (fits_eights(t)) {
    run_eights(t, row, end, first, last);
    return;
  }
#endif
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  const int64_t wide = w->out[2], pitch = d->channels, size = itg_places(w->in) * pitch;
  const uint8_t *stop = t->x + size * t->images;
  const bool three = w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3;
  copied copy;
  const bool copies = fits_copy(t, &copy);
#if defined(ISA_dotprod)
  const bool dots = fits_dotted(t);
#endif
  uint8_t fill[16];
  memset(fill, t->fill, sizeof fill);
  block b;
  for (int64_t i = first; i < last; i++) {
    block_of(t, i, &b);
    for (int64_t r = row, lines; r < end; r += lines) {
      const int64_t oy = r % w->out[1], oz = r / w->out[1] % w->out[0];
      const uint8_t *image = t->x + r / w->out[1] / w->out[0] * size;
      uint8_t *to = t->out + r * wide * pitch + b.channel;
      int64_t at[3] = {oz * w->stride[0] - w->before[0], oy * w->stride[1] - w->before[1], 0};
      lines = 1;
#if defined(ISA_dotprod)
      if (dots && at[0] >= 0 && at[0] < w->in[0]) {
        lines = d->outs == 2 && oy + 1 < w->out[1] && r + 1 < end ? 2 : 1;
        image += at[0] * w->in[1] * w->in[2] * pitch + b.channel;
        run_dotted(t, &b, i, image, oy, lines == 2, fill, to);
        continue;
      }
#endif
      if (three && b.narrow && at[0] >= 0 && at[0] < w->in[0]) {
        image += at[0] * w->in[1] * w->in[2] * pitch;
        if (copies) {
          lines = end - r < w->out[1] - oy ? end - r : w->out[1] - oy;
          lines = lines < copy.lines ? lines : copy.lines;
          lines_by_copy(t, &b, image, stop, oy, lines, &copy, to);
        } else {
          line_of_3x3(t, &b, image, stop, at[1], fill, to);
        }
        continue;
      }
      for (int64_t ox = 0; ox < wide; ox++) {
        at[2] = ox * w->stride[2] - w->before[2];
        careful_pixel(t, &b, image, stop, at, to + ox * pitch);
      }
    }
  }
}
