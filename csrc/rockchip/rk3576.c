// The registers of an RK3576: other places than on its sisters. Numbers that all channels share
// lie in memory. Rows of a map that the task before has read stay in the buffer, which is a ring.
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum {
  DEPTHWISE = 1,
  DEPTHWISE_RK3562 = 5,
  FLYING = 1,
  BYPASS_FACTOR = 1 << 17,
  ONE_TABLE = 0x2000006,
  // what a stage reads from memory: numbers of all channels, and of each of them
  OF_ADDEND = 1 << 1,
  OF_ZERO = 1 << 2,
  OF_FACTOR = 1 << 3,
  OF_SHIFT = 1 << 4,
  OF_CHANNELS = 8,
  SLOT = 16,  // bytes of each of them; two of the addend
};

// BS_CFG, BN_CFG and EW_CFG
enum { BS_CONVOLUTION = 0x120080, BS_DEPTHWISE = 0x100092, BS_MAP = 0x100012 };
enum { BS_CLEAR = 0x20040, BS_NOTHING = 0x53 };
enum { BN_NOTHING_RK3562 = 0x13, BN_NOTHING = 0x903, BN_RELU = 0x902, BN_SCALES = 0x20 };
enum { EW_NOTHING = 0x10041C1, EW_TABLE = 0x1004140, EW_MULTIPLIES = 0x810F4094 };
#define EW_ADDS 0x8002C0C0u

typedef struct numbers {  // of a stage
  int32_t addend;
  int16_t zero, factor;
  int shift, shift_negative;
} numbers;

static int read_numbers(rk_machine *m, uint32_t use, uint64_t at, numbers *n) {
  const int slots = (use & OF_ADDEND ? 2 : 0) + (use & OF_ZERO ? 1 : 0) +
                    (use & OF_FACTOR ? 1 : 0) + (use & OF_SHIFT ? 1 : 0);
  if (!slots) return RK_DONE;
  const uint8_t *from = m->memory(m->context, at, (uint64_t)(slots * SLOT));
  if (!from)
    return rk_fail(m, RK_BAD, "%d numbers of a stage at %#llx are not in the memory", slots,
                   (unsigned long long)at);
  if (use & OF_ADDEND) memcpy(&n->addend, from, 4), from += 2 * SLOT;
  if (use & OF_ZERO) memcpy(&n->zero, from, 2), from += SLOT;
  if (use & OF_FACTOR) memcpy(&n->factor, from, 2), from += SLOT;
  if (use & OF_SHIFT) n->shift = from[0], n->shift_negative = from[1];
  if (n->shift > 63 || n->shift_negative > 63)
    return rk_fail(m, RK_BAD, "a stage shifts by %d and %d bits", n->shift, n->shift_negative);
  return RK_DONE;
}

// The rows of the task, those that the buffer still holds among them.
static int stage_rows(rk_machine *m, rk_layer *l, int64_t banks, int64_t held, int64_t start,
                      int64_t end) {
  const int64_t atom = m->chip->atom, each = rk_entries(m->chip, l),
                most = banks * m->chip->bank_bytes / m->chip->entry;
  const int64_t blocks = (l->channels + atom - 1) / atom, entry = m->chip->entry;
  if (l->rows * each > most)
    return rk_fail(m, RK_BAD, "%d rows of %d entries; %d banks hold less", (int)l->rows, (int)each,
                   (int)banks);
  if (end != (start + held * each) % most && (held || start || end))
    return rk_fail(m, RK_BAD, "rows begin at entry %d; the next one at %d", (int)start, (int)end);
  l->staged = malloc((size_t)(blocks * l->rows * l->width * atom));
  uint8_t *row = calloc((size_t)each, (size_t)entry);
  int result = l->staged && row ? RK_DONE : rk_fail(m, RK_BAD, "no memory for the buffer");
  for (int64_t y = 0; y < l->rows && !result; y++) {
    const int64_t at = start + y * each;
    if (y >= held)
      for (int64_t b = 0; b < blocks && !result; b++) {
        const uint64_t size = (uint64_t)(l->width * atom);
        const uint64_t place =
            l->input + (uint64_t)(b * l->surface * atom) + (uint64_t)((y - held) * l->row);
        const uint8_t *from = m->memory(m->context, place, size);
        if (from) memcpy(row + b * l->width * atom, from, size);
        else
          result = rk_fail(m, RK_BAD, "%llu bytes of input at %#llx are not in the memory",
                           (unsigned long long)size, (unsigned long long)place);
      }
    for (int64_t e = 0; e < each; e++) {  // in entries that follow each other around the ring
      uint8_t *place = m->rows + (at + e) % most * entry;
      if (y >= held) memcpy(place, row + e * entry, (size_t)entry);
      else memcpy(row + e * entry, place, (size_t)entry);
    }
    for (int64_t b = 0; b < blocks; b++)
      memcpy(l->staged + (b * l->rows + y) * l->width * atom, row + b * l->width * atom,
             (size_t)(l->width * atom));
  }
  free(row);
  l->row = l->width * atom;
  return result;
}

