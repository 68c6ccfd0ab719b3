// Depthwise convolution of bytes with RVV: a vector holds up to 16 channels of one output pixel.
// The value of padding is taken from every input, so that taps on padding add nothing. Included by
// qdepthwise.c.
#pragma once
#include "qrvv.h"

typedef struct taps {  // of one block of channels
  int16_t w[ITG_QTAPS][ITG_QBLOCK16];
  int32_t start[ITG_QBLOCK16];  // bias, with what padding adds
} taps;

static void find_taps(const task *t, int64_t block, taps *to) {
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  const int64_t c = block * ITG_QBLOCK16, left = d->channels - c, once = d->high * d->wide;
  const uint32_t fill = (uint32_t)(t->fill ^ t->flip);
  for (int64_t l = 0; l < ITG_QBLOCK16; l++) to->start[l] = l < left ? t->end.bias[c + l] : 0;
  for (int64_t k = 0; k < itg_taps(w); k++) {
    const int64_t down = k / w->kernel[2],
                  group = block * d->outs * d->parts * once + down / 4 * d->wide + k % w->kernel[2];
    const int8_t *from = t->weights + group * ITG_QPLACE + down % 4;
    const int64_t second = (d->parts - 1) * once * ITG_QPLACE;  // 0: one part
    for (int64_t l = 0; l < ITG_QBLOCK16; l++) {
      to->w[k][l] = (int16_t)(from[l * 4] + (second ? from[second + l * 4] : 0));
      to->start[l] = (int32_t)((uint32_t)to->start[l] + fill * (uint32_t)to->w[k][l]);
    }
  }
}

typedef struct place {  // neighbouring output pixels of one line, one block of channels
  const task *t;
  const taps *taps;
  const uint8_t *image;    // of the first column of the first pixel's window, which may be outside
  int64_t from[3], to[3];  // taps inside the image: planes, lines, columns
  int64_t c, n;            // channels
  uint8_t *out;
} place;

INLINE vint16m2_t less_padding(const task *t, const uint8_t *x, size_t n) {
  if (t->flip)
    return __riscv_vwsub_vx_i16m2(__riscv_vle8_v_i8m1((const int8_t *)x, n), (int8_t)t->fill, n);
  return __riscv_vreinterpret_v_u16m2_i16m2(
      __riscv_vwsubu_vx_u16m2(__riscv_vle8_v_u8m1(x, n), t->fill, n));
}

INLINE void put_pixel(const place *p, vint32m4_t sum, int64_t i) {
  uint8_t *to = p->out + i * p->t->d->channels;
  const size_t n = (size_t)p->n;
  qr_put_bytes(&p->t->end, qr_scaled(&p->t->end, sum, p->t->end.scale + p->c, 0, n), to, n);
  if (p->t->table)
    __riscv_vse8_v_u8m1(to, __riscv_vluxei8_v_u8m1(p->t->table, __riscv_vle8_v_u8m1(to, n), n), n);
}

// One pixel, some of whose columns may be outside.
static void one_pixel(const place *p) {
  const task *t = p->t;
  const itg_window *w = &t->d->w;
  const int64_t line = w->in[2] * t->d->channels, step = w->dilation[2] * t->d->channels;
  const size_t n = (size_t)p->n;
  vint32m4_t sum = __riscv_vle32_v_i32m4(p->taps->start, n);
  for (int64_t z = p->from[0]; z < p->to[0]; z++)
    for (int64_t y = p->from[1]; y < p->to[1]; y++) {
      const uint8_t *x = p->image + (z * w->dilation[0] * w->in[1] + y * w->dilation[1]) * line;
      for (int64_t k = p->from[2]; k < p->to[2]; k++) {
        const int16_t *at = p->taps->w[(z * w->kernel[1] + y) * w->kernel[2] + k];
        sum = __riscv_vwmacc_vv_i32m4(sum, __riscv_vle16_v_i16m2(at, n),
                                      less_padding(t, x + k * step, n), n);
      }
    }
  put_pixel(p, sum, 0);
}

