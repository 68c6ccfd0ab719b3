// The width of a panel of a packed matrix, the same on every ISA, and even splits of work.
#pragma once
#include <stdint.h>

enum { ITG_PANEL = 16 };

// The start of part i if n things are split into `parts` parts whose sizes differ by at most one.
static inline int64_t itg_split(int64_t n, int64_t parts, int64_t i) {
  return n / parts * i + (i < n % parts ? i : n % parts);
}