int rk3576_layer(rk_machine *m, rk_layer *l) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t mode = GET(0x100C), steps = GET(0x1014), size = GET(0x102C), window = GET(0x1024);
  const uint32_t depth = GET(0x1028), pads = GET(0x1080), banks = GET(0x1018);
  const uint32_t row = GET(0x1044), use = GET(0x501C), read = GET(0x1078), core = GET(0x301C);
  const uint32_t start = GET(0x103C), end = GET(0x1040), columns = GET(0x1030);
  const uint32_t bytes = GET(0x101C), atomics = GET(0x1034), outputs = GET(0x3020);
  const uint64_t numbers_at = m->chip->family == RK_3562 ? 0 : GET(0x5024);
  const uint32_t product = GET(0x3018) & 0xFF, format = GET(0x4010);
  const int older = m->chip->family == RK_3562;
  const int64_t one = !older;  // sizes are stored with 1 less
  l->depthwise = (mode & 15) == DEPTHWISE || (older && (mode & 15) == DEPTHWISE_RK3562);
  l->stride_x = steps & 7, l->stride_y = steps >> 3 & 7;
  l->dilation_x = (steps >> 16 & 31) + 1, l->dilation_y = (steps >> 21 & 31) + 1;
  l->apart_x = (steps >> 8 & 7) + 1, l->apart_y = (steps >> 11 & 7) + 1;
  l->width = (size >> 16 & 0x7FF) + one, l->rows = (size & 0x7FF) + one;
  l->channels = (depth & 0x3FFF) + one;
  l->stored = rk_round_up(l->channels, m->chip->atom);
  l->kernel_x = (window >> 24 & 31) + one, l->kernel_y = (window >> 16 & 31) + one;
  l->kernels = (window & 0x3FFF) + one;
  l->kernel_bytes = GET(0x1020) & 0x7FFFF;
  l->top = pads & 15, l->left = pads >> 8 & 15, l->bottom = pads >> 16 & 15;
  l->right = pads >> 24 & 15;
  l->pad = (int8_t)(GET(0x1084) & 0xFF);
  l->outputs = (GET(0x402C) & 0x1FFF) + 1;
  l->columns = (GET(0x4020) & 0x1FFF) + 1, l->height = (GET(0x4024) & 0x1FFF) + 1;
  l->input = GET(0x1088), l->weights = GET(0x1110), l->table = GET(0x5020);
  l->row = (int64_t)(GET(0x1090) & 0xFFFFFFF) / 4 * m->chip->atom;
  l->surface = GET(0x1094) & 0xFFFFFFF;
  l->use = m->chip->family == RK_3562 ? use >> 1 & 7 : use >> OF_CHANNELS & 7;
