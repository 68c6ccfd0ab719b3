// Vectors for 8-bit kernels: QL lanes of 32 bits, QBYTES bytes. As operands of a product, a lane
// holds four bytes that are neighbours along k: four inputs (u8) or four weights (i8). As a sum, a
// lane holds one i32. vq_dot adds the four products of each lane to that sum. With VNNI this is
// vpdpbusd; otherwise the bytes are widened to 16 bits and multiplied in pairs (vpmaddwd). Neither
// saturates.
#pragma once
#include <stdbool.h>
#include <string.h>

#include "requantize.h"
#include "vec.h"

#if defined(ISA_neon)
#include "qvec_neon.h"
#elif defined(ISA_avx512) || defined(ISA_avx2)
#define ITG_QVECTORS
enum { VQ_LESS = 0 };  // what inputs as u8 are more than in products
#if defined(ISA_avx512)
typedef __m512i vq;
enum { QL = 16, QBYTES = 64 };
#define vq_load(p) _mm512_loadu_si512(p)
#define vq_store(p, v) _mm512_storeu_si512(p, v)
#define vq_set(x) _mm512_set1_epi32(x)
#define vq_set16(x) _mm512_set1_epi16(x)
#define vq_xor _mm512_xor_si512
#define vq_and _mm512_and_si512
#define vq_add _mm512_add_epi32
#define vq_add16 _mm512_add_epi16
#define vq_mul _mm512_mullo_epi32
#define vq_adds16 _mm512_adds_epi16
#define vq_packs32 _mm512_packs_epi32
#define vq_packus16 _mm512_packus_epi16
#define vq_unpacklo8 _mm512_unpacklo_epi8
#define vq_unpackhi8 _mm512_unpackhi_epi8
#define vq_unpacklo16 _mm512_unpacklo_epi16
#define vq_unpackhi16 _mm512_unpackhi_epi16
#define vq_unpacklo32 _mm512_unpacklo_epi32
#define vq_unpackhi32 _mm512_unpackhi_epi32
#define vq_unpacklo64 _mm512_unpacklo_epi64
#define vq_unpackhi64 _mm512_unpackhi_epi64
#else
typedef __m256i vq;
enum { QL = 8, QBYTES = 32 };
#define vq_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define vq_store(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define vq_set(x) _mm256_set1_epi32(x)
#define vq_set16(x) _mm256_set1_epi16(x)
#define vq_xor _mm256_xor_si256
#define vq_and _mm256_and_si256
#define vq_add _mm256_add_epi32
#define vq_add16 _mm256_add_epi16
#define vq_mul _mm256_mullo_epi32
#define vq_adds16 _mm256_adds_epi16
#define vq_packs32 _mm256_packs_epi32
#define vq_packus16 _mm256_packus_epi16
#define vq_unpacklo8 _mm256_unpacklo_epi8
#define vq_unpackhi8 _mm256_unpackhi_epi8
#define vq_unpacklo16 _mm256_unpacklo_epi16
#define vq_unpackhi16 _mm256_unpackhi_epi16
#endif

// Stores a vector as two halves of 32 bytes: a 64-byte store would occupy a port that the products
// need, two 32-byte stores do not.
INLINE void vq_store_halves(void *p, vq v) {
#if defined(ISA_avx512)
  __m256i high;
  __asm__("vextracti64x4 $1, %1, %0"
          : "=v"(high)
          : "v"(v));  // with the intrinsic GCC would merge the two stores
  _mm256_storeu_si256(p, _mm512_castsi512_si256(v));
  _mm256_storeu_si256((__m256i *)p + 1, high);
#else
  vq_store(p, v);
#endif
}

