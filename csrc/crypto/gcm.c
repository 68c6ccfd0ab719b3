// AES-256-GCM: decrypts and authenticates in one pass. The work on whole blocks is done by the
// CPU's instructions (gcm_fast.c) or, here, in plain C.
//
// GHASH is computed as POLYVAL (RFC 8452, appendix A): blocks are numbers with their bytes in
// reverse order, bit i is the coefficient of x^i, the field is modulo x^128 + x^127 + x^126 + x^121
// + 1, and a product is multiplied by x^-128. With the hash key times x, the results are the same.
#include <string.h>

#include "crypto.h"

// ---- GHASH in plain C ---------------------------------------------------------------------------
// The low half of a carry-less product. Integer products of every fourth bit carry at most 15 into
// the three bits between, which the mask removes; only the last sum may have 16, and it ends there.
static inline uint64_t clmul_low(uint64_t a, uint64_t b) {
  const uint64_t m = 0x1111111111111111u;
  uint64_t x[4], y[4], result = 0;
  for (int i = 0; i < 4; i++) x[i] = a & m << i, y[i] = b & m << i;
  for (int i = 0; i < 4; i++) {
    uint64_t sum = 0;
    for (int k = 0; k < 4; k++) sum ^= x[k] * y[(i - k) & 3];
    result |= sum & m << i;
  }
  return result;
}

static inline uint64_t reverse_bits(uint64_t x) {
  x = (x >> 1 & 0x5555555555555555u) | (x & 0x5555555555555555u) << 1;
  x = (x >> 2 & 0x3333333333333333u) | (x & 0x3333333333333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0f0f0f0f0fu) | (x & 0x0f0f0f0f0f0f0f0fu) << 4;
  return __builtin_bswap64(x);
}

static inline void clmul(uint64_t a, uint64_t b, uint64_t reversed_b, uint64_t product[2]) {
  product[0] = clmul_low(a, b);
  product[1] = reverse_bits(clmul_low(reverse_bits(a), reversed_b)) >> 1;
}

// Adds low * (x^121 + x^126 + x^127), which removes `low` from the bottom.
static inline void fold(uint64_t low, uint64_t *next, uint64_t *after) {
  *next ^= low << 57 ^ low << 62 ^ low << 63;
  *after ^= low ^ low >> 7 ^ low >> 2 ^ low >> 1;
}

typedef struct {  // the hash key, its halves' sum, and the same with their bits reversed
  uint64_t key[3], reversed[3];
} hash_key;

static hash_key key_of(const itg_gcm *g) {
  hash_key k = {{g->powers[0][0], g->powers[0][1], g->powers[0][0] ^ g->powers[0][1]}, {0}};
  for (int i = 0; i < 3; i++) k.reversed[i] = reverse_bits(k.key[i]);
  return k;
}

static inline void hash_block(const hash_key *k, uint64_t hash[2], uint64_t low, uint64_t high) {
  const uint64_t a[3] = {hash[0] ^ low, hash[1] ^ high, hash[0] ^ low ^ hash[1] ^ high};
  uint64_t p[3][2];
  for (int i = 0; i < 3; i++) clmul(a[i], k->key[i], k->reversed[i], p[i]);
  uint64_t x0 = p[0][0], x1 = p[0][1], x2 = p[1][0], x3 = p[1][1];
  x1 ^= p[2][0] ^ p[0][0] ^ p[1][0];
  x2 ^= p[2][1] ^ p[0][1] ^ p[1][1];
  fold(x0, &x1, &x2);
  fold(x1, &x2, &x3);
  hash[0] = x2, hash[1] = x3;
}

static void hash_plain(const itg_gcm *g, uint64_t hash[2], const uint8_t *data, size_t blocks) {
  hash_key k = key_of(g);
  for (; blocks; blocks--, data += ITG_AES_BLOCK)
    hash_block(&k, hash, itg_be64(data + 8), itg_be64(data));
  itg_wipe(&k, sizeof k);
}

// ---- counter mode in plain C --------------------------------------------------------------------
static void next_counter(uint8_t counter[ITG_AES_BLOCK]) {
  itg_put_be32(counter + 12, itg_be32(counter + 12) + 1);
}

static void encrypt_plain(const itg_gcm *g, uint8_t block[ITG_AES_BLOCK]) {
  uint8_t blocks[8 * ITG_AES_BLOCK] = {0};
  memcpy(blocks, block, ITG_AES_BLOCK);
  itg_aes256_encrypt8(g->planes, blocks);
  memcpy(block, blocks, ITG_AES_BLOCK);
  itg_wipe(blocks, sizeof blocks);
}

