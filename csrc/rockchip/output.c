// The stages of the DPU after the sums: bias and multiplier, scale, a second map or a table, and
// the conversion to bytes.
#include <string.h>

#include "machine.h"

enum {
  BYPASS = 1,
  ADD_BYPASS = 1 << 1,
  MULTIPLY_BYPASS = 1 << 4,
  PRELU = 1 << 5,
  RELU_BYPASS = 1 << 6,
  LIMITED = 1 << 7,
  FROM_MEMORY = 1 << 8,
  EW_BYPASS = 1,
  EW_OP_BYPASS = 1 << 1,
  EW_MULTIPLIES = 1 << 2,
  EW_FROM_MEMORY = 1 << 6,
  EW_LUT_BYPASS = 1 << 7,
  EW_CVT_BYPASS = 1 << 8,
  EW_RELU_BYPASS = 1 << 9,
  EW_LIMITED = 1 << 10,
  ADDITION = 2,
  TABLES = 0x68,  // LUT_CFG: one table behind the other, ends by their own slopes
  PAIRED = 5,     // COMB_USE: two readers take turns
  POISON = 0x5A,
};

// BS_CFG and BN_CFG of an RK356x have what is done to the second number three bits above bit 0.
static uint32_t stage_mode(const rk_machine *m, uint32_t mode) {
  return m->chip->family == RK_356X ? (mode & ~0xCu) | (mode >> 2 & 3) << 16 : mode;
}

// EW_CFG of an RK356x has it in bits 3 and 4, and no size of the second map's numbers.
static uint32_t second_mode(const rk_machine *m, uint32_t mode) {
  return m->chip->family == RK_356X ? (mode & ~0x18u) | (mode >> 3 & 3) << 16 : mode;
}

static int stage_of(rk_machine *m, rk_stage *s, uint32_t base, int negative_shift, int *missing) {
  const uint32_t mode = stage_mode(m, rk_get(m, base, missing));
  if (mode & BYPASS) {
    // vendor's compiler keeps relu in a stage whose other parts are bypassed; its first bit is 0
    memset(s, 0, sizeof *s);
    return RK_DONE;
  }
  s->adds = !(mode & ADD_BYPASS);
  s->multiplies = !(mode & MULTIPLY_BYPASS);
  s->negative_only = (mode & PRELU) != 0;
  s->relu = !(mode & RELU_BYPASS);
  s->limited = s->relu && (mode & LIMITED);
  if (s->adds && (mode >> 16 & 15) != ADDITION)
    return rk_fail(m, RK_UNSUPPORTED, "register %#x is %#x", base, mode);
  const uint32_t multiply = rk_get(m, base + 8, missing);
  s->memory_addend = (mode & FROM_MEMORY) != 0;
  s->memory_factor = multiply & 1;
  s->addend = (int32_t)rk_get(m, base + 4, missing);
  s->factor = (int16_t)(multiply >> 16);
  s->shift = multiply >> 8 & 63;
  s->shift_negative = negative_shift;
  s->limit = (int32_t)rk_get(m, base + 12, missing);
  return RK_DONE;
}

