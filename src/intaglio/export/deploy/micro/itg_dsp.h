// The DSP extension: two products of 16 bits an instruction.
//
// Rows of weights are interleaved in pairs, four bytes of each at a time, in the order 0 2 1 3:
// SXTB16 makes the 16-bit pairs 0 1 and 2 3 of them. Windows are unfolded to 16 bits.
#ifndef ITG_DSP_H
#define ITG_DSP_H

#define ITG_ROWS 2
#define ITG_COLS 2
#define ITG_BIAS_FIRST 1
#define ITG_DIRECT 0
#define ITG_COL_UNIT 4

typedef int16_t itg_col;

ITG_INLINE uint32_t itg_word(const void *p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

ITG_INLINE uint32_t itg_even(uint32_t v) {  // bytes 0 and 2 as 16 bits
  uint32_t r;
  __asm("sxtb16 %0, %1" : "=r"(r) : "r"(v));
  return r;
}

ITG_INLINE uint32_t itg_odd(uint32_t v) {  // bytes 1 and 3
  uint32_t r;
  __asm("sxtb16 %0, %1, ror #8" : "=r"(r) : "r"(v));
  return r;
}

ITG_INLINE int32_t itg_dot(uint32_t a, uint32_t b, int32_t sum) {
  __asm("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

ITG_INLINE void itg_expand(itg_col *to, const int8_t *from, int32_t n, uint32_t flip) {
  const uint32_t flips = flip * 0x01010101u;
  int32_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const uint32_t v = itg_word(from + i) ^ flips, even = itg_even(v), odd = itg_odd(v);
    uint32_t first, second;
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(first) : "r"(even), "r"(odd));
    __asm("pkhtb %0, %1, %2, asr #16" : "=r"(second) : "r"(odd), "r"(even));
    memcpy(to + i, &first, 4);
    memcpy(to + i + 2, &second, 4);
  }
  for (; i < n; i++) to[i] = (int16_t)itg_load(from + i, flip);
}

// Windows and weights lie at multiples of four bytes; k is a multiple of four.
#define ITG_LOAD_TWO(a, b, p, by) \
  __asm volatile("ldrd %0, %1, [%2], #" #by : "=r"(a), "=r"(b), "+r"(p) : : "memory")

ITG_INLINE const int8_t *itg_block(int32_t *sum, const int8_t *w, const itg_col *const *x,
                                   int32_t k, int rows, int cols) {
  const itg_col *p = x[0], *q = x[cols - 1], *end = p + ITG_ROUND_UP(k, 4);
  int32_t a = sum[0], b = sum[1], c = 0, d = 0;
  if (rows == 2 && cols == 2) {
    c = sum[2], d = sum[3];
    while (p != end) {
      uint32_t u, v, e, f;
      ITG_LOAD_TWO(u, v, w, 8);
      const uint32_t s = itg_even(u), t = itg_even(v);
      u = itg_odd(u), v = itg_odd(v);
      ITG_LOAD_TWO(e, f, p, 8);
      a = itg_dot(s, e, a), b = itg_dot(t, e, b);
      a = itg_dot(u, f, a), b = itg_dot(v, f, b);
      ITG_LOAD_TWO(e, f, q, 8);
      c = itg_dot(s, e, c), d = itg_dot(t, e, d);
      c = itg_dot(u, f, c), d = itg_dot(v, f, d);
    }
    sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
    return w;
  }
  if (rows == 2) {
    while (p != end) {
      uint32_t u, v, e, f;
      ITG_LOAD_TWO(u, v, w, 8);
      ITG_LOAD_TWO(e, f, p, 8);
      a = itg_dot(itg_even(u), e, a), b = itg_dot(itg_even(v), e, b);
      a = itg_dot(itg_odd(u), f, a), b = itg_dot(itg_odd(v), f, b);
    }
    sum[0] = a, sum[1] = b;
    return w;
  }
  for (; p != end; p += 4, w += 4) {
    const uint32_t u = itg_word(w);
    a = itg_dot(itg_even(u), itg_word(p), a);
    a = itg_dot(itg_odd(u), itg_word(p + 2), a);
  }
  sum[0] = a;
  return w;
}

ITG_INLINE void itg_finish(const int32_t *sum, const int32_t *bias, int n, const float *scale,
                           int32_t per, int32_t zero, uint32_t flip, uint32_t exact, int8_t *y) {
  (void)bias;
  ITG_UNROLL
  for (int i = 0; i < n; i++) {
    y[i] = (int8_t)((uint32_t)itg_requant(sum[i], scale[i * per], zero, exact) ^ flip);
  }
}

#include "itg_scalar_lanes.h"

ITG_INLINE int32_t itg_low(uint32_t a, uint32_t b, int32_t sum) {
  __asm("smlabb %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

ITG_INLINE int32_t itg_high(uint32_t a, uint32_t b, int32_t sum) {
  __asm("smlatt %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

ITG_INLINE void itg_lanes_add(itg_lanes *s, const int8_t *x, const int8_t *w, uint32_t flip,
                              int n) {
  if (n == 4) {
    const uint32_t u = itg_word(x) ^ flip * 0x01010101u, v = itg_word(w);
    const uint32_t e = itg_even(u), f = itg_even(v), g = itg_odd(u), h = itg_odd(v);
    s->of[0] = itg_low(e, f, s->of[0]), s->of[2] = itg_high(e, f, s->of[2]);
    s->of[1] = itg_low(g, h, s->of[1]), s->of[3] = itg_high(g, h, s->of[3]);
    return;
  }
  for (int i = 0; i < n; i++) s->of[i] += itg_load(x + i, flip) * w[i];
}

#endif
