// The few vector operations that f32 kernels need, one block per instruction set. Included by sources that are compiled
// once per ISA. `vf` holds VL floats; masks come from comparisons and go to vselect.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(ISA_avx512)
#include <immintrin.h>
typedef __m512 vf;
typedef __mmask16 vm;
enum { VL = 16 };
#define vload(p) _mm512_loadu_ps(p)
#define vstore(p, v) _mm512_storeu_ps(p, v)
#define vset(c) _mm512_set1_ps(c)
#define vadd _mm512_add_ps
#define vsub _mm512_sub_ps
#define vmul _mm512_mul_ps
#define vdiv _mm512_div_ps
#define vmin _mm512_min_ps
#define vmax _mm512_max_ps
#define vfma(a, b, c) _mm512_fmadd_ps(a, b, c)  // a * b + c
#elif defined(ISA_avx2)
#include <immintrin.h>
typedef __m256 vf;
typedef __m256 vm;
enum { VL = 8 };
#define vload(p) _mm256_loadu_ps(p)
#define vstore(p, v) _mm256_storeu_ps(p, v)
#define vset(c) _mm256_set1_ps(c)
#define vadd _mm256_add_ps
#define vsub _mm256_sub_ps
#define vmul _mm256_mul_ps
#define vdiv _mm256_div_ps
#define vmin _mm256_min_ps
#define vmax _mm256_max_ps
#define vfma(a, b, c) _mm256_fmadd_ps(a, b, c)
#else
typedef float vf;
typedef int vm;
enum { VL = 1 };
#define vload(p) (*(p))
#define vstore(p, v) (*(p) = (v))
#define vset(c) (c)
#define vadd(a, b) ((a) + (b))
#define vsub(a, b) ((a) - (b))
#define vmul(a, b) ((a) * (b))
#define vdiv(a, b) ((a) / (b))
#define vmin(a, b) ((a) < (b) ? (a) : (b))
#define vmax(a, b) ((a) > (b) ? (a) : (b))
#define vfma(a, b, c) fmaf(a, b, c)
#endif
