// exp, log and the functions made of them on vectors of f32: one formula for every ISA, so results
// agree to rounding. Largest errors, measured over the whole range by
// tests/kernels/test_elementwise.py: see each function. NaN stays NaN. The polynomials are minimax
// fits of our own.
#pragma once
#include "vec.h"

// t = n + VSHIFT and r with x = n * ln2 + r, n whole and |r| <= ln2/2.
static inline vf v_reduce(vf x, vf *t) {
  *t = vfma(x, vset(1.44269504f), vset(VSHIFT));
  vf n = vsub(*t, vset(VSHIFT));
  return vfma(n, vset(-1.42860677e-6f), vfma(n, vset(-0.693145752f), x));
}
static inline vf v_exp_rest(vf r) {  // e^r - 1
  vf q = vfma(r, vset(1.388250734e-3f), vset(8.366595954e-3f));
  q = vfma(r, q, vset(4.166720062e-2f));
  q = vfma(r, q, vset(1.666654348e-1f));
  q = vfma(r, q, vset(4.999999702e-1f));
  return vfma(vmul(r, r), q, r);
}

// exp(x) in [2^-125, inf]: smaller results stay at 2^-125.
static inline vf v_exp_above(vf x) {
  vf t, r = v_reduce(vmin(vset(89.f), vmax(vset(-86.6433868f), x)), &t);
  return vraise(v_exp_rest(r), t);
}

// 1.5 ulp; overflows to inf; results below 2^-125 become 0, for subnormals are slow.
static inline vf v_exp(vf x) {
  return vselect(vlt(x, vset(-86.6433868f)), vset(0.f), v_exp_above(x));
}

// e^x - 1 for -87 <= x <= 88: 2 ulp, also near 0.
static inline vf v_expm1_within(vf x) {
  vf t, r = v_reduce(x, &t), s = vpow2(vsub(t, vset(VSHIFT)));
  return vfma(s, v_exp_rest(r), vsub(s, vset(1.f)));
}
static inline vf v_expm1(vf x) { return v_expm1_within(vmin(vset(88.f), vmax(vset(-87.f), x))); }

// Natural logarithm: 1.5 ulp; log(0) = -inf, log(x < 0) = NaN.
static inline vf v_log(vf x) {
  vm tiny = vlt(x, vset(1.17549435e-38f));
  vf m = vselect(tiny, vmul(x, vset(8388608.f)), x);  // subnormals made normal
  vi from = visub(vbits(m), viset(0x3f3504f3));       // exponent of m relative to sqrt(1/2)
  vf e = vadd(vitof(visar(from, 23)), vselect(tiny, vset(-23.f), vset(0.f)));
  vf f = vsub(vfloats(viadd(viand(from, viset(0x007fffff)), viset(0x3f3504f3))), vset(1.f));
  vf s = vdiv(f, vadd(f, vset(2.f))), z = vmul(s, s), h = vmul(vset(.5f), vmul(f, f));
  vf R = vmul(
      z, vfma(z, vfma(z, vset(2.987093627e-1f), vset(3.997757435e-1f)), vset(6.666677594e-1f)));
  vf y = vsub(f, vsub(h, vfma(s, vadd(h, R), vmul(e, vset(1.42860677e-6f)))));
  y = vfma(e, vset(0.693145752f), y);
  y = vselect(vlt(x, vset(INFINITY)), y, x);  // inf and NaN are their own logarithms
  y = vselect(veq(x, vset(0.f)), vset(-INFINITY), y);
  return vselect(vlt(x, vset(0.f)), vset(NAN), y);
}

// log(1 + x) for 0 <= x <= 1: 2 ulp. The series of 2 artanh(x / (x + 2)).
static inline vf v_log1p(vf x) {
  vf s = vdiv(x, vadd(x, vset(2.f))), z = vmul(s, s);
  vf p = vfma(z, vset(2.802446564e-1f), vset(2.799913981e-1f));
  p = vfma(z, p, vset(4.002169913e-1f));
  p = vfma(z, p, vset(6.666641313e-1f));
  return vfma(vmul(s, z), p, vadd(s, s));
}

// 3 ulp; results below 2^-128 become 0.
static inline vf v_sigmoid(vf x) { return vdiv(vset(1.f), vadd(vset(1.f), v_exp_above(vneg(x)))); }

// x * sigmoid(alpha * x): 3 ulp.
static inline vf v_swish(vf x, vf alpha) {
  return vdiv(x, vadd(vset(1.f), v_exp_above(vneg(vmul(alpha, x)))));
}

static inline vf v_copysign(vf size, vf sign) {
  return vfloats(vior(vbits(size), viand(vbits(sign), viset((int)0x80000000u))));
}

