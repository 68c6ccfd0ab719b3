// Rounding: clamp(round_half_even(value) + zero, -128, 127), with and without an FPU.
#ifndef ITG_ROUND_H
#define ITG_ROUND_H

// 2^23 + 2^22: adding it rounds a float of less than 2^22 to a whole number, half to even.
#define ITG_MAGIC 12582912.0f
#define ITG_MAGIC_BITS 0x4B400000

ITG_INLINE int32_t itg_bits(float v) {
  int32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

#if defined(ITG_FORM_DSP)
// VCVTR rounds half to even; QADD keeps a saturated result saturated.
ITG_INLINE int32_t itg_round(float v, int32_t zero) {
  int32_t r;
  __asm("vcvtr.s32.f32 %0, %0" : "+t"(v));
  __asm("vmov %0, %1" : "=r"(r) : "t"(v));
  __asm("qadd %0, %0, %1" : "+r"(r) : "r"(zero));
  __asm("ssat %0, #8, %0" : "+r"(r));
  return r;
}
#else
ITG_INLINE int32_t itg_round(float v, int32_t zero) {
  const float low = (float)(-128 - zero), high = (float)(127 - zero);
  v = v < low ? low : v;
  v = v > high ? high : v;
  return itg_bits(v + ITG_MAGIC) - ITG_MAGIC_BITS + zero;
}
#endif

#if defined(ITG_SOFT_FLOAT)
// The same in integers, where |sum| < 2^24, |sum * scale| < 2^14 and 2^-24 <= scale < 2^7: the
// product has 16 bits of fraction. Only where these are within 4 units of a half can the rounding
// of the float product matter; then the float product is made.
ITG_INLINE int32_t itg_requant(int32_t sum, float scale, int32_t zero, uint32_t exact) {
  if (exact) {
    const uint32_t bits = (uint32_t)itg_bits(scale);
    const uint32_t shift = 150 - 16 - (bits >> 23);
    const int64_t product = (int64_t)sum * (int32_t)((bits & 0x7FFFFF) | 0x800000);
    const uint32_t low = (uint32_t)product, high = (uint32_t)(product >> 32);
    const int32_t v = (int32_t)((low >> shift | high << (32 - shift)) + 0x8004);
    if ((v & 0xFFFF) >= 8) {
      int32_t r = (v >> 16) + zero;
      r = r < -128 ? -128 : r;
      return r > 127 ? 127 : r;
    }
  }
  return itg_round((float)sum * scale, zero);
}
#else
ITG_INLINE int32_t itg_requant(int32_t sum, float scale, int32_t zero, uint32_t exact) {
  (void)exact;
  return itg_round((float)sum * scale, zero);
}
#endif

ITG_INLINE int32_t itg_load(const int8_t *x, uint32_t flip) { return (int8_t)((uint8_t)*x ^ flip); }

#endif
