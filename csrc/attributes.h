// Hints for the C compiler: inlining and unrolling.
#pragma once

#define INLINE static inline __attribute__((always_inline))
#define ITG_PRAGMA(...) _Pragma(#__VA_ARGS__)
// A loop that the compiler unrolls n times; with n = 1 it stays a loop: FOR_UNROLLED(16, int i = 0;
// i < N; i++) ...
#define UNROLL(n) ITG_PRAGMA(GCC unroll n)
#define FOR_UNROLLED(n, ...) UNROLL(n) for (__VA_ARGS__)
