// AES-256-GCM by the instructions for AES and carry-less products of x86-64 and ARMv8, eight blocks
// at a time. gcm.c explains the arithmetic of the hash.
#include <string.h>

#include "../attributes.h"
#include "crypto.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define FAST __attribute__((target("aes,pclmul,sse4.1")))
#define FAST_INLINE FAST static inline __attribute__((always_inline))

typedef __m128i block;

bool itg_gcm_is_fast(void) {
  return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("sse4.1");
}

FAST_INLINE block load(const void *p) { return _mm_loadu_si128(p); }
FAST_INLINE void store(void *p, block x) { _mm_storeu_si128(p, x); }
FAST_INLINE block add(block a, block b) { return _mm_xor_si128(a, b); }
FAST_INLINE block zero(void) { return _mm_setzero_si128(); }
FAST_INLINE block reverse_bytes(block x) {
  return _mm_shuffle_epi8(x, _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}
FAST_INLINE block swap_halves(block x) { return _mm_shuffle_epi32(x, 0x4e); }
FAST_INLINE block low_by_low(block a, block b) { return _mm_clmulepi64_si128(a, b, 0x00); }
FAST_INLINE block high_by_high(block a, block b) { return _mm_clmulepi64_si128(a, b, 0x11); }
FAST_INLINE block with_counter(block x, uint32_t n) {
  return _mm_insert_epi32(x, (int)__builtin_bswap32(n), 3);
}
// Afterwards the compiler cannot read x from memory a second time.
FAST_INLINE block once(block x) {
  __asm__("" : "+x"(x));
  return x;
}

FAST_INLINE void aes(block *x, int n, const uint8_t *keys) {
  block key = load(keys);
  FOR_UNROLLED (8, int i = 0; i < n; i++) x[i] = add(x[i], key);
  for (int round = 1; round < ITG_AES_ROUNDS; round++) {
    key = load(keys + round * ITG_AES_BLOCK);
    FOR_UNROLLED (8, int i = 0; i < n; i++) x[i] = _mm_aesenc_si128(x[i], key);
  }
  key = load(keys + ITG_AES_ROUNDS * ITG_AES_BLOCK);
  FOR_UNROLLED (8, int i = 0; i < n; i++) x[i] = _mm_aesenclast_si128(x[i], key);
}

#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>
#include <sys/auxv.h>
#define FAST __attribute__((target("+crypto")))
#define FAST_INLINE FAST static inline __attribute__((always_inline))

typedef uint8x16_t block;

bool itg_gcm_is_fast(void) {
  const unsigned long aes = 1 << 3, pmull = 1 << 4;  // HWCAP_AES, HWCAP_PMULL
  return (getauxval(AT_HWCAP) & (aes | pmull)) == (aes | pmull);
}

FAST_INLINE block load(const void *p) { return vld1q_u8(p); }
FAST_INLINE void store(void *p, block x) { vst1q_u8(p, x); }
FAST_INLINE block add(block a, block b) { return veorq_u8(a, b); }
FAST_INLINE block zero(void) { return vdupq_n_u8(0); }
FAST_INLINE block swap_halves(block x) { return vextq_u8(x, x, 8); }
FAST_INLINE block reverse_bytes(block x) { return swap_halves(vrev64q_u8(x)); }
FAST_INLINE block low_by_low(block a, block b) {
  return vreinterpretq_u8_p128(vmull_p64((poly64_t)vgetq_lane_u64(vreinterpretq_u64_u8(a), 0),
                                         (poly64_t)vgetq_lane_u64(vreinterpretq_u64_u8(b), 0)));
}
FAST_INLINE block high_by_high(block a, block b) {
  return vreinterpretq_u8_p128(vmull_high_p64(vreinterpretq_p64_u8(a), vreinterpretq_p64_u8(b)));
}
FAST_INLINE block with_counter(block x, uint32_t n) {
  return vreinterpretq_u8_u32(vsetq_lane_u32(__builtin_bswap32(n), vreinterpretq_u32_u8(x), 3));
}
FAST_INLINE block once(block x) {
  __asm__("" : "+w"(x));
  return x;
}

FAST_INLINE void aes(block *x, int n, const uint8_t *keys) {
  for (int round = 0; round < ITG_AES_ROUNDS - 1; round++) {
    const block key = load(keys + round * ITG_AES_BLOCK);
    FOR_UNROLLED (8, int i = 0; i < n; i++) x[i] = vaesmcq_u8(vaeseq_u8(x[i], key));
  }
  const block key = load(keys + (ITG_AES_ROUNDS - 1) * ITG_AES_BLOCK);
  const block last = load(keys + ITG_AES_ROUNDS * ITG_AES_BLOCK);
  FOR_UNROLLED (8, int i = 0; i < n; i++) x[i] = add(vaeseq_u8(x[i], key), last);
}
#endif

#ifdef FAST
enum { WIDTH = ITG_GHASH_POWERS };

typedef struct {  // a sum of products of 256 bits
  block low, middle, high;
} products;

FAST_INLINE void add_product(products *sum, block a, block b) {
  const block swapped = swap_halves(b);
  sum->low = add(sum->low, low_by_low(a, b));
  sum->high = add(sum->high, high_by_high(a, b));
  sum->middle = add(sum->middle, add(low_by_low(a, swapped), high_by_high(a, swapped)));
}

// Adds multiples of the modulus that remove the low half, 64 bits at a time.
FAST_INLINE block reduce(products sum) {
  const uint64_t constant[2] = {0xc200000000000000u, 0};  // x^127 + x^126 + x^121, over x^64
  const block modulus = load(constant);
  uint64_t middle[2], halves[4];
  store(middle, sum.middle);
  halves[0] = 0, halves[1] = middle[0], halves[2] = middle[1], halves[3] = 0;
  block low = add(sum.low, load(halves));
  const block high = add(sum.high, load(halves + 2));
  low = add(swap_halves(low), low_by_low(low, modulus));
  low = add(swap_halves(low), low_by_low(low, modulus));
  return add(high, low);
}

FAST_INLINE block multiply(block a, block b) {
  products sum = {zero(), zero(), zero()};
  add_product(&sum, a, b);
  return reduce(sum);
}

FAST void itg_gcm_powers_fast(itg_gcm *g) {
  const block first = load(g->powers[0]);
  for (int i = 1; i < WIDTH; i++) store(g->powers[i], multiply(load(g->powers[i - 1]), first));
}

FAST void itg_gcm_encrypt_fast(const itg_gcm *g, uint8_t data[ITG_AES_BLOCK]) {
  block x[1] = {load(data)};
  aes(x, 1, g->round_keys);
  store(data, x[0]);
}

// hash = (hash + c[0]) H^n + c[1] H^(n - 1) + ...
FAST_INLINE block hash_blocks(const itg_gcm *g, block hash, const block *c, int n) {
  products sum = {zero(), zero(), zero()};
  FOR_UNROLLED (8, int i = 0; i < n; i++)
    add_product(&sum, i ? reverse_bytes(c[i]) : add(hash, reverse_bytes(c[0])),
                load(g->powers[n - 1 - i]));
  return reduce(sum);
}

FAST void itg_gcm_hash_fast(const itg_gcm *g, uint64_t state[2], const uint8_t *data,
                            size_t blocks) {
  block hash = load(state), c[WIDTH];
  for (; blocks >= WIDTH; blocks -= WIDTH, data += WIDTH * ITG_AES_BLOCK) {
    FOR_UNROLLED (8, int i = 0; i < WIDTH; i++) c[i] = load(data + i * ITG_AES_BLOCK);
    hash = hash_blocks(g, hash, c, WIDTH);
  }
  for (; blocks; blocks--, data += ITG_AES_BLOCK) {
    c[0] = load(data);
    hash = hash_blocks(g, hash, c, 1);
  }
  store(state, hash);
}

FAST void itg_gcm_decrypt_fast(const itg_gcm *g, uint64_t state[2], uint8_t counter[ITG_AES_BLOCK],
                               const uint8_t *from, uint8_t *to, size_t blocks) {
  const block nonce = load(counter);
  uint32_t n = itg_be32(counter + ITG_NONCE_BYTES);
  block hash = load(state), c[WIDTH], x[WIDTH];
  for (; blocks >= WIDTH;
       blocks -= WIDTH, from += WIDTH * ITG_AES_BLOCK, to += WIDTH * ITG_AES_BLOCK) {
    FOR_UNROLLED (8, int i = 0; i < WIDTH; i++) {
      c[i] = once(load(from + i * ITG_AES_BLOCK));
      x[i] = with_counter(nonce, n++);
    }
    hash = hash_blocks(g, hash, c, WIDTH);
    aes(x, WIDTH, g->round_keys);
    FOR_UNROLLED (8, int i = 0; i < WIDTH; i++) store(to + i * ITG_AES_BLOCK, add(x[i], c[i]));
  }
  for (; blocks; blocks--, from += ITG_AES_BLOCK, to += ITG_AES_BLOCK) {
    c[0] = once(load(from));
    x[0] = with_counter(nonce, n++);
    hash = hash_blocks(g, hash, c, 1);
    aes(x, 1, g->round_keys);
    store(to, add(x[0], c[0]));
  }
  store(state, hash);
  itg_put_be32(counter + ITG_NONCE_BYTES, n);
}

#else  // never called
bool itg_gcm_is_fast(void) { return false; }
void itg_gcm_powers_fast(itg_gcm *g) {}
void itg_gcm_encrypt_fast(const itg_gcm *g, uint8_t data[ITG_AES_BLOCK]) {}
void itg_gcm_hash_fast(const itg_gcm *g, uint64_t state[2], const uint8_t *data, size_t blocks) {}
void itg_gcm_decrypt_fast(const itg_gcm *g, uint64_t state[2], uint8_t counter[ITG_AES_BLOCK],
                          const uint8_t *from, uint8_t *to, size_t blocks) {}
#endif
