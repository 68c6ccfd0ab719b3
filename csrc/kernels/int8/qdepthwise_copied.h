// 3x3 windows with stride 1 on ARM: from a copy of the lines with padding, so that no pixel is at a
// side. Included by qdepthwise_neon.h.
#pragma once

enum { COPY = 16 << 10 };  // bytes of it

typedef struct copied {
  int64_t columns, lines;  // with padding; output lines that fit
  int64_t pixel;           // bytes: 16, or 8 if two pixels are computed at a time
  uint8_t bytes[COPY + 16];
} copied;

static bool fits_copy(const task *t, copied *c) {
  const itg_window *w = &t->d->w;
  const int64_t reach = 2 * w->dilation[1];
  c->pixel = t->d->channels == 8 ? 8 : 16;
  c->columns = w->out[2] + 2 * w->dilation[2];
  c->lines = COPY / (c->pixel * c->columns) - reach;
  return w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3 && w->stride[1] == 1 &&
         w->stride[2] == 1 && (c->lines >= w->out[1] || c->lines > 2 * reach);
}

// Copies a line of 16 channels as i8: n pixels, then padding up to `columns`.
static void copy_line(const block *one, const uint8_t *x, const uint8_t *stop, int64_t n,
                      int64_t pitch, uint8x16_t flip, uint8_t *to) {
  int64_t i = 0, whole = stop - x < 16 ? 0 : (stop - x - 16) / pitch + 1;
  whole = whole < n ? whole : n;
  for (; i + 4 <= whole; i += 4, x += 4 * pitch) {
    const uint8x16_t a = vld1q_u8(x), b = vld1q_u8(x + pitch), c = vld1q_u8(x + 2 * pitch),
                     d = vld1q_u8(x + 3 * pitch);
    vst1q_u8(to + 16 * i, veorq_u8(a, flip));
    vst1q_u8(to + 16 * i + 16, veorq_u8(b, flip));
    vst1q_u8(to + 16 * i + 32, veorq_u8(c, flip));
    vst1q_u8(to + 16 * i + 48, veorq_u8(d, flip));
  }
  for (; i < whole; i++, x += pitch) vst1q_u8(to + 16 * i, veorq_u8(vld1q_u8(x), flip));
  for (; i < n; i++, x += pitch) {
    uint8_t some[16] = {0};
    memcpy(some, x, (size_t)one->n);
    vst1q_u8(to + 16 * i, veorq_u8(vld1q_u8(some), flip));
  }
}

// Output lines [y, y + n) of an image.
static void lines_by_copy(const task *t, block *b, const uint8_t *image, const uint8_t *stop,
                          int64_t y, int64_t n, copied *c, uint8_t *out) {
  const itg_window *w = &t->d->w;
  const int64_t pitch = t->d->channels, line = c->columns * c->pixel;
  const int64_t left = w->before[2] < c->columns ? w->before[2] : c->columns;
  const int64_t inner = w->in[2] < c->columns - left ? w->in[2] : c->columns - left;
  const uint8x16_t flip = vdupq_n_u8(t->flip ? 0 : 0x80);
  const int fill = t->fill ^ (t->flip ? 0 : 0x80);
  uint8_t *to = c->bytes;
  for (int64_t i = 0; i < n + 2 * w->dilation[1]; i++, to += line) {
    const int64_t at = y - w->before[1] + i;
    if (at < 0 || at >= w->in[1]) {
      memset(to, fill, (size_t)line);
      continue;
    }
    const uint8_t *x = image + at * w->in[2] * pitch + b->channel;
    uint8_t *const first = to + left * c->pixel, *const last = first + inner * c->pixel;
    memset(to, fill, (size_t)(first - to));
    if (c->pixel == 16) {
      copy_line(b, x, stop, inner, pitch, flip, first);
    } else {
      for (int64_t k = 0; k < inner * 8; k++) first[k] = x[k] ^ (uint8_t)(t->flip ? 0 : 0x80);
    }
    memset(last, fill, (size_t)(to + line - last));
  }
  const int64_t right = w->dilation[2] * c->pixel, down = w->dilation[1] * line;
  const uint8_t *x = c->bytes;
  lines_3x3 from = {{x, x + down, x + 2 * down}, {right, right, right}, {16, 16, 16}, line};
  results r = {out, n, w->out[2], w->out[2] * pitch, pitch};
  if (c->pixel == 16) {
    windows_signed(b, &from, &r);
    return;
  }
  r.pixels = w->out[2] / 2;  // two at a time
  r.pitch = 16;
  b->n = 16;
  windows_signed(b, &from, &r);
  b->n = 8;
  FOR_UNROLLED (3, int j = 0; j < 3; j++) from.at[j] += 16 * r.pixels;
  r.to += 16 * r.pixels;
  r.pixels = w->out[2] % 2;
  windows_signed(b, &from, &r);
}
