// Input transform of Winograd convolution of bytes: the 6x6 pixels of each tile become 36 points.
// Neighbouring tiles share two columns of pixels. So the columns of a strip of tiles are
// transformed first, each once, and then the lines. Vectors hold 16-bit numbers of MANY channels
// (type `many`) or, for the last ones, of FEW (type `few`).
#pragma once

#if defined(ISA_avx512)
enum { MANY = 32, FEW = 16 };
#define WIDEN_many(p, SIGNED)                                         \
  (SIGNED ? _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p)) \
          : _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p)))
#elif defined(ISA_avx2)
enum { MANY = 16, FEW = 16 };
#define WIDEN_many WIDEN_few
#elif defined(ISA_rvv)
enum { MANY = 16, FEW = 16 };
#define WIDEN_many WIDEN_few
#define WIDEN_few(p, SIGNED)                                   \
  (SIGNED ? (vec_u16)vec_to(*(const vec_i8_any *)(p), vec_i16) \
          : vec_to(*(const vec_u8_any *)(p), vec_u16))
#else
enum { MANY = 8, FEW = 8 };
#define WIDEN_many WIDEN_few
#define WIDEN_few(p, SIGNED) widened(p, SIGNED)
#endif
typedef uint16_t many __attribute__((vector_size(MANY * 2), may_alias, aligned(2)));
typedef uint16_t few __attribute__((vector_size(FEW * 2), may_alias, aligned(2)));
#if defined(ITG_QVECTORS)
#define WIDEN_few(p, SIGNED)                                       \
  (SIGNED ? _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)) \
          : _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)))
#elif !defined(ISA_rvv)
INLINE few widened(const uint8_t *p, const bool SIGNED) {
  few wide;
  for (int i = 0; i < FEW; i++) wide[i] = (uint16_t)(SIGNED ? (int8_t)p[i] : p[i]);
  return wide;
}
#endif

typedef struct strip {        // input pixels of a horizontal row of tiles
  const uint8_t *line[SIZE];  // column 0 of each image line; NULL: the line is padding
  const uint8_t *fill;        // a pixel of padding
  bool inside;                // no line is padding
  int64_t first, wide;        // first column of the strip (may be negative), columns of the image
  int64_t odd, two, pixel;    // odd 1: pixels are stored in squares; bytes from one pair of columns
                              // to the next, and from the first to the second of a pair
  int64_t tiles;
  uint16_t *to;       // transformed inputs of the first tile
  int64_t row, step;  // distances of tiles and of points in `to`
} strip;

// Offset of column j in a line.
INLINE int64_t column_at(const strip *s, int64_t j) {
  return s->odd ? (j >> 1) * s->two + (j & 1) * s->pixel : j * s->pixel;
}

// Joins 16 channels of each of two images to a full vector of 32.
#if defined(ISA_avx512)
INLINE many JOIN_many(const uint8_t *p, const uint8_t *q, const bool SIGNED) {
  const __m256i first = _mm256_castsi128_si256(_mm_loadu_si128((const void *)p));
  const __m256i both = _mm256_inserti128_si256(first, _mm_loadu_si128((const void *)q), 1);
  return (many)(SIGNED ? _mm512_cvtepi8_epi16(both) : _mm512_cvtepu8_epi16(both));
}
#else
#define JOIN_many JOIN_few
#endif
#define JOIN_few(p, q, SIGNED) ((void)(q), get_few(p, FEW, SIGNED))  // never called
static void edge_of_two(const strip *s, const strip *o, int64_t j, bool is_signed, int64_t c,
                        uint16_t *y);

// Steps to the next column of a strip: j is its number, `at` and `at_other` are its offsets in both
// images. The two distances of columns in squares alternate.
#define NEXT \
  j++, at += go, go = s.two - go, at_other += go_other, go_other = other ? other->two - go_other : 0

