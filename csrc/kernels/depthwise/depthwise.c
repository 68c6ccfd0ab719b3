// Depthwise convolution of channel-last f32, bf16 or f16 images. The register tile is a strip: up
// to 7 neighbouring output pixels by one vector of LANES channels (sum[p]). An input pixel that
// belongs to several windows is loaded once.
#define ITG_VLH 32
#include "depthwise.h"
#include "vec_half.h"

#if defined(ISA_avx512) || defined(ISA_avx2)
#define KEEP(x) __asm__("" : "+v"(x))  // keeps it in a register; GCC would load it for every use
#elif defined(ISA_neon)
#define KEEP(x) __asm__("" : "+w"(x))
#else
#define KEEP(x)
#endif
enum { PIXELS = 7, WIDE = 7 };  // most pixels of a strip; width of the largest unrolled windows

typedef itg_depthwise_task task;

// Neighbouring output pixels of one row; `count` strips follow each other. Sizes are in elements.
typedef struct strip {
  int64_t planes, lines;              // taps along the outer axes that lie inside the image
  int64_t plane, line;                // distances of planes and lines in the image
  int64_t weight_plane, weight_line;  // and in the weights
  int64_t weight, image,
      out;  // where the first tap's weights, the first pixel's input and its output begin
  int64_t first, last;  // input pixels [first, last), counted from the first, lie inside the image
  int64_t wrap,
      back;  // before this line of taps the image goes back by so much, to a ring's first line
  int64_t count, step;  // strips; input pixels from one strip to the next
  int64_t pitch;        // distance of pixels in the image and in the output
  int64_t pixels;       // output pixels that are stored, if fewer than the function computes
} strip;

#if defined(ISA_avx512)  // masks are free, so whole vectors and the last channels share one body
INLINE vf get(const float *p, int64_t n) {
  return _mm512_maskz_loadu_ps(n >= VL ? (__mmask16)-1 : vfirst(n), p);
}
#else
INLINE vf get(const float *p, int64_t n) { return n >= VL ? vload(p) : vloadn(p, n); }
#endif

INLINE void put(float *p, int64_t n, vf v) {
  if (n >= VL) vstore(p, v);
  else vstoren(p, n, v);
}
// Loads and stores of the image, and of outputs of the same type.
#if defined(ITG_BF16)
#define get_element vsome_bf16
#define put_element vkeep_bf16
#elif defined(ITG_HALVES)
#define get_element hsome
#define put_element hkeep
#elif defined(ITG_HALF)
#define get_element vsome_f16
#define put_element vkeep_f16
#else
#define get_element get
#define put_element put
#endif
// What computes: floats, or f16 where that is what the ISA multiplies and adds.
#if defined(ITG_HALVES)
typedef vh lanes;
enum { LANES = VLH };
#define lanes_set(c) hset(c)
#define lanes_madd(a, b, c) hfma(a, b, c)
#define lanes_clamp(lo, hi, y) hclamp(lo, hi, y)
INLINE lanes lanes_get(const float *p, int64_t n) {  // weights and biases are floats
  vf f[VLH / VL];
  FOR_UNROLLED (4, int i = 0; i < VLH / VL; i++)
    f[i] = n >= (i + 1) * VL ? vload(p + i * VL)
           : n > i * VL      ? vloadn(p + i * VL, n - i * VL)
                             : vset(0.f);
  return hnarrow(f);
}
INLINE void lanes_store(float *to, lanes v) {
  FOR_UNROLLED (4, int i = 0; i < VLH / VL; i++) vstore(to + i * VL, hwide(v, i));
}
#else
typedef vf lanes;
enum { LANES = VL };
#define lanes_set(c) vset(c)
#define lanes_madd(a, b, c) vmadd(a, b, c)
#define lanes_clamp(lo, hi, y) vmin(hi, vmax(lo, y))
#define lanes_get(p, n) get(p, n)
#define lanes_store(p, v) vstore(p, v)
#endif

// Loads of the output and the residual, which may have the other type.
INLINE vf get_made(const void *from, int64_t at, int64_t n, bool small, bool half) {
  if (small && half) return vsome_f16((const uint16_t *)from + at, n);
  return small ? vsome_bf16((const uint16_t *)from + at, n) : get((const float *)from + at, n);
}