// Weights and inputs in the form that vq_dot takes. Each is converted once and then used in many
// products.
#if defined(ISA_avx512vnni)
typedef vq vq_four;
INLINE vq_four vq_weights(vq w) {
  __asm__("" : "+v"(w));  // keeps it in a register; GCC would load it again for every product
  return w;
}
INLINE vq_four vq_inputs(vq x) { return x; }
INLINE vq vq_dot(vq sum, vq_four x,
                 vq_four w) {  // assembly, because with the intrinsic GCC 12 spills the sums
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  return sum;
}
INLINE vq vq_dot_half(vq sum, vq_four x,
                      vq_four w) {  // of the first eight lanes; the last eight become zero
  __asm__("vpdpbusd %t2, %t1, %t0" : "+v"(sum) : "v"(x), "v"(w));
  return sum;
}
#else
#define vq_dot_half vq_dot
typedef struct vq_four {
  vq even, odd;  // bytes 0 and 2, bytes 1 and 3, as 16-bit numbers
} vq_four;
#if defined(ISA_avx512)
INLINE vq_four vq_weights(vq w) {
  return (vq_four){_mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8), _mm512_srai_epi16(w, 8)};
}
INLINE vq_four vq_inputs(vq x) {
  return (vq_four){vq_and(x, vq_set16(0xff)), _mm512_srli_epi16(x, 8)};
}
INLINE vq vq_dot(vq sum, vq_four x, vq_four w) {
  return _mm512_add_epi32(
      sum, _mm512_add_epi32(_mm512_madd_epi16(x.even, w.even), _mm512_madd_epi16(x.odd, w.odd)));
}
#else
INLINE vq_four vq_weights(vq w) {
  return (vq_four){_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), _mm256_srai_epi16(w, 8)};
}
INLINE vq_four vq_inputs(vq x) {
  return (vq_four){vq_and(x, vq_set16(0xff)), _mm256_srli_epi16(x, 8)};
}
INLINE vq vq_dot(vq sum, vq_four x, vq_four w) {
  return _mm256_add_epi32(
      sum, _mm256_add_epi32(_mm256_madd_epi16(x.even, w.even), _mm256_madd_epi16(x.odd, w.odd)));
}
#endif
#endif

INLINE vf vq_floats(vq sum) {
#if defined(ISA_avx512)
  return _mm512_cvtepi32_ps(sum);
#else
  return _mm256_cvtepi32_ps(sum);
#endif
}

INLINE vq vq_rounded(vf y) {
#if defined(ISA_avx512)
  return _mm512_cvtps_epi32(y);
#else
  return _mm256_cvtps_epi32(y);
#endif
}

typedef struct vq_end {  // the epilogue of a call, in registers
  vf lo, hi;
  vq zero, high;
} vq_end;

INLINE vq_end vq_end_of(const itg_requantize *q) {
  return (vq_end){vset(q->lo), vset(q->hi), vq_set(q->zero + q->high),
                  vq_set((int32_t)(q->high * 0x01010101u))};
}

// Narrows n (at most four) vectors of scaled sums to one vector of bytes. Each 128-bit lane holds 4
// bytes of y[0], then 4 of y[1], y[2] and y[3].
INLINE vq vq_narrow(const vf *y, const int n, vq_end end) {
  const vq a = vq_add(vq_rounded(y[0]), end.zero),
           b = n > 1 ? vq_add(vq_rounded(y[1]), end.zero) : a;
  const vq c = n > 2 ? vq_add(vq_rounded(y[2]), end.zero) : a,
           d = n > 3 ? vq_add(vq_rounded(y[3]), end.zero) : c;
  return vq_xor(vq_packus16(vq_packs32(a, b), n > 2 ? vq_packs32(c, d) : vq_packs32(a, b)),
                end.high);
}

// Scales four vectors of sums and narrows them to bytes, in the order of vq_narrow.
INLINE vq vq_bytes(vq a, vq b, vq c, vq d, const vf *scale, const bool saturates, vq_end end) {
  vf y[4] = {vmul(vq_floats(a), scale[0]), vmul(vq_floats(b), scale[1]),
             vmul(vq_floats(c), scale[2]), vmul(vq_floats(d), scale[3])};
  if (!saturates)
    FOR_UNROLLED (16, int i = 0; i < 4; i++) y[i] = vmin(vmax(y[i], end.lo), end.hi);
  return vq_narrow(y, 4, end);
}

// Reorders the bytes of vq_narrow: all QL bytes of y[0] first, then those of y[1], y[2] and y[3].
INLINE vq vq_in_order(vq bytes) {
#if defined(ISA_avx512)
  const vq order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, bytes);