// Functions for vectors V of 16-bit numbers:
// get_V: loads n channels of a pixel; points_of_V: transforms six pixels to six points; edge_V and
// column_V: the six pixels of column j, some of which may be padding in edge_V; strip_V: all tiles
// of a strip, channels c to c + n, or 16 channels of each image if there are two. left and right
// hold four transformed columns each; a tile needs the last two of `left` and all of `right`.
#define INPUT(V, LANES)                                                                            \
  INLINE V get_##V(const uint8_t *p, int64_t n, const bool SIGNED) {                               \
    if (n >= LANES) return (V)WIDEN_##V(p, SIGNED);                                                \
    uint8_t some[LANES] = {0};                                                                     \
    memcpy(some, p, (size_t)n);                                                                    \
    return (V)WIDEN_##V(some, SIGNED);                                                             \
  }                                                                                                \
  INLINE void points_of_##V(const V *x, V *y) {                                                    \
    const V a = x[4] - (x[2] << 2), b = x[3] - (x[1] << 2), c = x[4] - x[2], d = x[3] - x[1],      \
            e = d + d;                                                                             \
    y[0] = ((x[0] - x[2]) << 2) + c;                                                               \
    y[1] = a + b;                                                                                  \
    y[2] = a - b;                                                                                  \
    y[3] = c + e;                                                                                  \
    y[4] = c - e;                                                                                  \
    y[5] = (x[5] - x[3]) - (d << 2);                                                               \
  }                                                                                                \
  static __attribute__((noinline)) void edge_##V(const strip *s, int64_t j, bool is_signed,        \
                                                 int64_t c, int64_t n, V *y) {                     \
    V x[SIZE];                                                                                     \
    const bool there = j >= 0 && j < s->wide;                                                      \
    for (int i = 0; i < SIZE; i++)                                                                 \
      x[i] = get_##V((there && s->line[i] ? s->line[i] + column_at(s, j) : s->fill) + c, n,        \
                     is_signed);                                                                   \
    points_of_##V(x, y);                                                                           \
  }                                                                                                \
  INLINE void column_##V(const strip *s, const strip *o, int64_t j, int64_t at, int64_t at_other,  \
                         const bool SIGNED, int64_t c, int64_t n, V *y) {                          \
    V x[SIZE];                                                                                     \
    if (!s->inside || j < 0 || j >= s->wide) {                                                     \
      if (o) edge_of_two(s, o, j, SIGNED, c, (uint16_t *)y);                                       \
      else edge_##V(s, j, SIGNED, c, n, y);                                                        \
      return;                                                                                      \
    }                                                                                              \
    FOR_UNROLLED (16, int i = 0; i < SIZE; i++)                                                    \
      x[i] = o ? JOIN_##V(s->line[i] + at, o->line[i] + at_other, SIGNED)                          \
               : get_##V(s->line[i] + at, n, SIGNED);                                              \
    points_of_##V(x, y);                                                                           \
  }                                                                                                \
  INLINE void strip_##V(const strip *all, const strip *other, const bool SIGNED, int64_t c,        \
                        int64_t n) {                                                               \
    const strip s = *all;                                                                          \
    V two[2][TILE][SIZE], (*left)[SIZE] = two[0], (*right)[SIZE] = two[1], x[SIZE], y[SIZE];       \
    int64_t j = s.first, at = column_at(&s, j) + c, at_other = other ? column_at(other, j) : 0;    \
    int64_t go = column_at(&s, j + 1) + c - at; /* distance to the next column */                  \
    int64_t go_other = other ? column_at(other, j + 1) - at_other : 0;                             \
    for (int i = 2; i < TILE; i++, NEXT)                                                           \
      column_##V(&s, other, j, at, at_other, SIGNED, c, n, left[i]);                               \
    uint16_t *to = s.to + c;                                                                       \
    for (int64_t t = 0; t < s.tiles; t++, to += s.row) {                                           \
      FOR_UNROLLED (1, int i = 0; i < TILE; i++, NEXT)                                             \
        column_##V(&s, other, j, at, at_other, SIGNED, c, n, right[i]);                            \
      uint16_t *out = to;                                                                          \
      FOR_UNROLLED (1, int i = 0; i < SIZE; i++) {                                                 \
        x[0] = left[2][i], x[1] = left[3][i];                                                      \
        x[2] = right[0][i], x[3] = right[1][i], x[4] = right[2][i], x[5] = right[3][i];            \
        points_of_##V(x, y);                                                                       \
        FOR_UNROLLED (16, int k = 0; k < SIZE; k++, out += s.step) *(V *)out = y[k];               \
      }                                                                                            \
      V(*const old)[SIZE] = left;                                                                  \
      left = right, right = old;                                                                   \
    }                                                                                              \
  }                                                                                                \
  static void some_##V(const strip *s, const strip *other, bool is_signed, int64_t c, int64_t n) { \
    if (other && is_signed) strip_##V(s, other, true, c, LANES);                                   \
    else if (other) strip_##V(s, other, false, c, LANES);                                          \
    else if (n >= LANES && is_signed) strip_##V(s, NULL, true, c, LANES);                          \
    else if (n >= LANES) strip_##V(s, NULL, false, c, LANES);                                      \
    else strip_##V(s, NULL, is_signed, c, n);                                                      \
  }