static void decrypt_plain(const itg_gcm *g, uint64_t hash[2], uint8_t counter[ITG_AES_BLOCK],
                          const uint8_t *from, uint8_t *to, size_t blocks) {
  hash_key k = key_of(g);
  uint8_t stream[8 * ITG_AES_BLOCK], block[ITG_AES_BLOCK];
  while (blocks) {
    const size_t n = blocks < 8 ? blocks : 8;
    for (size_t i = 0; i < 8; i++) {
      memcpy(stream + i * ITG_AES_BLOCK, counter, ITG_AES_BLOCK);
      if (i < n) next_counter(counter);
    }
    itg_aes256_encrypt8(g->planes, stream);
    for (size_t i = 0; i < n; i++, from += ITG_AES_BLOCK, to += ITG_AES_BLOCK) {
      memcpy(block, from, ITG_AES_BLOCK);
      __asm__ volatile("" : : "r"(block) : "memory");  // `from` is not read again
      hash_block(&k, hash, itg_be64(block + 8), itg_be64(block));
      for (int b = 0; b < ITG_AES_BLOCK; b++) to[b] = block[b] ^ stream[i * ITG_AES_BLOCK + b];
    }
    blocks -= n;
  }
  itg_wipe(&k, sizeof k);
  itg_wipe(stream, sizeof stream);
}

// ---- both ways ----------------------------------------------------------------------------------
static void encrypt(const itg_gcm *g, uint8_t block[ITG_AES_BLOCK]) {
  if (g->fast) itg_gcm_encrypt_fast(g, block);
  else encrypt_plain(g, block);
}

static void hash_blocks(const itg_gcm *g, uint64_t hash[2], const uint8_t *data, size_t blocks) {
  if (g->fast) itg_gcm_hash_fast(g, hash, data, blocks);
  else hash_plain(g, hash, data, blocks);
}

static void decrypt_blocks(const itg_gcm *g, uint64_t hash[2], uint8_t counter[ITG_AES_BLOCK],
                           const uint8_t *from, uint8_t *to, size_t blocks) {
  if (g->fast) itg_gcm_decrypt_fast(g, hash, counter, from, to, blocks);
  else decrypt_plain(g, hash, counter, from, to, blocks);
}

void itg_gcm_key(itg_gcm *g, const uint8_t key[ITG_KEY_BYTES], bool plain) {
  g->fast = !plain && itg_gcm_is_fast();
  itg_aes256_expand(key, g->round_keys);
  if (!g->fast) itg_aes256_slice(g->round_keys, g->planes);
  uint8_t h[ITG_AES_BLOCK] = {0};
  encrypt(g, h);
  const uint64_t low = itg_be64(h + 8), high = itg_be64(h), over = 0 - (high >> 63);
  g->powers[0][0] = low << 1 ^ (over & 1);  // times x
  g->powers[0][1] = (high << 1 | low >> 63) ^ (over & 0xc200000000000000u);
  if (g->fast) itg_gcm_powers_fast(g);
  itg_wipe(h, sizeof h);
}

bool itg_gcm_decrypt(const itg_gcm *g, const uint8_t nonce[ITG_NONCE_BYTES], const void *aad,
                     size_t aad_size, const void *from, void *to, size_t size,
                     const uint8_t tag[ITG_TAG_BYTES]) {
  const uint64_t most = ((uint64_t)1 << 36) - 32;  // of one message: its counter has 32 bits
  if (size > most || aad_size > most) return false;
  uint64_t hash[2] = {0};
  uint8_t block[ITG_AES_BLOCK], counter[ITG_AES_BLOCK], sum[ITG_AES_BLOCK];
  memcpy(counter, nonce, ITG_NONCE_BYTES);
  itg_put_be32(counter + ITG_NONCE_BYTES, 1);
  memcpy(sum, counter, ITG_AES_BLOCK);
  next_counter(counter);

  const size_t aad_rest = aad_size % ITG_AES_BLOCK, rest = size % ITG_AES_BLOCK;
  hash_blocks(g, hash, aad, aad_size / ITG_AES_BLOCK);
  if (aad_rest) {
    memset(block, 0, ITG_AES_BLOCK);
    memcpy(block, (const uint8_t *)aad + aad_size - aad_rest, aad_rest);
    hash_blocks(g, hash, block, 1);
  }
  decrypt_blocks(g, hash, counter, from, to, size / ITG_AES_BLOCK);
  if (rest) {
    memset(block, 0, ITG_AES_BLOCK);
    memcpy(block, (const uint8_t *)from + size - rest, rest);
    decrypt_blocks(g, hash, counter, block, block, 1);
    memcpy((uint8_t *)to + size - rest, block, rest);
  }
  itg_put_be64(block, (uint64_t)aad_size * 8);
  itg_put_be64(block + 8, (uint64_t)size * 8);
  hash_blocks(g, hash, block, 1);

  encrypt(g, sum);
  itg_put_be64(block, hash[1]);
  itg_put_be64(block + 8, hash[0]);
  uint8_t differs = 0;
  for (int i = 0; i < ITG_TAG_BYTES; i++) differs |= sum[i] ^ block[i] ^ tag[i];
  if (differs && size) itg_wipe(to, size);
  itg_wipe(block, sizeof block);
  itg_wipe(sum, sizeof sum);
  itg_wipe(hash, sizeof hash);
  return !differs;
}
