// The vector operations of vec.h for RISC-V with RVV 1.0, at any length of its registers from 128
// bits on: 16 floats are a group of four registers of 128 bits, and take fewer where they are
// longer. Written over the vectors of clang, for RVV's own types have no size.
#pragma once
#include <riscv_vector.h>
#define ITG_OF_16(type, name, align)                      \
  typedef type name __attribute__((ext_vector_type(16))); \
  typedef type name##_any                                 \
      __attribute__((ext_vector_type(16), aligned(align), may_alias))  // as memory has them
ITG_OF_16(float, vf, 4);
ITG_OF_16(uint32_t, vi, 4);
ITG_OF_16(int32_t, vm, 4);  // -1 and 0
ITG_OF_16(int16_t, vec_i16, 2);
ITG_OF_16(uint16_t, vec_u16, 2);
ITG_OF_16(int8_t, vec_i8, 1);
ITG_OF_16(uint8_t, vec_u8, 1);
enum { VL = 16 };
#define ITG_VECTORS
#define vec_to __builtin_convertvector
static inline vm vfirst(int64_t n) {  // all bits of the first n lanes
  const vm lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return lane < (vm)(int32_t)n;
}
#define vload(p) (*(const vf_any *)(p))
#define vstore(p, v) (*(vf_any *)(p) = (v))
static inline vf vloadn(const float *p, int64_t n) {
  float t[16];
  const vfloat32m4_t none = __riscv_vfmv_v_f_f32m4(0.f, 16);
  __riscv_vse32_v_f32m4(t, __riscv_vle32_v_f32m4_tu(none, p, (size_t)n), 16);
  return vload(t);
}
static inline void vstoren(float *p, int64_t n, vf v) {
  float t[16];
  vstore(t, v);
  __riscv_vse32_v_f32m4(p, __riscv_vle32_v_f32m4(t, (size_t)n), (size_t)n);
}
#define vset(c) ((vf)(float)(c))
#define vadd(a, b) ((a) + (b))
#define vsub(a, b) ((a) - (b))
#define vmul(a, b) ((a) * (b))
#define vdiv(a, b) ((a) / (b))
#define vfma(a, b, c) __builtin_elementwise_fma(a, b, c)
#define vsqrt(a) __builtin_elementwise_sqrt(a)
#define vabs(a) __builtin_elementwise_abs(a)
#define vneg(a) (-(a))
#define vround(a) __builtin_elementwise_roundeven(a)
#define vfloor(a) __builtin_elementwise_floor(a)
#define vceil(a) __builtin_elementwise_ceil(a)
#define vlt(a, b) ((vm)((a) < (b)))
#define vle(a, b) ((vm)((a) <= (b)))
#define vgt(a, b) ((vm)((a) > (b)))
#define vge(a, b) ((vm)((a) >= (b)))
#define veq(a, b) ((vm)((a) == (b)))
#define vne(a, b) ((vm)((a) != (b)))
#define vselect(m, a, b) ((m) ? (a) : (b))
static inline vf vmin(vf a, vf b) { return vselect(vlt(a, b), a, b); }
static inline vf vmax(vf a, vf b) { return vselect(vgt(a, b), a, b); }
#define vand(m, k) ((m) & (k))
#define vor(m, k) ((m) | (k))
#define vnot(m) (~(m))
#define vany(m) (__builtin_reduce_or(m) != 0)
static inline float vsum(vf a) {
  typedef float half __attribute__((ext_vector_type(8)));
  typedef float quarter __attribute__((ext_vector_type(4)));
  const half h = a.lo + a.hi;
  const quarter q = h.lo + h.hi;
  return (q.x + q.z) + (q.y + q.w);
}
#define vhmax(a) __builtin_reduce_max(a)
#define vhmin(a) __builtin_reduce_min(a)
#define vbits(a) ((vi)(a))  // of vectors of one size a cast keeps the bits
#define vfloats(a) ((vf)(a))
#define viset(c) ((vi)(uint32_t)(c))
#define viadd(a, b) ((a) + (b))
#define visub(a, b) ((a) - (b))
#define viand(a, b) ((a) & (b))
#define vior(a, b) ((a) | (b))
#define vixor(a, b) ((a) ^ (b))
#define vishl(a, n) ((a) << (vi)(uint32_t)(n))
#define vishr(a, n) ((a) >> (vi)(uint32_t)(n))
#define visar(a, n) ((vi)((vm)(a) >> (vm)(n)))
#define vitof(a) vec_to((vm)(a), vf)
// f16 by whole numbers, for conversions are an extension of RVV: the exponent moves from bias 15 to
// 127 by a product, which makes subnormals normal; inf and NaN take the highest exponent.
static inline vf vload_f16(const uint16_t *p) {
  const vi h = vec_to(*(const vec_u16_any *)p, vi), rest = vishl(viand(h, viset(0x7fff)), 13);
  const vf size = vmul(vfloats(rest), vset(0x1p112f));
  const vi far = vior(rest, viset(0x7f800000));
  const vi bits = (vm)(rest >= viset(0x7c00 << 13)) ? far : vbits(size);
  return vfloats(vior(bits, vishl(viand(h, viset(0x8000)), 16)));
}
static inline void vstore_f16(uint16_t *p, vf v) {  // half to even
  const vi b = vbits(v), sign = viand(vishr(b, 16), viset(0x8000)),
           size = viand(b, viset(0x7fffffff));
  // 2^-14 and above: round the mantissa in place; below: an addition of 1/2 rounds to steps of
  // 2^-24
  const vi up = viadd(viadd(size, viset(0xfff)), viand(vishr(size, 13), viset(1)));
  const vi normal = vishr(visub(up, viset(112 << 23)), 13);
  const vi small = visub(vbits(vadd(vfloats(size), vset(.5f))), viset(0x3f000000));
  vi h = (vm)(size < viset(113 << 23)) ? small : normal;
  h = (vm)(size >= viset(0x477ff000)) ? viset(0x7c00) : h;
  h = (vm)(size > viset(0x7f800000)) ? vior(viset(0x7e00), vishr(viand(size, viset(0x7fffff)), 13))
                                     : h;
  *(vec_u16_any *)p = vec_to(vior(h, sign), vec_u16);
}
#define vload_bf16(p) vfloats(vishl(vec_to(*(const vec_u16_any *)(p), vi), 16))
#define vloadm(p) ((vm)(vec_to(*(const vec_u8_any *)(p), vm) != (vm)0))
#define vstorem(p, m) (*(vec_u8_any *)(p) = vec_to((m) & (vm)1, vec_u8))
static inline vf vpermute(vf v, vi index) {  // lane i of the result is lane index[i] of v
  float t[16];
  uint32_t at[16];
  vstore(t, v);
  *(vi_any *)at = index;
  const vfloat32m4_t from = __riscv_vle32_v_f32m4(t, 16);
  __riscv_vse32_v_f32m4(t, __riscv_vrgather_vv_f32m4(from, __riscv_vle32_v_u32m4(at, 16), 16), 16);
  return vload(t);
}
