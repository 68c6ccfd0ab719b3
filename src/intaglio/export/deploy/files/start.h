// What start.c needs of a bare board.
#ifndef START_H
#define START_H

#include <stddef.h>

int board_arguments(char *line, size_t bytes);  // 0: the words of the command line are in `line`
__attribute__((noreturn)) void board_exit(int code);

#endif
