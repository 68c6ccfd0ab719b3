// Semihosting: text, files and arguments of the host, in an emulator or under a debugger.
#include <stdint.h>
#include <string.h>

#include "board.h"
#include "start.h"

enum {
  OPEN = 1,
  CLOSE = 2,
  PRINT = 4,
  WRITE = 5,
  READ = 6,
  LENGTH = 12,
  ARGUMENTS = 21,
  EXIT = 32
};

#if defined(__riscv)
static intptr_t host(intptr_t operation, const void *operand) {
  register intptr_t a0 __asm("a0") = operation;
  register const void *a1 __asm("a1") = operand;
  __asm volatile(
      ".balign 16\n.option push\n.option norvc\n"
      "slli zero, zero, 0x1f\nebreak\nsrai zero, zero, 7\n.option pop"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
  return a0;
}
#else
static intptr_t host(intptr_t operation, const void *operand) {
  register intptr_t r0 __asm("r0") = operation;
  register const void *r1 __asm("r1") = operand;
  __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}
#endif

static intptr_t opened(const char *path, intptr_t mode) {
  const intptr_t operands[3] = {(intptr_t)path, mode, (intptr_t)strlen(path)};
  return host(OPEN, operands);
}

void board_print(const char *text) { host(PRINT, text); }

int board_read(const char *path, void *data, size_t bytes) {
  const intptr_t file = opened(path, 1);  // "rb"
  if (file < 0) return 1;
  const intptr_t operands[3] = {file, (intptr_t)data, (intptr_t)bytes};
  const int bad = host(LENGTH, &file) != (intptr_t)bytes || host(READ, operands);
  host(CLOSE, &file);
  return bad;
}

int board_write(const char *path, const void *data, size_t bytes) {
  const intptr_t file = opened(path, 5);  // "wb"
  if (file < 0) return 1;
  const intptr_t operands[3] = {file, (intptr_t)data, (intptr_t)bytes};
  const int bad = host(WRITE, operands) != 0;
  return host(CLOSE, &file) || bad;
}

int board_arguments(char *line, size_t bytes) {
  intptr_t operands[2] = {(intptr_t)line, (intptr_t)bytes};
  return host(ARGUMENTS, operands) ? 1 : 0;
}

void board_exit(int code) {
  const intptr_t operands[2] = {0x20026, code};  // the application ended
  host(EXIT, operands);
  for (;;) {}
}