#undef GET
  if (missing) return RK_BAD;
  if ((mode & 0xFFF) > (l->depthwise ? mode & 15 : 0) || (format && !older) ||
      product != (l->depthwise ? 0x0A : 0x01))
    return rk_fail(m, RK_UNSUPPORTED, "only int8 convolutions are simulated: CONV_CON1 is %#x",
                   mode);
  if (!l->stride_x || !l->stride_y)
    return rk_fail(m, RK_BAD, "strides are %d x %d", (int)l->stride_y, (int)l->stride_x);
  if (!l->width || !l->rows || !l->channels || !l->kernel_x || !l->kernel_y || !l->kernels)
    return rk_fail(m, RK_BAD, "a size is 0");
  const int64_t each = rk_entries(m->chip, l), fresh = (read & 0xFFFF) + one,
                held = l->rows - fresh;
  const int64_t core_outputs = (outputs & 0x1FFF) + 1;
  if (core != (uint32_t)((l->height - 1) << 16 | (l->columns - 1)) ||
      (older ? core_outputs < l->outputs : core_outputs != l->outputs) ||
      atomics + one != l->height * l->columns || (columns & 0xFFFF) + one != l->columns)
    return rk_fail(m, RK_BAD, "the sizes of the output differ: %d x %d", (int)l->height,
                   (int)l->columns);
  if (row != (uint32_t)(l->width << 16 | each) || start >> 16 != each || held < 0 ||
      depth >> 16 != (older ? 0 : fresh * each) || !held != !(banks >> 31))
    return rk_fail(m, RK_BAD, "a row takes %d entries; registers name %u, %u and %u for %d rows",
                   (int)each, row & 0xFFFF, start >> 16, depth >> 16, (int)fresh);
  const int64_t data = banks & 15;
  if (!data || data >= m->chip->banks || (banks >> 8 & 15) != data ||
      end >> (older ? 25 : 26) != data)
    return rk_fail(m, RK_BAD, "%d and %d banks of %d", (int)data, (int)(end >> (older ? 25 : 26)),
                   m->chip->banks);
  numbers n = {0};
  int result = older ? RK_DONE : read_numbers(m, use, numbers_at, &n);
  l->zero = n.zero;
  if (!result) result = stage_rows(m, l, data, held, start & 0xFFFF, end & 0xFFFFFF);
  return result ? result : rk_check_weights(m, l, bytes);
}

// Two pairs of registers hold the ends of numbers behind a stage.
int rk3576_ends(rk_machine *m, rk_stage *s, const uint32_t places[4], int *missing) {
  const int32_t low = (int32_t)rk_get(m, places[0], missing);
  const int32_t high = (int32_t)rk_get(m, places[1], missing);
  if (low != (int32_t)rk_get(m, places[2], missing) ||
      high != (int32_t)rk_get(m, places[3], missing) || (low && low != INT32_MIN) ||
      (low && high != INT32_MAX))
    return *missing ? RK_BAD
                    : rk_fail(m, RK_UNSUPPORTED, "numbers end at %d and %d", (int)low, (int)high);
  s->relu = !low, s->limited = s->relu && high != INT32_MAX, s->limit = high;
  return RK_DONE;
}

int rk3576_second(rk_machine *m, rk_output *out, int multiplies, int *missing) {
  const uint32_t reads = rk_get(m, 0x5034, missing), cvt = rk_get(m, 0x4084, missing);
  if (reads & 1) return rk_fail(m, RK_BAD, "a second map is used, but not read");
  out->has_second = 1, out->multiplies = multiplies;
  out->second_offset = (int16_t)(rk_get(m, 0x4080, missing) & 0xFFFF);
  out->second_scale = (int16_t)(cvt & 0xFFFF), out->second_shift = cvt >> 16 & 63;
  rk_reader *r = &out->second;
  r->readers = 1, r->base[0] = rk_get(m, 0x5038, missing), r->broadcasts = !(reads >> 30 & 3);
  r->step[0] = (uint64_t)rk_get(m, 0x5040, missing) * (uint64_t)m->chip->atom;
  return RK_DONE;
}

