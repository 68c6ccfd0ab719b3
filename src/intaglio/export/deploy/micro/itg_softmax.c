// Softmax by a table of powers in units of 2^-22.
#include "itg_form.h"

void itg_softmax(const itg_axis *l, const int32_t *table, float y_scale, const int8_t *x,
                 int8_t *y) {
  for (int32_t o = 0; o < l->outer; o++) {
    for (int32_t i = 0; i < l->inner; i++) {
      const int32_t at = o * l->count * l->inner + i;
      int32_t most = -128;
      int64_t sum = 0;
      for (int32_t k = 0; k < l->count; k++) {
        const int32_t v = itg_load(x + at + k * l->inner, l->x_flip);
        most = v > most ? v : most;
      }
      for (int32_t k = 0; k < l->count; k++) {
        sum += table[most - itg_load(x + at + k * l->inner, l->x_flip)];
      }
      const float total = (float)sum * y_scale;
      for (int32_t k = 0; k < l->count; k++) {
        const int32_t power = table[most - itg_load(x + at + k * l->inner, l->x_flip)];
        const int32_t r = itg_round((float)power / total, l->y_zero);
        y[at + k * l->inner] = (int8_t)((uint32_t)r ^ l->y_flip);
      }
    }
  }
}
