// AES-256-GCM, SHA-2, HKDF and Ed25519 against published vectors and a slow reference, in plain C
// and by the CPU's instructions. tests/package/test_crypto.py compares them with `cryptography`.
#include "crypto/crypto.h"
#include "reference_gcm.h"
#include "testing.h"

enum { MOST = 300 };

static void bytes_of(const char *hex, uint8_t *to) {
  for (; *hex; hex += 2, to++) {
    unsigned x;
    CHECK(sscanf(hex, "%2x", &x) == 1);
    *to = (uint8_t)x;
  }
}

static bool is(const uint8_t *data, const char *hex) {
  uint8_t wanted[256];
  bytes_of(hex, wanted);
  return !memcmp(data, wanted, strlen(hex) / 2);
}

static uint32_t seed = 1;
static uint8_t random_byte(void) { return (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24); }
static void fill(uint8_t *data, size_t size) {
  while (size--) *data++ = random_byte();
}

static bool decrypts(bool plain, const uint8_t *key, const uint8_t *nonce, const uint8_t *aad,
                     size_t aad_size, const uint8_t *from, uint8_t *to, size_t size,
                     const uint8_t *tag) {
  itg_gcm *gcm = itg_secret_alloc(sizeof *gcm);
  itg_gcm_key(gcm, key, plain);
  const bool good = itg_gcm_decrypt(gcm, nonce, aad, aad_size, from, to, size, tag);
  itg_secret_free(gcm, sizeof *gcm);
  return good;
}

static void test_gcm_vectors(void) {  // cases 13, 14 and 16 of the specification of GCM
  uint8_t key[32] = {0}, nonce[12] = {0}, tag[16], text[64], out[64], aad[20];
  for (int plain = 0; plain < 2; plain++) {
    memset(key, 0, sizeof key), memset(nonce, 0, sizeof nonce);
    bytes_of("530f8afbc74536b9a963b4f1c4cb738b", tag);
    CHECK(decrypts(plain, key, nonce, NULL, 0, NULL, NULL, 0, tag));
    bytes_of("cea7403d4d606b6e074ec5d3baf39d18", text);
    bytes_of("d0d1c8a799996bf0265b98b5d48ab919", tag);
    CHECK(decrypts(plain, key, nonce, NULL, 0, text, out, 16, tag));
    CHECK(is(out, "00000000000000000000000000000000"));
    bytes_of("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", key);
    bytes_of("cafebabefacedbaddecaf888", nonce);
    bytes_of("feedfacedeadbeeffeedfacedeadbeefabaddad2", aad);
    bytes_of(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
        text);
    bytes_of("76fc6ece0f4e1768cddf8853bb2d551b", tag);
    CHECK(decrypts(plain, key, nonce, aad, 20, text, out, 60, tag));
    CHECK(is(out,
             "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
             "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"));
  }
}

static void test_gcm(void) {
  uint8_t key[32], nonce[12], aad[64], text[MOST], made[MOST], out[MOST], tag[16];
  for (size_t size = 0; size < MOST; size++) {
    const size_t aad_size = size * 7 % sizeof aad;
    fill(key, sizeof key), fill(nonce, sizeof nonce), fill(aad, aad_size), fill(text, size);
    ref_encrypt(key, nonce, aad, aad_size, text, made, size, tag);
    for (int plain = 0; plain < 2; plain++) {
      CHECK(decrypts(plain, key, nonce, aad, aad_size, made, out, size, tag));
      CHECK(!memcmp(out, text, size));
      uint8_t *changed = random_byte() % 2 && size       ? &made[random_byte() % size]
                         : random_byte() % 2 && aad_size ? &aad[random_byte() % aad_size]
                                                         : &tag[random_byte() % 16];
      const uint8_t bit = (uint8_t)(1 << random_byte() % 8);
      *changed ^= bit;
      CHECK(!decrypts(plain, key, nonce, aad, aad_size, made, out, size, tag));
      *changed ^= bit;
      for (size_t i = 0; i < size; i++) CHECK(!out[i]);
      memcpy(out, made, size);
      CHECK(decrypts(plain, key, nonce, aad, aad_size, out, out, size, tag));  // in place
      CHECK(!memcmp(out, text, size));
    }
  }
  if (sizeof(size_t) > 4)  // refused, not read
    CHECK(!decrypts(false, key, nonce, aad, 0, text, out, SIZE_MAX, tag));
}

static void test_hashes(void) {
  uint8_t digest[64], key[32], salt[32];
  itg_sha256 hash;
  itg_sha256_begin(&hash);
  itg_sha256_add(&hash, "a", 1), itg_sha256_add(&hash, "bc", 2);
  itg_sha256_end(&hash, digest);
  CHECK(is(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  itg_sha256_begin(&hash);
  for (int i = 0; i < 1000; i++) {  // a million times "a", in pieces of all kinds
    static char many[1000];
    memset(many, 'a', sizeof many);
    itg_sha256_add(&hash, many, (size_t)i), itg_sha256_add(&hash, many, sizeof many - (size_t)i);
  }
  itg_sha256_end(&hash, digest);
  CHECK(is(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
  static char million[1000000];
  memset(million, 'a', sizeof million);
  itg_sha256_begin(&hash);
  itg_sha256_add(&hash, million, sizeof million);
  itg_sha256_end(&hash, digest);
  CHECK(is(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
  itg_sha512((const void *const[3]){"a", "", "bc"}, (size_t[3]){1, 0, 2}, digest);
  CHECK(is(digest,
           "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
           "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"));
  for (int i = 0; i < 32; i++) key[i] = (uint8_t)i, salt[i] = (uint8_t)(255 - i);
  itg_hkdf_sha256(key, salt, "intaglio package encryption 1", digest);
  CHECK(is(digest, "abc0c844fef024898236b6f8db49129ac5ef02fb4e8b4becdc23e9b94b5c303f"));
}

static void test_ed25519(void) {  // RFC 8032, 7.1
  static const char *const vectors[][3] = {
      {"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
       "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf"
       "9b4"
       "6bd25bf5f0595bbe24655141438e7a100b"},
      {"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
       "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f"
       "11d"
       "8c387b2eaeb4302aeeb00d291612bb0c00"},
      {"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
       "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984"
       "dc6"
       "594a7c15e9716ed28dc027beceea1ec40a"},
  };
  uint8_t key[32], message[2], signature[64];
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    const size_t size = strlen(vectors[i][1]) / 2;
    bytes_of(vectors[i][0], key), bytes_of(vectors[i][1], message);
    bytes_of(vectors[i][2], signature);
    CHECK(itg_ed25519_verify(key, signature, message, size));
    for (int bit = 0; bit < 512; bit += 5) {
      signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
      CHECK(!itg_ed25519_verify(key, signature, message, size));
      signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    // s + order verifies the same equation, and is refused: a signature has one form
    static const uint8_t order[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58,       0xd6,
                                      0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, [31] = 0x10};
    for (unsigned k = 0, sum = 0; k < 32; k++, sum >>= 8)
      signature[32 + k] = (uint8_t)(sum += (unsigned)signature[32 + k] + order[k]);
    CHECK(!itg_ed25519_verify(key, signature, message, size));
  }
  memset(key, 0xff, sizeof key);  // y is not below p
  CHECK(!itg_ed25519_verify(key, signature, message, 2));
  memset(key, 0, sizeof key), key[0] = 2;  // no point has this y
  CHECK(!itg_ed25519_verify(key, signature, message, 2));
}

int main(void) {
  test_gcm_vectors();
  test_gcm();
  test_hashes();
  test_ed25519();
  return 0;
}