static int second_of(rk_machine *m, rk_output *out, uint32_t mode, int flying, int *missing) {
  if (mode >> 16 & 15 && (mode >> 16 & 15) != ADDITION)
    return rk_fail(m, RK_UNSUPPORTED, "EW_CFG is %#x", mode);
  out->has_second = 1;
  out->multiplies = (mode & EW_MULTIPLIES) != 0;
  if (!out->multiplies && (mode >> 16 & 15) != ADDITION)
    return rk_fail(m, RK_UNSUPPORTED, "EW_CFG is %#x", mode);
  const uint32_t cvt = rk_get(m, 0x4078, missing), reads = rk_get(m, 0x5034, missing);
  out->second_offset = (int32_t)rk_get(m, 0x4074, missing);
  out->second_scale = (int16_t)(cvt & 0xFFFF);
  out->second_shift = cvt >> 16 & 63;
  if (mode & EW_CVT_BYPASS) out->second_offset = 0, out->second_scale = 1, out->second_shift = 0;
  const uint32_t by = rk_get(m, 0x5044, missing) >> 8 & 7;
  const int atom = m->chip->atom;
  const uint64_t size = (uint64_t)(out->height * out->width * atom);
  rk_reader *r = &out->second;
  if (reads & 1) return rk_fail(m, RK_BAD, "a second map is used, but not read");
  r->broadcasts = (reads >> 30 & 3) == 0;
  if (m->chip->family == RK_356X) {
    r->readers = 1;
    r->base[0] = rk_get(m, 0x5038, missing);
    r->step[0] = rk_get(m, 0x5040, missing);
    if (r->broadcasts) r->step[0] = (uint64_t)atom;
    return RK_DONE;
  }
  const uint64_t skipped = rk_get(m, 0x506C, missing);
  if (!flying && !(by == 0 && r->broadcasts)) {  // one pixel has one reader
    if (by != PAIRED) return rk_fail(m, RK_UNSUPPORTED, "COMB_USE is %u", by);
    r->readers = 2;
    r->base[0] = rk_get(m, 0x5018, missing), r->base[1] = rk_get(m, 0x5038, missing);
    r->step[0] = size + rk_get(m, 0x504C, missing), r->step[1] = size + skipped;
  } else {
    r->readers = 1;
    r->base[0] = rk_get(m, 0x5038, missing);
    r->step[0] = r->broadcasts ? (uint64_t)atom : size + skipped;
  }
  return RK_DONE;
}

// An RV110x: bounds have registers of their own, what a stage does has other bits.
static int rv110x_stages(rk_machine *m, rk_output *out, uint32_t format) {
  enum {
    PLAIN = 0x10041C1,
    TABLE = 0x1004140,
    TABLE_OF_MAP = 0x4140,
    SUM = 0x8002C0C0,
    PRODUCT = 0x81004094
  };
  enum { CONVOLUTION = 0x120180, DEPTHWISE = 0x100092, OF_MAP = 0x100012, SHIFT = 63 << 9 };
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t bs = GET(0x4040), bn = GET(0x4060), ew = GET(0x4070), use = GET(0x4050);
  rk_stage *s = &out->bs;
  s->shift = s->shift_negative = bs >> 9 & 63;
  if ((bs & ~(uint32_t)SHIFT) == CONVOLUTION || (bs & ~(uint32_t)SHIFT) == DEPTHWISE) {
    s->adds = s->memory_addend = 1;
    s->multiplies = s->memory_factor = GET(0x501C) >> 3 & 1;  // the table has multipliers
  } else if ((bs & ~(uint32_t)SHIFT) == OF_MAP) {
    s->adds = 1, s->addend = (int32_t)GET(0x4018);
    s->multiplies = !(use & 2), s->factor = (int16_t)(GET(0x4048) >> 16);
  } else if (!(bs & 1)) {
    return rk_fail(m, RK_UNSUPPORTED, "BS_CFG is %#x", bs);
  }
  const int32_t low = (int32_t)GET(0x406C), high = (int32_t)GET(0x4028);
  const int32_t ew_low = (int32_t)GET(0x407C), ew_high = (int32_t)GET(0x402C);
  if ((low && low != INT32_MIN) || (ew_low && ew_low != INT32_MIN))
    return rk_fail(m, RK_UNSUPPORTED, "numbers end at %d and %d", low, ew_low);
  s = &out->bn;
  if (bn == 0x20000) {
    const uint32_t multiply = GET(0x4068);
    s->adds = 1, s->addend = (int32_t)GET(0x4064);  // before it multiplies
    s->multiplies = 1, s->factor = (int16_t)(multiply >> 16);
    s->shift = multiply >> 8 & 63, s->shift_negative = format >> 10 & 63;
  } else if (bn != 0x12 && bn != 0x13) {
    return rk_fail(m, RK_UNSUPPORTED, "BN_CFG is %#x", bn);
  }
  s->relu = !low, s->limited = s->relu && high != INT32_MAX, s->limit = high;
  out->looks_up = ew == TABLE || ew == TABLE_OF_MAP;
  out->multiplies = ew == PRODUCT;
  out->after.relu = !ew_low, out->after.limit = ew_high;
  out->after.limited = out->after.relu && ew_high != INT32_MAX;
  if (ew == SUM || ew == PRODUCT) {
    const uint32_t reads = GET(0x5034), cvt = GET(0x4078);
    if (reads & 1) return rk_fail(m, RK_BAD, "a second map is used, but not read");
    out->has_second = 1;
    out->second_offset = (int32_t)GET(0x4074);
    out->second_scale = (int16_t)(cvt & 0xFFFF), out->second_shift = cvt >> 16 & 63;
    rk_reader *r = &out->second;
    r->readers = 1, r->base[0] = GET(0x5038), r->broadcasts = !(reads >> 30 & 3);
    const uint64_t size = (uint64_t)(out->height * out->width * m->chip->atom);
    r->step[0] = r->broadcasts ? (uint64_t)m->chip->atom : size + GET(0x506C);
  } else if (ew != PLAIN && !out->looks_up) {
    return rk_fail(m, RK_UNSUPPORTED, "EW_CFG is %#x", ew);
  }
  if (out->looks_up && GET(0x4108) != TABLES)
    return rk_fail(m, RK_UNSUPPORTED, "LUT_CFG is %#x", GET(0x4108));
#undef GET
  return missing ? RK_BAD : RK_DONE;
}

