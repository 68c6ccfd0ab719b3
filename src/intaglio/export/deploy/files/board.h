// What main.c needs of a board. Replace board.c by your own for another one.
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>

void board_print(const char *text);
// Both return 0 if the file has exactly `bytes` bytes, or could be written.
int board_read(const char *path, void *data, size_t bytes);
int board_write(const char *path, const void *data, size_t bytes);

#endif
