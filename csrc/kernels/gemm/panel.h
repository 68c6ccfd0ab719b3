// Packed matrices are cut into panels of columns, of the same width on every ISA, and work into even shares.
#pragma once
#include <stdint.h>

enum { ITG_PANEL = 16 };

// Where part i of n things begins when they are split into `parts` whose sizes differ by one at most.
static inline int64_t itg_split(int64_t n, int64_t parts, int64_t i) {
  return n / parts * i + (i < n % parts ? i : n % parts);
}
