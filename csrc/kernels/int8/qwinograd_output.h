// Output transform of Winograd convolution of bytes. Included by qwinograd.c.
//
// The 6x6 products of a tile become 4x4 pixels. First the six points of each column become lines,
// two of the four lines at a time: half[2][6] stays in registers, each vector with QL channels.
// Then the six numbers of a line become four pixels, which are scaled and rounded.
#pragma once

typedef struct canvas {     // the output pixels of a tile
  int64_t at, line, pixel;  // index of the first pixel; distances of lines and of pixels
  int64_t high, wide;       // lines and columns that are inside the image
} canvas;

typedef enum {
  PLAIN,
  FLOOR,
  BYTES,
  FLOATS
} ending;  // PLAIN: i8 without clamp; FLOOR: i8 with a lower bound only, as after a relu
typedef void (*output_fn)(bool lines, const uint32_t *from, const canvas *c, int64_t first,
                          int64_t columns, const itg_requantize *end, void *out);

INLINE void pixels_of(const vu *x, vu *y) {
  const vu s = x[1] + x[2], d = x[1] - x[2], t = x[3] + x[4], e = x[3] - x[4];
  y[0] = x[0] + s + t;
  y[1] = d + (e + e);
  y[2] = s + (t << 2);
  y[3] = d + (e << 3) + (x[5] + x[5]);
}

#if defined(ITG_QVECTORS)
// Requantises and stores n channels of up to four pixels. `least` is the lower bound of FLOOR.
INLINE void finish(const ending KIND, const itg_requantize *end, const vq *sum, vf scale,
                   const int32_t least, int64_t n, const int64_t *at, int64_t wide, void *out) {
  vf y[TILE];
  FOR_UNROLLED (16, int j = 0; j < TILE; j++) y[j] = vmul(vq_floats(sum[j]), scale);
  if (KIND == FLOATS) {
    for (int j = 0; j < wide; j++) {
      const float *more = end->residual ? (const float *)end->residual + at[j] : NULL;
      if (more) y[j] = vadd(y[j], n >= QL ? vload(more) : vloadn(more, n));
      if (n >= QL) vstore((float *)out + at[j], y[j]);
      else vstoren((float *)out + at[j], n, y[j]);
    }
    return;
  }
#if defined(ISA_avx512)
  const __mmask16 some = (__mmask16)(0xffffu >> (QL - n));
#else
  const int64_t some = n;
#endif
  if (KIND == BYTES && end->residual)
    FOR_UNROLLED (16, int j = 0; j < TILE; j++)
      if (j < wide) y[j] = vadd(y[j], vq_residual(end, end->residual + at[j], some));
#if !defined(ISA_avx512)
  if (KIND == FLOOR)
    FOR_UNROLLED (16, int j = 0; j < TILE; j++) y[j] = vmax(y[j], vset(end->lo));
#endif
  if (KIND == BYTES && !end->saturates && !vq_bounds_later(end))
    FOR_UNROLLED (16, int j = 0; j < TILE; j++)
      y[j] = vmin(vmax(y[j], vset(end->lo)), vset(end->hi));
#if defined(ISA_avx512)
  if (KIND != BYTES || !end->table) {
    FOR_UNROLLED (16, int j = 0; j < TILE; j++) {
      if (j >= wide) break;
      vq whole = vq_add(vq_rounded(y[j]), vq_set(end->zero));
      if (KIND == FLOOR) whole = _mm512_max_epi32(whole, vq_set(least));
      uint8_t *to = (uint8_t *)out + at[j];
      if (KIND != BYTES || end->high) _mm512_mask_cvtsepi32_storeu_epi8(to, some, whole);
      else _mm512_mask_cvtusepi32_storeu_epi8(to, some, _mm512_max_epi32(whole, vq_set(0)));
    }
    return;
  }
#endif
  const vq_end all = vq_end_of(end);
  vq bytes, whole[TILE];
  if (end->entries > 256 || end->pieces) {
    FOR_UNROLLED (16, int j = 0; j < TILE; j++) whole[j] = vq_add(vq_rounded(y[j]), all.zero);
    bytes = vq_lookup_wide(whole, TILE, end);
  } else {
    bytes = vq_in_order(vq_narrow(y, TILE, all));
    if (end->table) bytes = vq_lookup(bytes, end->table);
  }
#if defined(ISA_avx512)
  const __m128i part[TILE] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                              _mm512_extracti32x4_epi32(bytes, 2),
                              _mm512_extracti32x4_epi32(bytes, 3)};
  FOR_UNROLLED (16, int j = 0; j < TILE; j++)
    if (j < wide) _mm_mask_storeu_epi8((uint8_t *)out + at[j], some, part[j]);
#else
  uint8_t all_bytes[QBYTES];
  vq_store(all_bytes, bytes);
  for (int j = 0; j < wide; j++)
    memcpy((uint8_t *)out + at[j], all_bytes + j * QL, n >= QL ? QL : (size_t)n);
#endif
}
#endif

