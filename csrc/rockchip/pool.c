// The PPU: the largest number or the mean of each window.
#include "machine.h"

enum { METHOD = 3, MEAN = 0, LARGEST = 1, BITS = 16 };  // BITS: behind the point of 1 / size

int rk_pool(rk_machine *m) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const int64_t width = (GET(0x600C) & 0x1FFF) + 1, height = (GET(0x6010) & 0x1FFF) + 1;
  const int64_t channels = (GET(0x6014) & 0x1FFF) + 1, outputs = (GET(0x6020) & 0x1FFF) + 1;
  const int64_t columns = (GET(0x6018) & 0x1FFF) + 1, rows = (GET(0x601C) & 0x1FFF) + 1;
  const uint32_t mode = GET(0x6024), window = GET(0x6034), pads = GET(0x6040);
  const int64_t kx = (window & 15) + 1, ky = (window >> 8 & 15) + 1;
  const int64_t sx = (window >> 16 & 15) + 1, sy = (window >> 20 & 15) + 1;
  const int64_t left = pads & 7, top = pads >> 4 & 7;
  const int64_t right = pads >> 8 & 7, bottom = pads >> 12 & 7;
  const uint64_t to = GET(0x6070), to_surface = GET(0x607C), from = GET(0x701C);
  const int64_t line = GET(0x7024), surface = GET(0x7028);
  const uint32_t format = GET(0x6084), read_width = GET(0x700C), read_height = GET(0x7010);
  const int64_t fill = (int32_t)GET(0x6044), across = GET(0x6038), down = GET(0x603C);
#undef GET
  if (missing) return RK_BAD;
  const int method = mode & METHOD;
  if ((method != LARGEST && method != MEAN) || (format & 7))
    return rk_fail(m, RK_UNSUPPORTED, "OPERATION_MODE_CFG is %#x, DATA_FORMAT %#x", mode, format);
  if (channels != outputs || read_width + 1 != width || read_height + 1 != height)
    return rk_fail(m, RK_BAD, "the PPU and its reader have different sizes");
  if ((columns - 1) * sx + kx > left + width + right ||
      (rows - 1) * sy + ky > top + height + bottom)
    return rk_fail(m, RK_BAD, "windows reach beyond %d x %d pixels and their padding", (int)height,
                   (int)width);
  if (line < width * m->chip->atom) return rk_fail(m, RK_BAD, "rows lie %d bytes apart", (int)line);
  const uint64_t in_size = (uint64_t)((height - 1) * line + width * m->chip->atom);
  const uint64_t out_size = (uint64_t)(rows * columns * m->chip->atom);
  for (int64_t block = 0; block * m->chip->atom < channels; block++) {
    const int8_t *in =
        (const int8_t *)m->memory(m->context, from + (uint64_t)(block * surface), in_size);
    int8_t *out = (int8_t *)m->memory(m->context, to + (uint64_t)block * to_surface, out_size);
    if (!in || !out)
      return rk_fail(m, RK_BAD, "block %d of a map is not in the memory", (int)block);
    const int64_t many = channels - block * m->chip->atom < m->chip->atom
                             ? channels - block * m->chip->atom
                             : m->chip->atom;
    for (int64_t y = 0; y < rows; y++)
      for (int64_t x = 0; x < columns; x++)
        for (int64_t c = 0; c < many; c++) {
          int64_t most = -128, sum = 0;
          for (int64_t i = 0; i < ky; i++)
            for (int64_t j = 0; j < kx; j++) {
              const int64_t py = y * sy + i - top, px = x * sx + j - left;
              if (py < 0 || px < 0 || py >= height || px >= width) {
                sum += fill;
                continue;
              }
              const int64_t v = in[py * line + px * m->chip->atom + c];
              most = v > most ? v : most;
              sum += v;
            }
          int64_t v = most;
          if (method == MEAN) v = rk_half_even(rk_half_even(sum * across, BITS) * down, BITS);
          out[(y * columns + x) * m->chip->atom + c] = (int8_t)rk_clamp(v, -128, 127);
        }
  }
  return RK_DONE;
}
