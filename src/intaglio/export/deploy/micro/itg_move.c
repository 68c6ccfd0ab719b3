// Copies: transposes, slices, concatenation, padding.
#include <string.h>

#include "itg_micro.h"

static void moved(const itg_moves *l, int axis, const uint8_t *x, uint8_t *y) {
  const int32_t n = l->shape[axis], from = l->x_step[axis], to = l->y_step[axis];
  if (axis < ITG_RANK - 1) {
    for (int32_t i = 0; i < n; i++, x += from, y += to) moved(l, axis + 1, x, y);
  } else if (from == l->size && to == l->size) {
    memcpy(y, x, (size_t)(n * l->size));
  } else if (l->size == 1) {
    for (int32_t i = 0; i < n; i++, x += from, y += to) *y = *x;
  } else {
    for (int32_t i = 0; i < n; i++, x += from, y += to) memcpy(y, x, (size_t)l->size);
  }
}

void itg_move(const itg_moves *l, const void *x, void *y) { moved(l, 0, x, y); }

void itg_fill(int32_t n, int32_t value, void *y) { memset(y, value, (size_t)n); }
