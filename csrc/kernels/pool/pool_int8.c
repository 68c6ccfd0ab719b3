// Max pooling of 8-bit images, channels last, compiled once per ISA: vectors run along the channels
// of a pixel.
#include "gemm/tile.h"
#include "pool.h"
#include "vec.h"

typedef struct run {  // pixels of an output line whose windows have the same taps inside the image
  const uint8_t *x;   // first tap of the first pixel
  uint8_t *y;
  int64_t pixels, step, channels;  // step: bytes of the image between them
  int64_t planes, lines, taps;     // of the window
  int64_t plane, line, tap;        // bytes from one to the next
} run;

// ---- vectors of WIDE bytes ----------------------------------------------------------------------
#if defined(ISA_avx512)
enum { WIDEST = 64 };
#define VECTORS(T, ...) T(64, __VA_ARGS__) T(32, __VA_ARGS__) T(16, __VA_ARGS__)
typedef __m512i v64;
#define load_64(p) _mm512_loadu_si512(p)
#define store_64(p, v) _mm512_storeu_si512(p, v)
#define low_64(x) _mm512_set1_epi8(x)
#define max_64_i8 _mm512_max_epi8
#define max_64_u8 _mm512_max_epu8
#elif defined(ISA_avx2)
enum { WIDEST = 32 };
#define VECTORS(T, ...) T(32, __VA_ARGS__) T(16, __VA_ARGS__)
#else
enum { WIDEST = 0 };
#define VECTORS(T, ...)
#endif
#if defined(ISA_avx512) || defined(ISA_avx2)
typedef __m256i v32;
typedef __m128i v16;
#define load_32(p) _mm256_loadu_si256((const __m256i *)(p))
#define store_32(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define low_32(x) _mm256_set1_epi8(x)
#define max_32_i8 _mm256_max_epi8
#define max_32_u8 _mm256_max_epu8
#define load_16(p) _mm_loadu_si128((const __m128i *)(p))
#define store_16(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define low_16(x) _mm_set1_epi8(x)
#define max_16_i8 _mm_max_epi8
#define max_16_u8 _mm_max_epu8
#endif

// Pools at least WIDE channels; the last vector of a pixel may repeat some. If LINES and TAPS are
// not 0, they are the constant size of the window, and there is one plane.
#define POOL(WIDE, name, low)                                                           \
  INLINE void name##_##WIDE(const run *r, const int LINES, const int TAPS) {            \
    const int64_t planes = LINES ? 1 : r->planes, lines = LINES ? LINES : r->lines,     \
                  taps = TAPS ? TAPS : r->taps;                                         \
    const int64_t n = r->channels;                                                      \
    const uint8_t *x = r->x;                                                            \
    uint8_t *y = r->y;                                                                  \
    for (int64_t i = 0; i < r->pixels; i++, x += r->step, y += n)                       \
      for (int64_t c = 0; c < n; c += WIDE) {                                           \
        const int64_t at = c + WIDE <= n ? c : n - WIDE;                                \
        v##WIDE best = low_##WIDE(low);                                                 \
        for (int64_t k = 0; k < planes; k++)                                            \
          for (int64_t j = 0; j < lines; j++)                                           \
            for (int64_t l = 0; l < taps; l++)                                          \
              best = max_##WIDE##_##name(                                               \
                  best, load_##WIDE(x + at + k * r->plane + j * r->line + l * r->tap)); \
        store_##WIDE(y + at, best);                                                     \
      }                                                                                 \
  }                                                                                     \
  static void name##_##WIDE##_any(const run *r) { name##_##WIDE(r, 0, 0); }             \
  static void name##_##WIDE##_2x2(const run *r) { name##_##WIDE(r, 2, 2); }             \
  static void name##_##WIDE##_3x3(const run *r) { name##_##WIDE(r, 3, 3); }
VECTORS(POOL, u8, 0)
VECTORS(POOL, i8, -128)

// ---- pixels of few channels ---------------------------------------------------------------------
#define PLAIN(type, name, low)                                                              \
  static void name##_plain(const run *r) {                                                  \
    const int64_t n = r->channels;                                                          \
    for (int64_t i = 0; i < r->pixels; i++) {                                               \
      type *y = (type *)r->y + i * n;                                                       \
      memset(y, low, (size_t)n);                                                            \
      for (int64_t k = 0; k < r->planes; k++)                                               \
        for (int64_t j = 0; j < r->lines; j++)                                              \
          for (int64_t l = 0; l < r->taps; l++) {                                           \
            const type *x =                                                                 \
                (const type *)r->x + i * r->step + k * r->plane + j * r->line + l * r->tap; \
            for (int64_t c = 0; c < n; c++) y[c] = x[c] > y[c] ? x[c] : y[c];               \
          }                                                                                 \
    }                                                                                       \
  }
