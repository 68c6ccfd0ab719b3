// AES-256 in plain C, bitsliced: bit b of every byte of eight blocks lies in plane b, so that the
// S-box is a circuit of ANDs and XORs. No table is read and no branch is taken by a secret.
//
// A plane has two lanes of 64 bits, for four blocks each. Byte (row, column) of block k of a lane
// has bit 16 * row + 4 * column + k, so that rows are shifted and mixed by rotations.
#include <string.h>

#include "crypto.h"

typedef uint64_t plane __attribute__((vector_size(16), may_alias));

// ---- the S-box, in the tower of fields GF(2) < GF(4) < GF(16) < GF(256)
// -------------------------- GF(4): a[1] w + a[0] with w^2 = w + 1. GF(16): z^2 = z + w. GF(256):
// y^2 = y + (w z + 1).
typedef struct {
  plane v[2];
} field4;
typedef struct {
  field4 v[2];
} field16;

static inline field4 add4(field4 a, field4 b) {
  return (field4){{a.v[0] ^ b.v[0], a.v[1] ^ b.v[1]}};
}

static inline field4 mul4(field4 a, field4 b) {
  const plane low = a.v[0] & b.v[0];
  return (field4){{low ^ (a.v[1] & b.v[1]), low ^ ((a.v[0] ^ a.v[1]) & (b.v[0] ^ b.v[1]))}};
}

static inline field4 square4(field4 a) { return (field4){{a.v[0] ^ a.v[1], a.v[1]}}; }
static inline field4 times_w(field4 a) { return (field4){{a.v[1], a.v[0] ^ a.v[1]}}; }

static inline field16 add16(field16 a, field16 b) {
  return (field16){{add4(a.v[0], b.v[0]), add4(a.v[1], b.v[1])}};
}

static inline field16 mul16(field16 a, field16 b) {
  const field4 low = mul4(a.v[0], b.v[0]), high = mul4(a.v[1], b.v[1]);
  const field4 both = mul4(add4(a.v[0], a.v[1]), add4(b.v[0], b.v[1]));
  return (field16){{add4(low, times_w(high)), add4(both, low)}};
}

// a^2 and (w z + 1) a^2: both are linear.
static inline field16 square16(field16 a) {
  const field4 low = square4(a.v[0]), high = square4(a.v[1]);
  return (field16){{add4(low, times_w(high)), high}};
}

static inline field16 square16_times_nu(field16 a) {
  const plane a0 = a.v[0].v[0], a1 = a.v[0].v[1], a2 = a.v[1].v[0], a3 = a.v[1].v[1];
  return (field16){{{{a0 ^ a1 ^ a2 ^ a3, a1 ^ a3}}, {{a1, a0}}}};
}

// 1 / (a1 z + a0) = (a1 z + a0 + a1) / N with the norm N = a0^2 + a0 a1 + w a1^2; 1 / 0 is 0.
static inline field16 invert16(field16 a) {
  const field4 norm = add4(add4(square4(a.v[0]), mul4(a.v[0], a.v[1])), times_w(square4(a.v[1])));
  const field4 inverse = square4(norm);  // in GF(4)
  return (field16){{mul4(add4(a.v[0], a.v[1]), inverse), mul4(a.v[1], inverse)}};
}

static inline void sub_bytes(plane x[8]) {
  // to the tower: x^i of AES is the i-th power of one of the roots of its polynomial there
  const plane a0 = x[4] ^ x[6], a1 = x[1] ^ x[2], a2 = x[3] ^ a0, a3 = x[5] ^ a1, a4 = x[1] ^ a0,
              a5 = x[7] ^ a2;
  const field16 low = {{{{x[0] ^ a4, a5}}, {{a3, x[6] ^ a3}}}};
  const field16 high = {{{{x[2] ^ a5, x[7] ^ a4}}, {{a2 ^ a3, x[5] ^ x[7]}}}};
  // 1 / (high y + low), as in invert16
  const field16 norm = add16(add16(square16(low), mul16(low, high)), square16_times_nu(high));
  const field16 inverse = invert16(norm);
  const field16 l = mul16(add16(low, high), inverse), h = mul16(high, inverse);
  const plane v0 = l.v[0].v[0], v1 = l.v[0].v[1], v2 = l.v[1].v[0], v3 = l.v[1].v[1],
              v4 = h.v[0].v[0], v5 = h.v[0].v[1], v6 = h.v[1].v[0], v7 = h.v[1].v[1];
  // back, and the affine map of AES, whose constant is 0x63
  const plane b0 = v2 ^ v6, b2 = v5 ^ v0 ^ v3, b3 = v7 ^ b0, b4 = v0 ^ v4, b5 = v1 ^ b2;
  x[0] = ~(v6 ^ b4), x[1] = ~(v4 ^ b5), x[2] = b3 ^ b5, x[3] = b4;
  x[4] = b2 ^ b3, x[5] = ~(v3 ^ b0), x[6] = ~(v4 ^ v7), x[7] = b3;
}

// ---- rounds -------------------------------------------------------------------------------------
static inline plane shift_row(plane x, int row) {  // by `row` columns
  const uint64_t all = (uint64_t)0xffff << 16 * row;
  const uint64_t stay = (uint64_t)(0xffff >> 4 * row) << 16 * row;
  return row ? ((x >> 4 * row) & stay) | ((x << (16 - 4 * row)) & (all ^ stay)) : x & all;
}

static inline void shift_rows(plane x[8]) {
  for (int b = 0; b < 8; b++)
    x[b] = shift_row(x[b], 0) | shift_row(x[b], 1) | shift_row(x[b], 2) | shift_row(x[b], 3);
}