INPUT(few, FEW)
INPUT(many, MANY)

static void edge_of_two(const strip *s, const strip *o, int64_t j, bool is_signed, int64_t c,
                        uint16_t *y) {
  few first[SIZE], second[SIZE];
  edge_few(s, j, is_signed, c, FEW, first);
  edge_few(o, j, is_signed, 0, FEW, second);
  for (int i = 0; i < SIZE; i++, y += 2 * FEW) {
    memcpy(y, first + i, sizeof first[i]);
    memcpy(y + FEW, second + i, sizeof second[i]);
  }
}

typedef struct place {  // of a tile
  int64_t batch, y, x;
} place;

static place place_of(const itg_qwinograd *g, int64_t i) {
  const int64_t image = g->down * g->across, in = i % image;
  return (place){i / image, in / g->across * TILE, in % g->across * TILE};
}

static void next_place(const itg_qwinograd *g, place *at) {
  if ((at->x += TILE) < g->across * TILE) return;
  at->x = 0;
  if ((at->y += TILE) < g->down * TILE) return;
  at->y = 0;
  at->batch++;
}

// Sets the lines of image i that the tiles of a strip need; `at` is the place of the first tile.
static void find_lines_of(const itg_qwinograd *g, int i, const uint8_t *x, place at, strip *s) {
  const int64_t high = g->w.in[1], wide = g->w.in[2], pixel = g->image[i].deep,
                odd = g->image[i].squares;
  s->wide = wide;
  s->odd = odd;
  s->pixel = pixel;
  s->two = odd ? 4 * pixel : 2 * pixel;
  s->inside = true;
  for (int k = 0; k < SIZE; k++) {
    const int64_t y = at.y - g->w.before[1] + k;
    const bool there = y >= 0 && y < high;
    const int64_t lines = (y >> odd) * (odd + 1);
    s->line[k] = there ? x + ((at.batch * high + lines) * wide + (y & odd) * 2) * pixel : NULL;
    s->inside &= there;
  }
}

// Transforms the inputs of tiles [from, to).
static void tiles_in(const itg_qwinograd *g, const uint8_t *const *x, const uint8_t *fill,
                     bool is_signed, int64_t from, int64_t to, uint16_t *in) {
  strip s = {.fill = fill, .row = g->row, .step = g->in_step};
  int64_t deep = 0;
  while (from < to) {
    const place at = place_of(g, from);
    const int64_t left = g->across - at.x / TILE, most = left < to - from ? left : to - from;
    s.tiles = g->deep > MANY && MANY < 32 && most > 4
                  ? 4
                  : most;  // few tiles, so that half-written cache lines stay cached for the rest
    s.first = at.x - g->w.before[2];
    s.to = in;
    int64_t c = 0;
    for (int i = 0; i < 2 && x[i]; i++, c -= deep) {
      find_lines_of(g, i, x[i], at, &s);
      deep = g->image[i].deep;
      for (; c + MANY <= deep; c += MANY) some_many(&s, NULL, is_signed, c, MANY);
      // Joins two images only if the second is stored in squares: otherwise the distance of the
      // twelve lines may be a page, and they compete for the eight ways of the L1 cache.
      if (i == 0 && x[1] && g->image[1].squares && MANY == 2 * FEW && deep - c == FEW &&
          g->image[1].deep >= FEW) {
        strip other = s;
        find_lines_of(g, 1, x[1], at, &other);
        some_many(&s, &other, is_signed, c, MANY);
        c += MANY;
      }
      for (; c + FEW <= deep; c += FEW) some_few(&s, NULL, is_signed, c, FEW);
      if (c < deep) some_few(&s, NULL, is_signed, c, deep - c), c = deep;
      s.to += deep;
    }
    from += s.tiles;
    in += s.tiles * g->row;
  }
}
