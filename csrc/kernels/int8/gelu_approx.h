// Approximate GELU for results of 8-bit products: error below 8e-7, in a third of the time of the
// exact one. AVX-512 looks up the coefficients of 32 cubic polynomials; other ISAs use the exact
// GELU.
#pragma once
#include "vec.h"

#if defined(ISA_avx512)
#define ITG_NEAR_GELU
// Coefficients of t * (1 - P(t)), where P is the normal distribution: cubic polynomials on 32
// pieces of [0, 6). Beyond 6 the function is below 7e-9.
static const float itg_gelu_pieces[4][32] __attribute__((aligned(64))) = {
    {
        0.f,
        7.98058882e-02f,
        1.32685959e-01f,
        1.61374167e-01f,
        1.69970542e-01f,
        1.63360253e-01f,
        1.46581650e-01f,
        1.24262266e-01f,
        1.00211136e-01f,
        7.72095174e-02f,
        5.69933727e-02f,
        4.03840281e-02f,
        2.75051128e-02f,
        1.80243570e-02f,
        1.13726519e-02f,
        6.91280933e-03f,
        4.04965552e-03f,
        2.28713243e-03f,
        1.24561379e-03f,
        6.54305622e-04f,
        3.31552466e-04f,
        1.62089171e-04f,
        7.64594879e-05f,
        3.48033936e-05f,
        1.52881712e-05f,
        6.48124887e-06f,
        2.65187214e-06f,
        1.04726143e-06f,
        3.99191805e-07f,
        1.46874015e-07f,
        5.21622425e-08f,
        1.78823640e-08f,
    },
    {
        9.37648118e-02f,  6.60429820e-02f,  4.02093083e-02f,  1.78777836e-02f,  1.44130419e-04f,
        -1.25232497e-02f, -2.02724822e-02f, -2.37493198e-02f, -2.39111800e-02f, -2.18244586e-02f,
        -1.84896328e-02f, -1.47224544e-02f, -1.10996859e-02f, -7.96111114e-03f, -5.44953858e-03f,
        -3.56822531e-03f, -2.23857397e-03f, -1.34728639e-03f, -7.78639514e-04f, -4.32444620e-04f,
        -2.30943740e-04f, -1.18652832e-04f, -5.86709466e-05f, -2.79311316e-05f, -1.28055617e-05f,
        -5.65534174e-06f, -2.40635495e-06f, -9.86686814e-07f, -3.89929198e-07f, -1.48538291e-07f,
        -5.45493748e-08f, -1.93146210e-08f,
    },
    {
        -1.41155357e-02f, -1.36267394e-02f, -1.22158574e-02f, -1.01079447e-02f, -7.60513404e-03f,
        -5.03444951e-03f, -2.68565817e-03f, -7.65528239e-04f, 6.22919062e-04f,  1.47574220e-03f,
        1.86441711e-03f,  1.90315361e-03f,  1.71700260e-03f,  1.41766854e-03f,  1.08993170e-03f,
        7.88027945e-04f,  5.39138156e-04f,  3.50498914e-04f,  2.17160603e-04f,  1.28505882e-04f,
        7.27486549e-05f,  3.94494564e-05f,  2.05121632e-05f,  1.02351141e-05f,  4.90430602e-06f,
        2.25792837e-06f,  9.99300710e-07f,  4.25315193e-07f,  1.74142542e-07f,  6.86133674e-08f,
        2.60217483e-08f,  9.50141477e-09f,
    },
    {
        1.56420050e-04f,  4.63692588e-04f,  6.94584567e-04f,  8.26385920e-04f,  8.50569515e-04f,
        7.79015303e-04f,  6.38735190e-04f,  4.63738106e-04f,  2.86692462e-04f,  1.32637622e-04f,
        1.59342126e-05f,  -5.95631172e-05f, -9.80364930e-05f, -1.08242006e-04f, -1.00226345e-04f,
        -8.29565688e-05f, -6.30916184e-05f, -4.47373641e-05f, -2.98351479e-05f, -1.88192826e-05f,
        -1.12717889e-05f, -6.42873920e-06f, -3.49883339e-06f, -1.82010581e-06f, -9.06167713e-07f,
        -4.32228120e-07f, -1.97688905e-07f, -8.67613679e-08f, -3.65600172e-08f, -1.47994230e-08f,
        -5.75748604e-09f, -2.15345941e-09f,
    },
};

// x * P(x) = max(x, 0) - |x| * (1 - P(|x|)) for contiguous rows of n floats; n is a multiple of 16.
// Results are stored to rows that are `pitch` apart; `to` may be `y`.
static inline void itg_near_gelu(const float *y, int64_t rows, int64_t n, float *to,
                                 int64_t pitch) {
  vf low[4], high[4];
  for (int i = 0; i < 4; i++)
    low[i] = vload(itg_gelu_pieces[i]), high[i] = vload(itg_gelu_pieces[i] + VL);
  for (int64_t k = 0, column = 0; k < rows * n; k += VL, column += VL) {
    if (column == n) column = 0, to += pitch;
    const vf x = vload(y + k),
             t = vmul(vmin(vset(5.999999f), vabs(x)), vset(32 / 6.f));  // keeps a NaN
    const __m512i piece = _mm512_cvttps_epi32(t);
    const vf u = vsub(t, vitof(piece));
    vf p = _mm512_permutex2var_ps(low[3], piece, high[3]);
    for (int i = 2; i >= 0; i--) p = vfma(p, u, _mm512_permutex2var_ps(low[i], piece, high[i]));
    vstore(to + column, vsub(vmax(vset(0.f), x), p));
  }
}
#endif
