// Strided copies of tensors. Rows are copied at once if the input is contiguous along them;
// transposed matrices are copied in blocks.
#include "loop_nest.h"
#include "short_copy.h"
#include "transpose_8x8.h"
#include "vec.h"

#ifdef __AVX2__
// Copies every second number (pixels of two channels to a plane); returns how many. It may read one
// number past its last.
static int64_t every_other(float *to, const float *from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 < n; i += 8) {
    const __m256 a = _mm256_loadu_ps(from + 2 * i), b = _mm256_loadu_ps(from + 2 * i + 8);
    const __m256d both = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    _mm256_storeu_pd((double *)(to + i), _mm256_permute4x64_pd(both, 0xd8));
  }
  return i;
}
#endif

// Copies n elements that are `step` elements apart.
static void copy_row(char *to, const char *from, size_t item, int64_t n, int64_t step) {
#define ROW(type)                                         \
  {                                                       \
    type *y = (type *)to;                                 \
    const type *x = (const type *)from;                   \
    if (step == 0) {                                      \
      const type v = *x;                                  \
      for (int64_t i = 0; i < n; i++) y[i] = v;           \
    } else {                                              \
      for (int64_t i = 0; i < n; i++) y[i] = x[i * step]; \
    }                                                     \
  }
#ifdef __AVX2__
  if (step == 2 && item == 4) {
    const int64_t done = every_other((float *)to, (const float *)from, n);
    to += done * 4;
    from += done * 8;
    n -= done;
  }
#endif
  if (step == 1) itg_copy_run(to, from, n * (int64_t)item);
  else if (item == 4) ROW(uint32_t)
  else if (item == 1) ROW(uint8_t)
  else if (item == 2) ROW(uint16_t)
  else ROW(uint64_t)
#undef ROW
}

// to[r * to_step + c] = from[r + c * from_step] for r < rows, c < cols.
enum { TILE = 16, BAND = 256 };  // rows of a block; BAND if there are fewer than TILE columns
#define TILE_FN(type)                                                                     \
  static void tile_##type(type *to, int64_t to_step, const type *from, int64_t from_step, \
                          int64_t rows, int64_t cols) {                                   \
    for (int64_t r = 0; r < rows; r++)                                                    \
      for (int64_t c = 0; c < cols; c++) to[r * to_step + c] = from[r + c * from_step];   \
  }
TILE_FN(uint8_t)
TILE_FN(uint16_t)
TILE_FN(uint32_t)
TILE_FN(uint64_t)

#ifdef __AVX2__
static void tile_8x8(float *to, int64_t to_step, const float *from, int64_t from_step) {
  __m256 a[8];
  for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(from + i * from_step);
  itg_turn_8x8(a);
  for (int i = 0; i < 8; i++) _mm256_storeu_ps(to + i * to_step, a[i]);
}

// Interleaves two rows (as in a channel shuffle of two groups); returns how many pairs it stored.
static int64_t pairs(float *to, const float *a, const float *b, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(a + i), y = _mm256_loadu_ps(b + i);
    const __m256 even = _mm256_unpacklo_ps(x, y), odd = _mm256_unpackhi_ps(x, y);
    _mm256_storeu_ps(to + 2 * i, _mm256_permute2f128_ps(even, odd, 0x20));
    _mm256_storeu_ps(to + 2 * i + 8, _mm256_permute2f128_ps(even, odd, 0x31));
  }
  return i;
}
// Interleaves three rows (planes of an image to pixels). Each row is permuted once; the three
// vectors of results take different lanes of the permuted row.
static int64_t triples(float *to, const float *a, int64_t step, int64_t n) {
  const __m256i px = _mm256_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5),
                py = _mm256_setr_epi32(5, 0, 3, 6, 1, 4, 7, 2);
  const __m256i pz = _mm256_setr_epi32(2, 5, 0, 3, 6, 1, 4, 7);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8, to += 24) {
    const __m256 x = _mm256_permutevar8x32_ps(_mm256_loadu_ps(a + i), px);
    const __m256 y = _mm256_permutevar8x32_ps(_mm256_loadu_ps(a + i + step), py);
    const __m256 z = _mm256_permutevar8x32_ps(_mm256_loadu_ps(a + i + 2 * step), pz);
    _mm256_storeu_ps(to, _mm256_blend_ps(_mm256_blend_ps(x, y, 0x92), z, 0x24));
    _mm256_storeu_ps(to + 8, _mm256_blend_ps(_mm256_blend_ps(z, x, 0x92), y, 0x24));
    _mm256_storeu_ps(to + 16, _mm256_blend_ps(_mm256_blend_ps(y, z, 0x92), x, 0x24));
  }
  return i;
}

