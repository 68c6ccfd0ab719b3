// Which register tiles of 8-bit products there are. T(rows, panels, flipped inputs, half a last panel) is one of them, a
// woven one T(panels, flipped, half, ending). With sanitizers there are some of each kind: all took a minute to compile.
#pragma once
#if defined(__SANITIZE_ADDRESS__)
#define WEAVES(T, K) T(1, 0, 0, K) T(2, 1, 0, K) T(4, 0, 0, K) T(2, 0, 1, K)
#else
#define WEAVES(T, K)                                                                                              \
  T(1, 0, 0, K) T(2, 0, 0, K) T(3, 0, 0, K) T(4, 0, 0, K) T(1, 1, 0, K) T(2, 1, 0, K) T(3, 1, 0, K) T(4, 1, 0, K) \
  T(2, 0, 1, K) T(2, 1, 1, K)
#endif
#define LINES(T) T(1, 0, 0, 5) T(2, 0, 0, 5) T(1, 1, 0, 5) T(2, 1, 0, 5) T(2, 0, 1, 5) T(2, 1, 1, 5)

#if defined(ISA_avx512vnni) && defined(__SANITIZE_ADDRESS__)
#define MANY(T, V, F, H) T(1, V, F, H) T(6, V, F, H)
#define EACH(T, F, H) MANY(T, 1, F, H) MANY(T, 2, F, H) MANY(T, 3, F, H) MANY(T, 4, F, H)
#define HALVES(T, F) MANY(T, 1, F, 1) MANY(T, 2, F, 1)
#elif defined(ISA_avx512vnni)
#define MANY(T, V, F, H) T(1, V, F, H) T(2, V, F, H) T(4, V, F, H) T(6, V, F, H) T(8, V, F, H) T(10, V, F, H) T(12, V, F, H)
#define EACH(T, F, H)                                                                                           \
  MANY(T, 1, F, H) MANY(T, 2, F, H)                                                                             \
  T(1, 3, F, H) T(2, 3, F, H) T(4, 3, F, H) T(5, 3, F, H) T(6, 3, F, H) T(7, 3, F, H) T(8, 3, F, H)             \
  T(1, 4, F, H) T(2, 4, F, H) T(3, 4, F, H) T(4, 4, F, H) T(5, 4, F, H) T(6, 4, F, H)
#define HALVES(T, F) MANY(T, 1, F, 1) MANY(T, 2, F, 1)
#elif defined(ISA_avx512)
#define EACH(T, F, H) \
  T(1, 1, F, H) T(2, 1, F, H) T(4, 1, F, H) T(6, 1, F, H) T(1, 2, F, H) T(2, 2, F, H) T(4, 2, F, H) T(6, 2, F, H)
#define HALVES(T, F)
#else
#define EACH(T, F, H) T(1, 1, F, H) T(2, 1, F, H) T(3, 1, F, H) T(4, 1, F, H)
#define HALVES(T, F)
#endif
