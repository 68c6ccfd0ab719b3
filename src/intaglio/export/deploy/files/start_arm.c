// Start-up of a Cortex-M: vectors, FPU, initial data, then main.
#include "start.h"

#include <stdint.h>

extern uint32_t stack_top, data_load, data_start, data_end, bss_start, bss_end;
int main(int argc, char **argv);

#define MAX_ARGUMENTS 16

__attribute__((noreturn)) static void start(void) {
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

__attribute__((naked, noreturn)) void reset(void);
void reset(void) {
#if defined(__ARM_FP)
  __asm volatile(
      "ldr r0, =0xE000ED88\nldr r1, [r0]\norr r1, r1, #0xF00000\nstr r1, [r0]\ndsb\nisb\n"
      "b %0" ::"i"(start));
#else
  __asm volatile("ldr r0, =%0\nbx r0" ::"i"(start));
#endif
}

static void fault(void) { board_exit(2); }

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top,          (const void *)reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault};
