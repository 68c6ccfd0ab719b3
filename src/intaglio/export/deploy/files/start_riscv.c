// Start-up of a bare RISC-V core: stack, initial data, then main; and those functions of
// string.h that a compiler may call.
#include "start.h"

#include <stdint.h>
#include <string.h>

extern uint32_t stack_top, data_load, data_start, data_end, bss_start, bss_end;
int main(int argc, char **argv);

#define MAX_ARGUMENTS 16

__attribute__((noreturn, used)) static void start(void) {
  static char line[256], *words[MAX_ARGUMENTS];
  int count = 0;
  for (uint32_t *to = &data_start, *from = &data_load; to < &data_end;) *to++ = *from++;
  for (uint32_t *to = &bss_start; to < &bss_end;) *to++ = 0;
  if (!board_arguments(line, sizeof line)) {
    for (char *p = line; *p && count < MAX_ARGUMENTS;) {
      while (*p == ' ') *p++ = 0;
      if (*p) words[count++] = p;
      while (*p && *p != ' ') p++;
    }
  }
  board_exit(main(count, words));
}

static void __attribute__((used, aligned(4))) fault(void) { board_exit(2); }

__attribute__((naked, noreturn, section(".vectors"))) void reset(void);
void reset(void) {
  __asm volatile("la t0, fault\ncsrw mtvec, t0\nla sp, stack_top\nj start");
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
  char *t = to;
  for (const char *f = from; n; n--) *t++ = *f++;
  return to;
}

void *memmove(void *to, const void *from, size_t n) {
  char *t = to;
  const char *f = from;
  if (t < f) return memcpy(to, from, n);
  while (n--) t[n] = f[n];
  return to;
}

void *memset(void *to, int value, size_t n) {
  for (char *t = to; n; n--) *t++ = (char)value;
  return to;
}

int memcmp(const void *a, const void *b, size_t n) {
  const unsigned char *p = a, *q = b;
  for (; n; n--, p++, q++) {
    if (*p != *q) return *p - *q;
  }
  return 0;
}

size_t strlen(const char *s) {
  size_t n = 0;
  while (s[n]) n++;
  return n;
}