static inline plane next_row(plane x) { return x >> 16 | x << 48; }
static inline plane opposite_row(plane x) { return x >> 32 | x << 32; }

// a byte becomes 2 a + 3 b + c + d = 2 (a + b) + b + (c + d) of its column a, b, c, d
static inline void mix_columns(plane x[8]) {
  plane sum[8];
  for (int b = 0; b < 8; b++) sum[b] = x[b] ^ next_row(x[b]);
  for (int b = 0; b < 8; b++) x[b] = next_row(x[b]) ^ opposite_row(sum[b]);
  for (int b = 0; b < 8; b++) x[b] ^= sum[(b + 7) % 8];
  x[1] ^= sum[7], x[3] ^= sum[7], x[4] ^= sum[7];
}

static inline void add_round_key(plane x[8], const plane *key) {
  for (int b = 0; b < 8; b++) x[b] ^= key[b];
}

// ---- bytes to planes and back -------------------------------------------------------------------
static inline void swap_bits(plane *a, plane *b, uint64_t mask, int shift) {
  const plane t = ((*a >> shift) ^ *b) & mask;
  *b ^= t;
  *a ^= t << shift;
}

// Eight words of eight bytes are eight bytes of eight planes, transposed bit by bit.
static inline void transpose(plane x[8]) {
  for (int i = 0; i < 8; i += 2) swap_bits(&x[i], &x[i + 1], 0x5555555555555555u, 1);
  for (int i = 0; i < 8; i += i % 2 ? 3 : 1) swap_bits(&x[i], &x[i + 2], 0x3333333333333333u, 2);
  for (int i = 0; i < 4; i++) swap_bits(&x[i], &x[i + 4], 0x0f0f0f0f0f0f0f0fu, 4);
}

static inline uint64_t spread(uint32_t x) {  // bytes 0 1 2 3 to 0 . 1 . 2 . 3 .
  const uint64_t y = (x | (uint64_t)x << 16) & 0x0000ffff0000ffffu;
  return (y | y << 8) & 0x00ff00ff00ff00ffu;
}

static inline uint32_t gather(uint64_t x) {
  x &= 0x00ff00ff00ff00ffu;
  x = (x | x >> 8) & 0x0000ffff0000ffffu;
  return (uint32_t)(x | x >> 16);
}

// Word 4 p + k of a lane has columns p and 2 + p of its block k, byte by byte in turns.
static inline void load8(plane x[8], const uint8_t *blocks) {
  for (int lane = 0; lane < 2; lane++)
    for (int k = 0; k < 4; k++, blocks += ITG_AES_BLOCK)
      for (int p = 0; p < 2; p++)
        x[4 * p + k][lane] = spread(itg_le32(blocks + 4 * p)) | spread(itg_le32(blocks + 8 + 4 * p))
                                                                    << 8;
  transpose(x);
}

static inline void store8(plane x[8], uint8_t *blocks) {
  transpose(x);
  for (int lane = 0; lane < 2; lane++)
    for (int k = 0; k < 4; k++, blocks += ITG_AES_BLOCK)
      for (int p = 0; p < 2; p++) {
        itg_put_le32(blocks + 4 * p, gather(x[4 * p + k][lane]));
        itg_put_le32(blocks + 8 + 4 * p, gather(x[4 * p + k][lane] >> 8));
      }
}

void itg_aes256_encrypt8(const uint64_t (*planes)[2], uint8_t blocks[8 * ITG_AES_BLOCK]) {
  const plane *key = (const void *)planes;
  plane x[8];
  load8(x, blocks);
  add_round_key(x, key);
  for (int round = 1; round <= ITG_AES_ROUNDS; round++) {
    sub_bytes(x);
    shift_rows(x);
    if (round < ITG_AES_ROUNDS) mix_columns(x);
    add_round_key(x, key + 8 * round);
  }
  store8(x, blocks);
}

// ---- keys ---------------------------------------------------------------------------------------
static uint32_t sub_word(uint32_t word) {
  uint8_t blocks[8 * ITG_AES_BLOCK] = {0};
  plane x[8];
  itg_put_le32(blocks, word);
  load8(x, blocks);
  sub_bytes(x);
  store8(x, blocks);
  word = itg_le32(blocks);
  itg_wipe(blocks, sizeof blocks);
  itg_wipe(x, sizeof x);
  return word;
}

void itg_aes256_expand(const uint8_t key[ITG_KEY_BYTES], uint8_t *round_keys) {
  memcpy(round_keys, key, ITG_KEY_BYTES);
  for (uint32_t i = 8, power = 1; i < 4 * (ITG_AES_ROUNDS + 1); i++) {
    uint32_t word = itg_le32(round_keys + 4 * i - 4);
    if (i % 8 == 0) word = sub_word(word >> 8 | word << 24) ^ power, power <<= 1;
    else if (i % 8 == 4) word = sub_word(word);
    itg_put_le32(round_keys + 4 * i, itg_le32(round_keys + 4 * i - 32) ^ word);
  }
}

void itg_aes256_slice(const uint8_t *round_keys, uint64_t (*planes)[2]) {
  uint8_t blocks[8 * ITG_AES_BLOCK];
  for (int round = 0; round <= ITG_AES_ROUNDS; round++) {
    for (int k = 0; k < 8; k++)
      memcpy(blocks + k * ITG_AES_BLOCK, round_keys + round * ITG_AES_BLOCK, ITG_AES_BLOCK);
    load8((plane *)(void *)(planes + 8 * round), blocks);
  }
  itg_wipe(blocks, sizeof blocks);
}