static int stages(rk_machine *m, rk_output *out, uint32_t use) {
  static const uint32_t BS[] = {0x4048, 0x404C, 0x4058, 0x405C};
  static const uint32_t BN[] = {0x406C, 0x4070, 0x4074, 0x4078};
  static const uint32_t EW[] = {0x4088, 0x408C, 0x40A4, 0x40A8};
  int missing = 0, result;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t bs = GET(0x4038), bn = GET(0x4060), ew = GET(0x407C), with = GET(0x4050);
  const uint32_t bn_use = GET(0x5028);
  numbers n = {0}, scaled = {0};
  if ((result = read_numbers(m, use, GET(0x5024), &n))) return result;
  if ((result = read_numbers(m, bn_use, GET(0x5030), &scaled))) return result;
  rk_stage *s = &out->bs;
  if (bs != BS_NOTHING && bs != BS_CLEAR) {
    if (bs != BS_CONVOLUTION && bs != BS_DEPTHWISE && bs != BS_MAP)
      return rk_fail(m, RK_UNSUPPORTED, "BS_CFG is %#x", bs);
    s->memory_addend = (use >> OF_CHANNELS & RK_BIAS) != 0;
    s->adds = s->memory_addend || (use & OF_ADDEND), s->addend = n.addend;
    s->memory_factor = (use >> OF_CHANNELS & RK_MULTIPLIER) != 0;
    s->multiplies = !(with & BYPASS_FACTOR), s->factor = n.factor;
    s->shift = n.shift, s->shift_negative = n.shift_negative;
  }
  if ((result = rk3576_ends(m, s, BS, &missing))) return result;
  s = &out->bn;
  if (bn == BN_SCALES) {
    if (bn_use != (OF_ADDEND | OF_FACTOR | OF_SHIFT))
      return rk_fail(m, RK_UNSUPPORTED, "BN reads %#x", bn_use);
    s->adds = s->multiplies = 1, s->addend = scaled.addend, s->factor = scaled.factor;
    s->shift = scaled.shift, s->shift_negative = scaled.shift_negative;
  } else if (bn != BN_NOTHING && bn != BN_RELU) {
    return rk_fail(m, RK_UNSUPPORTED, "BN_CFG is %#x", bn);
  }
  if ((result = rk3576_ends(m, s, BN, &missing)) ||
      (result = rk3576_ends(m, &out->after, EW, &missing)))
    return result;
  if (s->relu && bn == BN_NOTHING) return rk_fail(m, RK_BAD, "a stage without work has ends");
  out->looks_up = ew == EW_TABLE;
  if (ew == EW_ADDS || ew == EW_MULTIPLIES)
    result = rk3576_second(m, out, ew == EW_MULTIPLIES, &missing);
  else if (ew != EW_NOTHING && !out->looks_up)
    return rk_fail(m, RK_UNSUPPORTED, "EW_CFG is %#x", ew);
  if (!result && out->looks_up && GET(0x4108) != ONE_TABLE)
    return rk_fail(m, RK_UNSUPPORTED, "LUT_CFG is %#x", GET(0x4108));
#undef GET
  return missing ? RK_BAD : result;
}

int rk3576_output(rk_machine *m, rk_output *out) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  out->channels = (GET(0x402C) & 0x1FFF) + 1;
  out->width = (GET(0x4020) & 0x1FFF) + 1, out->height = (GET(0x4024) & 0x1FFF) + 1;
  out->written = rk_round_up(out->channels, m->chip->atom);
  out->base = GET(0x4018), out->surface = (uint64_t)GET(0x401C) * (uint64_t)m->chip->atom;
  out->skipped = (int64_t)(GET(0x4028) & 0x1FFF) * m->chip->atom;
  out->zero = (int32_t)GET(0x40AC), out->scale = (int16_t)(GET(0x40B0) & 0xFFFF);
  out->shift = GET(0x40B4) & 0xFFF;
  const uint32_t format = GET(0x4010), size = GET(0x4034), use = GET(0x501C), cube = GET(0x4030);
#undef GET
  if (missing) return RK_BAD;
  const int older = m->chip->family == RK_3562;
  if (format & ~(uint32_t)(older ? 63 << 10 : 0))
    return rk_fail(m, RK_UNSUPPORTED, "DATA_FORMAT is %#x; results are bytes", format);
  if (size != (uint32_t)((out->height - 1) << 16 | (out->width - 1)) ||
      (cube >> 16) + 1 != out->channels)
    return rk_fail(m, RK_BAD, "sizes of the output are %#x and %#x for %d x %d x %d", size, cube,
                   (int)out->channels, (int)out->height, (int)out->width);
  if (out->scale < 0 || out->shift > 62)
    return rk_fail(m, RK_BAD, "the result is multiplied by %d >> %d", (int)out->scale, out->shift);
  return older ? rk3562_stages(m, out) : stages(m, out, use);
}

