// Interleaves lines of an 8-bit image for a depthwise convolution: four bytes of one channel, from
// four lines of a window, become the four bytes of a lane (qdepthwise.h). Included by qdepthwise.c.
#pragma once
enum {
  BLOCKS = QBYTES / ITG_QBLOCK16,  // blocks of 16 channels in a vector of bytes
  HALVES = ITG_QBLOCK16 / QL,      // vectors of sums per block
};

typedef struct four_lines {  // sources of the four bytes of a lane
  const uint8_t *from[4];
  int64_t step[4];  // bytes from one pixel to the next; 0 for a line of padding
} four_lines;

#if defined(ISA_avx512)
INLINE vq some_bytes(const uint8_t *p, int64_t n) {
  return _mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - n), p);
}
INLINE vq by_fours(vq x) {  // transposes 4 x 4 groups of four bytes
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
}
INLINE void put_four(uint8_t *to, int64_t step, int64_t n, int pixels, vq bytes) {
  bytes = by_fours(bytes);
  const __m128i part[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                           _mm512_extracti32x4_epi32(bytes, 2),
                           _mm512_extracti32x4_epi32(bytes, 3)};
  if (n >= 16 && pixels >= 4)
    FOR_UNROLLED (16, int p = 0; p < 4; p++) _mm_storeu_si128((__m128i *)(to + p * step), part[p]);
  else
    FOR_UNROLLED (16, int p = 0; p < 4; p++)
      if (p < pixels)
        _mm_mask_storeu_epi8(to + p * step, n < 16 ? (__mmask16)((1u << n) - 1) : 0xffff, part[p]);
}
#else
INLINE vq some_bytes(const uint8_t *p, int64_t n) {
  if (n >= QBYTES) return vq_load(p);
  if (n % 8 == 0) {  // as most numbers of channels are: no copy through memory
    const __m128i none = _mm_setzero_si128(), *from = (const __m128i *)p;
    const __m128i low = n >= 16 ? _mm_loadu_si128(from) : _mm_loadl_epi64(from);
    return _mm256_set_m128i(n == 24 ? _mm_loadl_epi64(from + 1) : none, low);
  }
  uint8_t bytes[QBYTES] = {0};
  memcpy(bytes, p, (size_t)n);
  return vq_load(bytes);
}
INLINE vq by_fours(vq x) {
  return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}
INLINE void put_four(uint8_t *to, int64_t step, int64_t n, int pixels, vq bytes) {
  uint64_t part[4];
  vq_store(part, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  if (n >= 8 && pixels >= 4)
    FOR_UNROLLED (16, int p = 0; p < 4; p++) memcpy(to + p * step, &part[p], 8);
  else
    for (int p = 0; p < 4 && p < pixels; p++)
      memcpy(to + p * step, &part[p], n < 8 ? (size_t)n : 8);
}
#endif

// Interleaves four vectors of bytes: a 32-bit lane of the results holds one byte of each. Within
// 128 bits, lane i of vector v comes from bytes 4 * v + i.
INLINE void interleave(vq a, vq b, vq c, vq d, vq *to) {
  const vq ab = vq_unpacklo8(a, b), cd = vq_unpacklo8(c, d), ab2 = vq_unpackhi8(a, b),
           cd2 = vq_unpackhi8(c, d);
  to[0] = vq_unpacklo16(ab, cd);
  to[1] = vq_unpackhi16(ab, cd);
  to[2] = vq_unpacklo16(ab2, cd2);
  to[3] = vq_unpackhi16(ab2, cd2);
}

// ---- interleaving of lines ----------------------------------------------------------------------
// Writes n places, each with LANES vectors of `bytes` channels. WHOLE: all QBYTES channels exist.
INLINE void interleave_some(const four_lines *t, int64_t n, int64_t bytes, int64_t block, int flip_,
                            uint8_t *to, const int LANES, const int WHOLE) {
  const vq flip = vq_set((int32_t)(flip_ * 0x01010101u));
  const uint8_t *a = t->from[0], *b = t->from[1], *c = t->from[2], *d = t->from[3];
  for (int64_t i = 0; i < n; i++, to += ITG_QPLACE) {
    vq x[4], lanes[4];
#define GET(p) by_fours(vq_xor(WHOLE ? vq_load(p) : some_bytes(p, bytes), flip))
    x[0] = GET(a), x[1] = GET(b), x[2] = GET(c), x[3] = GET(d);
#undef GET
    a += t->step[0], b += t->step[1], c += t->step[2], d += t->step[3];
    interleave(x[0], x[1], x[2], x[3], lanes);
    FOR_UNROLLED (16, int v = 0; v < LANES; v++)
      vq_store_halves(to + v / HALVES * block + v % HALVES * (QL * 4), lanes[v]);
  }
}

// Writes n places of channels [c, c + channels); `block` bytes separate two blocks of 16 channels.
static void interleave_lines(const four_lines *all, int64_t c, int64_t channels, int64_t n,
                             int64_t block, int flip, uint8_t *to) {
  for (; channels > 0; c += QBYTES, channels -= QBYTES, to += BLOCKS * block) {
    four_lines t = *all;
    for (int i = 0; i < 4; i++) t.from[i] += t.step[i] ? c : 0;
    const int64_t lanes = (channels + QL - 1) / QL;
    if (channels >= QBYTES) interleave_some(&t, n, QBYTES, block, flip, to, 4, 1);
    else if (lanes <= 1) interleave_some(&t, n, channels, block, flip, to, 1, 0);
    else if (lanes <= 2) interleave_some(&t, n, channels, block, flip, to, 2, 0);
    else if (lanes <= 3) interleave_some(&t, n, channels, block, flip, to, 3, 0);
    else interleave_some(&t, n, channels, block, flip, to, 4, 0);
  }
}

// Writes places [0, n) from pixels first + i of the four lines row[k]. Pixels outside the image are
// padding.
static void interleave_padded(const task *t, const uint8_t *const *row, int64_t first, int64_t n,
                              int64_t c, int64_t channels, uint8_t *to) {
  const int64_t width = t->d->w.in[2], pitch = t->d->channels, block = t->d->columns * ITG_QPLACE;
  uint8_t fill[QBYTES];
  memset(fill, t->fill, sizeof fill);
  int64_t begin = first < 0 ? -first : 0, end = width - first;
  end = end < 0 ? 0 : end > n ? n : end;
  begin = begin > end ? end : begin;
  for (int64_t i = 0; i < n;) {
    const bool inside = i >= begin && i < end;
    four_lines th;
    for (int k = 0; k < 4; k++) {
      const int64_t x = first + i;
      const bool there = row[k] && x >= 0 && x < width;
      th.from[k] = there ? row[k] + x * pitch : fill;
      th.step[k] = there ? pitch : 0;
    }
    interleave_lines(&th, c, channels, inside ? end - i : 1, block, t->flip, to + i * ITG_QPLACE);
    i = inside ? end : i + 1;
  }
}