// Transforms one line of a tile from six points (`half`) to four pixels, for n channels from
// `column` on.
INLINE void one_line(const ending KIND, const bool FULL, const int line, const vu *half,
                     const canvas *c, int64_t column, int64_t n, const itg_requantize *end,
                     const float *scale, const int32_t least, void *out) {
  vu y[TILE];
  if (!FULL && line >= c->high) return;
  pixels_of(half, y);
  const int64_t first = c->at + line * c->line + column;
  const int64_t at[TILE] = {first, first + c->pixel, first + 2 * c->pixel, first + 3 * c->pixel};
  FOR_UNROLLED (16, int j = 0; j < TILE; j++)
    y[j] *= 954437177u;  // the inverse of 9 modulo 2^32: 576 times the sum becomes 64 times
#if defined(ITG_QVECTORS)
  vq sum[TILE];
  FOR_UNROLLED (16, int j = 0; j < TILE; j++) sum[j] = (vq)y[j];
  finish(KIND, end, sum, vmul(vload(scale), vset(1.f / 64)), least, FULL ? QL : n, at,
         FULL ? TILE : c->wide, out);
#elif defined(ISA_rvv)
  uint32_t sum[TILE][QL];
  FOR_UNROLLED (16, int j = 0; j < TILE; j++) *(vu *)sum[j] = (vu)((vm)y[j] >> (vm)6);
  for (int j = 0; j < (FULL ? TILE : c->wide); j++)
    qr_finish(end, sum[j], column, at[j], FULL ? QL : n, out);
#else
  for (int j = 0; j < c->wide; j++)
    for (int64_t k = 0; k < n; k++) {
      const int32_t sum = (int32_t)y[j][k] >> 6;
      if (KIND == FLOATS) ((float *)out)[at[j] + k] = itg_q_float(end, sum, column + k, at[j] + k);
      else ((uint8_t *)out)[at[j] + k] = itg_q_byte(end, sum, column + k, at[j] + k);
    }
#endif
}

// Transforms the products at all points to lines ODD and ODD + 2 of a tile. These two lines share
// their intermediate sums.
INLINE void two_lines(const ending KIND, const bool FULL, const int ODD, const uint32_t *from,
                      const canvas *c, int64_t column, int64_t n, const itg_requantize *end,
                      const float *scale, const int32_t least, void *out) {
  vu half[2][SIZE];
  FOR_UNROLLED (16, int j = 0; j < SIZE; j++) {
#define AT(i) (*(const vu *)(from + ((i) * SIZE + j) * ITG_PANEL))
    if (ODD) {
      const vu d = AT(1) - AT(2), e = AT(3) - AT(4), two = e + e, last = AT(5);
      half[0][j] = d + two;
      half[1][j] = d + (two << 2) + (last + last);
    } else {
      const vu s = AT(1) + AT(2), t = AT(3) + AT(4);
      half[0][j] = AT(0) + s + t;
      half[1][j] = s + (t << 2);
    }
#undef AT
  }
  FOR_UNROLLED (16, int i = 0; i < 2; i++)
    one_line(KIND, FULL, ODD + 2 * i, half[i], c, column, n, end, scale, least, out);
}

// Transforms all channels of a tile, QL at a time. FULL: no pixel is outside the image and all
// vectors are full. LINES: `from` holds lines (find_lines) instead of products at all points.
INLINE void tile_out(const ending KIND, const bool FULL, const bool LINES, const uint32_t *from,
                     const canvas *c, int64_t first, int64_t columns, const itg_requantize *end,
                     void *out) {
  const int32_t least = (int32_t)end->lo + end->zero;  // here, because the stores may alias `end`
  for (int64_t i = 0; i < columns; i += QL) {
    const int64_t column = first + i, n = columns - i < QL ? columns - i : QL;
    const uint32_t *at =
        from + i / ITG_PANEL * (LINES ? LINE_SPAN : POINTS * ITG_PANEL) + i % ITG_PANEL;
    float some_scale[QL] = {0};
    const float *scale = end->scale + column;
    if (!FULL && n < QL) scale = memcpy(some_scale, scale, (size_t)n * sizeof *scale);
    if (LINES) {
      FOR_UNROLLED (16, int line = 0; line < TILE; line++)
        one_line(KIND, FULL, line, (const vu *)at + line * SIZE * PARTS, c, column, n, end, scale,
                 least, out);
    } else {
      two_lines(KIND, FULL, 0, at, c, column, n, end, scale, least, out);
      two_lines(KIND, FULL, 1, at, c, column, n, end, scale, least, out);
    }
  }
}

// Whether all pixels of a tile lie in the image and all vectors are full.
INLINE bool is_full(const canvas *c, int64_t columns) {
  return c->high == TILE && c->wide == TILE && columns % QL == 0;
}

#define OUTPUT_FULL(KIND)                                                                   \
  static void full_##KIND(bool lines, const uint32_t *from, const canvas *c, int64_t first, \
                          int64_t columns, const itg_requantize *end, void *out) {          \
    if (lines) tile_out(KIND, true, true, from, c, first, columns, end, out);               \
    else tile_out(KIND, true, false, from, c, first, columns, end, out);                    \
  }
#define OUTPUT_ANY(KIND)                                                                   \
  OUTPUT_FULL(KIND)                                                                        \
  static void out_##KIND(bool lines, const uint32_t *from, const canvas *c, int64_t first, \
                         int64_t columns, const itg_requantize *end, void *out) {          \
    if (is_full(c, columns)) full_##KIND(lines, from, c, first, columns, end, out);        \
    else if (lines) tile_out(KIND, false, true, from, c, first, columns, end, out);        \
    else tile_out(KIND, false, false, from, c, first, columns, end, out);                  \
  }
OUTPUT_ANY(BYTES)