int rk_output_of(rk_machine *m, rk_output *out) {
  if (rk_newer(m)) return rk3576_output(m, out);
  int missing = 0, result;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t cube = GET(0x403C), format = GET(0x4010), notch = GET(0x4038);
  const uint32_t mode = GET(0x400C), ew = second_mode(m, GET(0x4070));
  const int writer = m->chip->family == RK_3588;  // the part that writes has its own channels
  out->channels = (cube >> 16 & 0x1FFF) + 1;
  out->width = (GET(0x4030) & 0x1FFF) + 1, out->height = (GET(0x4034) & 0x1FFF) + 1;
  out->written = ((writer ? GET(0x4058) : cube) & 0x1FFF) + 1;
  if (out->written < out->channels)
    return rk_fail(m, RK_BAD, "%d of %d channels are written", (int)out->written,
                   (int)out->channels);
  out->base = GET(0x4020), out->surface = GET(0x4024);
  out->skipped = (int64_t)(notch & 0x1FFF) * m->chip->atom;
  out->scale = (int16_t)(GET(0x4084) & 0xFFFF), out->shift = GET(0x4088) & 0xFFF;
  out->zero = (int32_t)GET(0x4080);
  if ((format >> 29 & 7) || (format & 7))
    return rk_fail(m, RK_UNSUPPORTED, "DATA_FORMAT is %#x; results are bytes", format);
  const uint32_t both = (uint32_t)((out->height - 1) << 16 | (out->width - 1));
  const uint32_t size = m->chip->family == RK_356X ? both : GET(0x405C);
  if (size != both)
    return rk_fail(m, RK_BAD, "WDMA_SIZE_1 is %#x for %d x %d pixels", size, (int)out->height,
                   (int)out->width);
  if (out->scale < 0 || out->shift > 62)
    return rk_fail(m, RK_BAD, "the result is multiplied by %d >> %d", (int)out->scale, out->shift);
  if (m->chip->family == RV_110X) return missing ? RK_BAD : rv110x_stages(m, out, format);
  if ((result = stage_of(m, &out->bs, 0x4040, format >> 4 & 63, &missing))) return result;
  if ((result = stage_of(m, &out->bn, 0x4060, format >> 10 & 63, &missing))) return result;
  out->bn.multiplies_first = 1;
  if (out->bn.memory_addend || out->bn.memory_factor)
    return rk_fail(m, RK_UNSUPPORTED, "numbers of BN come from registers only");
  if (!(ew & EW_BYPASS)) {
    // without a source there is no operand: the vendor's tables of maps have such settings
    const int operates = !(ew & EW_OP_BYPASS) && (ew & EW_FROM_MEMORY);
    if (operates && (result = second_of(m, out, ew, mode & 1, &missing))) return result;
    out->looks_up = !(ew & EW_LUT_BYPASS);
    out->after.relu = !(ew & EW_RELU_BYPASS);
    out->after.limited = out->after.relu && (ew & EW_LIMITED);
    if (out->after.limited) out->after.limit = (int32_t)GET(0x407C);
  }
  if (out->looks_up && GET(0x4108) != TABLES)
    return rk_fail(m, RK_UNSUPPORTED, "LUT_CFG is %#x", GET(0x4108));
#undef GET
  return missing ? RK_BAD : RK_DONE;
}

