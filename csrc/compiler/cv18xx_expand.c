// Weights are compressed in blocks of 16 numbers: the low k bits of each as bit planes, the rest in
// unary. Numbers are first mapped so that frequent ones are small. bf16: only exponents are coded.
#include "cv18xx_machine.h"

enum { HEADER = 16, BLOCK = 16, LONGEST_UNARY = 47, RAW = 7 };

typedef struct {
  const uint8_t *data;
  int64_t at, end;  // in bits
} bits;

// The next up to 57 bits; zeros after the end.
static uint64_t peek(const bits *b) {
  int64_t byte = b->at >> 3, left = (b->end >> 3) - byte;
  uint64_t v = 0;
  if (left >= 8) memcpy(&v, b->data + byte, 8);
  else if (left > 0) memcpy(&v, b->data + byte, (size_t)left);
  return v >> (b->at & 7);
}

static uint32_t take(bits *b, int count) {
  uint64_t v = peek(b) & ((1ULL << count) - 1);
  b->at += count;
  return (uint32_t)v;
}

// Bit i of a byte becomes bit `bit` of byte i.
static uint64_t spread(uint32_t byte, int bit) {
  uint64_t low = (byte & 0x7F) * 0x0002040810204081ULL & 0x0001010101010101ULL;
  return (low | (uint64_t)(byte >> 7) << 56) << bit;
}

static int8_t to_signed(uint8_t v) {
  int magnitude = (v + 1) >> 1;
  return (int8_t)(v & 1 ? -magnitude : magnitude);
}

// Both signs are rotated by their own bias; zero stays.
static uint8_t rotate_back(uint8_t coded, int bias0, int bias1) {
  int v = to_signed(coded);
  if (!v) return 0;
  int negative = v < 0, most = 127 + negative;
  int magnitude = (negative ? -v : v) + (negative ? bias1 : bias0);
  if (magnitude > most) magnitude -= most;
  return (uint8_t)(negative ? -magnitude : magnitude);
}

// Exponents are coded by their distance from the bias; with a guard, zero is coded as zero.
static uint8_t exponent_of(uint8_t coded, int bias, int guard) {
  if (!coded && guard) return 0;
  int range = bias <= 128 ? bias : 255 - bias;
  uint8_t plain = (uint8_t)(coded - guard);
  if (bias <= 128) return coded >= range * 2 ? coded : (uint8_t)(to_signed(plain) + bias);
  return plain > range * 2 ? (uint8_t)(range + bias - coded + guard)
                           : (uint8_t)(to_signed(plain) + bias);
}

// One block of 16 codes; 0 where it is not valid.
static int read_block(bits *b, uint8_t info, int zeros, uint8_t *codes) {
  int k = info >> 5, unary = (info & 31) + BLOCK;
  if (k == RAW) {
    for (int i = 0; i < BLOCK; i += 4) {
      uint32_t four = take(b, 32);
      memcpy(codes + i, &four, 4);
    }
    return 1;
  }
  if (k > 5 || unary > LONGEST_UNARY) return 0;
  uint64_t halves[2] = {0, 0};
  for (int bit = 0; bit < k; bit++) {
    uint32_t plane = take(b, BLOCK);
    halves[0] |= spread(plane & 255, bit);
    halves[1] |= spread(plane >> 8, bit);
  }
  memcpy(codes, halves, BLOCK);
  if (zeros && k) take(b, 4);  // how many are zero; not needed
  uint64_t marks = peek(b) & ((1ULL << unary) - 1);
  b->at += unary;
  if (__builtin_popcountll(marks) != BLOCK) return 0;
  for (int i = 0, last = -1; i < BLOCK; i++, marks &= marks - 1) {
    int at = __builtin_ctzll(marks);
    codes[i] = (uint8_t)(codes[i] + ((at - last - 1) << k));
    last = at;
  }
  return 1;
}

int itg_cv18xx_expand(const uint8_t *in, int64_t size, uint8_t *out, int64_t bytes, int is_bf16) {
  int64_t of_block = is_bf16 ? 2 * BLOCK : BLOCK, blocks = (bytes + of_block - 1) / of_block;
  int64_t map = up_to(blocks, 16);
  if (size < HEADER + map) return 0;
  int is_signed = in[3] >> 4 & 1, bias0 = in[4], bias1 = in[5] & 127, guard = in[5] >> 7;
  if ((in[3] >> 5 & 1) != is_bf16) return 0;
  bits b = {in + HEADER + map, 0, (size - HEADER - map) * 8};
  uint8_t numbers[256];
  for (int i = 0; i < 256; i++)
    numbers[i] = is_bf16     ? exponent_of((uint8_t)i, bias0, guard)
                 : is_signed ? rotate_back((uint8_t)i, bias0, bias1)
                             : (uint8_t)i;
  for (int64_t i = 0; i < blocks; i++) {
    uint8_t codes[BLOCK], rest[BLOCK] = {0};
    if (!read_block(&b, in[HEADER + i], is_bf16 && guard, codes)) return 0;
    int64_t left = (bytes - i * of_block) / (is_bf16 ? 2 : 1), many = left < BLOCK ? left : BLOCK;
    for (int j = 0; j < BLOCK; j++) codes[j] = numbers[codes[j]];
    if (!is_bf16) {
      memcpy(out + i * BLOCK, codes, (size_t)many);
      continue;
    }
    for (int j = 0; j < many; j++)
      if (!guard || codes[j]) rest[j] = (uint8_t)take(&b, 8);
    for (int j = 0; j < many; j++)
      write16(out + (i * BLOCK + j) * 2,
              (uint16_t)((rest[j] >> 7) << 15 | codes[j] << 7 | (rest[j] & 127)));
  }
  return 1;
}
