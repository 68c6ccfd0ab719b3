// CRC-32 as zlib computes it: by carry-less products where the CPU has them, else 16 bytes at a
// time from tables.
#include <string.h>

#include "runtime.h"

// These functions work on the complement of the checksum, so that pieces can be chained.
static uint32_t by_tables(uint32_t crc, const uint8_t *p, size_t size) {
  uint32_t t[16][256];  // on the stack, made anew: a few microseconds, and no global state
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    t[0][i] = c;
  }
  for (int k = 1; k < 16; k++)
    for (uint32_t i = 0; i < 256; i++) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
  for (; size >= 16; size -= 16, p += 16) {
    uint32_t w[4];
    memcpy(w, p, 16);
    w[0] ^= crc;
    crc = 0;
    for (int k = 0; k < 4; k++)
      crc ^= t[15 - 4 * k][w[k] & 255] ^ t[14 - 4 * k][w[k] >> 8 & 255] ^
             t[13 - 4 * k][w[k] >> 16 & 255] ^ t[12 - 4 * k][w[k] >> 24];
  }
  while (size--) crc = crc >> 8 ^ t[0][(crc ^ *p++) & 255];
  return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>
#define CARRYLESS __attribute__((target("pclmul,sse4.1")))

// x moved on by as many bits as the pair of powers `by` says, so that it may be added to what lies
// there.
CARRYLESS static inline __m128i moved(__m128i x, __m128i by) {
  return _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11));
}

// At least 64 bytes, a multiple of 16. The constants are powers of x modulo the polynomial, in
// reflected order; see "Fast CRC computation for generic polynomials using PCLMULQDQ" (Gopal et
// al., Intel, 2009).
CARRYLESS static uint32_t by_folding(uint32_t crc, const uint8_t *p, size_t size) {
  const __m128i over_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);  // 64 bytes on
  const __m128i over_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);   // 16 bytes on
  const __m128i *from = (const __m128i *)(const void *)p;
  __m128i x[4];
  for (int i = 0; i < 4; i++) x[i] = _mm_loadu_si128(from + i);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
  for (from += 4, size -= 64; size >= 64; from += 4, size -= 64)
    for (int i = 0; i < 4; i++)
      x[i] = _mm_xor_si128(moved(x[i], over_four), _mm_loadu_si128(from + i));
  for (int i = 1; i < 4; i++) x[i] = _mm_xor_si128(moved(x[i - 1], over_one), x[i]);
  for (; size >= 16; from++, size -= 16)
    x[3] = _mm_xor_si128(moved(x[3], over_one), _mm_loadu_si128(from));

  const __m128i low =
      _mm_setr_epi32(-1, 0, -1, 0);  // 128 bits to 64, then to 32 by Barrett's reduction
  __m128i y = _mm_xor_si128(_mm_srli_si128(x[3], 8), _mm_clmulepi64_si128(x[3], over_one, 0x10));
  const __m128i last = _mm_cvtsi64_si128(0x0163cd6124);
  y = _mm_xor_si128(_mm_srli_si128(y, 4), _mm_clmulepi64_si128(_mm_and_si128(y, low), last, 0x00));
  const __m128i divide = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  __m128i q = _mm_clmulepi64_si128(_mm_and_si128(y, low), divide, 0x10);
  q = _mm_clmulepi64_si128(_mm_and_si128(q, low), divide, 0x00);
  return (uint32_t)_mm_extract_epi32(_mm_xor_si128(y, q), 1);
}
#endif

uint32_t itg_crc32(uint32_t crc, const void *data, size_t size) {
  const uint8_t *p = data;
  crc = ~crc;
#if defined(__x86_64__)
  if (size >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    const size_t most = size & ~(size_t)15;
    crc = by_folding(crc, p, most);
    p += most;
    size -= most;
  }
#endif
  return ~(size ? by_tables(crc, p, size) : crc);
}
