// Dynamic asymmetric quantisation of slices: 256 steps between the minimum and the maximum of a
// slice, extended to hold 0. Either as bytes with scales and zero points, or as floats that were
// rounded to these steps.
#include "infer.h"
#include "vec.h"

typedef struct range {  // byte = rint(x * by) + zero, real = (byte - zero) * scale
  float by, zero, scale;
} range;

// The range of a slice. If a number is not finite, the scale is NaN and all bytes are the zero.
static range range_of(const float *x, int64_t n) {
  vf low = vset(0.f), high = vset(0.f), wrong = vset(0.f);  // wrong: NaN where inf or NaN was seen
  for (int64_t i = 0; i < n; i += VL) {
    const vf v = n - i >= VL ? vload(x + i) : vloadn(x + i, n - i);
    low = vmin(v, low);
    high = vmax(v, high);
    wrong = vadd(wrong, vmul(v, vset(0.f)));
  }
  const float first = vhmin(low), last = vhmax(high), span = last > first ? last - first : 1.f;
  const float by = 255.f / span;
  if (vany(visnan(wrong)) || span == __builtin_inff()) return (range){0.f, 0.f, __builtin_nanf("")};
  if (by == __builtin_inff()) return (range){0.f, 0.f, span / 255.f};
  const float least = __builtin_rintf(-128.f - first * by);
  const float bounded = least < -128.f ? -128.f : least > 127.f ? 127.f : least;
  return (range){by, bounded + 128.f, span / 255.f};
}

INLINE float step_of(float x, range r) {
  const float y = __builtin_rintf((r.by > 0.f ? x : 0.f) * r.by) + r.zero;
  return y < 0.f ? 0.f : y > 255.f ? 255.f : y;
}

static void to_bytes(const float *restrict x, int64_t n, range r, uint8_t *restrict to) {
  if (r.by > 0.f)
    for (int64_t i = 0; i < n; i++) to[i] = (uint8_t)(int32_t)step_of(x[i], r);
  else memset(to, (int)r.zero, (size_t)n);
}

static void to_steps(const float *restrict x, int64_t n, range r, float *restrict to) {
  for (int64_t i = 0; i < n; i++) to[i] = (step_of(x[i], r) - r.zero) * r.scale;
}

// Threads share the slices; of fewer slices than threads, they share the numbers, and each measures
// the whole range.
static void slices(const itg_call *call, int64_t axis, uint32_t part, uint32_t parts, bool bytes) {
  const itg_tensor *x = call->in[0];
  const int64_t count = itg_count_range(x, 0, (int)axis),
                size = itg_count_range(x, (int)axis, x->rank);
  int64_t first = 0, last = count, from = 0, to = size;
  if (count >= (int64_t)parts) itg_share(count, 1, part, parts, &first, &last);
  else itg_share(size, 64, part, parts, &from, &to);
  for (int64_t i = first; i < last; i++) {
    const float *row = (const float *)x->data + i * size;
    const range r = range_of(row, size);
    if (!bytes) {
      to_steps(row + from, to - from, r, (float *)call->out[0]->data + i * size + from);
      continue;
    }
    to_bytes(row + from, to - from, r, (uint8_t *)call->out[0]->data + i * size + from);
    if (part && count < (int64_t)parts) continue;  // the first thread stores the scale
    ((float *)call->out[1]->data)[i] = r.scale;
    ((uint8_t *)call->out[2]->data)[i] = (uint8_t)r.zero;
  }
}

ITG_FN(dynamic_fake_quantize, f32) {
  const itg_attrs_dynamic_fake_quantize *a = call->attrs;
  if (!itg_empty(call->out[0])) slices(call, a->axis, part, parts, false);
  return NULL;
}

ITG_FN(quantize_dynamic, f32) {
  const itg_attrs_quantize_dynamic *a = call->attrs;
  if (!itg_empty(call->out[1])) slices(call, a->axis, part, parts, true);
  return NULL;
}
