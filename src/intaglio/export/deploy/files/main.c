// Runs the model: on its test vectors, or on files.
//
//   @NAME@_run                          compare with the test vectors
//   @NAME@_run -n 10                    run the first vector ten times
//   @NAME@_run @FILE_ARGUMENTS@
#include <string.h>

#include "board.h"
#include "@NAME@.h"
#include "vectors.h"
@WEIGHTS_INCLUDE@
@BUFFERS@

static void run_once(void) { @NAME@_run(@CALL_ARGUMENTS@); }

static void print_number(unsigned v) {
  char text[12], *p = text + sizeof text - 1;
  *p = 0;
  do {
    *--p = (char)('0' + v % 10);
    v /= 10;
  } while (v);
  board_print(p);
}

static int vector(unsigned i) {
  int wrong = 0;
@LOAD_VECTOR@
  run_once();
@CHECK_VECTOR@
  board_print("vector ");
  print_number(i);
  board_print(wrong ? ": WRONG\n" : ": ok\n");
  return wrong;
}

static int files(char **path) {
@READ_FILES@
  run_once();
@WRITE_FILES@
  return 0;
bad:
  board_print("cannot read or write a file of the right size: ");
  board_print(*path);
  board_print("\n");
  return 1;
}

int main(int argc, char **argv) {
  int wrong = 0;
@LOAD_WEIGHTS@
  if (argc == 3 && !strcmp(argv[1], "-n")) {
    unsigned runs = 0;
    for (const char *p = argv[2]; *p >= '0' && *p <= '9'; p++) runs = runs * 10 + (unsigned)(*p - '0');
    const unsigned i = 0;
@LOAD_VECTOR@
    while (runs--) run_once();
    return 0;
  }
  if (argc == 1 + @NAME_UPPER@_INPUTS + @NAME_UPPER@_OUTPUTS) return files(argv + 1);
  if (argc > 1) {
    board_print("usage: @NAME@_run [-n runs | @FILE_ARGUMENTS@]\n");
    return 2;
  }
  for (unsigned i = 0; i < VECTORS; i++) wrong |= vector(i);
  return wrong;
}
