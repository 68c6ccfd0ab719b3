// Copies of short runs of bytes, inline: for these a call of memcpy takes longer than the copy.
#pragma once
#include <stdint.h>
#include <string.h>

static inline void itg_copy_run(char *to, const char *from, int64_t n) {
  if (n > 512) {
    memcpy(to, from, (size_t)n);
  } else if (n >= 16) {
    for (int64_t i = 0; i + 16 < n; i += 16) memcpy(to + i, from + i, 16);
    memcpy(to + n - 16, from + n - 16, 16);  // may lie on a part of the one before
  } else if (n >= 8) {
    memcpy(to, from, 8);
    memcpy(to + n - 8, from + n - 8, 8);
  } else if (n >= 4) {
    memcpy(to, from, 4);
    memcpy(to + n - 4, from + n - 4, 4);
  } else {
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
  }
}

// Copies `turns` runs of n bytes; for 16, 32 and 64 bytes the length is a constant.
static inline void itg_copy_runs(char *to, int64_t to_step, const char *from, int64_t from_step,
                                 int64_t n, int64_t turns) {
#define RUNS(N) \
  for (int64_t i = 0; i < turns; i++) memcpy(to + i * to_step, from + i * from_step, N)
  if (n == 16) RUNS(16);
  else if (n == 32) RUNS(32);
  else if (n == 64) RUNS(64);
  else
    for (int64_t i = 0; i < turns; i++) itg_copy_run(to + i * to_step, from + i * from_step, n);
#undef RUNS
}
