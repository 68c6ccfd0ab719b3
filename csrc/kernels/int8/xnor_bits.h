// Signs as bits: packing those of an image, and counting differences. Included by xnor_conv.c.
//
// count_words adds popcount(x ^ w) of all words of a window to the sums of M pixels and V vectors
// of columns. VPOPCNTDQ counts words; other instruction sets count bytes, of which at most FLUSH
// are added before they are widened.
#pragma once
#include "xnor_conv.h"

typedef struct itg_signs {  // of a call: where a window's words lie, and their bits
  const int32_t *at;
  const uint32_t *masks;
  int64_t count;
} itg_signs;

// ---- packing ------------------------------------------------------------------------------------
static uint8_t eight_signs(const uint8_t *x, int64_t n, uint8_t flip, int8_t above) {
  unsigned bits = 0;
  for (int64_t i = 0; i < n; i++) bits |= (unsigned)((int8_t)(x[i] ^ flip) > above) << i;
  return (uint8_t)bits;
}

// Packs n bytes, a multiple of eight: bit i is whether byte i is above the bound. `flip` makes i8
// of them.
static void pack_signs(uint8_t *to, const uint8_t *x, int64_t n, uint8_t flip, int8_t above) {
  int64_t i = 0;
#if defined(ISA_avx512)
  for (; i + 64 <= n; i += 64) {
    const __m512i signs = _mm512_xor_si512(_mm512_loadu_si512(x + i), _mm512_set1_epi8((char)flip));
    const uint64_t bits = _mm512_cmpgt_epi8_mask(signs, _mm512_set1_epi8(above));
    memcpy(to + i / 8, &bits, 8);
  }
#elif defined(ISA_avx2)
  for (; i + 32 <= n; i += 32) {
    const __m256i signs = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(x + i)),
                                           _mm256_set1_epi8((char)flip));
    const int bits = _mm256_movemask_epi8(_mm256_cmpgt_epi8(signs, _mm256_set1_epi8(above)));
    memcpy(to + i / 8, &bits, 4);
  }
#elif defined(ISA_neon)
  static const uint8_t powers[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x8_t each = vld1_u8(powers);
  for (; i + 8 <= n; i += 8) {
    const int8x8_t signs = vreinterpret_s8_u8(veor_u8(vld1_u8(x + i), vdup_n_u8(flip)));
    uint8x8_t bits = vand_u8(vcgt_s8(signs, vdup_n_s8(above)), each);
    FOR_UNROLLED (3, int half = 0; half < 3; half++) bits = vpadd_u8(bits, bits);
    to[i / 8] = vget_lane_u8(bits, 0);
  }
#endif
  for (; i < n; i += 8) to[i / 8] = eight_signs(x + i, 8, flip, above);
}

// Packs n pixels of `deep` bytes; each begins at a byte.
static void pack_pixels(uint8_t *to, const uint8_t *x, int64_t n, int64_t deep, uint8_t flip,
                        int8_t above) {
  if (deep % 8 == 0) {
    pack_signs(to, x, n * deep, flip, above);
    return;
  }
  const int64_t whole = deep / 8 * 8;
  for (int64_t i = 0; i < n; i++, x += deep, to += whole / 8 + 1) {
    pack_signs(to, x, whole, flip, above);
    to[whole / 8] = eight_signs(x + whole, deep - whole, flip, above);
  }
}

INLINE uint32_t word_at(const uint8_t *p) {
  uint32_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

// ---- counting -----------------------------------------------------------------------------------
#if defined(ITG_QVECTORS) || defined(ISA_neon)
#if defined(__AVX512VPOPCNTDQ__)
enum { FLUSH = 1 << 30 };
#define xnor_count _mm512_popcnt_epi32
#define xnor_add _mm512_add_epi32
#define xnor_widen(v) (v)
#elif defined(ISA_avx512) || defined(ISA_avx2)
enum { FLUSH = 31 };  // of at most eight bits per byte
#if defined(ISA_avx512)
#define xnor_add _mm512_add_epi8
#define OF_256(op) _mm512_##op
#define NIBBLES _mm512_broadcast_i32x4(
#else
#define xnor_add _mm256_add_epi8
#define OF_256(op) _mm256_##op
#define NIBBLES _mm256_broadcastsi128_si256(
#endif
INLINE vq xnor_count(vq v) {
  const vq counts = NIBBLES _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const vq low = vq_set(0x0f0f0f0f);
  return xnor_add(OF_256(shuffle_epi8)(counts, vq_and(v, low)),
                  OF_256(shuffle_epi8)(counts, vq_and(OF_256(srli_epi16)(v, 4), low)));
}
INLINE vq xnor_widen(vq v) {
  return OF_256(madd_epi16)(OF_256(maddubs_epi16)(v, vq_set(0x01010101)), vq_set16(1));
}
#undef NIBBLES
#undef OF_256
#else
enum { FLUSH = 31, VECTORS = ITG_PANEL / QL };
INLINE vq xnor_count(vq v) { return vreinterpretq_u32_u8(vcntq_u8(vreinterpretq_u8_u32(v))); }
INLINE vq xnor_add(vq a, vq b) {
  return vreinterpretq_u32_u8(vaddq_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b)));
}
INLINE vq xnor_widen(vq v) { return vpaddlq_u16(vpaddlq_u8(vreinterpretq_u8_u32(v))); }
#endif