// BS adds first; BN multiplies first, adds, and shifts at the end.
static void run_stage(const rk_stage *s, int64_t *v, int64_t count, int64_t addend,
                      int64_t factor) {
  if (s->adds && !s->multiplies_first)
    for (int64_t i = 0; i < count; i++) v[i] += addend;
  if (s->multiplies)
    for (int64_t i = 0; i < count; i++) {
      if (s->negative_only && v[i] >= 0) continue;
      const int64_t wide = v[i] * factor + (s->adds && s->multiplies_first ? addend : 0);
      v[i] = rk_half_even(wide, wide < 0 ? s->shift_negative : s->shift);
    }
  else if (s->adds && s->multiplies_first)
    for (int64_t i = 0; i < count; i++) v[i] += addend;
  if (s->relu)
    for (int64_t i = 0; i < count; i++) v[i] = v[i] < 0 ? 0 : v[i];
  if (s->limited)
    for (int64_t i = 0; i < count; i++) v[i] = v[i] > s->limit ? s->limit : v[i];
}

// An entry, and the part of the way to the next one that the lower bits say.
static int64_t between(const int16_t *table, int64_t x, int64_t start, int bits) {
  const int64_t from = x - start, index = from >> bits, rest = from & ((INT64_C(1) << bits) - 1);
  if (!rest) return table[index];
  return table[index] + rk_half_even((table[index + 1] - table[index]) * rest, bits);
}

static int64_t beyond(int64_t edge, int64_t far, uint32_t scale, uint32_t shift) {
  return edge + rk_half_even(far * (int16_t)scale, (int)shift);
}

static int look_up(rk_machine *m, int64_t *v, int64_t count) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t info = GET(0x410C);
  const int64_t le = (int32_t)GET(0x4110), le_end = (int32_t)GET(0x4114);
  const int64_t lo = (int32_t)GET(0x4118), lo_end = (int32_t)GET(0x411C);
  const uint32_t le_slope = GET(0x4120), le_shift = GET(0x4124);
  const uint32_t lo_slope = GET(0x4128), lo_shift = GET(0x412C);
#undef GET
  if (missing) return RK_BAD;
  const int le_bits = info >> 8 & 255, lo_bits = info >> 16 & 255;
  if (le_bits > 31 || lo_bits > 31 || le_end - le > ((int64_t)(RK_TABLE - 1) << le_bits) ||
      lo_end - lo > ((int64_t)(RK_TABLE - 1) << lo_bits) || le_end < le || lo_end < lo)
    return rk_fail(m, RK_BAD, "tables reach from %d to %d and from %d to %d", (int)le, (int)le_end,
                   (int)lo, (int)lo_end);
  for (int64_t i = 0; i < count; i++) {
    const int64_t x = v[i];
    if (x < le) v[i] = beyond(m->table[0][0], x - le, le_slope & 0xFFFF, le_shift & 31);
    else if (x < le_end) v[i] = between(m->table[0], x, le, le_bits);
    else if (x < lo_end) v[i] = between(m->table[1], x < lo ? lo : x, lo, lo_bits);
    else
      v[i] = beyond(m->table[1][(lo_end - lo) >> lo_bits], x - lo_end, lo_slope >> 16,
                    lo_shift >> 5 & 31);
  }
  return RK_DONE;
}

