// SHA-256, SHA-512 (FIPS 180-4) and HKDF (RFC 5869). The constants of SHA-256 are the upper halves
// of those of SHA-512.
#include <string.h>

#include "crypto.h"

// fractions of the cube roots of the first 80 primes, and of the square roots of the first eight
static const uint64_t ROUNDS[80] = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
    0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
    0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
    0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
    0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
    0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
    0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
    0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
};
static const uint64_t START[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

// ---- SHA-256 ------------------------------------------------------------------------------------
static inline uint32_t turn32(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void blocks_plain(uint32_t state[8], const uint8_t *data, size_t blocks) {
  uint32_t w[64], s[8];
  for (; blocks; blocks--, data += 64) {
    for (int i = 0; i < 16; i++) w[i] = itg_be32(data + 4 * i);
    for (int i = 16; i < 64; i++) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (turn32(a, 7) ^ turn32(a, 18) ^ a >> 3) +
             (turn32(b, 17) ^ turn32(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
      const uint32_t a = s[0], e = s[4];
      const uint32_t t = s[7] + (turn32(e, 6) ^ turn32(e, 11) ^ turn32(e, 25)) +
                         ((e & s[5]) ^ (~e & s[6])) + (uint32_t)(ROUNDS[i] >> 32) + w[i];
      const uint32_t u = (turn32(a, 2) ^ turn32(a, 13) ^ turn32(a, 22)) +
                         ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      memmove(s + 1, s, 7 * sizeof *s);
      s[4] += t;
      s[0] = t + u;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
  }
  itg_wipe(w, sizeof w);
  itg_wipe(s, sizeof s);
}

static void add_blocks(uint32_t state[8], const uint8_t *data, size_t blocks) {
  uint32_t constants[64];
  for (int i = 0; i < 64; i++) constants[i] = (uint32_t)(ROUNDS[i] >> 32);
  if (!itg_sha256_blocks_fast(state, constants, data, blocks)) blocks_plain(state, data, blocks);
}

void itg_sha256_begin(itg_sha256 *hash) {
  memset(hash, 0, sizeof *hash);
  for (int i = 0; i < 8; i++) hash->state[i] = (uint32_t)(START[i] >> 32);
}

void itg_sha256_add(itg_sha256 *hash, const void *data, size_t size) {
  const uint8_t *p = data;
  const size_t have = hash->bytes % 64;
  hash->bytes += size;
  if (have) {
    const size_t more = size < 64 - have ? size : 64 - have;
    memcpy(hash->block + have, p, more);
    p += more, size -= more;
    if (have + more < 64) return;
    add_blocks(hash->state, hash->block, 1);
  }
  if (size >= 64) add_blocks(hash->state, p, size / 64);
  if (size % 64) memcpy(hash->block, p + size / 64 * 64, size % 64);
}

void itg_sha256_end(itg_sha256 *hash, uint8_t digest[32]) {
  static const uint8_t padding[64] = {0x80};
  uint8_t length[8];
  itg_put_be64(length, hash->bytes * 8);
  itg_sha256_add(hash, padding, 1 + (119 - hash->bytes % 64) % 64);
  itg_sha256_add(hash, length, sizeof length);
  for (int i = 0; i < 8; i++) itg_put_be32(digest + 4 * i, hash->state[i]);
  itg_wipe(hash, sizeof *hash);
}

// ---- SHA-512 ------------------------------------------------------------------------------------
static inline uint64_t turn64(uint64_t x, int n) { return x >> n | x << (64 - n); }

static void add_block512(uint64_t state[8], const uint8_t *data) {
  uint64_t w[80], s[8];
  for (int i = 0; i < 16; i++) w[i] = itg_be64(data + 8 * i);
  for (int i = 16; i < 80; i++) {
    const uint64_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (turn64(a, 1) ^ turn64(a, 8) ^ a >> 7) +
           (turn64(b, 19) ^ turn64(b, 61) ^ b >> 6);
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 80; i++) {
    const uint64_t a = s[0], e = s[4];
    const uint64_t t = s[7] + (turn64(e, 14) ^ turn64(e, 18) ^ turn64(e, 41)) +
                       ((e & s[5]) ^ (~e & s[6])) + ROUNDS[i] + w[i];
    const uint64_t u =
        (turn64(a, 28) ^ turn64(a, 34) ^ turn64(a, 39)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t;
    s[0] = t + u;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

void itg_sha512(const void *const pieces[3], const size_t sizes[3], uint8_t digest[64]) {
  uint64_t state[8], bytes = 0;
  uint8_t block[128];
  memcpy(state, START, sizeof state);
  for (int k = 0; k < 3; k++) {
    const uint8_t *p = pieces[k];
    for (size_t i = 0; i < sizes[k]; i++) {
      block[bytes++ % sizeof block] = p[i];
      if (bytes % sizeof block == 0) add_block512(state, block);
    }
  }
  size_t have = bytes % sizeof block;
  block[have++] = 0x80;
  memset(block + have, 0, sizeof block - have);
  if (have > sizeof block - 16) {
    add_block512(state, block);
    memset(block, 0, sizeof block);
  }
  itg_put_be64(block + sizeof block - 8, bytes * 8);
  add_block512(state, block);
  for (int i = 0; i < 8; i++) itg_put_be64(digest + 8 * i, state[i]);
}

// ---- HKDF-SHA256 --------------------------------------------------------------------------------
static void hmac(const uint8_t key[32], const void *data, size_t size, uint8_t tag[32]) {
  itg_sha256 hash;
  uint8_t pad[64];
  for (int i = 0; i < 64; i++) pad[i] = (uint8_t)((i < 32 ? key[i] : 0) ^ 0x36);
  itg_sha256_begin(&hash);
  itg_sha256_add(&hash, pad, sizeof pad);
  itg_sha256_add(&hash, data, size);
  itg_sha256_end(&hash, tag);
  for (int i = 0; i < 64; i++) pad[i] ^= 0x36 ^ 0x5c;
  itg_sha256_begin(&hash);
  itg_sha256_add(&hash, pad, sizeof pad);
  itg_sha256_add(&hash, tag, 32);
  itg_sha256_end(&hash, tag);
  itg_wipe(pad, sizeof pad);
}

void itg_hkdf_sha256(const uint8_t key[32], const uint8_t salt[32], const char *info,
                     uint8_t result[32]) {
  uint8_t secret[32], text[64] = {0};
  size_t n = strlen(info);
  if (n > sizeof text - 1) n = sizeof text - 1;
  hmac(salt, key, 32, secret);
  memcpy(text, info, n);
  text[n] = 1;  // the number of the first, here the only, block
  hmac(secret, text, n + 1, result);
  itg_wipe(secret, sizeof secret);
}
