// The width of a panel of a packed matrix, the same on every ISA, and even splits of work.
#pragma once
#include <stdint.h>

enum { ITG_PANEL = 16 };

// Where part i of n things begins when they are split into `parts` whose sizes differ by one at
// most.
static inline int64_t itg_split(int64_t n, int64_t parts, int64_t i) {
  return n / parts * i + (i < n % parts ? i : n % parts);
}
