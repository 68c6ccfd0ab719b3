// AES-256-GCM as the standards write it down, one bit or byte at a time: what the tests compare the
// runtime with, and make encrypted files with. Slow, and not safe for secrets.
#pragma once
#include <stdint.h>
#include <string.h>

static inline uint8_t ref_times(uint8_t a, uint8_t b) {  // in GF(256), FIPS 197, 4.2
  uint8_t product = 0;
  for (; b; b >>= 1, a = (uint8_t)(a << 1 ^ (a & 0x80 ? 0x1b : 0)))
    if (b & 1) product ^= a;
  return product;
}

static inline uint8_t ref_sub(uint8_t x) {  // 5.1.1: the inverse x^254, then an affine map
  uint8_t y = 1, result = 0x63;
  for (int i = 0; i < 254; i++) y = ref_times(y, x);
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 5; k++) {
      const int from = (i + (k ? k + 3 : 0)) % 8;
      result ^= (uint8_t)((y >> from & 1) << i);
    }
  return result;
}

static inline void ref_aes(const uint8_t key[32], const uint8_t in[16], uint8_t out[16]) {
  static uint8_t sbox[256];
  if (!sbox[0])
    for (int i = 0; i < 256; i++) sbox[i] = ref_sub((uint8_t)i);
  uint8_t w[240], s[16], t[16];
  memcpy(w, key, 32);
  for (int i = 8, power = 1; i < 60; i++) {  // 5.2
    uint8_t x[4];
    memcpy(x, w + 4 * i - 4, 4);
    if (i % 8 == 0) {
      const uint8_t first = x[0];
      for (int k = 0; k < 4; k++) x[k] = sbox[k < 3 ? x[k + 1] : first];
      x[0] ^= (uint8_t)power, power *= 2;
    } else if (i % 8 == 4) {
      for (int k = 0; k < 4; k++) x[k] = sbox[x[k]];
    }
    for (int k = 0; k < 4; k++) w[4 * i + k] = w[4 * i - 32 + k] ^ x[k];
  }
  for (int i = 0; i < 16; i++) s[i] = in[i] ^ w[i];
  for (int round = 1; round <= 14; round++) {
    for (int i = 0; i < 16; i++) t[i] = sbox[s[(i + 4 * (i % 4)) % 16]];
    for (int i = 0; i < 16; i++) {
      const uint8_t *c = t + i / 4 * 4;
      s[i] = round == 14 ? t[i]
                         : (uint8_t)(ref_times(2, c[i % 4]) ^ ref_times(3, c[(i + 1) % 4]) ^
                                     c[(i + 2) % 4] ^ c[(i + 3) % 4]);
      s[i] ^= w[16 * round + i];
    }
  }
  memcpy(out, s, 16);
}

// hash = (hash + block) * h, SP 800-38D, 6.3
static inline void ref_hash(uint8_t hash[16], const uint8_t h[16], const uint8_t *data,
                            size_t size) {
  for (size_t at = 0; at < size; at += 16) {
    uint8_t z[16] = {0}, v[16];
    for (size_t i = 0; i < 16 && at + i < size; i++) hash[i] ^= data[at + i];
    memcpy(v, h, 16);
    for (int bit = 0; bit < 128; bit++) {
      if (hash[bit / 8] >> (7 - bit % 8) & 1)
        for (int i = 0; i < 16; i++) z[i] ^= v[i];
      const int last = v[15] & 1;
      for (int i = 15; i >= 0; i--) v[i] = (uint8_t)(v[i] >> 1 | (i ? v[i - 1] << 7 : 0));
      if (last) v[0] ^= 0xe1;
    }
    memcpy(hash, z, 16);
  }
}

static inline void ref_encrypt(const uint8_t key[32], const uint8_t nonce[12], const uint8_t *aad,
                               size_t aad_size, const uint8_t *from, uint8_t *to, size_t size,
                               uint8_t tag[16]) {
  uint8_t h[16] = {0}, hash[16] = {0}, counter[16], stream[16], sizes[16] = {0};
  ref_aes(key, h, h);
  memcpy(counter, nonce, 12);
  for (size_t at = 0; at < size; at += 16) {
    const uint32_t n = (uint32_t)(at / 16) + 2;
    for (int i = 0; i < 4; i++) counter[12 + i] = (uint8_t)(n >> (24 - 8 * i));
    ref_aes(key, counter, stream);
    for (size_t i = at; i < at + 16 && i < size; i++) to[i] = from[i] ^ stream[i - at];
  }
  ref_hash(hash, h, aad, aad_size);
  ref_hash(hash, h, to, size);
  for (int i = 0; i < 8; i++) {
    sizes[i] = (uint8_t)((uint64_t)aad_size * 8 >> (56 - 8 * i));
    sizes[8 + i] = (uint8_t)((uint64_t)size * 8 >> (56 - 8 * i));
  }
  ref_hash(hash, h, sizes, 16);
  memset(counter + 12, 0, 4), counter[15] = 1;
  ref_aes(key, counter, tag);
  for (int i = 0; i < 16; i++) tag[i] ^= hash[i];
}