#else
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
}

// Loads a residual of bytes and dequantises it. `some` is the mask of the bytes to read, with AVX2
// their number.
#if defined(ISA_avx512)
INLINE vf vq_residual(const itg_requantize *q, const uint8_t *from, __mmask16 some) {
  const __m128i bytes =
      _mm_xor_si128(_mm_maskz_loadu_epi8(some, from), _mm_set1_epi8((char)q->r_high));
  return vmul(vq_floats(_mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), vq_set(q->r_zero))),
              vset(q->r_scale));
}
#else
INLINE vf vq_residual(const itg_requantize *q, const uint8_t *from, int64_t some) {
  uint64_t eight = 0;
  memcpy(&eight, from, (size_t)some);
  const __m128i bytes =
      _mm_xor_si128(_mm_cvtsi64_si128((long long)eight), _mm_set1_epi8((char)q->r_high));
  return vmul(vq_floats(_mm256_sub_epi32(_mm256_cvtepu8_epi32(bytes), vq_set(q->r_zero))),
              vset(q->r_scale));
}
#endif

// Lookup in tables, in registers with VBMI. vq_of_128 and vq_of_256 map each byte of `at` to its
// entry in a table of 128 or 256 bytes.
#if defined(__AVX512VBMI__)
INLINE vq vq_of_128(const uint8_t *table, vq at) {
  return _mm512_permutex2var_epi8(vq_load(table), at, vq_load(table + 64));
}

INLINE vq vq_of_256(const uint8_t *table, vq at) {
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), vq_of_128(table, at),
                                vq_of_128(table + 128, at));
}

// Evaluates (start + rise * number) >> 7 and narrows it to bytes in the order of vq_narrow. `left`
// and `right` hold the 16-bit numbers, `rise` one byte for each of them, and `low` and `high` the
// lower and upper bytes of `start`.
INLINE vq vq_evaluate_lines(vq left, vq right, vq rise, vq low, vq high) {
  // Unpacking undoes packing, so each rise stands at the lower byte of its number. A zero stands at
  // the upper byte: only the lower byte is multiplied (itg_q_move_lines).
  const vq none = vq_set(0);
  left = _mm512_maddubs_epi16(left, vq_unpacklo8(rise, none));
  right = _mm512_maddubs_epi16(right, vq_unpackhi8(rise, none));
  left = _mm512_srai_epi16(_mm512_add_epi16(left, vq_unpacklo8(low, high)), 7);
  right = _mm512_srai_epi16(_mm512_add_epi16(right, vq_unpackhi8(low, high)), 7);
  return _mm512_packs_epi16(left, right);
}

// The piece that each 16-bit number falls into, as bytes.
INLINE vq vq_pieces_of(vq left, vq right, const itg_requantize *q) {
  const __m128i shift = _mm_cvtsi32_si128(q->shift);
  return vq_packus16(_mm512_srl_epi16(left, shift), _mm512_srl_epi16(right, shift));
}

INLINE vq vq_on_128_lines(vq left, vq right, const itg_requantize *q) {
  const vq at = vq_pieces_of(left, right, q);
  return vq_evaluate_lines(left, right, vq_of_128(q->table, at), vq_of_128(q->table + 128, at),
                           vq_of_128(q->table + 256, at));
}

// Piecewise linear table, results in the order of vq_narrow.
INLINE vq vq_on_lines_unordered(vq left, vq right, const itg_requantize *q) {
  vq bytes;
  if (q->pieces == 128) {
    bytes = vq_on_128_lines(left, right, q);
  } else {
    const vq at = vq_pieces_of(left, right, q);
    bytes = vq_evaluate_lines(left, right, vq_of_256(q->table, at), vq_of_256(q->table + 256, at),
                              vq_of_256(q->table + 512, at));
  }
  return q->flip ? vq_xor(bytes, vq_set((int32_t)0x80808080)) : bytes;
}

INLINE vq vq_on_lines(vq left, vq right, const itg_requantize *q) {
  return vq_in_order(vq_on_lines_unordered(left, right, q));
}

