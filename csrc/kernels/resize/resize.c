// Interpolation of f32 along one axis: vectors run along the axes after it.
#include "resize.h"

#include "vec.h"

// One output place: `out` is a mix of rows of `inner` elements.
static void mix(const float *x, const itg_interpolation *t, int64_t place, float *out) {
  const int32_t *index = t->index + place * t->taps;
  const float *weight = t->weight + place * t->taps;
  int64_t i = 0;
  for (; i + VL <= t->inner; i += VL) {
    vf sum = vmul(vload(x + index[0] * t->inner + i), vset(weight[0]));
    for (int64_t k = 1; k < t->taps; k++) sum = vmadd(vload(x + index[k] * t->inner + i), vset(weight[k]), sum);
    vstore(out + i, sum);
  }
  for (; i < t->inner; i++) {
    float sum = x[index[0] * t->inner + i] * weight[0];
    for (int64_t k = 1; k < t->taps; k++) sum += x[index[k] * t->inner + i] * weight[k];
    out[i] = sum;
  }
}

// The innermost axis itself: one element per place.
static void mix_last(const float *x, const itg_interpolation *t, int64_t from, int64_t to, float *out) {
  const int32_t *index = t->index + from * t->taps;
  const float *weight = t->weight + from * t->taps;
  for (int64_t i = from; i < to; i++) {
    float sum = 0;
    for (int64_t k = 0; k < t->taps; k++) sum += x[*index++] * *weight++;
    *out++ = sum;
  }
}

ITG_FN(interpolate, f32) {
  const itg_interpolation t = itg_interpolation_of(call);
  const float *x = call->in[0]->data;
  float *out = call->out[0]->data;
  itg_words words = itg_check_indices(&t);
  if (words) return words;
  int64_t i, to;
  itg_share(t.outer * t.places, t.inner < 64 ? 64 : 1, part, parts, &i, &to);
  while (i < to) {
    int64_t outer = i / t.places, from = i % t.places, end = from + to - i < t.places ? from + to - i : t.places;
    const float *image = x + outer * t.extent * t.inner;
    if (t.taps == 1) {
      for (int64_t p = from; p < end; p++)
        memcpy(out + (outer * t.places + p) * t.inner, image + t.index[p] * t.inner, (size_t)t.inner * sizeof *out);
    } else if (t.inner == 1) {
      mix_last(image, &t, from, end, out + outer * t.places + from);
    } else {
      for (int64_t p = from; p < end; p++) mix(image, &t, p, out + (outer * t.places + p) * t.inner);
    }
    i += end - from;
  }
  return NULL;
}
