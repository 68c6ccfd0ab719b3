// One layer of the K210, compiled once per instruction set. The map is copied into planes: with a
// stride of two, pixels of even and of odd lines and columns lie in planes of their own, so that
// neighbouring results read neighbouring bytes at every tap. Four channels (of depthwise layers:
// the lines of the window) are interleaved, for products of four bytes at once. Results are
// computed as one long run, together with the few between the end of a line and the next line.
#include <string.h>

#include "int8/qvec.h"
#include "k210_finish.h"

#if defined(ISA_avx512vnni)
enum { VECTORS = 3 };
#elif defined(ISA_avx512)
enum { VECTORS = 2 };
#else
enum { VECTORS = 1 };
#endif
#ifndef ITG_QVECTORS
enum { QL = 16 };
#endif
enum { BLOCK = ITG_K210_BLOCK, AT_ONCE = 4, MOST = AT_ONCE * QL };  // vectors, results of a tile

// Interleaves n bytes of four streams.
static void interleave(const uint8_t *const from[4], int64_t n, uint8_t *to) {
  int64_t i = 0;
#ifdef ITG_QVECTORS
  for (; i + 16 <= n; i += 16) {
    __m128i a[4];
    for (int c = 0; c < 4; c++) a[c] = _mm_loadu_si128((const __m128i *)(from[c] + i));
    for (int h = 0; h < 2; h++) {
      const __m128i ab = h ? _mm_unpackhi_epi8(a[0], a[1]) : _mm_unpacklo_epi8(a[0], a[1]);
      const __m128i cd = h ? _mm_unpackhi_epi8(a[2], a[3]) : _mm_unpacklo_epi8(a[2], a[3]);
      __m128i *at = (__m128i *)(to + 4 * i) + 2 * h;
      _mm_storeu_si128(at, _mm_unpacklo_epi16(ab, cd));
      _mm_storeu_si128(at + 1, _mm_unpackhi_epi16(ab, cd));
    }
  }
#endif
  for (; i < n; i++)
    for (int c = 0; c < 4; c++) to[4 * i + c] = from[c][i];
}

// Copies a channel into planes [line's rest][column's rest][rows][pitch]; outside is the pad byte.
static void copy_planes(const itg_k210_layer *l, const itg_k210_sizes *s, const uint8_t *x,
                        uint8_t *to) {
  const int64_t edge = l->kernel / 2, step = s->step;
  memset(to, (int)l->pad, (size_t)(s->phases * s->phases * s->plane));
  for (int64_t py = 0; py < s->phases; py++) {
    for (int64_t i = 0; i < s->rows; i++) {
      const int64_t line = py + step * i - edge;
      if (line < 0 || line >= l->height) continue;
      const uint8_t *from = x + line * l->in.row;
      for (int64_t px = 0; px < s->phases; px++) {
        uint8_t *out = to + ((py * s->phases + px) * s->rows + i) * s->pitch;
        const int64_t shift = px + l->column * (step > 1) - edge;  // column of the first byte
        const int64_t first = shift < 0 ? (step - 1 - shift) / step : 0;
        int64_t last = (l->width - shift + step - 1) / step;
        last = last < s->pitch ? last : s->pitch;
        if (step == 1) memcpy(out + first, from + first + shift, (size_t)(last - first));
        else if (step == 2)
          for (int64_t j = first; j < last; j++) out[j] = from[2 * j + shift];
        else
          for (int64_t j = first; j < last; j++) out[j] = from[step * j + shift];
      }
    }
  }
}

// ---- sums of products ---------------------------------------------------------------------------
// sums[m][i] of `outputs` outputs and vectors * QL results: weights [group][tap][outputs][4].
INLINE void add_products(const uint8_t *x, const int64_t *taps, int64_t n_taps, int64_t groups,
                         int64_t group_bytes, const int8_t *w, int32_t (*sums)[MOST],
                         const int outputs, const int vectors) {
#ifdef ITG_QVECTORS
  vq s[BLOCK][AT_ONCE];
  for (int m = 0; m < outputs; m++)
    for (int i = 0; i < vectors; i++) s[m][i] = vq_set(0);
  for (int64_t g = 0; g < groups; g++, x += group_bytes) {
    for (int64_t t = 0; t < n_taps; t++, w += 4 * outputs) {
      vq_four in[AT_ONCE];
      for (int i = 0; i < vectors; i++) in[i] = vq_inputs(vq_load(x + taps[t] + i * QBYTES));
      for (int m = 0; m < outputs; m++) {
        int32_t four;
        memcpy(&four, w + 4 * m, sizeof four);
        const vq_four weights = vq_weights(vq_set(four));
        for (int i = 0; i < vectors; i++) s[m][i] = vq_dot(s[m][i], in[i], weights);
      }
    }
  }
  for (int m = 0; m < outputs; m++)
    for (int i = 0; i < vectors; i++) vq_store(sums[m] + i * QL, s[m][i]);
#else
  memset(sums, 0, sizeof *sums * (size_t)outputs);
  for (int64_t g = 0; g < groups; g++, x += group_bytes)
    for (int64_t t = 0; t < n_taps; t++, w += 4 * outputs)
      for (int m = 0; m < outputs; m++)
        for (int i = 0; i < vectors * QL; i++)
          for (int c = 0; c < 4; c++) sums[m][i] += x[taps[t] + 4 * i + c] * w[4 * m + c];
#endif
}

