// lookup: y = table[x] for bytes, with 256 entries. lookup_wide: the same for i16; the table covers
// a part of the range, and numbers outside it take the first or last entry.
#include "infer.h"
#include "vec.h"

// Scalar loads, because they are faster than the gathers that GCC would generate.
#define ONE_BY_ONE(name, type)                                                   \
  __attribute__((noinline, optimize("no-tree-vectorize"))) static void name(     \
      const uint8_t *x, const void *table, int64_t i, int64_t n, void *y) {      \
    const type *t = (const type *)table;                                         \
    type *to = (type *)y;                                                        \
    for (; i + 4 <= n; i += 4) {                                                 \
      const type a = t[x[i]], b = t[x[i + 1]], c = t[x[i + 2]], d = t[x[i + 3]]; \
      to[i] = a, to[i + 1] = b, to[i + 2] = c, to[i + 3] = d;                    \
    }                                                                            \
    for (; i < n; i++) to[i] = t[x[i]];                                          \
  }
#if !defined(ISA_avx512vbmi)
ONE_BY_ONE(each_8, uint8_t)
#endif
ONE_BY_ONE(each_16, uint16_t)
ONE_BY_ONE(each_32, uint32_t)
ONE_BY_ONE(each_64, uint64_t)

#if defined(ISA_avx512vbmi)
// A table of 256 bytes in four registers.
typedef struct whole {
  __m512i part[4];
} whole;

static inline whole load_whole(const uint8_t *table) {
  whole w;
  for (int i = 0; i < 4; i++) w.part[i] = _mm512_loadu_si512(table + 64 * i);
  return w;
}
static inline __m512i find(const whole *w, __m512i x) {
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x),
                                _mm512_permutex2var_epi8(w->part[0], x, w->part[1]),
                                _mm512_permutex2var_epi8(w->part[2], x, w->part[3]));
}

static void bytes(const uint8_t *x, const uint8_t *table, int64_t n, uint8_t *y) {
  const whole w = load_whole(table);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) _mm512_storeu_si512(y + i, find(&w, _mm512_loadu_si512(x + i)));
  if (i == n) return;
  const __mmask64 rest = ((__mmask64)1 << (n - i)) - 1;
  _mm512_mask_storeu_epi8(y + i, rest, find(&w, _mm512_maskz_loadu_epi8(rest, x + i)));
}

enum { FEW = 1024 };  // elements below which splitting a table of 4-byte entries does not pay

// Looks up entries of four bytes: splits the table into four tables of bytes, looks up each, and
// interleaves the results. Returns how many elements are done.
static int64_t words(const uint8_t *x, const uint8_t *table, int64_t n, uint8_t *y) {
  if (n < FEW) return 0;
  uint8_t split[4][256];
  for (int e = 0; e < 256; e++)
    for (int b = 0; b < 4; b++) split[b][e] = table[4 * e + b];
  whole w[4];
  for (int b = 0; b < 4; b++) w[b] = load_whole(split[b]);
  // reorders the input, so that a register holds neighbours after unpacking
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i at = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(x + i));
    const __m512i a = find(&w[0], at), b = find(&w[1], at), c = find(&w[2], at),
                  d = find(&w[3], at);
    const __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
    const __m512i low2 = _mm512_unpacklo_epi8(c, d), high2 = _mm512_unpackhi_epi8(c, d);
    _mm512_storeu_si512(y + 4 * i, _mm512_unpacklo_epi16(low, low2));
    _mm512_storeu_si512(y + 4 * i + 64, _mm512_unpackhi_epi16(low, low2));
    _mm512_storeu_si512(y + 4 * i + 128, _mm512_unpacklo_epi16(high, high2));
    _mm512_storeu_si512(y + 4 * i + 192, _mm512_unpackhi_epi16(high, high2));
  }
  return i;
}
#else
#if defined(ISA_avx512)
// Looks up 16-bit indices x < 256: permutes 16-bit pairs of entries by x / 2 and selects one of the
// pair by x % 2.
static inline __m512i find(const __m512i *pairs, __m512i x) {
  const __m512i at = _mm512_srli_epi16(x, 1);
  const __mmask32 high = _mm512_test_epi16_mask(x, _mm512_set1_epi16(0x80));
  const __m512i pair =
      _mm512_mask_blend_epi16(high, _mm512_permutex2var_epi16(pairs[0], at, pairs[1]),
                              _mm512_permutex2var_epi16(pairs[2], at, pairs[3]));
  const __m512i shift = _mm512_and_si512(_mm512_slli_epi16(x, 3), _mm512_set1_epi16(8));
  return _mm512_and_si512(_mm512_srlv_epi16(pair, shift), _mm512_set1_epi16(0xff));
}