int rk3576_source(rk_machine *m, rk_source *s) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t mode = GET(0x400C), reads = GET(0x5044), format = GET(0x4010);
  const int64_t atom = m->chip->atom;
  s->window = GET(0x5048);
  s->width = (GET(0x500C) & 0x1FFF) + 1, s->height = (GET(0x5010) & 0x1FFF) + 1;
  s->base = GET(0x5018);
  s->line = s->width * atom + (int64_t)(s->window >> 19) * atom;
  s->surface = (uint64_t)((s->height * s->width + (int64_t)GET(0x504C)) * atom);
  s->channels = (GET(0x5014) & 0x1FFF) + 1;
  s->columns = (GET(0x4020) & 0x1FFF) + 1, s->rows = (GET(0x4024) & 0x1FFF) + 1;
  s->skipped = (int64_t)(GET(0x4028) & 0x1FFF) * atom;
  const uint32_t wide = m->chip->family == RK_3562 ? 63u << 10 : 0;  // a shift
  const uint32_t nothing = m->chip->family == RK_3562 ? BN_NOTHING_RK3562 : BN_NOTHING;
  s->computes = GET(0x4038) != BS_NOTHING || GET(0x4060) != nothing || GET(0x407C) != EW_NOTHING;
  s->to = GET(0x4018), s->phase = (uint64_t)GET(0x401C) * (uint64_t)atom;
#undef GET
  if (missing) return RK_BAD;
  if (!(mode & FLYING) || !(reads & FLYING) || (format & ~wide))
    return rk_fail(m, RK_UNSUPPORTED, "the DPU alone reads no map: FEATURE_MODE_CFG is %#x", mode);
  return RK_DONE;
}

// Numbers beyond the table: its outermost entry, and a slope.
static int64_t beyond(uint32_t edge, int64_t far, uint32_t slope, uint32_t shift) {
  return (int16_t)(edge & 0xFFFF) + rk_half_even(far * (int16_t)(slope & 0xFFFF), shift & 31);
}

int rk3576_look_up(rk_machine *m, int64_t *v, int64_t count) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t info = GET(0x410C), low = GET(0x418C), high = GET(0x4194);
  const uint32_t low_slope = GET(0x4154), high_slope = GET(0x4174);
  const uint32_t low_shift = GET(0x4160), high_shift = GET(0x4184);
  const int64_t start = (int32_t)GET(0x4110), end = (int32_t)GET(0x4140);
  int alike = 1;
  for (uint32_t place = 4; place < 16; place += 4)
    alike &= (int32_t)GET(0x4110 + place) == start && (int32_t)GET(0x4140 + place) == end;
#undef GET
  if (missing) return RK_BAD;
  const int bits = info >> 8 & 255;
  if (!alike || (int)(info >> 16 & 255) != bits || bits > 20 ||
      end - start != ((int64_t)2 * (RK_TABLE - 1) << bits))
    return rk_fail(m, RK_BAD, "a table from %d to %d in steps of %d bits", (int)start, (int)end,
                   bits);
  for (int64_t i = 0; i < count; i++) {
    if (v[i] < start) v[i] = beyond(low, v[i] - start, low_slope, low_shift);
    else if (v[i] >= end) v[i] = beyond(high, v[i] - end, high_slope, high_shift);
    else {
      const int64_t from = v[i] - start, index = from >> bits;
      const int half = index >= RK_TABLE - 1;
      const int16_t *entry = m->table[half] + index - half * (RK_TABLE - 1);
      const int64_t rest = from & ((INT64_C(1) << bits) - 1);
      v[i] = entry[0] + rk_half_even((entry[1] - entry[0]) * rest, bits);
    }
  }
  return RK_DONE;
}
