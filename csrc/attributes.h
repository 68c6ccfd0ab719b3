// Words for the compiler that optimises the C code.
#pragma once

#define INLINE static inline __attribute__((always_inline))
#define ITG_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define UNROLL(n) ITG_PRAGMA(GCC unroll n)  // before a loop: unroll it n times; 1 leaves it a loop