// Adds one line of the window to P pixels of one vector of channels. K is the width of the window
// and S its stride, or 0 if they are not constants.
INLINE void line_of_taps(const task *t, const strip *s, int64_t image, const float *weight,
                         int64_t n, lanes *sum, const int P, const int K, const int S) {
  const int64_t channels = t->channels, first = s->first, last = s->last;
  if (K) {
    const itg_element *pixel = t->image + image;
    lanes f[8];
    FOR_UNROLLED (32, int k = 0; k < K; k++) f[k] = lanes_get(weight + k * channels, n);
    FOR_UNROLLED (32, int q = 0; q < (P - 1) * S + K; q++, pixel += s->pitch) {
      if (q < first || q >= last) continue;
      lanes x = get_element(pixel, n);
      KEEP(x);
      FOR_UNROLLED (32, int k = 0; k < K; k++)
        if ((q - k) % S == 0 && q >= k && (q - k) / S < P)
          sum[(q - k) / S] = lanes_madd(x, f[k], sum[(q - k) / S]);
    }
    return;
  }
  for (int64_t k = 0; k < t->w.kernel[2]; k++) {
    const lanes f = lanes_get(weight + k * channels, n);
    FOR_UNROLLED (32, int p = 0; p < P; p++) {
      const int64_t q = p * t->w.stride[2] + k * t->w.dilation[2];
      if (q >= first && q < last)
        sum[p] = lanes_madd(get_element(t->image + image + q * channels, n), f, sum[p]);
    }
  }
}

// The rare epilogues: activations other than bounds, and outputs of the other type. `sum` has LANES
// numbers per pixel. Not inlined, because this file took longest to compile with a copy in every
// strip.
static __attribute__((noinline)) void finish_more(const task *t, int64_t at, int64_t pitch,
                                                  int64_t c, int64_t n, float *sum,
                                                  int64_t pixels) {
  const vf lo = vset(t->end.lo), hi = vset(t->end.hi);
  const void *residual = t->end.residual;
  const bool half = t->end.half, small = (ITG_PAIR == 2) != t->end.other,
             now = small || ITG_PAIR == 2;
  for (int64_t p = 0; p < pixels; p++, at += pitch)
    for (int64_t v = 0; v < LANES; v += VL, sum += VL) {
      const int64_t some = n - v < VL ? n - v : VL;
      if (some <= 0) continue;
      vf x = vload(sum);
      if (residual && !t->end.add_last) x = vadd(x, get_made(residual, at + v, some, small, half));
      x = vmin(hi, vmax(lo, x));
      if (t->end.act && now) {  // activations come before rounding
        vstore(sum, x);
        itg_bend(&t->end, sum, some, c + v, some);
        x = vload(sum);
      }
      if (residual && t->end.add_last && (now || !t->end.act))
        x = vadd(x, get_made(residual, at + v, some, small, half));
      if (small && half) vkeep_f16((uint16_t *)t->out + at + v, some, x);
      else if (small) vkeep_bf16((uint16_t *)t->out + at + v, some, x);
      else put((float *)t->out + at + v, some, x);
    }
}

// Epilogue of P sums; the first `pixels` of them are stored from element `at` of the output on.
INLINE void finish(const task *t, int64_t at, int64_t pitch, int64_t c, int64_t n, lanes *sum,
                   const int P, const int64_t pixels) {
  if (t->end.residual || t->end.other || (t->end.act && ITG_PAIR == 2)) {
    float row[PIXELS * LANES];
    FOR_UNROLLED (32, int p = 0; p < P; p++) lanes_store(row + p * LANES, sum[p]);
    finish_more(t, at, pitch, c, n, row, pixels);
    return;
  }
  const lanes lo = lanes_set(t->end.lo), hi = lanes_set(t->end.hi);
  FOR_UNROLLED (32, int p = 0; p < P; p++)
    if (p < pixels)
      put_element((itg_element *)t->out + at + p * pitch, n, lanes_clamp(lo, hi, sum[p]));
}

INLINE void pixels(const task *t, const strip *s, int64_t c, int64_t n, const int P, const int K,
                   const int S) {
  lanes sum[PIXELS];
  sum[0] = t->end.bias ? lanes_get(t->end.bias + c, n) : lanes_set(0.f);
  FOR_UNROLLED (32, int p = 1; p < P; p++) sum[p] = sum[0];
  for (int64_t i = 0; i < s->planes; i++) {
    int64_t image = s->image + i * s->plane + c;
    const float *weight = t->weights + s->weight + i * s->weight_plane + c;
    for (int64_t j = 0; j < s->lines; j++, image += s->line, weight += s->weight_line) {
      if (j == s->wrap) image -= s->back;
      line_of_taps(t, s, image, weight, n, sum, P, K, S);
    }
  }
  finish(t, s->out + c, s->pitch, c, n, sum, P, K == WIDE ? s->pixels : P);
}