// Whether the bounds are applied to 16-bit numbers (vq_pack_numbers) instead of floats. Scaled sums
// must fit 32 bits for that.
INLINE bool vq_bounds_later(const itg_requantize *q) {
  return q->small && (q->entries > 256 || q->pieces);
}

// Packs two of n vectors of numbers to 16 bits, at most `most`: the first two, or with RIGHT the
// last two.
INLINE vq vq_pack_numbers(const vq *y, const int n, vq most, const int RIGHT) {
  const int first = RIGHT && n > 2 ? 2 : 0;
  return _mm512_min_epu16(_mm512_packus_epi32(y[first], y[first + 1 < n ? first + 1 : first]),
                          most);
}

// Looks up n (at most four) vectors of numbers in a table of more than 256 entries or of lines; the
// bytes of y[0] come first, then those of y[1], y[2] and y[3].
INLINE vq vq_lookup_wide(const vq *y, const int n, const itg_requantize *q) {
  const vq most = vq_set16((short)(q->entries - 1));
  const vq left = vq_pack_numbers(y, n, most, 0), right = vq_pack_numbers(y, n, most, 1);
  if (q->pieces) return vq_on_lines(left, right, q);
  const vq few = vq_set16(127);
  const vq low = vq_in_order(vq_packus16(vq_and(left, few), vq_and(right, few)));
  const vq high = vq_in_order(vq_packus16(_mm512_srli_epi16(left, 7), _mm512_srli_epi16(right, 7)));
  vq found = vq_of_128(q->table, low);
  for (int64_t i = 1; i * 128 < q->entries; i++)
    found = _mm512_mask_mov_epi8(found, _mm512_cmpeq_epi8_mask(high, _mm512_set1_epi8((char)i)),
                                 vq_of_128(q->table + i * 128, low));
  return found;
}
#else
INLINE bool vq_bounds_later(const itg_requantize *q) {
  (void)q;
  return false;
}

INLINE vq vq_lookup_wide(const vq *y, const int n, const itg_requantize *q) {
  int32_t all[4 * QL];
  uint8_t found[4 * QL] = {0};
  FOR_UNROLLED (16, int i = 0; i < n; i++) vq_store(all + i * QL, y[i]);
  if (q->pieces)
    for (int i = 0; i < n * QL; i++) found[i] = itg_q_on_line(q, all[i]);
  else
    for (int i = 0; i < n * QL; i++) found[i] = q->table[all[i]];
  return vq_load(found);
}
#endif

// table[byte] for every byte, with 256 entries.
INLINE vq vq_lookup(vq bytes, const uint8_t *table) {
#if defined(__AVX512VBMI__)
  const vq low = _mm512_permutex2var_epi8(vq_load(table), bytes, vq_load(table + 64));
  const vq high = _mm512_permutex2var_epi8(vq_load(table + 128), bytes, vq_load(table + 192));
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high);
#elif defined(ISA_avx512)  // permutes 16-bit pairs of entries; the lowest bit of a byte selects one
  const vq t[4] = {vq_load(table), vq_load(table + 64), vq_load(table + 128), vq_load(table + 192)};
  vq found[2];
  FOR_UNROLLED (16, int odd = 0; odd < 2; odd++) {
    const vq byte = odd ? _mm512_srli_epi16(bytes, 8) : vq_and(bytes, vq_set16(0xff));
    const vq pair = _mm512_srli_epi16(byte, 1);
    const __mmask32 upper = _mm512_test_epi16_mask(byte, vq_set16(0x80));
    const vq both = _mm512_mask_blend_epi16(upper, _mm512_permutex2var_epi16(t[0], pair, t[1]),
                                            _mm512_permutex2var_epi16(t[2], pair, t[3]));
    const vq shift = _mm512_slli_epi16(vq_and(byte, vq_set16(1)), 3);
    found[odd] = _mm512_srlv_epi16(both, shift);
  }
  return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, found[0], _mm512_slli_epi16(found[1], 8));
#else
  uint8_t all[QBYTES];
  vq_store(all, bytes);
  for (int i = 0; i < QBYTES; i++) all[i] = table[all[i]];
  return vq_load(all);
#endif
}
#else
enum { VQ_LESS = 0 };
#endif
