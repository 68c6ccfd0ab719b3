// Which instruction sets this build has kernels for. CMakeLists.txt defines ITG_BUILD_avx2 and so
// on; a compiler that is called by hand defines none of them, and builds the kernels in plain C
// alone.
//
//   ITG_BUILT(avx2, fn)    fn, or NULL where kernels for AVX2 are not built
#pragma once

#define ITG_BUILT(isa, fn) ITG_BUILT_##isa(fn)
#define ITG_BUILT_scalar(fn) fn
#ifdef ITG_BUILD_avx2
#define ITG_BUILT_avx2(fn) fn
#else
#define ITG_BUILT_avx2(fn) NULL
#endif
#ifdef ITG_BUILD_avx512
#define ITG_BUILT_avx512(fn) fn
#else
#define ITG_BUILT_avx512(fn) NULL
#endif
#ifdef ITG_BUILD_avx512bf16
#define ITG_BUILT_avx512bf16(fn) fn
#else
#define ITG_BUILT_avx512bf16(fn) NULL
#endif
#ifdef ITG_BUILD_avx512vnni
#define ITG_BUILT_avx512vnni(fn) fn
#else
#define ITG_BUILT_avx512vnni(fn) NULL
#endif
#ifdef ITG_BUILD_avx512vbmi
#define ITG_BUILT_avx512vbmi(fn) fn
#else
#define ITG_BUILT_avx512vbmi(fn) NULL
#endif
#ifdef ITG_BUILD_neon
#define ITG_BUILT_neon(fn) fn
#else
#define ITG_BUILT_neon(fn) NULL
#endif
#ifdef ITG_BUILD_armv7
#define ITG_BUILT_armv7(fn) fn
#else
#define ITG_BUILT_armv7(fn) NULL
#endif
#ifdef ITG_BUILD_rvv
#define ITG_BUILT_rvv(fn) fn
#else
#define ITG_BUILT_rvv(fn) NULL
#endif
#ifdef ITG_BUILD_dotprod
#define ITG_BUILT_dotprod(fn) fn
#else
#define ITG_BUILT_dotprod(fn) NULL
#endif
#ifdef ITG_BUILD_i8mm
#define ITG_BUILT_i8mm(fn) fn
#else
#define ITG_BUILT_i8mm(fn) NULL
#endif
#ifdef ITG_BUILD_neonfp16
#define ITG_BUILT_neonfp16(fn) fn
#else
#define ITG_BUILT_neonfp16(fn) NULL
#endif
#ifdef ITG_BUILD_neonbf16
#define ITG_BUILT_neonbf16(fn) fn
#else
#define ITG_BUILT_neonbf16(fn) NULL
#endif
#ifdef ITG_BUILD_rvvfp16
#define ITG_BUILT_rvvfp16(fn) fn
#else
#define ITG_BUILT_rvvfp16(fn) NULL
#endif