static int64_t many(const uint8_t *x, const uint8_t *table, int64_t n, uint8_t *y) {
  __m512i pairs[4];
  for (int i = 0; i < 4; i++) pairs[i] = _mm512_loadu_si512(table + 64 * i);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i v = _mm512_loadu_si512(x + i);
    const __m512i even = find(pairs, _mm512_and_si512(v, _mm512_set1_epi16(0xff)));
    const __m512i odd = find(pairs, _mm512_srli_epi16(v, 8));
    _mm512_storeu_si512(y + i, _mm512_or_si512(even, _mm512_slli_epi16(odd, 8)));
  }
  return i;
}
#elif defined(ISA_avx2)
// The table is split into two halves of eight tables of 16 entries. A shuffle gives 0 for a
// negative index and else uses its low four bits. step[k] is table k xor table k - 1 of its half.
// In step k the index is 16 * k smaller, so all indices that reach table k still take step[k], and
// the xor of these steps is the entry of the right table.
static int64_t many(const uint8_t *x, const uint8_t *table, int64_t n, uint8_t *y) {
  __m256i step[16];
  for (int i = 0; i < 16; i++) {
    const __m128i t = _mm_loadu_si128((const __m128i *)(table + 16 * i));
    const __m128i before =
        i % 8 ? _mm_loadu_si128((const __m128i *)(table + 16 * i - 16)) : _mm_setzero_si128();
    step[i] = _mm256_broadcastsi128_si256(_mm_xor_si128(t, before));
  }
  const __m256i less = _mm256_set1_epi8(16);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i low = _mm256_loadu_si256((const __m256i *)(x + i)),
            high = _mm256_xor_si256(low, _mm256_set1_epi8(-128));
    __m256i a = _mm256_shuffle_epi8(step[0], low), b = _mm256_shuffle_epi8(step[8], high);
    for (int k = 1; k < 8; k++) {
      low = _mm256_subs_epi8(low, less);
      high = _mm256_subs_epi8(high, less);
      a = _mm256_xor_si256(a, _mm256_shuffle_epi8(step[k], low));
      b = _mm256_xor_si256(b, _mm256_shuffle_epi8(step[8 + k], high));
    }
    _mm256_storeu_si256((__m256i *)(y + i), _mm256_xor_si256(a, b));
  }
  return i;
}
#else
static int64_t many(const uint8_t *x, const uint8_t *table, int64_t n, uint8_t *y) { return 0; }
#endif

static void bytes(const uint8_t *x, const uint8_t *table, int64_t n, uint8_t *y) {
  each_8(x, table, many(x, table, n, y), n, y);
}
static int64_t words(const uint8_t *x, const uint8_t *table, int64_t n, uint8_t *y) { return 0; }
#endif

ITG_FN(lookup, any) {
  const itg_tensor *out = call->out[0];
  int64_t from, end;
  itg_share(itg_count(out), 4096, part, parts, &from, &end);
  const int64_t n = end - from, item = (int64_t)itg_item(out->dtype);
  const uint8_t *x = (const uint8_t *)call->in[0]->data + from, *table = call->in[1]->data;
  uint8_t *y = (uint8_t *)out->data + from * item;
  if (n <= 0) return NULL;
  switch (item) {
    case 1: bytes(x, table, n, y); return NULL;
    case 2: each_16(x, table, 0, n, y); return NULL;
    case 4: each_32(x, table, words(x, table, n, y), n, y); return NULL;
    default: each_64(x, table, 0, n, y); return NULL;
  }
}

#if !defined(ISA_avx512vbmi)
ITG_FN(lookup_wide, any) {
  const itg_tensor *out = call->out[0], *table = call->in[1];
  const int64_t base = ((const itg_attrs_lookup_wide *)call->attrs)->base,
                last = table->shape[0] - 1;
  const int64_t item = (int64_t)itg_item(out->dtype);
  int64_t from, end;
  itg_share(itg_count(out), 4096, part, parts, &from, &end);
  const int16_t *x = (const int16_t *)call->in[0]->data;
  const uint8_t *entries = table->data;
  uint8_t *y = out->data;
  for (int64_t i = from; i < end; i++) {
    int64_t at = x[i] - base;
    at = at < 0 ? 0 : at > last ? last : at;
    if (item == 1) y[i] = entries[at];
    else memcpy(y + i * item, entries + at * item, (size_t)item);
  }
  return NULL;
}
#endif
