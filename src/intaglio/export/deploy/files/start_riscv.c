// Start-up of a bare RISC-V core: stack, initial data, then main.
#include "start.h"

#include <stdint.h>

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
  __asm volatile(
      ".option push\n.option arch, +zicsr\nla t0, fault\ncsrw mtvec, t0\n.option pop\nla sp, "
      "stack_top\nj start");
}