// Calls fn(task, what, c, n, ...) for all vectors of channels [c, c + n) up to `to`.
#if defined(ISA_avx512)
#define EACH_VECTOR(fn, task, what, ...) \
  for (; c < to; c += LANES) fn(task, what, c, to - c < LANES ? to - c : LANES, __VA_ARGS__);
#elif defined(ITG_VECTORS)
#define EACH_VECTOR(fn, task, what, ...)                                     \
  for (; c + LANES <= to; c += LANES) fn(task, what, c, LANES, __VA_ARGS__); \
  if (c < to) fn(task, what, c, to - c, __VA_ARGS__);
#else
#define EACH_VECTOR(fn, task, what, ...) \
  for (; c < to; c += LANES) fn(task, what, c, LANES, __VA_ARGS__);
#endif

// Functions that compute channels [from, to) of strips of P pixels.
#define STRIP(P, K, S)                                                                    \
  static void strip_##P##_##K##_##S(const task *task_, const strip *strip_, int64_t from, \
                                    int64_t to) {                                         \
    const task t = *task_; /* copies, which no store can alias */                         \
    strip s = *strip_;                                                                    \
    for (int64_t i = s.count; i > 0; i--) {                                               \
      int64_t c = from;                                                                   \
      EACH_VECTOR(pixels, &t, &s, P, K, S)                                                \
      s.image += s.step * s.pitch;                                                        \
      s.out += P * s.pitch;                                                               \
      s.first -= s.step;                                                                  \
      s.last -= s.step;                                                                   \
    }                                                                                     \
  }
#define EACH(D, K, S) D(1, K, S) D(2, K, S) D(3, K, S) D(4, K, S) D(5, K, S) D(6, K, S) D(7, K, S)
EACH(STRIP, 0, 0)
EACH(STRIP, 3, 1)
EACH(STRIP, 3, 2)
EACH(STRIP, 5, 1)
EACH(STRIP, 5, 2)
// Windows of width 7 have strips of 4 and 7 pixels only; shorter strips compute sums that are not
// stored.
STRIP(4, 7, 1)
STRIP(7, 7, 1)
STRIP(4, 7, 2)
STRIP(7, 7, 2)

typedef void (*strip_fn)(const task *t, const strip *s, int64_t from, int64_t to);

#define ENTRY(P, K, S) [P] = strip_##P##_##K##_##S,
static const strip_fn any[PIXELS + 1] = {
    EACH(ENTRY, 0, 0)};  // windows of any width, stride and dilation

static const strip_fn *strips_for(const itg_window *w) {
  static const strip_fn narrow[2][2][PIXELS + 1] = {{{EACH(ENTRY, 3, 1)}, {EACH(ENTRY, 3, 2)}},
                                                    {{EACH(ENTRY, 5, 1)}, {EACH(ENTRY, 5, 2)}}};
#define WIDE_ENTRY(S)                                                                \
  {                                                                                  \
    NULL, strip_4_7_##S, strip_4_7_##S, strip_4_7_##S, strip_4_7_##S, strip_7_7_##S, \
        strip_7_7_##S, strip_7_7_##S                                                 \
  }
  static const strip_fn wide[2][PIXELS + 1] = {WIDE_ENTRY(1), WIDE_ENTRY(2)};
  const int64_t kernel = w->kernel[2], stride = w->stride[2];
  if (stride > 2 || (w->dilation[2] != 1 && stride != 1)) return any;
  if (kernel == WIDE) return wide[stride == 2];
  return kernel == 3 || kernel == 5 ? narrow[kernel == 5][stride == 2] : any;
}