PLAIN(uint8_t, u8, 0)
PLAIN(int8_t, i8, -128)

typedef void (*run_fn)(const run *r);

static run_fn find(const bool low, const run *r) {
  __attribute__((unused)) const int size = r->planes != 1 || r->lines != r->taps ? 0
                                           : r->lines == 2                       ? 1
                                           : r->lines == 3                       ? 2
                                                                                 : 0;
#define CHOOSE(WIDE, name)                                                                       \
  if (r->channels >= WIDE) {                                                                     \
    static const run_fn all[] = {name##_##WIDE##_any, name##_##WIDE##_2x2, name##_##WIDE##_3x3}; \
    return all[size];                                                                            \
  }
  if (low) {
    VECTORS(CHOOSE, i8)
    return i8_plain;
  }
  VECTORS(CHOOSE, u8)
  return u8_plain;
}

// ---- the work -----------------------------------------------------------------------------------
// Pools pixels [ox, stop) of an output line. Planes and lines of `r` are set; `x` is column 0 of
// the input.
static void pool_line(const itg_window *w, bool low, run *r, const uint8_t *x, int64_t ox,
                      int64_t stop) {
  while (ox < stop) {
    int64_t begin, end, next = ox + 1;
    const int64_t from = ox * w->stride[2] - w->before[2];
    itg_taps_inside(w, 2, from, &begin, &end);
    // All windows after the first one that lies inside are inside, too, until the image ends.
    if (begin == 0 && end == w->kernel[2]) {
      const int64_t inside =
          (w->in[2] - 1 - (w->kernel[2] - 1) * w->dilation[2] - from) / w->stride[2] + 1;
      next = ox + (inside < stop - ox ? inside : stop - ox);
    }
    r->x = x + (from + begin * w->dilation[2]) * r->channels;
    r->taps = end > begin ? end - begin : 0;
    r->pixels = next - ox;
    find(low, r)(r);
    r->y += r->pixels * r->channels;
    ox = next;
  }
}

static itg_words pool(const itg_call *call, uint32_t part, uint32_t parts, bool low) {
  itg_window w;
  itg_tensor out;
  itg_pool_of(call, &w, &out);
  if (itg_empty(&out)) return NULL;
  const int64_t channels = out.shape[out.rank - 1], line = w.in[2] * channels;
  run r = {.channels = channels,
           .step = w.stride[2] * channels,
           .tap = w.dilation[2] * channels,
           .line = w.dilation[1] * line,
           .plane = w.dilation[0] * w.in[1] * line};
  int64_t i, to;
  itg_share(out.shape[0] * itg_places(w.out), 1, part, parts, &i, &to);
  while (i < to) {
    const int64_t ox = i % w.out[2], oy = i / w.out[2] % w.out[1],
                  oz = i / w.out[2] / w.out[1] % w.out[0];
    const int64_t z = oz * w.stride[0] - w.before[0], y = oy * w.stride[1] - w.before[1];
    const int64_t stop = to - i < w.out[2] - ox ? ox + to - i : w.out[2];
    int64_t begin[2], end[2];
    itg_taps_inside(&w, 0, z, &begin[0], &end[0]);
    itg_taps_inside(&w, 1, y, &begin[1], &end[1]);
    r.planes = end[0] > begin[0] ? end[0] - begin[0] : 0;
    r.lines = end[1] > begin[1] ? end[1] - begin[1] : 0;
    r.y = (uint8_t *)call->out[0]->data + i * channels;
    const int64_t first =
        (i / itg_places(w.out) * w.in[0] + z + begin[0] * w.dilation[0]) * w.in[1] + y;
    const uint8_t *x =
        (const uint8_t *)call->in[0]->data + (first + begin[1] * w.dilation[1]) * line;
    pool_line(&w, low, &r, x, ox, stop);
    i += stop - ox;
  }
  return NULL;
}

ITG_FN(pool, u8) { return pool(call, part, parts, false); }
ITG_FN(pool, i8) { return pool(call, part, parts, true); }