// The same for bytes, 16 pixels at a time.
static int64_t byte_triples(uint8_t *to, const uint8_t *a, int64_t step, int64_t n) {
  // Byte i of the three vectors v of pixels is of plane (v + i) % 3, pixel (16 v + i) / 3.
  const __m128i px = _mm_setr_epi8(0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10, 5);
  const __m128i py = _mm_setr_epi8(5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10);
  const __m128i pz = _mm_setr_epi8(10, 5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15);
  const __m128i one =
      _mm_setr_epi8(0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0);  // i % 3 == 1
  const __m128i two = _mm_setr_epi8(0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16, to += 48) {
    const __m128i x = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(a + i)), px);
    const __m128i y = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(a + i + step)), py);
    const __m128i z = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(a + i + 2 * step)), pz);
#define DEAL(p, q, r) _mm_blendv_epi8(_mm_blendv_epi8(p, q, one), r, two)
    _mm_storeu_si128((__m128i *)to, DEAL(x, y, z));
    _mm_storeu_si128((__m128i *)(to + 16), DEAL(y, z, x));
    _mm_storeu_si128((__m128i *)(to + 32), DEAL(z, x, y));
#undef DEAL
  }
  return i;
}
#endif

static void tile(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t rows,
                 int64_t cols, size_t item) {
  if (item == 4) {
#ifdef __AVX2__
    if (rows == TILE && cols == TILE) {
      float *y = (float *)to;
      const float *x = (const float *)from;
      for (int r = 0; r < TILE; r += 8)
        for (int c = 0; c < TILE; c += 8)
          tile_8x8(y + r * to_step + c, to_step, x + r + c * from_step, from_step);
      return;
    }
    if ((cols == 2 || cols == 3) && to_step == cols) {
      float *y = (float *)to;
      const float *x = (const float *)from;
      const int64_t done =
          cols == 2 ? pairs(y, x, x + from_step, rows) : triples(y, x, from_step, rows);
      to += cols * done * (int64_t)item;
      from += done * (int64_t)item;
      rows -= done;
    }
#endif
    tile_uint32_t((uint32_t *)to, to_step, (const uint32_t *)from, from_step, rows, cols);
  } else if (item == 1) {
#ifdef __AVX2__
    if (cols == 3 && to_step == 3) {
      const int64_t done = byte_triples((uint8_t *)to, (const uint8_t *)from, from_step, rows);
      to += 3 * done;
      from += done;
      rows -= done;
    }
#endif
    tile_uint8_t((uint8_t *)to, to_step, (const uint8_t *)from, from_step, rows, cols);
  } else if (item == 2) {
    tile_uint16_t((uint16_t *)to, to_step, (const uint16_t *)from, from_step, rows, cols);
  } else {
    tile_uint64_t((uint64_t *)to, to_step, (const uint64_t *)from, from_step, rows, cols);
  }
}

// Copies a transposed matrix: loop j runs along the rows of the input, the innermost loop across
// them. Blocks keep both sides in the cache.
static void copy_transposed(char *to, const char *from, size_t item, const itg_nest *n, int j,
                            uint32_t part, uint32_t parts) {
  const int last = n->rank - 1;
  const int64_t rows = n->size[j], cols = n->size[last], across = n->step[0][last],
                band = cols < TILE ? BAND : TILE;
  const int64_t bands = (rows + band - 1) / band;
  int64_t dense[ITG_NEST_RANK], outer = 1;
  dense[last] = 1;
  for (int i = last - 1; i >= 0; i--) dense[i] = dense[i + 1] * n->size[i + 1];
  for (int i = 0; i < last; i++) outer *= i == j ? 1 : n->size[i];
  int64_t unit, end;
  itg_share(outer * bands, 1, part, parts, &unit, &end);
  for (; unit < end; unit++) {
    const int64_t r = unit % bands * band, height = rows - r < band ? rows - r : band;
    int64_t rest = unit / bands, x = r, y = r * dense[j];
    for (int i = last - 1; i >= 0; i--) {
      if (i == j) continue;
      x += rest % n->size[i] * n->step[0][i];
      y += rest % n->size[i] * dense[i];
      rest /= n->size[i];
    }
    for (int64_t c = 0; c < cols; c += TILE)
      tile(to + (y + c) * (int64_t)item, dense[j], from + (x + c * across) * (int64_t)item, across,
           height, cols - c < TILE ? cols - c : TILE, item);
  }
}