#if defined(ISA_avx512)
#define xnor_masked(a, b, mask) _mm512_ternarylogic_epi32(a, b, mask, 0x28)
#else
#define xnor_masked(a, b, mask) vq_and(vq_xor(a, b), mask)
#endif

INLINE void count_words(const int M, const int V, const int MASKED, const itg_signs *s,
                        const uint32_t *w, const itg_qrow *rows, vq (*sum)[VECTORS]) {
  const uint8_t *x[ITG_XNOR_ROWS];
  const int EACH = ITG_PANEL / QL;
  FOR_UNROLLED (16, int m = 0; m < M; m++) {
    x[m] = rows[m].x;
    FOR_UNROLLED (16, int v = 0; v < V; v++) sum[m][v] = vq_set(0);
  }
  for (int64_t k = 0; k < s->count;) {
    const int64_t stop = s->count - k < FLUSH ? s->count : k + FLUSH;
    vq few[ITG_XNOR_ROWS][VECTORS];
    FOR_UNROLLED (16, int m = 0; m < M; m++)
      FOR_UNROLLED (16, int v = 0; v < V; v++) few[m][v] = vq_set(0);
    for (; k < stop; k++) {
      vq y[VECTORS];
      FOR_UNROLLED (16, int v = 0; v < V; v++)
        y[v] = vq_load(w + (v / EACH * s->count + k) * ITG_PANEL + v % EACH * QL);
      const int64_t at = s->at[k];
      const vq mask = vq_set((int32_t)(MASKED ? s->masks[k] : 0));
      FOR_UNROLLED (16, int m = 0; m < M; m++) {
        const vq in = vq_set((int32_t)word_at(x[m] + at));
        FOR_UNROLLED (16, int v = 0; v < V; v++) {
          const vq differ = MASKED ? xnor_masked(in, y[v], mask) : vq_xor(in, y[v]);
          few[m][v] = xnor_add(few[m][v], xnor_count(differ));
        }
      }
    }
    FOR_UNROLLED (16, int m = 0; m < M; m++)
      FOR_UNROLLED (16, int v = 0; v < V; v++) sum[m][v] = vq_add(sum[m][v], xnor_widen(few[m][v]));
  }
}
#else
// The same for one pixel and one panel.
static void count_words(const itg_signs *s, const uint32_t *w, const uint8_t *x, uint32_t *sum) {
  enum { FLUSH = 31 };
  for (int c = 0; c < ITG_PANEL; c++) sum[c] = 0;
  for (int64_t k = 0; k < s->count;) {
    const int64_t stop = s->count - k < FLUSH ? s->count : k + FLUSH;
    uint32_t few[ITG_PANEL] = {0};
    for (; k < stop; k++, w += ITG_PANEL) {
      const uint32_t in = word_at(x + s->at[k]), mask = s->masks[k];
      for (int c = 0; c < ITG_PANEL; c++) {
        uint32_t v = (in ^ w[c]) & mask;
        v -= v >> 1 & 0x55555555;
        v = (v & 0x33333333) + (v >> 2 & 0x33333333);
        few[c] += (v + (v >> 4)) & 0x0f0f0f0f;
      }
    }
    for (int c = 0; c < ITG_PANEL; c++) {
      const uint32_t pairs = (few[c] & 0x00ff00ff) + (few[c] >> 8 & 0x00ff00ff);
      sum[c] += (pairs & 0xffff) + (pairs >> 16);
    }
  }
}
#endif
