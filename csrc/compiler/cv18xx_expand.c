// Weights are compressed in blocks of 16 numbers: the low k bits of each as bit planes, the rest in
// unary. Numbers are first mapped so that frequent ones are small. bf16: only exponents are coded.
#include "cv18xx_machine.h"

enum { HEADER = 16, BLOCK = 16, LONGEST_UNARY = 47, RAW = 7 };

typedef struct {
  const uint8_t *data;
  int64_t at, end;  // in bits
} bits;

static uint32_t take(bits *b, int count) {
  uint32_t v = 0;
  for (int i = 0; i < count && b->at < b->end; i++, b->at++)
    v |= (uint32_t)(b->data[b->at >> 3] >> (b->at & 7) & 1) << i;
  return v;
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
    for (int i = 0; i < BLOCK; i++) codes[i] = (uint8_t)take(b, 8);
    return 1;
  }
  if (k > 5 || unary > LONGEST_UNARY) return 0;
  memset(codes, 0, BLOCK);
  for (int bit = 0; bit < k; bit++) {
    uint32_t plane = take(b, BLOCK);
    for (int i = 0; i < BLOCK; i++) codes[i] |= (uint8_t)((plane >> i & 1) << bit);
  }
  if (zeros && k) take(b, 4);  // how many are zero; not needed
  int found = 0, last = -1;
  for (int i = 0; i < unary; i++) {
    if (!take(b, 1)) continue;
    if (found == BLOCK) return 0;
    codes[found] = (uint8_t)(codes[found] + ((i - last - 1) << k));
    found++;
    last = i;
  }
  return found == BLOCK;
}

int itg_cv18xx_expand(const uint8_t *in, int64_t size, uint8_t *out, int64_t bytes, int is_bf16) {
  int64_t of_block = is_bf16 ? 2 * BLOCK : BLOCK, blocks = (bytes + of_block - 1) / of_block;
  int64_t map = up_to(blocks, 16);
  if (size < HEADER + map) return 0;
  int is_signed = in[3] >> 4 & 1, bias0 = in[4], bias1 = in[5] & 127, guard = in[5] >> 7;
  if ((in[3] >> 5 & 1) != is_bf16) return 0;
  bits b = {in + HEADER + map, 0, (size - HEADER - map) * 8};
  for (int64_t i = 0; i < blocks; i++) {
    uint8_t codes[BLOCK], rest[BLOCK] = {0};
    if (!read_block(&b, in[HEADER + i], is_bf16 && guard, codes)) return 0;
    int64_t left = (bytes - i * of_block) / (is_bf16 ? 2 : 1), many = left < BLOCK ? left : BLOCK;
    if (!is_bf16) {
      for (int j = 0; is_signed && j < BLOCK; j++) codes[j] = rotate_back(codes[j], bias0, bias1);
      memcpy(out + i * BLOCK, codes, (size_t)many);
      continue;
    }
    for (int j = 0; j < BLOCK; j++) codes[j] = exponent_of(codes[j], bias0, guard);
    for (int j = 0; j < many; j++)
      if (!guard || codes[j]) rest[j] = (uint8_t)take(&b, 8);
    for (int j = 0; j < many; j++)
      write16(out + (i * BLOCK + j) * 2,
              (uint16_t)((rest[j] >> 7) << 15 | codes[j] << 7 | (rest[j] & 127)));
  }
  return 1;
}