// Copies short rows [row, end). The loop around them runs without seeking each row.
static void copy_runs(char *to, const char *from, size_t item, const itg_nest *n, int64_t row,
                      int64_t end) {
  const int last = n->rank - 1;
  const int64_t run = n->size[last] * (int64_t)item, step = n->step[0][last - 1] * (int64_t)item;
  while (row < end) {
    const itg_place at = itg_nest_seek(n, row);
    const int64_t left = n->size[last - 1] - at.turn[last - 1],
                  turns = left < end - row ? left : end - row;
    const char *x = from + at.offset[0] * (int64_t)item;
    char *y = to + row * run;
    int64_t i = 0;
    // Shorter runs are copied as 16 bytes: the surplus lies inside the next run, which overwrites
    // it.
    if (run < 16 && step + run >= 16)
      for (const int64_t safe = turns - 15 / run; i < safe; i++)
        memcpy(y + i * run, x + i * step, 16);
    itg_copy_runs(y + i * run, run, x + i * step, step, run, turns - i);
    row += turns;
  }
}

// y[i * times + k] = x[i] for i < n and k < times: repeats channels, for depthwise convolutions
// with several filters per channel.
static void repeat_row(char *to, const char *from, size_t item, int64_t n, int64_t times) {
#define REPEAT(type)                                                  \
  {                                                                   \
    type *y = (type *)to;                                             \
    const type *x = (const type *)from;                               \
    if (times == 2) {                                                 \
      for (int64_t i = 0; i < n; i++) y[2 * i] = y[2 * i + 1] = x[i]; \
    } else {                                                          \
      for (int64_t i = 0; i < n; i++)                                 \
        for (int64_t k = 0; k < times; k++) *y++ = x[i];              \
    }                                                                 \
  }
  if (item == 4) REPEAT(uint32_t)
  else if (item == 1) REPEAT(uint8_t)
  else if (item == 2) REPEAT(uint16_t)
  else REPEAT(uint64_t)
#undef REPEAT
}

// Copies elements [i, end) of the input's rows, each repeated by the innermost loop.
static void copy_repeated(char *to, const char *from, size_t item, const itg_nest *n, int64_t i,
                          int64_t end) {
  itg_nest rows = *n;
  const int64_t times = n->size[--rows.rank], inner = rows.size[rows.rank - 1];
  itg_place at = itg_nest_seek(&rows, i / inner);
  for (int64_t col = i % inner; i < end; col = 0) {
    const int64_t m = inner - col < end - i ? inner - col : end - i;
    repeat_row(to + i * times * (int64_t)item, from + (at.offset[0] + col) * (int64_t)item, item, m,
               times);
    i += m;
    itg_nest_next(&rows, &at);
  }
}

void itg_strided(void *to_, const void *from_, size_t item, const itg_nest *n, uint32_t part,
                 uint32_t parts) {
  char *to = to_;
  const char *from = from_;
  const int last = n->rank - 1;
  const int64_t inner = n->size[last], step = n->step[0][last];
  if (step != 0 && step != 1) {
    for (int j = last - 1; j >= 0; j--) {
      if (n->step[0][j] != 1 || n->size[j] < 4) continue;
      copy_transposed(to, from, item, n, j, part, parts);
      return;
    }
  }
  int64_t total = 1, i, end;
  for (int k = 0; k <= last; k++) total *= n->size[k];
  const bool short_runs =
      step == 1 && last > 0 && n->size[last - 1] >= 4 && inner * (int64_t)item <= 512;
  const bool repeated = step == 0 && last > 0 && n->step[0][last - 1] == 1 && inner <= 16;
  itg_share(total, short_runs || repeated ? (1023 / inner + 1) * inner : 1024, part, parts, &i,
            &end);
  if (i == end) return;
  if (repeated) {
    copy_repeated(to, from, item, n, i / inner, end / inner);
    return;
  }
  if (short_runs) {
    copy_runs(to, from, item, n, i / inner, end / inner);
    return;
  }
  itg_place at = itg_nest_seek(n, i / inner);
  for (int64_t col = i % inner; i < end; col = 0) {
    int64_t m = inner - col < end - i ? inner - col : end - i;
    copy_row(to + i * (int64_t)item, from + (at.offset[0] + col * step) * (int64_t)item, item, m,
             step);
    i += m;
    itg_nest_next(n, &at);
  }
}

ITG_FN(transpose, any) {
  const itg_tensor *x = call->in[0], *out = call->out[0];
  const itg_attrs_transpose *a = call->attrs;
  if (itg_empty(out)) return NULL;
  itg_nest nest = {0};
  for (int i = 0; i < x->rank; i++)
    itg_nest_add(&nest, out->shape[i], itg_count_range(x, (int)a->perm[i] + 1, x->rank), 0, 0);
  itg_nest_close(&nest);
  itg_strided(out->data, x->data, itg_item(x->dtype), &nest, part, parts);
  return NULL;
}
