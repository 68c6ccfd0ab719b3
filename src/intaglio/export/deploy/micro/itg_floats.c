// Functions and arithmetic of f32. Every step is rounded to f32, so that all cores, and numpy, make
// the same bits.
#include "itg_form.h"

// exp(x) for x <= 0: 2^n exp(r) with |r| < ln(2) / 2.
static float exponential(float x) {
  if (x < -87.0f) return 0.0f;
  const float moved = x * 0x1.715476p+0f + ITG_MAGIC;
  const int32_t n = itg_bits(moved) - ITG_MAGIC_BITS;
  const float whole = moved - ITG_MAGIC;
  const float r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float p = 0x1.6a23cep-10f;
  p = p * r + 0x1.123a20p-7f;
  p = p * r + 0x1.5558f2p-5f;
  p = p * r + 0x1.555492p-3f;
  p = p * r + 0x1.fffffcp-2f;
  const float y = (p * (r * r) + r) + 1.0f;
  const int32_t bits = (int32_t)((uint32_t)(n + 127) << 23);
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return y * scale;
}

void itg_softmax_floats(const itg_axis *l, const float *x, float *y) {
  for (int32_t o = 0; o < l->outer; o++) {
    for (int32_t i = 0; i < l->inner; i++) {
      const int32_t at = o * l->count * l->inner + i, end = at + l->count * l->inner;
      float most = x[at], sum = 0.0f;
      for (int32_t k = at; k < end; k += l->inner) most = x[k] > most ? x[k] : most;
      for (int32_t k = at; k < end; k += l->inner) {
        y[k] = exponential(x[k] - most);
        sum += y[k];
      }
      for (int32_t k = at; k < end; k += l->inner) y[k] /= sum;
    }
  }
}

void itg_sigmoid(int32_t n, const float *x, float *y) {
  for (int32_t i = 0; i < n; i++) {
    const float e = exponential(x[i] < 0.0f ? x[i] : -x[i]);
    y[i] = (x[i] < 0.0f ? e : 1.0f) / (e + 1.0f);
  }
}

ITG_INLINE float combined(int32_t kind, float a, float b) {
  switch (kind) {
    case ITG_ADD: return a + b;
    case ITG_SUB: return a - b;
    case ITG_MUL: return a * b;
    default: return a / b;
  }
}

void itg_floats(const itg_float_pair *l, const float *a, const float *b, float *y) {
  int32_t at[ITG_RANK] = {0}, i = 0, j = 0;
  const int32_t last = ITG_RANK - 1, n = l->shape[last], da = l->a_step[last], db = l->b_step[last];
  for (;;) {
    for (int32_t k = 0; k < n; k++) *y++ = combined(l->kind, a[i + k * da], b[j + k * db]);
    int32_t axis = last - 1;
    for (; axis >= 0; axis--) {
      i += l->a_step[axis];
      j += l->b_step[axis];
      if (++at[axis] < l->shape[axis]) break;
      i -= l->shape[axis] * l->a_step[axis];
      j -= l->shape[axis] * l->b_step[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}
