// Rows of f32 as bytes around 128, each with the scale that just holds it: max|x| / 127.
#include <string.h>

#include "infer.h"

enum { ZERO = 128 };

// The bits of |x| are in the order of the numbers, with NaN above all: the largest tells whether all are finite.
static uint32_t largest(const float *x, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return (uint32_t)most;
}

static void quantize(const float *restrict x, int64_t n, float by, uint8_t *restrict to) {
  for (int64_t i = 0; i < n; i++) to[i] = (uint8_t)((int32_t)__builtin_rintf(x[i] * by) + ZERO);
}

ITG_FN(quantize_rows, f32) {
  const itg_tensor *x = call->in[0];
  const int64_t k = x->shape[x->rank - 1];
  int64_t row, end;
  if (itg_empty(call->out[1])) return NULL;
  itg_share(itg_count(call->out[1]), 1, part, parts, &row, &end);
  for (; row < end; row++) {
    const float *from = (const float *)x->data + row * k;
    uint8_t *to = (uint8_t *)call->out[0]->data + row * k;
    const uint32_t bits = largest(from, k);
    float most, scale;
    memcpy(&most, &bits, sizeof most);
    const float by = 127.f / most;
    scale = bits < 0x7f800000u ? most / 127.f : __builtin_nanf("");
    if (bits < 0x7f800000u && by < __builtin_inff()) quantize(from, k, by, to);
    else memset(to, ZERO, (size_t)k);
    ((float *)call->out[1]->data)[row] = scale;
  }
  return NULL;
}