static void products(const uint8_t *x, const int64_t *taps, int64_t n_taps, int64_t groups,
                     int64_t group_bytes, const int8_t *w, int32_t (*sums)[MOST], int64_t left) {
  if (VECTORS > 2 && left > 2 * QL)
    add_products(x, taps, n_taps, groups, group_bytes, w, sums, BLOCK, VECTORS);
  else if (VECTORS > 1 && left > QL)
    add_products(x, taps, n_taps, groups, group_bytes, w, sums, BLOCK, VECTORS < 2 ? 1 : 2);
  else add_products(x, taps, n_taps, groups, group_bytes, w, sums, BLOCK, 1);
}

// What the sums of x add to a result, beyond the 128 that the weights lack.
INLINE double from_sum(const itg_k210_layer *l, int32_t of_x) {
  return (double)(128 * (int64_t)of_x + (l->arg_x * of_x >> l->shr_x));
}

static int needs_sums(const itg_k210_layer *l) { return l->arg_x != -128 || l->shr_x; }

// ---- results ------------------------------------------------------------------------------------
static void pool(const itg_k210_layer *l, const uint8_t *from, int64_t pitch, uint8_t *to) {
  const int64_t high = l->height / l->stride, wide = l->width / l->stride, n = l->size;
  for (int64_t y = 0; y < high; y++, to += l->out.row) {
    for (int64_t x = 0; x < wide; x++) {
      unsigned most = 0, sum = 0;
      for (int64_t i = 0; i < n; i++) {
        const int64_t row = y * l->stride + i;
        const uint8_t *line = from + (row < l->height ? row : l->height - 1) * pitch;
        for (int64_t j = 0; j < n; j++) {  // beyond the edge its last pixel is repeated
          const int64_t column = x * l->stride + j;
          const unsigned v = line[column < l->width ? column : l->width - 1];
          most = v > most ? v : most;
          sum += v;
        }
      }
      to[x] = (uint8_t)(l->pool == 1 ? most : sum / (unsigned)(n * n));
    }
  }
}

static void pool_2x2(const itg_k210_layer *l, const uint8_t *from, int64_t pitch, uint8_t *to) {
  for (int64_t y = 0; y < l->height / 2; y++, to += l->out.row) {
    const uint8_t *a = from + 2 * y * pitch, *b = a + pitch;
    for (int64_t x = 0; x < l->width / 2; x++) {
      const uint8_t left = a[2 * x] > b[2 * x] ? a[2 * x] : b[2 * x];
      const uint8_t right = a[2 * x + 1] > b[2 * x + 1] ? a[2 * x + 1] : b[2 * x + 1];
      to[x] = left > right ? left : right;
    }
  }
}

static void store(const itg_k210_layer *l, const itg_k210_sizes *s, const uint8_t *from,
                  int64_t output, uint8_t *y) {
  uint8_t *to = y + output / l->out.groups * l->out.block + output % l->out.groups * l->out.pitch;
  if (l->pool == 1 && l->size == 2 && l->stride == 2) pool_2x2(l, from, s->pitch, to);
  else if (l->pool) pool(l, from, s->pitch, to);
  else
    for (int64_t i = 0; i < s->high; i++)
      memcpy(to + i * l->out.row, from + i * s->pitch, (size_t)s->wide);
}

static const uint8_t *channel(const itg_k210_layer *l, const uint8_t *x, int64_t c) {
  return x + c / l->in.groups * l->in.block + c % l->in.groups * l->in.pitch;
}

typedef struct work {  // memory for the work
  uint8_t *planes, *packed, *results;
  double *from_x;
} work;

