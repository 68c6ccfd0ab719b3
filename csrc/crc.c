// CRC-32 as zlib computes it, 16 bytes at a time.
#include <string.h>

#include "runtime.h"

uint32_t itg_crc32(uint32_t crc, const void *data, size_t size) {
  uint32_t t[16][256];  // on the stack, made anew: a few microseconds, and no global state
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    t[0][i] = c;
  }
  for (int k = 1; k < 16; k++)
    for (uint32_t i = 0; i < 256; i++) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
  const uint8_t *p = data;
  crc = ~crc;
  for (; size >= 16; size -= 16, p += 16) {
    uint32_t w[4];
    memcpy(w, p, 16);
    w[0] ^= crc;
    crc = 0;
    for (int k = 0; k < 4; k++)
      crc ^= t[15 - 4 * k][w[k] & 255] ^ t[14 - 4 * k][w[k] >> 8 & 255] ^ t[13 - 4 * k][w[k] >> 16 & 255] ^
             t[12 - 4 * k][w[k] >> 24];
  }
  while (size--) crc = crc >> 8 ^ t[0][(crc ^ *p++) & 255];
  return ~crc;
}
