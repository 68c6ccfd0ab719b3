// Interpolation of f32 along one axis: vectors run along the axes after it.
#include "resize.h"

#include "vec.h"

// Computes one output place: a weighted sum of rows of `inner` elements.
static void mix(const float *x, const itg_interpolation *t, int64_t place, float *out) {
  const int32_t *index = t->index + place * t->taps;
  const float *weight = t->weight + place * t->taps;
  int64_t i = 0;
  for (; i + VL <= t->inner; i += VL) {
    vf sum = vmul(vload(x + index[0] * t->inner + i), vset(weight[0]));
    for (int64_t k = 1; k < t->taps; k++)
      sum = vmadd(vload(x + index[k] * t->inner + i), vset(weight[k]), sum);
    vstore(out + i, sum);
  }
  for (; i < t->inner; i++) {
    float sum = x[index[0] * t->inner + i] * weight[0];
    for (int64_t k = 1; k < t->taps; k++) sum += x[index[k] * t->inner + i] * weight[k];
    out[i] = sum;
  }
}

// Interpolates the innermost axis: places [from, to) of `rows` rows, one element at a time.
static void mix_places(const float *x, const itg_interpolation *t, int64_t from, int64_t to,
                       int64_t rows, float *out) {
  for (int64_t r = 0; r < rows; r++, x += t->extent, out += t->places) {
    const int32_t *index = t->index + from * t->taps;
    const float *weight = t->weight + from * t->taps;
    for (int64_t i = from; i < to; i++) {
      float sum = 0;
      for (int64_t k = 0; k < t->taps; k++) sum += x[*index++] * *weight++;
      out[i] = sum;
    }
  }
}

#if defined(ISA_avx512) || defined(ISA_avx2)
#if defined(ISA_avx512)
#define permute(v, index) _mm512_permutexvar_ps(index, v)
#define load_index(p) _mm512_loadu_si512(p)
#else
#define permute(v, index) _mm256_permutevar8x32_ps(v, index)
#define load_index(p) _mm256_loadu_si256((const __m256i *)(p))
#endif
enum {
  TAPS = 4,   // taps that registers hold
  ROWS = 32,  // rows that share the tables of a vector of places
};

// VL neighbouring places of a row read neighbouring inputs if an image is enlarged. If one vector
// of inputs holds all of them, it is loaded once and permuted for each tap. Otherwise places are
// computed one at a time.
static void mix_vector(const float *x, const itg_interpolation *t, int64_t from, int64_t n,
                       int64_t rows, float *out) {
  int32_t lanes[TAPS][VL] = {{0}};
  float weights[TAPS][VL] = {{0}};
  int64_t low = t->extent, high = 0;
  for (int64_t i = 0; i < n * t->taps; i++) {
    const int32_t at = t->index[from * t->taps + i];
    low = at < low ? at : low;
    high = at > high ? at : high;
  }
  if (low > t->extent - VL)
    low = t->extent > VL ? t->extent - VL : 0;  // a whole vector, if the row has one
  if (high - low >= VL) {
    mix_places(x, t, from, from + n, rows, out);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < t->taps; k++) {
      lanes[k][i] = (int32_t)(t->index[(from + i) * t->taps + k] - low);
      weights[k][i] = t->weight[(from + i) * t->taps + k];
    }
  const int64_t some = t->extent - low;
  x += low;
  out += from;
  for (int64_t r = 0; r < rows; r++, x += t->extent, out += t->places) {
    const vf v = some >= VL ? vload(x) : vloadn(x, some);
    vf sum = vmul(permute(v, load_index(lanes[0])), vload(weights[0]));
    for (int64_t k = 1; k < t->taps; k++)
      sum = vfma(permute(v, load_index(lanes[k])), vload(weights[k]), sum);
    if (n == VL) vstore(out, sum);
    else vstoren(out, n, sum);
  }
}

static void mix_last(const float *x, const itg_interpolation *t, int64_t from, int64_t to,
                     int64_t rows, float *out) {
  if (t->taps > TAPS) {
    mix_places(x, t, from, to, rows, out);
    return;
  }
  for (int64_t r = 0; r < rows; r += ROWS)
    for (int64_t p = from; p < to; p += VL)
      mix_vector(x + r * t->extent, t, p, to - p < VL ? to - p : VL,
                 rows - r < ROWS ? rows - r : ROWS, out + r * t->places);
}
#else
#define mix_last mix_places
#endif

ITG_FN(interpolate, f32) {
  const itg_interpolation t = itg_interpolation_of(call);
  const float *x = call->in[0]->data;
  float *out = call->out[0]->data;
  itg_words words = itg_check_indices(&t);
  if (words) return words;
  int64_t i, to;
  if (t.inner == 1 &&
      t.taps > 1) {  // parts take rows, or vectors of places where there are few rows
    int64_t row = 0, end = t.outer, from = 0, last = t.places;
    if (t.outer >= 4 * (int64_t)parts) itg_share(t.outer, 1, part, parts, &row, &end);
    else itg_share(t.places, VL, part, parts, &from, &last);
    mix_last(x + row * t.extent, &t, from, last, end - row, out + row * t.places);
    return NULL;
  }
  itg_share(t.outer * t.places, t.inner < 64 ? 64 : 1, part, parts, &i, &to);
  while (i < to) {
    int64_t outer = i / t.places, from = i % t.places,
            end = from + to - i < t.places ? from + to - i : t.places;
    const float *image = x + outer * t.extent * t.inner;
    if (t.taps == 1) {
      for (int64_t p = from; p < end; p++)
        memcpy(out + (outer * t.places + p) * t.inner, image + t.index[p] * t.inner,
               (size_t)t.inner * sizeof *out);
    } else {
      for (int64_t p = from; p < end; p++)
        mix(image, &t, p, out + (outer * t.places + p) * t.inner);
    }
    i += end - from;
  }
  return NULL;
}
