// The stages of an RK3562's DPU: registers at the places of an RK3576, with the meanings of an
// RV1106; all numbers stand in registers.
#include "machine.h"

enum { CONVOLUTION = 0x120080, DEPTHWISE = 0x100092, OF_MAP = 0x100012, SHIFT = 63 << 8 };
enum { BS_NOTHING = 0x53, BN_NOTHING = 0x13, BN_RELU = 0x12, BN_SCALES = 0x20000 };
enum { EW_NOTHING = 0x10041C1, EW_TABLE = 0x1004140, BYPASS_FACTOR = 2, TABLES = 0x160 };
#define EW_ADDS 0x8002C0C0u
#define EW_MULTIPLIES 0x81004094u

int rk3562_stages(rk_machine *m, rk_output *out) {
  static const uint32_t BS[] = {0x4048, 0x404C, 0x4058, 0x405C};
  static const uint32_t BN[] = {0x406C, 0x4070, 0x4074, 0x4078};
  static const uint32_t EW[] = {0x4088, 0x408C, 0x40A4, 0x40A8};
  int missing = 0, result;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t bs = GET(0x4038), bn = GET(0x4060), ew = GET(0x407C), factor = GET(0x4044);
  const uint32_t kind = bs & ~(uint32_t)SHIFT;
  rk_stage *s = &out->bs;
  s->shift = s->shift_negative = bs >> 8 & 63;
  if (kind == CONVOLUTION || kind == DEPTHWISE) {
    s->adds = s->memory_addend = 1;
    s->multiplies = s->memory_factor = GET(0x501C) >> 3 & 1;  // the table has multipliers
  } else if (kind == OF_MAP) {
    s->adds = 1, s->addend = (int32_t)GET(0x4040);
    s->multiplies = !(GET(0x4050) & BYPASS_FACTOR), s->factor = (int16_t)(factor >> 16);
  } else if (bs != BS_NOTHING) {
    return rk_fail(m, RK_UNSUPPORTED, "BS_CFG is %#x", bs);
  }
  if ((result = rk3576_ends(m, s, BS, &missing))) return result;
  s = &out->bn;
  if (bn == BN_SCALES) {
    const uint32_t multiply = GET(0x4068);
    s->adds = s->multiplies = 1, s->addend = (int32_t)GET(0x4064);  // before it multiplies
    s->factor = (int16_t)(multiply >> 16), s->shift = multiply >> 8 & 63;
    s->shift_negative = GET(0x4010) >> 10 & 63;
  } else if (bn != BN_NOTHING && bn != BN_RELU) {
    return rk_fail(m, RK_UNSUPPORTED, "BN_CFG is %#x", bn);
  }
  if ((result = rk3576_ends(m, s, BN, &missing))) return result;
  if ((result = rk3576_ends(m, &out->after, EW, &missing))) return result;
  if (s->relu && bn == BN_NOTHING) return rk_fail(m, RK_BAD, "a stage without work has ends");
  out->looks_up = ew == EW_TABLE;
  if (ew == EW_ADDS || ew == EW_MULTIPLIES)
    result = rk3576_second(m, out, ew == EW_MULTIPLIES, &missing);
  else if (ew != EW_NOTHING && !out->looks_up)
    return rk_fail(m, RK_UNSUPPORTED, "EW_CFG is %#x", ew);
  if (!result && out->looks_up && GET(0x4108) != TABLES)
    return rk_fail(m, RK_UNSUPPORTED, "LUT_CFG is %#x", GET(0x4108));
#undef GET
  return missing ? RK_BAD : result;
}
