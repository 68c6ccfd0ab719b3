// exp, log and the functions made of them on vectors of f32: one formula for every ISA, so results agree to rounding.
// Largest errors, measured over the whole range by tests/kernels/test_elementwise.py: see each function. NaN stays NaN.
// The polynomials are minimax fits of our own.
#pragma once
#include "vec.h"

// x = n * ln2 + r with |r| <= ln2/2, and q = e^r - 1. `lo` is added to x after the first rounding.
static inline vf v_exp_parts(vf x, vf lo, vf *n) {
  *n = vnear(vmul(x, vset(1.44269504f)));
  vf r = vadd(vfma(*n, vset(-1.42860677e-6f), vfma(*n, vset(-0.693145752f), x)), lo);
  vf q = vfma(r, vset(1.388250734e-3f), vset(8.366595954e-3f));
  q = vfma(r, q, vset(4.166720062e-2f));
  q = vfma(r, q, vset(1.666654348e-1f));
  q = vfma(r, q, vset(4.999999702e-1f));
  return vfma(vmul(r, r), q, r);
}

// exp(x + lo) for a small lo: 1.5 ulp; overflows to inf; results below 2^-126 become 0, for subnormals are slow.
static inline vf v_exp2(vf x, vf lo) {
  vf n, q = v_exp_parts(vmin(vset(89.f), vmax(vset(-87.3365402f), x)), lo, &n);
  return vselect(vlt(x, vset(-87.3365402f)), vset(0.f), vldexp(vadd(q, vset(1.f)), n));
}
static inline vf v_exp(vf x) { return v_exp2(x, vset(0.f)); }

// e^x - 1: 2 ulp for x <= 88, also near 0.
static inline vf v_expm1(vf x) {
  vf n, q = v_exp_parts(vmin(vset(88.f), vmax(vset(-87.f), x)), vset(0.f), &n);
  vf s = vpow2(n);
  return vfma(s, q, vsub(s, vset(1.f)));
}

// Natural logarithm: 1.5 ulp; log(0) = -inf, log(x < 0) = NaN.
static inline vf v_log(vf x) {
  vm tiny = vlt(x, vset(1.17549435e-38f));
  vf m = vselect(tiny, vmul(x, vset(8388608.f)), x);  // subnormals made normal
  vi from = visub(vbits(m), viset(0x3f3504f3));       // exponent of m relative to sqrt(1/2)
  vf e = vadd(vitof(visar(from, 23)), vselect(tiny, vset(-23.f), vset(0.f)));
  vf f = vsub(vfloats(viadd(viand(from, viset(0x007fffff)), viset(0x3f3504f3))), vset(1.f));
  vf s = vdiv(f, vadd(f, vset(2.f))), z = vmul(s, s), h = vmul(vset(.5f), vmul(f, f));
  vf R = vmul(z, vfma(z, vfma(z, vset(2.987093627e-1f), vset(3.997757435e-1f)), vset(6.666677594e-1f)));
  vf y = vsub(f, vsub(h, vfma(s, vadd(h, R), vmul(e, vset(1.42860677e-6f)))));
  y = vfma(e, vset(0.693145752f), y);
  y = vselect(vlt(x, vset(INFINITY)), y, x);  // inf and NaN are their own logarithms
  y = vselect(veq(x, vset(0.f)), vset(-INFINITY), y);
  return vselect(vlt(x, vset(0.f)), vset(NAN), y);
}

// log(1 + x) for x >= 0: 2 ulp. What 1 + x rounds away comes back through the derivative.
static inline vf v_log1p(vf x) {
  vf u = vadd(x, vset(1.f));
  return vadd(v_log(u), vdiv(vsub(x, vsub(u, vset(1.f))), u));
}

// 3 ulp, except that results below 2^-128 become 0.
static inline vf v_sigmoid(vf x) { return vdiv(vset(1.f), vadd(vset(1.f), v_exp(vneg(x)))); }

static inline vf v_copysign(vf size, vf sign) {
  return vfloats(vior(vbits(size), viand(vbits(sign), viset((int)0x80000000u))));
}

// 3 ulp.
static inline vf v_tanh(vf x) {
  vf m = v_expm1(vmin(vset(40.f), vmul(vset(2.f), vabs(x))));
  return v_copysign(vdiv(m, vadd(m, vset(2.f))), x);
}

static inline vf v_softplus(vf x) {  // 3 ulp
  return vadd(vmax(vset(0.f), x), v_log1p(v_exp(vneg(vabs(x)))));
}

// tanh(softplus(x)) = ((1 + e^x)^2 - 1) / ((1 + e^x)^2 + 1): 4 ulp above 2^-118.
static inline vf v_mish(vf x) {
  vf e = v_exp(vmin(vset(20.f), x)), n = vmul(e, vadd(e, vset(2.f)));
  return vmul(x, vdiv(n, vadd(n, vset(2.f))));
}