// Computes channels [from, to) of output row `row` and stores it as row `to_row` of the output.
// With dilation d and a stride of one, every d-th pixel forms a row of its own, whose windows are
// dense.
static void run_row(const task *t, const strip_fn *strips, int64_t row, int64_t to_row,
                    int64_t from, int64_t to) {
  const itg_window *w = &t->w;
  const int64_t y = row % w->out[1], z = row / w->out[1] % w->out[0],
                batch = row / w->out[1] / w->out[0];
  const int64_t iz = z * w->stride[0] - w->before[0], iy = y * w->stride[1] - w->before[1];
  int64_t z0, z1, y0, y1;
  itg_taps_inside(w, 0, iz, &z0, &z1);
  itg_taps_inside(w, 1, iy, &y0, &y1);
  const int64_t line = w->in[2] * t->channels, taps = w->kernel[2] * t->channels;
  int64_t top = (batch * w->in[0] + iz + z0 * w->dilation[0]) * w->in[1] + iy + y0 * w->dilation[1];
  const int64_t every = w->stride[2] == 1 && strips != any ? w->dilation[2] : 1,
                pitch = every * t->channels;
  strip s = {z1 - z0,
             y1 - y0,
             w->dilation[0] * w->in[1] * line,
             w->dilation[1] * line,
             w->kernel[1] * taps,
             taps,
             (z0 * w->kernel[1] + y0) * taps,
             0,
             0,
             0,
             0,
             -1,
             t->ring * line,
             0,
             0,
             pitch,
             0};
  if (t->ring) top %= t->ring, s.wrap = t->ring - top;
  for (int64_t f = 0; f < every && f < w->out[2]; f++) {
    const int64_t width = (w->out[2] - f + every - 1) / every,
                  tiles = (width + PIXELS - 1) / PIXELS;
    int64_t few = width / tiles, many = few + 1,
            more = width % tiles;  // `more` strips of `many` pixels, then strips of `few`
    if (w->kernel[2] == WIDE && strips != any)
      many = PIXELS, more = width / PIXELS, few = width % PIXELS;
    for (int64_t i = 0; i < 2; i++) {
      const int64_t n = i ? few : many, p = i ? more * many : 0,
                    x = f + p * every * w->stride[2] - w->before[2];
      s.count = i ? tiles - more : more;
      s.pixels = n;
      s.step = n * w->stride[2];
      s.image = top * line + x * t->channels;
      s.out = (to_row * w->out[2] + f + p * every) * t->channels;
      s.first = x < 0 ? (-x + every - 1) / every : -(x / every);
      s.last = (w->in[2] - x + every - 1) / every;
      if (s.count && n) strips[n](t, &s, from, to);
    }
  }
  if (!t->end.act || ITG_PAIR == 2 || t->end.other) return;
  const bool whole = to - from == t->channels;  // all channels: the row is contiguous
  const int64_t n = whole ? w->out[2] * t->channels : to - from;
  for (int64_t p = 0; p < (whole ? 1 : w->out[2]); p++) {
    const int64_t at = (to_row * w->out[2] + p) * t->channels + from;
    float *out = t->out;
    itg_bend(&t->end, out + at, n, from, to - from);
    if (t->end.residual && t->end.add_last)
      for (int64_t i = at; i < at + n; i++) out[i] += ((const float *)t->end.residual)[i];
  }
}

#include "depthwise_columns.h"

#if defined(itg_depthwise_lines)
void itg_depthwise_lines(const itg_depthwise_task *t, int64_t from, int64_t to) {
  const strip_fn *strips = strips_for(&t->w);
  for (int64_t y = from; y < to; y++) run_row(t, strips, y, y - from, 0, t->channels);
}
#endif

ITG_FN(depthwise, ITG_ELEMENT) {
  const itg_attrs_depthwise *a = call->attrs;
  task t;
  itg_tensor type;
  t.ring = 0;
  itg_depthwise_of(call, &t.w, &type);
  t.end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  t.channels = type.shape[type.rank - 1];
  t.image = call->in[0]->data;
  t.weights = call->in[1]->data;
  t.out = call->out[0]->data;
  const int64_t rows = type.shape[0] * t.w.out[0] * t.w.out[1];
  const strip_fn *strips = strips_for(&t.w);
  int64_t row = 0, end = rows, from = 0, to = t.channels;
  if (rows >= 8 * (int64_t)parts) itg_share(rows, 1, part, parts, &row, &end);
  else itg_share(t.channels, LANES < 16 ? 16 : LANES, part, parts, &from, &to);
  if (!itg_count(&type)) return NULL;
#ifdef ITG_VECTORS
  if (goes_down(&t)) {
    run_down(&t, row, end, from, to);
    return NULL;
  }
#endif
  // Channels per pass: the input lines of one output line should stay in the L1 cache. Short runs
  // of channels do not pay, because memory is then read in small pieces.
  int64_t block = (5 << 10) / (t.w.kernel[1] * t.w.in[2] + 1) / LANES * LANES;
  if (block < 64) block = t.channels;
  for (int64_t c = from; c < to; c += block)
    for (int64_t y = row; y < end; y++)
      run_row(&t, strips, y, y, c, c + block < to ? c + block : to);
  return NULL;
}