// 3 ulp.
static inline vf v_tanh(vf x) {
  vf m = v_expm1_within(vmin(vset(40.f), vmul(vset(2.f), vabs(x))));
  return v_copysign(vdiv(m, vadd(m, vset(2.f))), x);
}

static inline vf v_softplus(vf x) {  // 3 ulp above 2^-125
  return vadd(vmax(vset(0.f), x), v_log1p(v_exp_above(vneg(vabs(x)))));
}

// tanh(softplus(x)) = ((1 + e^x)^2 - 1) / ((1 + e^x)^2 + 1): 5 ulp above 2^-118.
static inline vf v_mish(vf x) {
  vf e = v_exp_above(vmin(vset(20.f), x)), n = vmul(e, vadd(e, vset(2.f)));
  return vmul(vmax(vset(-100.f), x), vdiv(n, vadd(n, vset(2.f))));
}

// 3 ulp: an odd polynomial below 1, and 1 - e^P(z) above.
static inline vf v_erf(vf x) {
  vf z = vmin(vset(3.95f), vabs(x)), s = vmul(z, z), t;
  vf p = vfma(s, vset(7.853882562e-5f), vset(-8.010200690e-4f));
  p = vfma(s, p, vset(5.188328680e-3f));
  p = vfma(s, p, vset(-2.685381286e-2f));
  p = vfma(s, p, vset(1.128358543e-1f));
  p = vfma(s, p, vset(-3.761262596e-1f));
  p = vmul(z, vfma(s, p, vset(1.128379107f)));
  vf q = vfma(z, vset(-1.157228375e-3f), vset(1.483190519e-2f));
  q = vfma(z, q, vset(-8.879991185e-2f));
  q = vfma(z, q, vset(-6.542397642e-1f));
  q = vfma(z, q, vset(-1.117621490f));
  vf r = v_reduce(vfma(z, q, vset(-2.619107490e-3f)), &t);
  q = vsub(vset(1.f), vraise(v_exp_rest(r), t));
  return v_copysign(vselect(vlt(z, vset(1.f)), p, q), x);
}

// 2^t for t <= 0: 2 ulp; 0 below 2^-126.
static inline vf v_power(vf t) {
#if defined(ISA_avx512)
  t = vselect(vlt(t, vset(-126.f)), vset(-160.f), t);
  const vf n = vround(t), f = vsub(t, n);
#else
  const vm tiny = vlt(t, vset(-126.f));
  t = vmax(vset(-126.f), t);
  const vf n = vnear(t), f = vsub(t, n);
#endif
  vf p = vfma(f, vset(1.327647245e-3f), vset(9.675541893e-3f));
  p = vfma(f, p, vset(5.550713092e-2f));
  p = vfma(f, p, vset(2.402212024e-1f));
  p = vfma(f, p, vset(6.931469440e-1f));
  p = vfma(f, p, vset(1.f));
#if defined(ISA_avx512)
  return vldexp(p, n);
#else
  return vselect(tiny, vset(0.f), vmul(p, vpow2(n)));
#endif
}

// x * Phi(x), Phi the normal distribution; the left tail keeps its relative accuracy: 8 ulp down to
// -13. 2 Phi(-w) = e^(-w^2 / 2) * t * Q(t) with t = 1 / (1 + .35 w).
static inline vf v_gelu(vf x) {
  vf w = vmin(vset(13.f), vabs(x)), square = vmul(w, w), n;
  vf t = vinverse(vfma(w, vset(.35f), vset(1.f)));
  vf q = vfma(t, vset(-5.821748277e-2f), vset(2.875747504e-1f));
  q = vfma(t, q, vset(-5.106513487e-1f));
  q = vfma(t, q, vset(3.174407126e-1f));
  q = vfma(t, q, vset(-4.557943988e-2f));
  q = vfma(t, q, vset(2.107376119e-1f));
  q = vfma(t, q, vset(2.397383535e-1f));
  q = vfma(t, q, vset(2.797133875e-1f));
  q = vfma(t, q, vset(2.792434240e-1f));
  vf r = v_reduce(vmul(vset(-.5f), square), &n);
  r = vfma(vset(-.5f), vlost(w, w, square), r);
  vf tail = vmul(vmul(t, q), vraise(v_exp_rest(r), n));
  vf half = vmul(vset(.5f), vmax(vset(-13.f), x));
  return vmul(half, vselect(vlt(x, vset(0.f)), tail, vsub(vset(2.f), tail)));
}

// .5 (1 + tanh u) = sigmoid(2 u): 2e-6 for x > -4; the left tail keeps 2e-5 down to 1e-37.
static inline vf v_gelu_tanh(vf x) {
  vf u = vmul(x, vfma(vmul(x, x), vset(-0.0713548163f), vset(-1.59576912f)));
  return vdiv(x, vadd(vset(1.f), v_exp_above(u)));
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
