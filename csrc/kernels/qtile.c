// The register tile of 8-bit products, compiled once per ISA: sums stay in registers until they are bytes again.
#include "qtile.h"

#if defined(ITG_QVECTORS)
enum { PARTS = ITG_PANEL / QL, VECTORS = ITG_QTILE_PANELS * PARTS };

INLINE uint32_t four_at(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return four;
}

// One group of four along k.
INLINE void step(const int M, const int N, const int FLIP, vq (*sum)[VECTORS], const uint8_t *const *row, int64_t k,
                 const uint8_t *w, int64_t panel) {
  vq_four y[VECTORS];
  UNROLL for (int v = 0; v < N; v++) y[v] = vq_weights(vq_load(w + v / PARTS * panel + v % PARTS * QBYTES));
  UNROLL for (int m = 0; m < M; m++) {
    vq four = vq_set((int32_t)four_at(row[m] + k * ITG_FOUR));
    if (FLIP) four = vq_xor(four, vq_set((int32_t)0x80808080));
    const vq_four in = vq_inputs(four);
    UNROLL for (int v = 0; v < N; v++) sum[m][v] = vq_dot(sum[m][v], in, y[v]);
  }
}

// One row's bytes, in the order of the columns.
INLINE vq row_bytes(const int V, const vq *sum, const float *scale, const bool saturates, vq_end end) {
#if defined(ISA_avx512)
  vq y[4];
  vf s[4];
  UNROLL for (int v = 0; v < 4; v++) {
    y[v] = v < V ? sum[v < V ? v : 0] : vq_set(0);
    s[v] = v < V ? vload(scale + v * QL) : vset(0.f);
  }
  const vq order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, vq_bytes(y[0], y[1], y[2], y[3], s, saturates, end));
#else
  const vf s[4] = {vload(scale), vload(scale + QL), vset(0.f), vset(0.f)};
  const vq none = vq_set(0), order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
  return _mm256_permutevar8x32_epi32(vq_bytes(sum[0], sum[1], none, none, s, saturates, end), order);
#endif
}

INLINE void put(const int V, uint8_t *to, int64_t columns, vq bytes) {
#if defined(ISA_avx512)
  if (columns < V * ITG_PANEL) {
    _mm512_mask_storeu_epi8(to, ~(__mmask64)0 >> (64 - columns), bytes);
  } else if (V == 4) {
    vq_store(to, bytes);
  } else {
    if (V >= 2) _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(bytes));
    if (V == 1) _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(bytes));
    if (V == 3) _mm_storeu_si128((__m128i *)(to + 32), _mm512_extracti32x4_epi32(bytes, 2));
  }
#else
  uint8_t some[ITG_PANEL];
  _mm_storeu_si128((__m128i *)some, _mm256_castsi256_si128(bytes));
  if (columns == ITG_PANEL) memcpy(to, some, ITG_PANEL);
  else memcpy(to, some, (size_t)columns);
#endif
}

INLINE void finish(const int M, const int V, vq (*sum)[VECTORS], const itg_qrows *rows, int64_t column, int64_t columns,
                   uint8_t *out, const itg_requantize *end, const float *scale) {
  const vq_end all = vq_end_of(end);
  if (end->saturates)
    UNROLL for (int m = 0; m < M; m++)
      put(V, out + rows->out[m] + column, columns, row_bytes(V, sum[m], scale, true, all));
  else
    UNROLL for (int m = 0; m < M; m++)
      put(V, out + rows->out[m] + column, columns, row_bytes(V, sum[m], scale, false, all));
}

INLINE void tile(const int M, const int V, const int FLIP, const itg_qrows *rows, const uint8_t *b, int64_t panel,
                 int64_t column, int64_t columns, uint8_t *out, const itg_requantize *end) {
  const int N = V * PARTS;
  const int32_t *bias = end->bias + column;
  const float *scale = end->scale + column;
  int32_t some_bias[ITG_QTILE_PANELS * ITG_PANEL];
  float some_scale[ITG_QTILE_PANELS * ITG_PANEL];
  if (columns < V * ITG_PANEL) {
    memset(some_bias, 0, sizeof some_bias);
    memset(some_scale, 0, sizeof some_scale);
    bias = memcpy(some_bias, bias, (size_t)columns * sizeof *bias);
    scale = memcpy(some_scale, scale, (size_t)columns * sizeof *scale);
  }
  vq sum[ITG_QTILE_M][VECTORS];
  UNROLL for (int v = 0; v < N; v++) {
    sum[0][v] = vq_load(bias + v * QL);
    UNROLL for (int m = 1; m < M; m++) sum[m][v] = sum[0][v];
  }
  const itg_qtap *tap = rows->taps;
  const int64_t fours = rows->fours;
  for (int64_t t = 0; t < rows->n_taps; t++, tap++) {
    const uint8_t *row[ITG_QTILE_M], *w = b + tap->at;
    UNROLL for (int m = 0; m < M; m++) row[m] = tap->row[m];
    for (int64_t k = 0; k < fours; k++, w += ITG_QROW) step(M, N, FLIP, sum, row, k, w, panel);
  }
  finish(M, V, sum, rows, column, columns, out, end, scale);
}

#define TILE(M, V, F)                              \
  static void tile_##M##x##V##_##F(ITG_QTILE_ARGS) { \
    tile(M, V, F, rows, b, panel, column, columns, out, end); \
  }
#if defined(ISA_avx512)
#define ROWS(T, V, F) T(1, V, F) T(2, V, F) T(3, V, F) T(4, V, F) T(5, V, F) T(6, V, F)
#else
#define ROWS(T, V, F) T(1, V, F) T(2, V, F) T(3, V, F) T(4, V, F)
#endif
#if defined(ISA_avx512vnni)
#define EACH(T, F) ROWS(T, 1, F) ROWS(T, 2, F) ROWS(T, 3, F) ROWS(T, 4, F)
#elif defined(ISA_avx512)
#define EACH(T, F) ROWS(T, 1, F) ROWS(T, 2, F)
#else
#define EACH(T, F) ROWS(T, 1, F)
#endif
EACH(TILE, 0)
EACH(TILE, 1)

void itg_qtile(ITG_QTILE_ARGS) {
#define ENTRY(M, V, F) [V - 1][M - 1] = tile_##M##x##V##_##F,
  static const itg_qtile_fn table[2][ITG_QTILE_PANELS][ITG_QTILE_M] = {{EACH(ENTRY, 0)}, {EACH(ENTRY, 1)}};
  table[flip != 0][(columns - 1) / ITG_PANEL][rows->rows - 1](rows, b, panel, column, columns, out, end, flip);
}
#else
void itg_qtile(ITG_QTILE_ARGS) {
  for (int m = 0; m < rows->rows; m++) {
    uint32_t sum[ITG_PANEL] = {0};  // unsigned: sums wrap
    for (int64_t t = 0; t < rows->n_taps; t++) {
      const uint8_t *row = rows->taps[t].row[m], *group = b + rows->taps[t].at;
      for (int64_t k = 0; k < rows->fours; k++, group += ITG_QROW) {
        const int8_t *w = (const int8_t *)group;
        for (int i = 0; i < ITG_FOUR; i++) {
          const int x = row[k * ITG_FOUR + i] ^ flip;
          for (int c = 0; c < ITG_PANEL; c++) sum[c] += (uint32_t)(x * w[c * ITG_FOUR + i]);
        }
      }
    }
    for (int64_t c = 0; c < columns; c++)
      out[rows->out[m] + column + c] =
          itg_requantized(end, (int32_t)(sum[c] + (uint32_t)end->bias[column + c]), column + c);
  }
}
#endif