// erf(z) for 0 <= z < 1 in *inner and 1 - erf(z) for 1 <= z in *outer, both without cancellation. z^2 = half * x^2.
static inline void v_erf_parts(vf z, vf x, vf half, vf *inner, vf *outer) {
  vf s = vmul(z, z);
  vf p = vfma(s, vset(7.853882562e-5f), vset(-8.010200690e-4f));
  p = vfma(s, p, vset(5.188328680e-3f));
  p = vfma(s, p, vset(-2.685381286e-2f));
  p = vfma(s, p, vset(1.128358543e-1f));
  p = vfma(s, p, vset(-3.761262596e-1f));
  *inner = vmul(z, vfma(s, p, vset(1.128379107f)));
  // erfc(z) = exp(-z^2) * t * Q(t), t = 2 / (2 + z); x^2 = h^2 + (x - h)(x + h) with h^2 exact
  vf h = vfloats(viand(vbits(x), viset((int)0xfffff000u)));
  vf hi = vmul(half, vmul(h, h)), lo = vmul(half, vmul(vsub(x, h), vadd(x, h)));
  vf t = vdiv(vset(2.f), vadd(vset(2.f), z));
  vf q = vfma(t, vset(9.348712862e-2f), vset(-2.262270153e-1f));
  q = vfma(t, q, vset(8.239229023e-2f));
  q = vfma(t, q, vset(6.106008962e-2f));
  q = vfma(t, q, vset(1.787562221e-1f));
  q = vfma(t, q, vset(2.469691932e-1f));
  q = vfma(t, q, vset(2.820390165e-1f));
  q = vfma(t, q, vset(2.820984423e-1f));
  *outer = vmul(v_exp2(vneg(hi), vneg(lo)), vmul(t, q));
}

static inline vf v_erf(vf x) {  // 3 ulp
  vf z = vmin(vset(11.f), vabs(x)), inner, outer;
  v_erf_parts(z, z, vset(1.f), &inner, &outer);
  return v_copysign(vselect(vlt(z, vset(1.f)), inner, vsub(vset(1.f), outer)), x);
}

// x * Phi(x), Phi the normal distribution; the left tail keeps its relative accuracy: 1e-6.
static inline vf v_gelu(vf x) {
  vf w = vmin(vset(15.f), vabs(x)), z = vmul(vset(.707106781f), w), inner, outer;
  v_erf_parts(z, w, vset(.5f), &inner, &outer);
  vf tail = vselect(vlt(z, vset(1.f)), vsub(vset(1.f), inner), outer);  // erfc(|x| / sqrt 2)
  return vmul(vmul(vset(.5f), x), vselect(vlt(x, vset(0.f)), tail, vsub(vset(2.f), tail)));
}

// .5 (1 + tanh u) = sigmoid(2 u): 2e-6 for x > -4; the left tail keeps 2e-5 down to 1e-37.
static inline vf v_gelu_tanh(vf x) {
  vf u = vmul(x, vfma(vmul(x, x), vset(0.0713548163f), vset(1.59576912f)));
  return vmul(x, v_sigmoid(u));
}

// sin (shift 0) and cos (shift 1): 4 ulp below |x| = 8192; above, the C library's.
static inline vf v_sincos(vf x, int shift) {
  vf n = vnear(vmul(x, vset(0.636619772f)));
  vf r = vfma(n, vset(-1.5703125f), x);  // pi/2 in three pieces; n * the first is exact
  r = vfma(n, vset(-4.837512969970703125e-4f), r);
  r = vfma(n, vset(-7.54978995489188e-8f), r);
  vf z = vmul(r, r);
  vf s = vfma(z, vset(-1.951145823e-4f), vset(8.332133293e-3f));
  s = vfma(z, s, vset(-1.666665375e-1f));
  s = vfma(vmul(z, r), s, r);
  vf c = vfma(z, vset(2.442878576e-5f), vset(-1.388727804e-3f));
  c = vfma(z, c, vset(4.166664556e-2f));
  c = vfma(vmul(z, z), c, vfma(z, vset(-.5f), vset(1.f)));
  vi k = viadd(vwhole(n), viset(shift));
  vf odd = vitof(viand(k, viset(1)));
  vf y = vselect(vgt(odd, vset(0.f)), c, s);
  y = vfloats(vixor(vbits(y), vishl(viand(k, viset(2)), 30)));
  vm far = vnot(vle(vabs(x), vset(8192.f)));
  return vany(far) ? vselect(far, vmap(shift ? cosf : sinf, x), y) : y;
}
