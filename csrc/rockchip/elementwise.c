// The DPU alone: it reads a map, and maybe a second one, and writes a map. With unpooling, pixels
// become rectangles of equal pixels.
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { FLYING = 1, UNPOOLING = 1 << 12, WIDE = 1 << 26 };

static int check(rk_machine *m, const rk_source *s, const uint8_t **from, uint64_t at) {
  const uint64_t size = (uint64_t)((s->height - 1) * s->line + s->width * m->chip->atom);
  *from = m->memory(m->context, at, size);
  if (*from) return RK_DONE;
  return rk_fail(m, RK_BAD, "%llu bytes of a map at %#llx are not in the memory",
                 (unsigned long long)size, (unsigned long long)at);
}

// Every pixel is written `high` x `wide` times: its bytes do not change.
static int unpool(rk_machine *m, const rk_source *s) {
  const uint32_t window = s->window;
  const int64_t wide = (window & 7) + 1, high = (window >> 3 & 7) + 1;
  if (s->computes || (window >> 6 & 7) + 1 != wide || (window >> 9 & 7) + 1 != high)
    return rk_fail(m, RK_UNSUPPORTED, "unpooling with SRC_DMA_CFG %#x", window);
  if (s->columns != s->width * wide || s->rows != s->height)
    return rk_fail(m, RK_BAD, "%d columns of %d times %d", (int)s->columns, (int)s->width,
                   (int)wide);
  const uint8_t *from;
  const int result = check(m, s, &from, s->base);
  if (result) return result;
  for (int64_t p = 0; p < high; p++)
    for (int64_t y = 0; y < s->rows; y++) {
      const uint64_t row = (uint64_t)(s->columns * m->chip->atom);
      const uint64_t at =
          s->to + (uint64_t)p * s->phase + (uint64_t)y * (row + (uint64_t)s->skipped);
      uint8_t *to = m->memory(m->context, at, row);
      if (!to)
        return rk_fail(m, RK_BAD, "%llu bytes of output at %#llx are not in the memory",
                       (unsigned long long)row, (unsigned long long)at);
      for (int64_t x = 0; x < s->columns; x++)
        memcpy(to + x * m->chip->atom, from + y * s->line + x / wide * m->chip->atom,
               m->chip->atom);
    }
  return RK_DONE;
}

static int read_source(rk_machine *m, rk_source *s) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t mode = GET(0x400C), reads = GET(0x5044), format = GET(0x4010);
  s->window = GET(0x5048);
  s->width = (GET(0x500C) & 0x1FFF) + 1, s->height = (GET(0x5010) & 0x1FFF) + 1;
  s->base = GET(0x5018);
  s->line = s->width * m->chip->atom + (int64_t)(s->window >> 19) * m->chip->atom;
  s->surface = (uint64_t)((s->height - 1) * s->line + s->width * m->chip->atom) + GET(0x504C);
  s->channels = (GET(0x5014) & 0x1FFF) + 1;
  s->columns = (GET(0x4030) & 0x1FFF) + 1, s->rows = (GET(0x4034) & 0x1FFF) + 1;
  s->skipped = (int64_t)(GET(0x4038) & 0x1FFF) * m->chip->atom;
  s->computes = !(GET(0x4040) & GET(0x4060) & GET(0x4070) & 1);
  s->to = GET(0x4020), s->phase = GET(0x4024);
#undef GET
  if (missing) return RK_BAD;
  if (!(mode & FLYING) || !(reads & FLYING))
    return rk_fail(m, RK_UNSUPPORTED, "the DPU alone reads no map: FEATURE_MODE_CFG is %#x", mode);
  if ((format & WIDE) && !(s->window & UNPOOLING))
    return rk_fail(m, RK_UNSUPPORTED, "DATA_FORMAT is %#x", format);
  return RK_DONE;
}

int rk_elementwise(rk_machine *m) {
  rk_source s = {0};
  int result = rk_newer(m) ? rk3576_source(m, &s) : read_source(m, &s);
  if (result) return result;
  if (s.window & UNPOOLING) return unpool(m, &s);
  rk_output out = {0};
  if ((result = rk_output_of(m, &out))) return result;
  if (out.bs.memory_addend || out.bs.memory_factor)
    return rk_fail(m, RK_UNSUPPORTED, "numbers of each channel for a map");
  if (s.width != out.width || s.height != out.height || s.channels < out.channels)
    return rk_fail(m, RK_BAD, "it reads %d x %d pixels and writes %d x %d", (int)s.height,
                   (int)s.width, (int)out.height, (int)out.width);
  const int64_t pixels = out.height * out.width;
  int64_t *numbers = malloc((size_t)(m->chip->atom * pixels) * sizeof *numbers);
  if (!numbers) return rk_fail(m, RK_BAD, "no memory for %lld numbers", (long long)pixels);
  for (int64_t block = 0; block * m->chip->atom < out.channels && !result; block++) {
    const int64_t left = out.channels - block * m->chip->atom,
                  count = left < m->chip->atom ? left : m->chip->atom;
    const uint8_t *from;
    result = check(m, &s, &from, s.base + (uint64_t)block * s.surface);
    if (result) break;
    for (int64_t c = 0; c < count; c++)
      for (int64_t y = 0; y < s.height; y++)
        for (int64_t x = 0; x < s.width; x++)
          numbers[c * pixels + y * s.width + x] = (int8_t)from[y * s.line + x * m->chip->atom + c];
    result = rk_write_block(m, &out, block, count, numbers, NULL, NULL);
  }
  free(numbers);
  return result;
}
