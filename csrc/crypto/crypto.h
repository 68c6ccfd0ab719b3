// Ciphers, hashes and signatures that encrypted and signed packages need, written for this runtime:
// AES-256-GCM (FIPS 197, SP 800-38D) to decrypt, SHA-256, SHA-512 (FIPS 180-4), HKDF (RFC 5869),
// and Ed25519 to verify (RFC 8032). Boards have no libcrypto, and the runtime has no dependencies.
//
// What handles a secret has no branch and no address that depends on it: AES is bitsliced or uses
// the CPU's instructions, GHASH multiplies without tables. Ed25519 only verifies, so all of its
// inputs are public. Tests compare every function with the Python package `cryptography`.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "intaglio.h"

enum { ITG_KEY_BYTES = 32, ITG_TAG_BYTES = 16, ITG_NONCE_BYTES = 12, ITG_AES_BLOCK = 16 };
enum { ITG_AES_ROUNDS = 14, ITG_GHASH_POWERS = 8 };

// ---- hashes: sha2.c -----------------------------------------------------------------------------
typedef struct itg_sha256 {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64];
} itg_sha256;

ITG_API void itg_sha256_begin(itg_sha256 *hash);
ITG_API void itg_sha256_add(itg_sha256 *hash, const void *data, size_t size);
ITG_API void itg_sha256_end(itg_sha256 *hash, uint8_t digest[32]);
// Of three pieces, one after the other.
ITG_API void itg_sha512(const void *const pieces[3], const size_t sizes[3], uint8_t digest[64]);
// 32 bytes of HKDF-SHA256; `info` ends with NUL.
ITG_API void itg_hkdf_sha256(const uint8_t key[32], const uint8_t salt[32], const char *info,
                             uint8_t result[32]);
// sha256_fast.c: whole blocks by the CPU's instructions; false if they are few or it has none.
bool itg_sha256_blocks_fast(uint32_t state[8], const uint32_t constants[64], const uint8_t *data,
                            size_t blocks);

// ---- AES-256-GCM --------------------------------------------------------------------------------
// An expanded key. It is as secret as the key.
typedef struct itg_gcm {
  _Alignas(16) uint8_t round_keys[(ITG_AES_ROUNDS + 1) * ITG_AES_BLOCK];
  _Alignas(16) uint64_t powers[ITG_GHASH_POWERS][2];          // of the hash key
  _Alignas(16) uint64_t planes[(ITG_AES_ROUNDS + 1) * 8][2];  // round keys in bits, for plain C
  bool fast;
} itg_gcm;

// `plain` asks for the code in plain C even where the CPU has instructions for AES.
ITG_API void itg_gcm_key(itg_gcm *gcm, const uint8_t key[ITG_KEY_BYTES], bool plain);
// Whether the CPU has instructions for AES and carry-less products.
ITG_API bool itg_gcm_is_fast(void);
// Decrypts `size` bytes and authenticates them and `aad`. If the tag differs, it returns false and
// `to` holds zeros. Every byte of `from` is read once, so that it may lie in a mapped file that
// somebody else writes to. `to` is `from` or does not overlap it.
ITG_API bool itg_gcm_decrypt(const itg_gcm *gcm, const uint8_t nonce[ITG_NONCE_BYTES],
                             const void *aad, size_t aad_size, const void *from, void *to,
                             size_t size, const uint8_t tag[ITG_TAG_BYTES]);

// aes.c: AES-256 in plain C, eight blocks at a time.
void itg_aes256_expand(const uint8_t key[ITG_KEY_BYTES], uint8_t *round_keys);
void itg_aes256_slice(const uint8_t *round_keys, uint64_t (*planes)[2]);
void itg_aes256_encrypt8(const uint64_t (*planes)[2], uint8_t blocks[8 * ITG_AES_BLOCK]);

// gcm_fast.c: the same by the CPU's instructions. The state of a hash is a number of 128 bits.
void itg_gcm_powers_fast(itg_gcm *gcm);
void itg_gcm_encrypt_fast(const itg_gcm *gcm, uint8_t block[ITG_AES_BLOCK]);
void itg_gcm_hash_fast(const itg_gcm *gcm, uint64_t hash[2], const uint8_t *data, size_t blocks);
void itg_gcm_decrypt_fast(const itg_gcm *gcm, uint64_t hash[2], uint8_t counter[ITG_AES_BLOCK],
                          const uint8_t *from, uint8_t *to, size_t blocks);

// ---- Ed25519: ed25519.c -------------------------------------------------------------------------
ITG_API bool itg_ed25519_verify(const uint8_t public_key[32], const uint8_t signature[64],
                                const void *message, size_t size);

// ---- secret memory: secret.c --------------------------------------------------------------------
// Pages of zeros that core dumps leave out, and that are not swapped where the system allows it.
// NULL: no memory.
ITG_API void *itg_secret_alloc(size_t size);
// Wipes and frees them. NULL is allowed.
ITG_API void itg_secret_free(void *data, size_t size);
// Overwrites the part of the stack that functions called before this one may have used.
ITG_API void itg_wipe_stack(void);

// ---- byte order ---------------------------------------------------------------------------------
static inline uint32_t itg_be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t itg_be64(const uint8_t *p) {
  return (uint64_t)itg_be32(p) << 32 | itg_be32(p + 4);
}
static inline void itg_put_be32(uint8_t *p, uint32_t x) {
  p[0] = (uint8_t)(x >> 24), p[1] = (uint8_t)(x >> 16), p[2] = (uint8_t)(x >> 8), p[3] = (uint8_t)x;
}
static inline void itg_put_be64(uint8_t *p, uint64_t x) {
  itg_put_be32(p, (uint32_t)(x >> 32));
  itg_put_be32(p + 4, (uint32_t)x);
}
static inline uint32_t itg_le32(const uint8_t *p) {
  return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}
static inline void itg_put_le32(uint8_t *p, uint32_t x) {
  p[3] = (uint8_t)(x >> 24), p[2] = (uint8_t)(x >> 16), p[1] = (uint8_t)(x >> 8), p[0] = (uint8_t)x;
}