// Four pixels, whose columns are all inside. KERNEL and STRIDE: their columns, 0 for any.
INLINE void four_pixels(const place *p, const int KERNEL, const int STRIDE) {
  const task *t = p->t;
  const itg_window *w = &t->d->w;
  const int64_t line = w->in[2] * t->d->channels, step = w->dilation[2] * t->d->channels,
                pixel = t->d->channels, wide = KERNEL ? KERNEL : w->kernel[2],
                next = w->stride[2] * t->d->channels;
  const size_t n = (size_t)p->n;
  vint32m4_t a = __riscv_vle32_v_i32m4(p->taps->start, n), b = a, c = a, d = a;
  for (int64_t z = p->from[0]; z < p->to[0]; z++)
    for (int64_t y = p->from[1]; y < p->to[1]; y++) {
      const uint8_t *x = p->image + (z * w->dilation[0] * w->in[1] + y * w->dilation[1]) * line;
      const int16_t *at = p->taps->w[(z * w->kernel[1] + y) * wide];
#define MADD(sum, i, x) \
  sum = __riscv_vwmacc_vv_i32m4(sum, __riscv_vle16_v_i16m2(at + (i) * ITG_QBLOCK16, n), x, n)
      if (KERNEL) {  // each input is read once and multiplied by every weight that meets it
        FOR_UNROLLED (16, int j = 0; j < KERNEL + 3 * STRIDE; j++) {
          const vint16m2_t in = less_padding(t, x + j * pixel, n);
          if (j < KERNEL) MADD(a, j, in);
          if (j >= STRIDE && j - STRIDE < KERNEL) MADD(b, j - STRIDE, in);
          if (j >= 2 * STRIDE && j - 2 * STRIDE < KERNEL) MADD(c, j - 2 * STRIDE, in);
          if (j >= 3 * STRIDE) MADD(d, j - 3 * STRIDE, in);
        }
      } else {
        for (int64_t k = 0; k < wide; k++, x += step) {
          MADD(a, k, less_padding(t, x, n));
          MADD(b, k, less_padding(t, x + next, n));
          MADD(c, k, less_padding(t, x + 2 * next, n));
          MADD(d, k, less_padding(t, x + 3 * next, n));
        }
      }
#undef MADD
    }
  put_pixel(p, a, 0);
  put_pixel(p, b, 1);
  put_pixel(p, c, 2);
  put_pixel(p, d, 3);
}
static void four_any(const place *p) { four_pixels(p, 0, 0); }
static void four_3_1(const place *p) { four_pixels(p, 3, 1); }
static void four_3_2(const place *p) { four_pixels(p, 3, 2); }
static void four_5_1(const place *p) { four_pixels(p, 5, 1); }

static void (*four_of(const itg_window *w))(const place *) {
  if (w->dilation[2] != 1) return four_any;
  if (w->kernel[2] == 3 && w->stride[2] == 1) return four_3_1;
  if (w->kernel[2] == 3 && w->stride[2] == 2) return four_3_2;
  return w->kernel[2] == 5 && w->stride[2] == 1 ? four_5_1 : four_any;
}

// The taps of output place o along an axis that are inside the image.
static void inside(const itg_window *w, int axis, int64_t o, int64_t *from, int64_t *to) {
  const int64_t first = o * w->stride[axis] - w->before[axis], by = w->dilation[axis],
                left = w->in[axis] - first;
  *from = first < 0 ? (-first + by - 1) / by : 0;
  *to = left <= 0 ? 0 : (left + by - 1) / by;
  if (*to > w->kernel[axis]) *to = w->kernel[axis];
  if (*from > *to) *from = *to;
}

static void run(const task *t, uint8_t *none, int64_t row, int64_t end, int64_t first,
                int64_t last) {
  (void)none;
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  const int64_t pixel = d->channels;
  void (*const four)(const place *) = four_of(w);
  for (int64_t block = first; block < last; block++) {
    taps all;
    find_taps(t, block, &all);
    place p = {.t = t, .taps = &all, .c = block * ITG_QBLOCK16};
    p.n = d->channels - p.c < ITG_QBLOCK16 ? d->channels - p.c : ITG_QBLOCK16;
    for (int64_t r = row; r < end; r++) {
      const int64_t oy = r % w->out[1], oz = r / w->out[1] % w->out[0],
                    image = r / w->out[1] / w->out[0];
      inside(w, 0, oz, &p.from[0], &p.to[0]);
      inside(w, 1, oy, &p.from[1], &p.to[1]);
      const int64_t z = image * w->in[0] + oz * w->stride[0] - w->before[0];
      const int64_t y = z * w->in[1] + oy * w->stride[1] - w->before[1];
      for (int64_t ox = 0, many; ox < w->out[2]; ox += many) {
        const int64_t x = ox * w->stride[2] - w->before[2],
                      stop = x + 3 * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2];
        p.image = t->x + ((y * w->in[2] + x) * pixel + p.c);
        p.out = t->out + (r * w->out[2] + ox) * pixel + p.c;
        many = x >= 0 && stop < w->in[2] && ox + 4 <= w->out[2] ? 4 : 1;
        if (many == 4) {
          four(&p);
        } else {
          inside(w, 2, ox, &p.from[2], &p.to[2]);
          one_pixel(&p);
        }
      }
    }
  }
}
