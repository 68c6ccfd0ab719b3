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
#define ITG_KEPT_SCALES

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
  int32_t r;
  __asm("smlad %0, %1, %2, %3" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  return r;
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

// Four products of each of two rows and two windows. No load is used by the next instruction.
#define ITG_FOUR                                                  \
  "ldrd %[s], %[t], [%[w]], #8\n ldrd %[e], %[f], [%[p]], #8\n"   \
  "sxtb16 %[u], %[s], ror #8\n sxtb16 %[v], %[t], ror #8\n"       \
  "sxtb16 %[s], %[s]\n sxtb16 %[t], %[t]\n"                       \
  "smlad %[a], %[s], %[e], %[a]\n smlad %[b], %[t], %[e], %[b]\n" \
  "ldrd %[g], %[e], [%[q]], #8\n"                                 \
  "smlad %[a], %[u], %[f], %[a]\n smlad %[b], %[v], %[f], %[b]\n" \
  "smlad %[c], %[s], %[g], %[c]\n smlad %[d], %[t], %[g], %[d]\n" \
  "smlad %[c], %[u], %[e], %[c]\n smlad %[d], %[v], %[e], %[d]\n"

// Two rows and two windows, with all 14 registers that a function has: turns are counted in one of
// floats. k is a multiple of four: of k / 4 steps, one and two come before turns of four.
ITG_INLINE const int8_t *itg_two_by_two(int32_t *sum, const int8_t *w, const itg_col *const *x,
                                        int32_t k) {
  int32_t a = sum[0], b = sum[1], c = sum[2], d = sum[3];
  uint32_t s = (uint32_t)k >> 2, t, u, v, e, f, g, q, p = (uint32_t)(uintptr_t)x;
  float n;
  __asm volatile(
      "vmov %[n], %[s]\n ldrd %[p], %[q], [%[p]]\n"
      "lsls %[s], %[s], #31\n bpl 1f\n" ITG_FOUR
      "1: vmov %[s], %[n]\n lsls %[s], %[s], #30\n bpl 2f\n" ITG_FOUR ITG_FOUR
      "2: vmov %[s], %[n]\n lsrs %[s], %[s], #2\n beq 4f\n vmov %[n], %[s]\n"
      "3: " ITG_FOUR ITG_FOUR ITG_FOUR ITG_FOUR
      "vmov %[s], %[n]\n subs %[s], %[s], #1\n vmov %[n], %[s]\n bne 3b\n"
      "4:\n"
      : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [n] "=&t"(n), [w] "+r"(w), [p] "+r"(p),
        [q] "=&r"(q), [s] "+r"(s), [t] "=&r"(t), [u] "=&r"(u), [v] "=&r"(v), [e] "=&r"(e),
        [f] "=&r"(f), [g] "=&r"(g)
      :
      : "memory", "cc");
  sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
  return w;
}

// One window.
ITG_INLINE const int8_t *itg_rows(int32_t *sum, const int8_t *w, const itg_col *p, int32_t k,
                                  int rows) {
  const itg_col *end = p + k;
  int32_t a = sum[0], b = rows == 2 ? sum[1] : 0;
  while (p != end) {
    uint32_t u, v, e, f;
    if (rows == 2) {
      ITG_LOAD_TWO(u, v, w, 8);
    } else {
      u = v = itg_word(w), w += 4;
    }
    ITG_LOAD_TWO(e, f, p, 8);
    a = itg_dot(itg_even(u), e, a), a = itg_dot(itg_odd(u), f, a);
    if (rows == 2) b = itg_dot(itg_even(v), e, b), b = itg_dot(itg_odd(v), f, b);
  }
  sum[0] = a;
  if (rows == 2) sum[1] = b;
  return w;
}

ITG_INLINE const int8_t *itg_block(int32_t *sum, const int8_t *w, const itg_col *const *x,
                                   int32_t k, int rows, int cols) {
  k = ITG_ROUND_UP(k, 4);
#if defined(__OPTIMIZE__)  // else a function has too few registers
  if (cols == 2) return itg_two_by_two(sum, w, x, k);
#endif
  if (cols == 2) itg_rows(sum + 2, w, x[1], k, rows);
  return itg_rows(sum, w, x[0], k, rows);
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

// Products of halves: the upper of a and the lower of b; the lower of a and the upper of b.
ITG_INLINE int32_t itg_crossed(uint32_t a, uint32_t b, int32_t sum) {
  int32_t r;
  __asm("smlatb %0, %1, %2, %3" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  return r;
}

ITG_INLINE int32_t itg_mixed(uint32_t a, uint32_t b, int32_t sum) {
  int32_t r;
  __asm("smlabt %0, %1, %2, %3" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  return r;
}

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
