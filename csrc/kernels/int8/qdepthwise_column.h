// Depthwise convolutions whose result is one column of pixels, as in models of streams: each byte
// of the image is needed once, or nearly so. Lines are interleaved in registers, and the tile is
// one pixel by QBYTES channels: sum[v] holds vector v of them. Included by qdepthwise.c.
#pragma once

typedef struct column_block {  // QBYTES channels
  int64_t first, n;            // channels [first, first + n)
  const int8_t *weights[4];    // of each vector; a vector without channels has those of another
  vq bias[4];
  vf scale[4];
} column_block;

static column_block column_block_of(const task *t, int64_t block, int64_t last) {
  const itg_qdepth *d = t->d;
  const int64_t first = block * ITG_QBLOCK16, stop = last * ITG_QBLOCK16;
  const int64_t left = (stop < d->channels ? stop : d->channels) - first;
  column_block b = {.first = first, .n = left < QBYTES ? left : QBYTES};
  const int64_t pitch = d->outs * d->high * d->wide * ITG_QPLACE;
  const bool whole = b.n == QBYTES;
  const int32_t *bias = t->end.bias + first;
  const float *scale = t->end.scale + first;
  int32_t some_bias[QBYTES];
  float some_scale[QBYTES];
  if (!whole) {
    memset(some_bias, 0, sizeof some_bias);
    memset(some_scale, 0, sizeof some_scale);
    bias = memcpy(some_bias, bias, (size_t)b.n * sizeof *bias);
    scale = memcpy(some_scale, scale, (size_t)b.n * sizeof *scale);
  }
  for (int64_t v = 0; v < 4; v++) {
    const int64_t k = v * QL < b.n ? v : 0;
    b.weights[v] = t->weights + (block + k / HALVES) * pitch + k % HALVES * (QL * 4);
    b.bias[v] = vq_load(bias + v * QL);
    b.scale[v] = vload(scale + v * QL);
  }
  return b;
}

INLINE void put_some_bytes(uint8_t *to, vq bytes, int64_t n) {
  if (n >= QBYTES) {
    vq_store(to, bytes);
    return;
  }
#if defined(ISA_avx512)
  _mm512_mask_storeu_epi8(to, ~(__mmask64)0 >> (64 - n), bytes);
#else
  uint8_t all[QBYTES];
  vq_store(all, bytes);
  memcpy(to, all, (size_t)n);
#endif
}

// The pixel of output line `row`, counted over batch, depth and height. WHOLE: all channels exist.
INLINE void column_pixel(const task *t, const column_block *b, const uint8_t *fill, int64_t row,
                         const bool WHOLE) {
  const itg_qdepth *d = t->d;
  const itg_window *w = &d->w;
  int64_t batch = row, oy = 0, z = -w->before[0];
  if (w->out[1] * w->out[0] > 1) {  // divisions take as long as a small window
    batch = row / (w->out[1] * w->out[0]);
    oy = row % w->out[1];
    z += row / w->out[1] % w->out[0] * w->stride[0];
  }
  const int64_t top = oy * w->stride[1] - w->before[1];
  const int64_t lines = w->kernel[0] * w->kernel[1];
  const vq flip = vq_set((int32_t)(t->flip * 0x01010101u));
  vq sum[4];
  FOR_UNROLLED (16, int v = 0; v < 4; v++) sum[v] = b->bias[v];
  for (int64_t k = 0, down = 0, at = 0; k < lines; k += 4) {
    const uint8_t *line[4];
    FOR_UNROLLED (16, int i = 0; i < 4; i++) {
      line[i] = k + i < lines ? line_of(t, batch, z, top + down * w->dilation[1])
                              : NULL;  // its weights are zero
      if (++down == w->kernel[1]) down = 0, z += w->dilation[0];
    }
    for (int64_t j = 0; j < d->wide; j++, at += ITG_QPLACE) {
      const int64_t x = j * w->dilation[2] - w->before[2];
      const bool inside = x >= 0 && x < w->in[2];
      vq in[4], lanes[4];
      FOR_UNROLLED (16, int i = 0; i < 4; i++) {
        const uint8_t *from = inside && line[i] ? line[i] + x * d->channels + b->first : fill;
        in[i] = by_fours(vq_xor(WHOLE ? vq_load(from) : some_bytes(from, b->n), flip));
      }
      interleave(in[0], in[1], in[2], in[3], lanes);
      FOR_UNROLLED (16, int v = 0; v < 4; v++)
        sum[v] = vq_dot(sum[v], vq_inputs(lanes[v]), vq_weights(vq_load(b->weights[v] + at)));
    }
  }
  const vq_end end = vq_end_of(&t->end);
  vq bytes = t->end.saturates ? vq_bytes(sum[0], sum[1], sum[2], sum[3], b->scale, true, end)
                              : vq_bytes(sum[0], sum[1], sum[2], sum[3], b->scale, false, end);
  if (t->table) bytes = vq_lookup(bytes, t->table);
  put_some_bytes(t->out + row * d->channels + b->first, vq_in_order(bytes), b->n);
}

// Computes rows [row, end) of blocks [first, last), whose weights have one part.
static void run_column(const task *t, int64_t row, int64_t end, int64_t first, int64_t last) {
  uint8_t fill[QBYTES];
  memset(fill, t->fill, sizeof fill);
  for (int64_t block = first; block < last; block += BLOCKS) {
    const column_block b = column_block_of(t, block, last);
    for (int64_t y = row; y < end; y++)
      if (b.n == QBYTES) column_pixel(t, &b, fill, y, true);
      else column_pixel(t, &b, fill, y, false);
  }
}