static int second_map(rk_machine *m, const rk_output *out, int64_t block, int64_t channels,
                      int64_t *v) {
  const rk_reader *r = &out->second;
  const int64_t pixels = out->height * out->width;
  const int atom = m->chip->atom;
  const uint64_t size = (uint64_t)((r->broadcasts ? 1 : pixels) * atom);
  const uint64_t at =
      r->base[block % r->readers] + (uint64_t)(block / r->readers) * r->step[block % r->readers];
  const int8_t *from = (const int8_t *)m->memory(m->context, at, size);
  if (!from)
    return rk_fail(m, RK_BAD, "%llu bytes of a second map at %#llx are not in the memory",
                   (unsigned long long)size, (unsigned long long)at);
  for (int64_t c = 0; c < channels; c++)
    for (int64_t i = 0; i < pixels; i++) {
      const int64_t raw = from[(r->broadcasts ? 0 : i * atom) + c] + out->second_offset;
      const int64_t operand = rk_half_even(raw * out->second_scale, out->second_shift);
      int64_t *to = v + c * pixels + i;
      *to = out->multiplies ? *to * operand : *to + operand;
    }
  return RK_DONE;
}

// Channels that fill up a block are written, too, with numbers that nobody may use.
static void poison(const rk_machine *m, uint8_t *to, int64_t row, const rk_output *out) {
  for (int64_t y = 0; y < out->height; y++)
    memset(to + y * row, POISON, (size_t)(out->width * m->chip->atom));
}

static uint8_t *target(rk_machine *m, const rk_output *out, int64_t block, int64_t row) {
  const uint64_t at = out->base + (uint64_t)block * out->surface;
  const uint64_t size = (uint64_t)((out->height - 1) * row + out->width * m->chip->atom);
  uint8_t *to = m->memory(m->context, at, size);
  if (!to)
    rk_fail(m, RK_BAD, "%llu bytes of output at %#llx are not in the memory",
            (unsigned long long)size, (unsigned long long)at);
  return to;
}

int rk_fill_blocks(rk_machine *m, const rk_output *out) {
  const int atom = m->chip->atom;
  const int64_t row = out->width * atom + out->skipped;
  for (int64_t block = (out->channels + atom - 1) / atom; block * atom < out->written; block++) {
    uint8_t *to = target(m, out, block, row);
    if (!to) return RK_BAD;
    poison(m, to, row, out);
  }
  return RK_DONE;
}

int rk_write_block(rk_machine *m, const rk_output *out, int64_t block, int64_t channels,
                   int64_t *numbers, const int32_t *bias, const int16_t *factor) {
  const int64_t pixels = out->height * out->width, all = channels * pixels;
  for (int64_t c = 0; c < channels; c++) {
    int64_t *v = numbers + c * pixels;
    run_stage(&out->bs, v, pixels, out->bs.memory_addend ? bias[c] : out->bs.addend,
              out->bs.memory_factor ? factor[c] : out->bs.factor);
    run_stage(&out->bn, v, pixels, out->bn.addend, out->bn.factor);
  }
  int result;
  if (out->has_second && (result = second_map(m, out, block, channels, numbers))) return result;
  if (out->looks_up) {
    const int newer = m->chip->family == RK_3576;
    result = newer ? rk3576_look_up(m, numbers, all) : look_up(m, numbers, all);
    if (result) return result;
  }
  run_stage(&out->after, numbers, all, 0, 0);
  const int atom = m->chip->atom;
  const int64_t row = out->width * atom + out->skipped;
  uint8_t *to = target(m, out, block, row);
  if (!to) return RK_BAD;
  if (channels < atom) poison(m, to, row, out);
  for (int64_t c = 0; c < channels; c++)
    for (int64_t y = 0; y < out->height; y++)
      for (int64_t x = 0; x < out->width; x++) {
        const int64_t wide = numbers[c * pixels + y * out->width + x] * out->scale;
        const int64_t v = rk_half_even(wide, out->shift) + out->zero;
        to[y * row + x * atom + c] = (uint8_t)(int8_t)rk_clamp(v, -128, 127);
      }
  return RK_DONE;
}
