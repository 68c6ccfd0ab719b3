// Vector operations of f32 kernels, one block per instruction set; those of ARM and
// RISC-V are vec_neon.h and vec_rvv.h.
// Included by sources that are compiled once per ISA. `vf` holds VL floats, `vi` VL 32-bit
// integers; a mask `vm` comes from a comparison and goes to vselect.
//
//   loads, stores   vload vstore; vloadn vstoren touch the first n < VL lanes (other lanes read 0);
//                   vfirst(n) is their mask
//   arithmetic      vset vadd vsub vmul vdiv vfma(a, b, c) = a * b + c vsqrt vabs vneg
//                   vround (half to even) vfloor vceil
//   vmadd(a, b, c)  a * b + c, with one rounding where there is an instruction for it
//   vinverse(a)     1 / a of moderate numbers, a few ulps off
//   vmin vmax       (a, b) give b if either is NaN: pass the value that may be NaN last
//   comparisons     vlt vle vgt vge veq vne (true on NaN) visnan; vselect(m, a, b) = m ? a : b;
//                   vand vor vnot combine masks
//   across lanes    vsum vhmax vhmin give one float
//   integers        vbits vfloats reinterpret; viset viadd visub viand vior vixor vishl vishr;
//                   visar keeps the sign
//   vnear vwhole    (a) the nearest integer, as float and as integer, |a| < 2^22
//   vpow2(n)        2^n of integers n in [-126, 127] held as floats
//   vldexp(x, n)    x * 2^n, n in [-252, 254]
//   vraise(q, t)    (1 + q) * 2^n, where t = n + VSHIFT, n integer in [-125, 128]
//   vlost(a, b, p)  the rounding error of the product p = a * b
//   16-bit floats   vload_f16 vload_bf16 vstore_f16 convert; vsome_bf16(p, n) vkeep_bf16(p, n, v)
//                   vsome_f16 vkeep_f16 load and store the first n <= VL, rounded half to even
//   vloadm vstorem  masks from and to bool bytes
//   ITG_VECTORS     defined where VL > 1
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "attributes.h"

