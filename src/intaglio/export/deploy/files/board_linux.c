// Linux: files and the terminal.
#include <stdio.h>

#include "board.h"

void board_print(const char *text) { fputs(text, stdout); }

int board_read(const char *path, void *data, size_t bytes) {
  FILE *f = fopen(path, "rb");
  if (!f) return 1;
  const size_t got = fread(data, 1, bytes, f);
  const int more = fgetc(f) != EOF;
  fclose(f);
  return got != bytes || more;
}

int board_write(const char *path, const void *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  if (!f) return 1;
  const size_t put = fwrite(data, 1, bytes, f);
  return fclose(f) || put != bytes;
}
