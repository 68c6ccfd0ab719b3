// SHA-256 by the instructions of x86-64 (SHA) and ARMv8 (SHA2), for data of at least MIN_BLOCKS
// blocks: to ask the CPU for them takes longer than a few blocks do, where the program runs in a
// virtual machine.
#include "crypto.h"

enum { MIN_BLOCKS = 16 };

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define FAST __attribute__((target("sha,sse4.1")))

static bool is_fast(void) {  // older compilers do not know "sha" as a feature to ask for
  unsigned a, b, c, d;
  return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
         (b >> 29 & 1);
}

// The instructions want the state as two registers, a b e f and c d g h, highest word first.
FAST static void add_blocks(uint32_t state[8], const uint32_t constants[64], const uint8_t *data,
                            size_t blocks) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i *from = (const void *)state, *k = (const void *)constants;
  __m128i dcba = _mm_loadu_si128(from), hgfe = _mm_loadu_si128(from + 1);
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks; blocks--, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; i++)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(data + 16 * i)), order);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {  // four rounds each
      const __m128i now = w[i % 4], sum = _mm_add_epi32(now, _mm_loadu_si128(k + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i < 12) {  // the words of four rounds, four groups later
        const __m128i w1 = w[(i + 1) % 4], w2 = w[(i + 2) % 4], w3 = w[(i + 3) % 4];
        const __m128i early =
            _mm_add_epi32(_mm_sha256msg1_epu32(now, w1), _mm_alignr_epi8(w3, w2, 4));
        w[i % 4] = _mm_sha256msg2_epu32(early, w3);
      }
    }
    abef = _mm_add_epi32(abef, abef_before), cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  dcba = _mm_blend_epi16(feba, dchg, 0xf0), hgfe = _mm_alignr_epi8(dchg, feba, 8);
  _mm_storeu_si128((void *)state, dcba);
  _mm_storeu_si128((void *)(state + 4), hgfe);
}

#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>
#include <sys/auxv.h>
#define FAST __attribute__((target("+crypto")))

static bool is_fast(void) { return getauxval(AT_HWCAP) & 1 << 6; }  // HWCAP_SHA2

FAST static void add_blocks(uint32_t state[8], const uint32_t constants[64], const uint8_t *data,
                            size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; blocks; blocks--, data += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; i++) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {  // four rounds each
      const uint32x4_t sum = vaddq_u32(w[i % 4], vld1q_u32(constants + 4 * i)), abcd_now = abcd;
      if (i < 12)  // the words of four rounds, four groups later
        w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]), w[(i + 2) % 4],
                                   w[(i + 3) % 4]);
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, abcd_now, sum);
    }
    abcd = vaddq_u32(abcd, abcd_before), efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#else
static bool is_fast(void) { return false; }
static void add_blocks(uint32_t state[8], const uint32_t constants[64], const uint8_t *data,
                       size_t blocks) {}
#endif

bool itg_sha256_blocks_fast(uint32_t state[8], const uint32_t constants[64], const uint8_t *data,
                            size_t blocks) {
  if (blocks < MIN_BLOCKS || !is_fast()) return false;
  add_blocks(state, constants, data, blocks);
  return true;
}
