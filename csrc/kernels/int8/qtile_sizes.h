// The list of register tiles of 8-bit products. T(rows, panels, half) is one tile; `half` is 1 if
// only the first half of the last panel has columns. A pipelined tile is T(panels, half, ending).
// Builds with sanitizers have fewer tiles, because all of them took a minute to compile.
#pragma once
#if defined(__SANITIZE_ADDRESS__)
#define PIPELINES(T, K) T(1, 0, K) T(2, 0, K) T(4, 0, K) T(2, 1, K)
#else
#define PIPELINES(T, K) T(1, 0, K) T(2, 0, K) T(3, 0, K) T(4, 0, K) T(2, 1, K)
#endif
#define LINES(T) T(1, 0, 5) T(2, 0, 5) T(2, 1, 5)

#if defined(ISA_avx512vnni) && defined(__SANITIZE_ADDRESS__)
#define MANY(T, V, H) T(1, V, H) T(6, V, H)
#define EACH(T, H) MANY(T, 1, H) MANY(T, 2, H) MANY(T, 3, H) MANY(T, 4, H)
#define HALVES(T) MANY(T, 1, 1) MANY(T, 2, 1)
#elif defined(ISA_avx512vnni)
#define MANY(T, V, H) T(1, V, H) T(2, V, H) T(4, V, H) T(6, V, H) T(8, V, H) T(10, V, H) T(12, V, H)
#define EACH(T, H) \
  MANY(T, 1, H)    \
  MANY(T, 2, H)    \
  T(1, 3, H)       \
  T(2, 3, H)       \
  T(4, 3, H)       \
  T(5, 3, H)       \
  T(6, 3, H) T(7, 3, H) T(8, 3, H) T(1, 4, H) T(2, 4, H) T(3, 4, H) T(4, 4, H) T(5, 4, H) T(6, 4, H)
#define HALVES(T) MANY(T, 1, 1) MANY(T, 2, 1)
#elif defined(ISA_avx512)
#define EACH(T, H) \
  T(1, 1, H) T(2, 1, H) T(4, 1, H) T(6, 1, H) T(1, 2, H) T(2, 2, H) T(4, 2, H) T(6, 2, H)
#define HALVES(T)
#else
#define EACH(T, H) T(1, 1, H) T(2, 1, H) T(3, 1, H) T(4, 1, H)
#define HALVES(T)
#endif