static void convolve(const itg_k210_layer *l, const itg_k210_sizes *s, const uint8_t *x, uint8_t *y,
                     const work *m) {
  const int64_t planes = s->phases * s->phases * s->plane, n_taps = l->kernel * l->kernel;
  const int64_t blocks = (l->outputs + BLOCK - 1) / BLOCK;
  int64_t taps[9];
  for (int64_t t = 0; t < n_taps; t++) {
    const int64_t dy = t / l->kernel, dx = t % l->kernel, step = s->step;
    const int64_t phase = dy % step * s->phases + dx % step;
    taps[t] = 4 * (phase * s->plane + dy / step * s->pitch + dx / step);
  }
  for (int64_t g = 0; g < s->fours; g++) {
    const uint8_t *from[4];
    for (int64_t c = 0; c < 4; c++) {
      from[c] = m->planes + (4 * g + c < l->channels ? c : 0) * planes;
      if (4 * g + c < l->channels)
        copy_planes(l, s, channel(l, x, 4 * g + c), m->planes + c * planes);
    }
    interleave(from, planes, m->packed + 4 * g * planes);
  }
  int32_t sums[BLOCK][MOST];
  const double *from_x = NULL;
  if (needs_sums(l)) {
    int8_t ones[4 * 9];
    from_x = m->from_x;
    for (int64_t q = 0; q < s->run; q += QL) {
      int64_t total[QL] = {0};
      for (int64_t g = 0; g < s->fours; g++) {
        for (int64_t c = 0; c < 4 * n_taps; c++) ones[c] = 4 * g + c % 4 < l->channels;
        add_products(m->packed + 4 * g * planes + 4 * q, taps, n_taps, 1, 0, ones, sums, 1, 1);
        for (int i = 0; i < QL; i++) total[i] += sums[0][i];
      }
      for (int i = 0; i < QL; i++) m->from_x[q + i] = from_sum(l, (int32_t)total[i]);
    }
  }
  const int8_t *w = l->weights;
  for (int64_t b = 0; b < blocks; b++, w += 4 * BLOCK * s->fours * n_taps) {
    const int64_t outputs = l->outputs - b * BLOCK < BLOCK ? l->outputs - b * BLOCK : BLOCK;
    for (int64_t q = 0; q < s->run; q += VECTORS * QL) {
      const int64_t left = s->run - q;
      products(m->packed + 4 * q, taps, n_taps, s->fours, 4 * planes, w, sums, left);
      const int n = left > 2 * QL ? VECTORS * QL : left > QL ? (VECTORS < 2 ? 1 : 2) * QL : QL;
      for (int64_t o = 0; o < outputs; o++)
        finish(l, b * BLOCK + o, sums[o], from_x ? from_x + q : NULL,
               m->results + o * (s->run + 64) + q, n);
    }
    for (int64_t o = 0; o < outputs; o++)
      store(l, s, m->results + o * (s->run + 64), b * BLOCK + o, y);
  }
}

static void depthwise(const itg_k210_layer *l, const itg_k210_sizes *s, const uint8_t *x,
                      uint8_t *y, const work *m) {
  int64_t taps[3] = {0};
  for (int64_t dx = 0; dx < l->kernel; dx++) taps[dx] = 4 * (dx % s->step * s->run + dx / s->step);
  for (int64_t c = 0; c < l->outputs; c++) {
    copy_planes(l, s, channel(l, x, c), m->planes);
    for (int64_t px = 0; px < s->phases; px++) {
      const uint8_t *from[4];
      for (int64_t dy = 0; dy < 4; dy++) {
        const int64_t line = dy < l->kernel ? dy : 0;
        from[dy] =
            m->planes + (line % s->step * s->phases + px) * s->plane + line / s->step * s->pitch;
      }
      interleave(from, s->run, m->packed + 4 * px * s->run);
    }
    const int8_t *w = l->weights + 4 * c * l->kernel;
    int8_t ones[12];
    for (int64_t i = 0; i < 4 * l->kernel; i++) ones[i] = i % 4 < l->kernel;
    for (int64_t q = 0; q < s->run; q += MOST) {
      int32_t sums[1][MOST];
      const double *from_x = NULL;
      if (needs_sums(l)) {
        from_x = m->from_x;
        add_products(m->packed + 4 * q, taps, l->kernel, 1, 0, ones, sums, 1, AT_ONCE);
        for (int i = 0; i < MOST; i++) m->from_x[i] = from_sum(l, sums[0][i]);
      }
      add_products(m->packed + 4 * q, taps, l->kernel, 1, 0, w, sums, 1, AT_ONCE);
      finish(l, c, sums[0], from_x, m->results + q, MOST);
    }
    store(l, s, m->results, c, y);
  }
}

#define K210_LAYER_PASTE(isa) itg_k210_layer_##isa
#define K210_LAYER_NAME(isa) K210_LAYER_PASTE(isa)
void K210_LAYER_NAME(ISA)(const itg_k210_layer *l, const uint8_t *x, uint8_t *y, void *scratch) {
  const itg_k210_sizes s = itg_k210_sizes_of(l);
  const int64_t planes = s.phases * s.phases * s.plane;
  const int64_t packed = l->depthwise ? s.phases * s.run * 4 : s.fours * planes * 4;
  work m = {.from_x = scratch};
  m.planes = (uint8_t *)(m.from_x + s.run + 64);
  m.packed = m.planes + 4 * planes + ITG_K210_SLACK;
  m.results = m.packed + packed + ITG_K210_SLACK;
  if (l->depthwise) depthwise(l, &s, x, y, &m);
  else convolve(l, &s, x, y, &m);
}