#if defined(ISA_avx512)
#include <immintrin.h>
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;
enum { VL = 16 };
#define ITG_VECTORS
#define vfirst(n) ((vm)((1u << (n)) - 1))  // the first n < VL lanes
#define vload(p) _mm512_loadu_ps(p)
#define vstore(p, v) _mm512_storeu_ps(p, v)
#define vloadn(p, n) _mm512_maskz_loadu_ps(vfirst(n), p)
#define vstoren(p, n, v) _mm512_mask_storeu_ps(p, vfirst(n), v)
#define vset(c) _mm512_set1_ps(c)
#define vadd _mm512_add_ps
#define vsub _mm512_sub_ps
#define vmul _mm512_mul_ps
#define vdiv _mm512_div_ps
#define vmin _mm512_min_ps
#define vmax _mm512_max_ps
#define vfma(a, b, c) _mm512_fmadd_ps(a, b, c)  // a * b + c
#define vguess(a) _mm512_rcp14_ps(a)
#define vsqrt _mm512_sqrt_ps
#define vabs _mm512_abs_ps
#define vneg(a) _mm512_xor_ps(a, vset(-0.f))
#define vround(a) _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define vfloor(a) _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define vceil(a) _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)
#define vlt(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#define vle(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)
#define vgt(a, b) _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)
#define vge(a, b) _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ)
#define veq(a, b) _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)
#define vne(a, b) _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ)
#define vselect(m, a, b) _mm512_mask_blend_ps(m, b, a)
#define vand(m, k) ((vm)((m) & (k)))
#define vor(m, k) ((vm)((m) | (k)))
#define vnot(m) ((vm) ~(m))
#define vany(m) ((m) != 0)
#define vsum _mm512_reduce_add_ps
#define vhmax _mm512_reduce_max_ps
#define vhmin _mm512_reduce_min_ps
#define vbits _mm512_castps_si512
#define vfloats _mm512_castsi512_ps
#define viset(c) _mm512_set1_epi32(c)
#define viadd _mm512_add_epi32
#define visub _mm512_sub_epi32
#define viand _mm512_and_si512
#define vior _mm512_or_si512
#define vixor _mm512_xor_si512
#define vishl(a, n) _mm512_slli_epi32(a, n)
#define vishr(a, n) _mm512_srli_epi32(a, n)
#define visar(a, n) _mm512_srai_epi32(a, n)
#define vitof _mm512_cvtepi32_ps
#define vpow2(n) _mm512_scalef_ps(vset(1.f), n)
#define vldexp(x, n) _mm512_scalef_ps(x, n)
#define vload_f16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define vload_bf16(p) \
  vfloats(vishl(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#define vstore_f16(p, v) \
  _mm256_storeu_si256((__m256i *)(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
static inline vm vloadm(const uint8_t *p) {
  __m128i bytes = _mm_loadu_si128((const __m128i *)p);
  return _mm_test_epi8_mask(bytes, bytes);
}
static inline void vstorem(uint8_t *p, vm m) {
  _mm_storeu_si128((__m128i *)p, _mm_maskz_set1_epi8(m, 1));
}
#elif defined(ISA_avx2)
#include <immintrin.h>
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;
enum { VL = 8 };
#define ITG_VECTORS
static inline vm vfirst(int64_t n) {  // all bits of the first n lanes
  return _mm256_castsi256_ps(
      _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}
#define vload(p) _mm256_loadu_ps(p)
#define vstore(p, v) _mm256_storeu_ps(p, v)
#define vloadn(p, n) _mm256_maskload_ps(p, _mm256_castps_si256(vfirst(n)))
static inline void vstoren(float *p, int64_t n,
                           vf v) {  // by halves: masked stores are slow on some CPUs
  __m128 h = _mm256_castps256_ps128(v);
  if (n & 4) {
    _mm_storeu_ps(p, h);
    h = _mm256_extractf128_ps(v, 1);
    p += 4;
  }
  if (n & 2) {
    _mm_storel_pi((__m64 *)p, h);
    h = _mm_movehl_ps(h, h);
    p += 2;
  }
  if (n & 1) _mm_store_ss(p, h);
}
#define vset(c) _mm256_set1_ps(c)
#define vadd _mm256_add_ps
#define vsub _mm256_sub_ps
#define vmul _mm256_mul_ps
#define vdiv _mm256_div_ps
#define vmin _mm256_min_ps
#define vmax _mm256_max_ps
#define vfma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vguess(a) _mm256_rcp_ps(a)
#define vsqrt _mm256_sqrt_ps
#define vabs(a) _mm256_andnot_ps(vset(-0.f), a)
#define vneg(a) _mm256_xor_ps(a, vset(-0.f))
#define vround(a) _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define vfloor(a) _mm256_round_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define vceil(a) _mm256_round_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)
#define vlt(a, b) _mm256_cmp_ps(a, b, _CMP_LT_OQ)
#define vle(a, b) _mm256_cmp_ps(a, b, _CMP_LE_OQ)
#define vgt(a, b) _mm256_cmp_ps(a, b, _CMP_GT_OQ)
#define vge(a, b) _mm256_cmp_ps(a, b, _CMP_GE_OQ)
#define veq(a, b) _mm256_cmp_ps(a, b, _CMP_EQ_OQ)
#define vne(a, b) _mm256_cmp_ps(a, b, _CMP_NEQ_UQ)
#define vselect(m, a, b) _mm256_blendv_ps(b, a, m)
#define vand(m, k) _mm256_and_ps(m, k)
#define vor(m, k) _mm256_or_ps(m, k)
#define vnot(m) _mm256_xor_ps(m, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))
#define vany(m) (_mm256_movemask_ps(m) != 0)
#define VFOLD(name, fold, fold1)                                             \
  static inline float name(vf a) {                                           \
    __m128 h = fold(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); \
    h = fold(h, _mm_movehl_ps(h, h));                                        \
    return _mm_cvtss_f32(fold1(h, _mm_movehdup_ps(h)));                      \
  }
VFOLD(vsum, _mm_add_ps, _mm_add_ss)
VFOLD(vhmax, _mm_max_ps, _mm_max_ss)
VFOLD(vhmin, _mm_min_ps, _mm_min_ss)
#undef VFOLD
#define vbits _mm256_castps_si256
#define vfloats _mm256_castsi256_ps
#define viset(c) _mm256_set1_epi32(c)
#define viadd _mm256_add_epi32
#define visub _mm256_sub_epi32
#define viand _mm256_and_si256
#define vior _mm256_or_si256
#define vixor _mm256_xor_si256
#define vishl(a, n) _mm256_slli_epi32(a, n)
#define vishr(a, n) _mm256_srli_epi32(a, n)
#define visar(a, n) _mm256_srai_epi32(a, n)
#define vitof _mm256_cvtepi32_ps
#define vload_f16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define vload_bf16(p) \
  vfloats(vishl(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))
#define vstore_f16(p, v) \
  _mm_storeu_si128((__m128i *)(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
static inline vm vloadm(const uint8_t *p) {
  __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(lanes, _mm256_setzero_si256()));
}
static inline void vstorem(uint8_t *p, vm m) {
  __m256i ones = _mm256_srli_epi32(_mm256_castps_si256(m), 31);
  __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(ones), _mm256_extracti128_si256(ones, 1));
  _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(half, half));
}
#elif defined(ISA_neon)
#include "vec_neon.h"
#elif defined(ISA_rvv)
#include "vec_rvv.h"
#else
typedef float vf;
typedef uint32_t vi;  // unsigned, so that wrapping is defined
typedef uint32_t
    vm;  // all bits or none: a select by bits runs on whatever vectors the compiler finds
enum { VL = 1 };
static inline vi vbits(vf a) {
  vi b;
  memcpy(&b, &a, sizeof b);
  return b;
}
static inline vf vfloats(vi b) {
  vf a;
  memcpy(&a, &b, sizeof a);
  return a;
}
#define vfirst(n) (0 - (vm)((n) > 0))
#define vload(p) (*(p))
#define vstore(p, v) (*(p) = (v))
#define vloadn(p, n) ((n) > 0 ? *(p) : 0.f)
#define vstoren(p, n, v)     \
  do {                       \
    if ((n) > 0) *(p) = (v); \
  } while (0)
#define vset(c) ((float)(c))
#define vadd(a, b) ((a) + (b))
#define vsub(a, b) ((a) - (b))
#define vmul(a, b) ((a) * (b))
#define vdiv(a, b) ((a) / (b))
#define vfma(a, b, c) \
  ((a) * (b) + (c))  // two roundings: one is a slow library call where there is no FMA
#define vsqrt(a) sqrtf(a)
#define vabs(a) fabsf(a)
#define vneg(a) (-(a))
#define vround(a) rintf(a)
#define vfloor(a) floorf(a)
#define vceil(a) ceilf(a)
#define vlt(a, b) (0 - (vm)((a) < (b)))
#define vle(a, b) (0 - (vm)((a) <= (b)))
#define vgt(a, b) (0 - (vm)((a) > (b)))
#define vge(a, b) (0 - (vm)((a) >= (b)))
#define veq(a, b) (0 - (vm)((a) == (b)))
#define vne(a, b) (0 - (vm)((a) != (b)))
static inline vf vselect(vm m, vf a, vf b) { return vfloats((vbits(a) & m) | (vbits(b) & ~m)); }
static inline vf vmin(vf a, vf b) { return vselect(vlt(a, b), a, b); }
static inline vf vmax(vf a, vf b) { return vselect(vgt(a, b), a, b); }
#define vand(m, k) ((m) & (k))
#define vor(m, k) ((m) | (k))
#define vnot(m) (~(m))
#define vany(m) ((m) != 0)
#define vsum(a) (a)
#define vhmax(a) (a)
#define vhmin(a) (a)
#define viset(c) ((vi)(c))
#define viadd(a, b) ((a) + (b))
#define visub(a, b) ((a) - (b))
#define viand(a, b) ((a) & (b))
#define vior(a, b) ((a) | (b))
#define vixor(a, b) ((a) ^ (b))
#define vishl(a, n) ((a) << (n))
#define vishr(a, n) ((a) >> (n))
#define visar(a, n) ((vi)((int32_t)(a) >> (n)))
#define vitof(a) ((float)(int32_t)(a))
#define vloadm(p) (0 - (vm)(*(p) != 0))
#define vstorem(p, m) (*(p) = (uint8_t)((m) & 1))
#endif

#define visnan(a) vne(a, a)
static inline vi vround_bf16(vf v) {  // the upper halves; a NaN stays one
  const vi b = vbits(v), up = viadd(b, viadd(viset(0x7fff), viand(vishr(b, 16), viset(1))));
  return vishr(vbits(vselect(visnan(v), vfloats(vior(b, viset(0x400000))), vfloats(up))), 16);
}
#if defined(ISA_avx512)
static inline vf vsome_bf16(const uint16_t *p, int64_t n) {
  const __mmask16 some = n >= VL ? (__mmask16)-1 : vfirst(n);
  return vfloats(vishl(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, p)), 16));
}
static inline void vkeep_bf16(uint16_t *p, int64_t n, vf v) {
  const __mmask16 some = n >= VL ? (__mmask16)-1 : vfirst(n);
#if defined(__AVX512BF16__)
  _mm256_mask_storeu_epi16(p, some, (__m256i)_mm512_cvtneps_pbh(v));
#else
  _mm256_mask_storeu_epi16(p, some, _mm512_cvtepi32_epi16(vround_bf16(v)));
#endif
}
static inline vf vsome_f16(const uint16_t *p, int64_t n) {
  if (n >= VL) return vload_f16(p);
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vfirst(n), p));
}
static inline void vkeep_f16(uint16_t *p, int64_t n, vf v) {
  if (n >= VL) vstore_f16(p, v);
  else _mm256_mask_storeu_epi16(p, vfirst(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(ITG_VECTORS)
static inline vf vsome_f16(const uint16_t *p, int64_t n) {
  if (n >= VL) return vload_f16(p);
  uint16_t t[VL] = {0};
  memcpy(t, p, (size_t)n * sizeof *t);
  return vload_f16(t);
}
static inline void vkeep_f16(uint16_t *p, int64_t n, vf v) {
  uint16_t t[VL];
  vstore_f16(n >= VL ? p : t, v);
  if (n < VL) memcpy(p, t, (size_t)n * sizeof *t);
}
static inline vf vsome_bf16(const uint16_t *p, int64_t n) {
  if (n >= VL) return vload_bf16(p);
  uint16_t t[VL] = {0};
  memcpy(t, p, (size_t)n * sizeof *t);
  return vload_bf16(t);
}
static inline void vkeep_bf16(uint16_t *p, int64_t n, vf v) {
  const vi r = vround_bf16(v);
  uint16_t t[VL];
#if defined(ISA_avx2)
  const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
  _mm_storeu_si128((__m128i *)(n >= VL ? p : t), h);
#elif defined(ISA_rvv)
  *(vec_u16_any *)(n >= VL ? p : t) = vec_to(r, vec_u16);
#else
  vst1_u16(n >= VL ? p : t, vmovn_u32(r));
#endif
  if (n < VL) memcpy(p, t, (size_t)n * sizeof *t);
}
#else
#include "scalar.h"
static inline vf vsome_f16(const uint16_t *p, int64_t n) {
  return n > 0 ? itg_f16_to_f32(*p) : 0.f;
}
static inline void vkeep_f16(uint16_t *p, int64_t n, vf v) {
  if (n > 0) *p = itg_f32_to_f16(v);
}
static inline vf vsome_bf16(const uint16_t *p, int64_t n) {
  return n > 0 ? vfloats((vi)*p << 16) : 0.f;
}
static inline void vkeep_bf16(uint16_t *p, int64_t n, vf v) {
  if (n > 0) *p = (uint16_t)vround_bf16(v);
}
#endif
#ifdef vguess  // 1 / a for 2^-60 < |a| < 2^60, from an estimate and one step of Newton's: 3 ulp, a
               // third of a division
static inline vf vinverse(vf a) {
  const vf r = vguess(a);
  return vmul(r, vsub(vset(2.f), vmul(a, r)));
}
#else
#define vinverse(a) vdiv(vset(1.f), a)
#endif
// Adding 1.5 * 2^23 rounds a to a whole number and leaves it in the low bits of the sum, for |a| <
// 2^22: cheaper than vround where there is no instruction for that, and defined for NaN.
#define VSHIFT 12582912.f
static inline vf vnear(vf a) { return vsub(vadd(a, vset(VSHIFT)), vset(VSHIFT)); }
static inline vi vwhole(vf n) { return visub(vbits(vadd(n, vset(VSHIFT))), viset(0x4b400000)); }
#ifdef vldexp
static inline vf vraise(vf q, vf t) { return vldexp(vadd(q, vset(1.f)), vsub(t, vset(VSHIFT))); }
#else  // 2 (1 + q) * 2^(n - 1), for 2^128 is no float
static inline vf vraise(vf q, vf t) {
  return vmul(vfma(q, vset(2.f), vset(2.f)), vfloats(viadd(vishl(vbits(t), 23), viset(126 << 23))));
}
#endif
#ifndef vpow2
static inline vf vpow2i(vi n) { return vfloats(vishl(viadd(n, viset(127)), 23)); }
static inline vf vpow2(vf n) { return vpow2i(vwhole(n)); }
static inline vf vldexp(
    vf x, vf n) {  // in two steps: 2^n itself may be out of range where x * 2^n is not
  const vi whole = vwhole(n), half = visar(whole, 1);
  return vmul(vmul(x, vpow2i(half)), vpow2i(visub(whole, half)));
}
#endif

// a * b + c, in one rounding where there is an instruction for that and in two where there is none.
#ifdef ITG_VECTORS
#define vmadd vfma
#else
#define vmadd(a, b, c) ((a) * (b) + (c))
#endif

#ifdef ITG_VECTORS
static inline vf vlost(vf a, vf b, vf p) { return vfma(a, b, vneg(p)); }
#else  // by halves, whose products are exact
static inline vf vlost(vf a, vf b, vf p) {
  const vf x = vfloats(vbits(a) & 0xfffff000u), y = vfloats(vbits(b) & 0xfffff000u), u = a - x,
           v = b - y;
  return ((x * y - p) + x * v + u * y) + u * v;
}
#endif

// Functions that call the C library for each lane, for rare operations.

static inline vf vmap(float (*fn)(float), vf x) {
  float t[VL];
  vstore(t, x);
  for (int i = 0; i < VL; i++) t[i] = fn(t[i]);
  return vload(t);
}
static inline vf vmap2(float (*fn)(float, float), vf x, vf y) {
  float t[VL], u[VL];
  vstore(t, x);
  vstore(u, y);
  for (int i = 0; i < VL; i++) t[i] = fn(t[i], u[i]);
  return vload(t);
}
