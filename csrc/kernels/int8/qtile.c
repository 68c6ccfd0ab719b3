// The register tile of 8-bit products, compiled once per ISA: sums stay in registers until they are bytes again.
#include "qtile_sizes.h"
#include "qtile.h"

#if defined(ITG_QVECTORS)
enum { PARTS = ITG_PANEL / QL, VECTORS = ITG_QTILE_PANELS * PARTS, MOST = 12 };

typedef struct span {  // the columns of one call, padded to whole vectors
  const uint8_t *b;
  const int32_t *bias, *w_zero;
  const float *scale;
  int64_t column, columns;
#if defined(ISA_avx512)
  __mmask16 some[VECTORS];  // which of the columns of each vector there are
#else
  int64_t some[VECTORS];  // how many
#endif
  enum way { PLAIN_SIGNED, SIGNED, UNSIGNED, GROUPS, WIDE } way;  // how sums become the result
} span;
typedef void (*tile_fn)(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n);

INLINE uint32_t four_at(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return four;
}

// One row's sums meet a group of four along k; the last of N vectors may need but its first half.
INLINE void meet(const int N, const int HALF, vq *sum, vq_four in, const vq_four *y) {
  UNROLL(16) for (int v = 0; v < N; v++) sum[v] = HALF && v == N - 1 ? vq_dot_half(sum[v], in, y[v]) : vq_dot(sum[v], in, y[v]);
}

INLINE void start(const int M, const int N, const span *s, const itg_qrow *rows, vq (*sum)[VECTORS]) {
  UNROLL(16) for (int v = 0; v < N; v++) {
    sum[0][v] = vq_load(s->bias + v * QL);
    UNROLL(16) for (int m = 1; m < M; m++) sum[m][v] = sum[0][v];
  }
  if (s->w_zero)
    UNROLL(16) for (int v = 0; v < N; v++)
      UNROLL(16) for (int m = 0; m < M; m++)
        sum[m][v] = vq_add(sum[m][v], vq_mul(vq_load(s->w_zero + v * QL), vq_set(rows[m].sum)));
}

INLINE void sum_up(const int M, const int N, const int FLIP, const int HALF, itg_qtap tap, int64_t panel,
                   const uint8_t *b, const uint8_t *const *row, vq (*sum)[VECTORS]) {
  const uint8_t *w = b + tap.w;
  for (int64_t k = tap.x, last = k + tap.fours * ITG_FOUR; k < last; k += ITG_FOUR, w += ITG_QROW) {
    vq_four y[VECTORS];
    UNROLL(16) for (int v = 0; v < N; v++) y[v] = vq_weights(vq_load(w + v / PARTS * panel + v % PARTS * QBYTES));
    UNROLL(16) for (int m = 0; m < M; m++) {
      vq four = vq_set((int32_t)four_at(row[m] + k));
      if (FLIP) four = vq_xor(four, vq_set((int32_t)0x80808080));
      meet(N, HALF, sum[m], vq_inputs(four), y);
    }
  }
}

// Bytes of as many rows as fill a vector: 16 columns each of four vectors.
INLINE void put_bytes(const int N, const int ROWS, uint8_t *out, const int64_t *at, const span *s, vq bytes) {
#if defined(ISA_avx512)
  const __m256i half[2] = {_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64(bytes, 1)};
  const bool whole = s->columns == N * QL;
  if (N > 2) {  // two halves cost the sums of the next tile less than one whole
    if (!whole) {
      _mm512_mask_storeu_epi8(out + at[0], ~(__mmask64)0 >> (64 - s->columns), bytes);
    } else {
      _mm256_storeu_si256((__m256i *)(out + at[0]), half[0]);
      if (N == 4) _mm256_storeu_si256((__m256i *)(out + at[0] + 32), half[1]);
      else _mm_storeu_si128((__m128i *)(out + at[0] + 32), _mm256_castsi256_si128(half[1]));
    }
  } else if (N == 2) {
    UNROLL(16) for (int r = 0; r < ROWS; r++) {
      if (whole) _mm256_storeu_si256((__m256i *)(out + at[r]), half[r]);
      else _mm256_mask_storeu_epi8(out + at[r], ~(__mmask32)0 >> (32 - s->columns), half[r]);
    }
  } else {
    const __m128i part[4] = {_mm256_castsi256_si128(half[0]), _mm256_extracti128_si256(half[0], 1),
                             _mm256_castsi256_si128(half[1]), _mm256_extracti128_si256(half[1], 1)};
    UNROLL(16) for (int r = 0; r < ROWS; r++) {
      if (whole) _mm_storeu_si128((__m128i *)(out + at[r]), part[r]);
      else _mm_mask_storeu_epi8(out + at[r], (__mmask16)(0xffff >> (16 - s->columns)), part[r]);
    }
  }
#else
  const __m128i part[2] = {_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)};
  UNROLL(16) for (int r = 0; r < ROWS; r++) {
    if (s->columns == ITG_PANEL) {
      _mm_storeu_si128((__m128i *)(out + at[r]), part[r]);
    } else {
      uint8_t some[ITG_PANEL];
      _mm_storeu_si128((__m128i *)some, part[r]);
      memcpy(out + at[r], some, (size_t)s->columns);
    }
  }
#endif
}

#if defined(ISA_avx512)
// Vector by vector: all of this but the product runs beside the next tile's dots, and a narrow store costs them less.
INLINE void put_vector(vq y, uint8_t *to, __mmask16 some, const int SIGNED) {
  if (SIGNED) _mm512_mask_cvtsepi32_storeu_epi8(to, some, y);
  else _mm512_mask_cvtusepi32_storeu_epi8(to, some, _mm512_max_epi32(y, vq_set(0)));
}

INLINE void finish_vectors(const int M, const int N, const int PLAIN, const int SIGNED, const itg_qproduct *p,
                           const span *s, const itg_qrow *rows, vq (*sum)[VECTORS]) {
  const itg_requantize *end = p->end;
  const vq zero = vq_set(end->zero);
  const float *scale = s->scale;
  const uint8_t *residual = PLAIN ? NULL : end->residual;
  const bool saturates = PLAIN || end->saturates;
  uint8_t *out = (uint8_t *)p->out;
  int64_t at[MOST];
  UNROLL(16) for (int m = 0; m < M; m++) at[m] = rows[m].out + s->column;
  __mmask16 some[VECTORS];
  UNROLL(16) for (int v = 0; v < N; v++) some[v] = s->some[v];
  UNROLL(16) for (int m = 0; m < M; m++)
    UNROLL(16) for (int v = 0; v < N; v++) {
      vf y = vmul(vq_floats(sum[m][v]), vload(scale + v * QL));
      if (residual) y = vadd(y, vq_residual(end, residual + at[m] + v * QL, some[v]));
      if (!saturates) y = vmin(vmax(y, vset(end->lo)), vset(end->hi));
      put_vector(vq_add(vq_rounded(y), zero), out + at[m] + v * QL, some[v], SIGNED);
    }
}
#endif

// By as many vectors as become one of bytes: those of n rows.
INLINE void finish_group(const int N, const int n, const itg_requantize *end, vq_end all, const span *s, uint8_t *out,
                         const int64_t *at, vq (*sum)[VECTORS]) {
  vf y[4];
  UNROLL(16) for (int i = 0; i < n * N; i++) y[i] = vmul(vq_floats(sum[i / N][i % N]), vload(s->scale + i % N * QL));
  if (end->residual)
    UNROLL(16) for (int i = 0; i < n * N; i++)
      y[i] = vadd(y[i], vq_residual(end, end->residual + at[i / N] + i % N * QL, s->some[i % N]));
  if (!end->saturates && !vq_bounds_later(end))
    UNROLL(16) for (int i = 0; i < n * N; i++) y[i] = vmin(vmax(y[i], all.lo), all.hi);
  vq bytes;
  if (end->entries > 256 || end->pieces) {
    vq whole[4];
    UNROLL(16) for (int i = 0; i < n * N; i++) whole[i] = vq_add(vq_rounded(y[i]), all.zero);
    bytes = vq_lookup_wide(whole, n * N, end);
  } else {
    bytes = vq_in_order(vq_narrow(y, n * N, all));
    if (end->table) bytes = vq_lookup(bytes, end->table);
  }
  put_bytes(N, n, out, at, s, bytes);
}

INLINE void finish_groups(const int M, const int N, const itg_qproduct *p, const span *s, const itg_qrow *rows,
                          vq (*sum)[VECTORS]) {
  const int ROWS = N >= 3 ? 1 : 4 / N;  // whose bytes fill a vector
  const vq_end all = vq_end_of(p->end);
  UNROLL(16) for (int m = 0; m < M; m += ROWS) {
    const int n = M - m < ROWS ? M - m : ROWS;
    int64_t at[4];
    UNROLL(16) for (int r = 0; r < n; r++) at[r] = rows[m + r].out + s->column;
    finish_group(N, n, p->end, all, s, p->out, at, sum + m);
  }
}

// Sums as they are.
static void finish_sums(int m, int n, const itg_qproduct *p, const span *s, const itg_qrow *rows, const vq *sum) {
  for (int r = 0; r < m; r++)
    for (int v = 0; v < n && v * QL < s->columns; v++) {
      const int64_t left = s->columns - v * QL, at = rows[r].out + s->column + v * QL;
      memcpy((int32_t *)p->out + at, sum + r * VECTORS + v, (size_t)(left < QL ? left : QL) * 4);
    }
}

// The first n floats of a vector: stores that leave some out are slow, most of all across two lines of the cache.
INLINE void put_few(float *to, int64_t n, vf y) {
#if defined(ISA_avx512)
  __m128 four = _mm512_castps512_ps128(y);
  if (n >= 8) {
    if (n == 8) _mm256_storeu_ps(to, _mm512_castps512_ps256(y));
    else vstoren(to, n, y);
    return;
  }
  if (n >= 4) {
    _mm_storeu_ps(to, four);
    four = _mm512_extractf32x4_ps(y, 1);
    to += 4, n -= 4;
  }
  if (n >= 2) {
    _mm_storel_pi((__m64 *)to, four);
    four = _mm_movehl_ps(four, four);
    to += 2, n -= 2;
  }
  if (n) _mm_store_ss(to, four);
#else
  vstoren(to, n, y);
#endif
}

// Sums as floats.
static void finish_floats(int m, int n, const itg_qproduct *p, const span *s, const itg_qrow *rows, const vq *sum) {
  const float *residual = (const float *)p->end->residual, *scale = s->scale;
  const int64_t columns = s->columns, whole = columns / QL, left = columns % QL;
  for (int r = 0; r < m; r++, sum += VECTORS) {
    const int64_t at = rows[r].out + s->column;
    float *out = (float *)p->out + at;
    for (int v = 0; v < n && v <= whole; v++) {
      vf y = vmul(vq_floats(sum[v]), vload(scale + v * QL));
      if (v < whole) {
        if (residual) y = vadd(y, vload(residual + at + v * QL));
        vstore(out + v * QL, y);
      } else if (left) {
        if (residual) y = vadd(y, vloadn(residual + at + v * QL, left));
        put_few(out + v * QL, left, y);
      }
    }
  }
}

INLINE void finish(const int M, const int N, const itg_qproduct *p, const span *s, const itg_qrow *rows,
                   vq (*sum)[VECTORS]) {
#if defined(ISA_avx512)
  if (s->way == PLAIN_SIGNED) {
    finish_vectors(M, N, 1, 1, p, s, rows, sum);
    return;
  }
  if (s->way == SIGNED || s->way == UNSIGNED) {
    if (s->way == SIGNED) finish_vectors(M, N, 0, 1, p, s, rows, sum);
    else finish_vectors(M, N, 0, 0, p, s, rows, sum);
    return;
  }
#endif
  if (s->way == GROUPS) {
    finish_groups(M, N, p, s, rows, sum);
    return;
  }
  vq kept[MOST][VECTORS];
  UNROLL(16) for (int m = 0; m < M; m++)
    UNROLL(16) for (int v = 0; v < N; v++) kept[m][v] = sum[m][v];
  (p->end->kind == ITG_Q_SUMS ? finish_sums : finish_floats)(M, N, p, s, rows, &kept[0][0]);
}

// Rows M at a time; the last tile may do a few rows again. What a tile begins with is read before the one before it
// ends: its sums are many instructions, behind which a processor does not see the next tile.
INLINE void strip(const int M, const int N, const int FLIP, const int HALF, const itg_qproduct *p, const span *s,
                  const itg_qrow *rows, int64_t n) {
  const itg_qtap none = {0, 0, 0}, first = p->n_taps ? p->taps[0] : none;
  const itg_qtap *end = p->taps + p->n_taps;
  const int64_t panel = p->panel;
  const uint8_t *row[MOST], *b = s->b;
  UNROLL(16) for (int m = 0; m < M; m++) row[m] = rows[m].x;
  for (int64_t i = 0;;) {
    vq sum[MOST][VECTORS];
    start(M, N, s, rows + i, sum);
    sum_up(M, N, FLIP, HALF, first, panel, b, row, sum);
    for (const itg_qtap *tap = p->taps + 1; tap < end; tap++) sum_up(M, N, FLIP, HALF, *tap, panel, b, row, sum);
    const int64_t next = i + 2 * M <= n ? i + M : n - M;
    UNROLL(16) for (int m = 0; m < M; m++) row[m] = rows[next + m].x;
    finish(M, N, p, s, rows + i, sum);
    if (next <= i) return;
    i = next;
  }
}

#if defined(ISA_avx512vnni)
// ---- small tiles, woven --------------------------------------------------------------------------
// Turning sums into bytes keeps other parts of a core busy than summing does, but it waits for the sums, and the next
// tile's are too far away to begin. So 12 sums become bytes between the products of the next 12.
enum { WOVEN = 12, STEPS = 4 };  // sums of a tile; groups of four along k that finish the tile before
typedef enum { ENDS_SIGNED, ENDS_UNSIGNED, ENDS_RESIDUAL, ENDS_FLOATS, ENDS_TABLE, ENDS_LINES } ending;

typedef struct last {  // what is needed to finish a tile
  const float *scale;
  uint8_t *out;
  const itg_requantize *end;
  vq zero, most;  // most: of numbers, where they are looked up
  __mmask16 some[VECTORS];
  int64_t left;  // columns of the last vector
  int64_t at[WOVEN];
} last;

INLINE void finish_one(const ending KIND, const int N, const int i, const last *l, vq sum) {
  vf y = vmul(vq_floats(sum), vload(l->scale + i % N * QL));
  const int64_t at = l->at[i / N] + i % N * QL;
  if (KIND == ENDS_FLOATS) {
    if (i % N < N - 1 || l->left == QL) vq_store_halves((float *)l->out + at, (vq)y);
    else put_few((float *)l->out + at, l->left, y);
    return;
  }
  if (KIND == ENDS_RESIDUAL) y = vadd(y, vq_residual(l->end, l->end->residual + at, l->some[i % N]));
  put_vector(vq_add(vq_rounded(y), l->zero), l->out + at, l->some[i % N], KIND != ENDS_UNSIGNED);
}

// What is usual behind a function: i8 on lines, without a residual. All that it shares lies in memory, ready to be used.
INLINE void finish_lines(const int N, const int n, const last *l, const span *s, const int64_t *at,
                         vq (*sum)[VECTORS]) {
#if defined(__AVX512VBMI__)
  vq y[4];
  UNROLL(16) for (int i = 0; i < n * N; i++)
    y[i] = vq_add(vq_rounded(vmul(vq_floats(sum[i / N][i % N]), vload(l->scale + i % N * QL))), l->zero);
  const vq left = vq_pack_numbers(y, n * N, l->most, 0), right = vq_pack_numbers(y, n * N, l->most, 1);
  put_bytes(N, n, l->out, at, s, vq_on_lines(left, right, l->end));
#else
  (void)N, (void)n, (void)l, (void)s, (void)at, (void)sum;
#endif
}

// Piece k of what finishes a tile, after row m of M: a vector here and there, or all bytes of a few rows.
INLINE void finish_piece(const ending KIND, const int N, const int k, const int m, const last *l, const span *s,
                         vq (*old)[VECTORS]) {
  const int M = WOVEN / N, EACH = WOVEN / STEPS, ROWS = N >= 3 ? 1 : 4 / N;
  if (KIND < ENDS_TABLE) {
    UNROLL(16) for (int e = m * EACH / M; e < (m + 1) * EACH / M; e++)
      finish_one(KIND, N, k * EACH + e, l, old[(k * EACH + e) / N][(k * EACH + e) % N]);
  } else if (m == 0 && k * ROWS < M && KIND == ENDS_LINES) {
    finish_lines(N, ROWS, l, s, l->at + k * ROWS, old + k * ROWS);
  } else if (m == 0 && k * ROWS < M) {
    finish_group(N, ROWS, l->end, vq_end_of(l->end), s, l->out, l->at + k * ROWS, old + k * ROWS);
  }
}

INLINE void weave(const int N, const int FLIP, const int HALF, const ending KIND, const itg_qproduct *p, const span *s,
                  const itg_qrow *rows, int64_t n) {
  const int M = WOVEN / N;
  const itg_qtap *tap, *end = p->taps + p->n_taps, first = p->taps[0];
  const itg_qtap rest = {first.x + STEPS * ITG_FOUR, first.w + STEPS * ITG_QROW, first.fours - STEPS};
  const int64_t panel = p->panel;
  const uint8_t *row[WOVEN], *b = s->b;
  last l = {.scale = s->scale, .out = p->out, .end = p->end, .zero = vq_set(p->end->zero), .left = s->columns - (N - 1) * QL,
            .most = vq_set16((short)(p->end->entries - 1))};
  if (KIND == ENDS_LINES) __asm__("" : "+m"(l));  // or GCC would spread numbers again and again
  UNROLL(16) for (int v = 0; v < N; v++) l.some[v] = s->some[v];
  UNROLL(16) for (int m = 0; m < M; m++) row[m] = rows[m].x;
  vq sum[WOVEN][VECTORS], old[WOVEN][VECTORS];
  start(M, N, s, rows, sum);
  for (tap = p->taps; tap < end; tap++) sum_up(M, N, FLIP, HALF, *tap, panel, b, row, sum);
  for (int64_t i = 0;;) {
    UNROLL(16) for (int m = 0; m < M; m++) {
      l.at[m] = rows[i + m].out + s->column;
      UNROLL(16) for (int v = 0; v < N; v++) old[m][v] = sum[m][v];
    }
    const int64_t next = i + 2 * M <= n ? i + M : n - M;
    if (next <= i) break;
    i = next;
    UNROLL(16) for (int m = 0; m < M; m++) row[m] = rows[i + m].x;
    start(M, N, s, rows + i, sum);
    UNROLL(16) for (int k = 0; k < STEPS; k++) {
      vq_four y[VECTORS];
      UNROLL(16) for (int v = 0; v < N; v++) y[v] = vq_weights(vq_load(b + first.w + k * ITG_QROW + v * panel));
      UNROLL(16) for (int m = 0; m < M; m++) {
        vq four = vq_set((int32_t)four_at(row[m] + first.x + k * ITG_FOUR));
        if (FLIP) four = vq_xor(four, vq_set((int32_t)0x80808080));
        meet(N, HALF, sum[m], vq_inputs(four), y);
        finish_piece(KIND, N, k, m, &l, s, old);
      }
    }
    sum_up(M, N, FLIP, HALF, rest, panel, b, row, sum);
    for (tap = p->taps + 1; tap < end; tap++) sum_up(M, N, FLIP, HALF, *tap, panel, b, row, sum);
  }
  UNROLL(16) for (int k = 0; k < STEPS; k++)
    UNROLL(16) for (int m = 0; m < M; m++) finish_piece(KIND, N, k, m, &l, s, old);
}

#define WEAVE(V, F, H, K)                                                                                        \
  static void woven_##V##_##F##H##K(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n) { \
    weave(V, F, H, (ending)K, p, s, rows, n);                                                                    \
  }
WEAVES(WEAVE, 0)
WEAVES(WEAVE, 1)
WEAVES(WEAVE, 2)
WEAVES(WEAVE, 3)
WEAVES(WEAVE, 4)
LINES(WEAVE)
#endif

#define TILE(M, V, F, H)                                                                             \
  static void tile_##M##x##V##_##F##H(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n) { \
    strip(M, V * PARTS, F, H, p, s, rows, n);                                                            \
  }
EACH(TILE, 0, 0)
EACH(TILE, 1, 0)
HALVES(TILE, 0)
HALVES(TILE, 1)

static const tile_fn tiles[2][2][ITG_QTILE_PANELS][MOST] = {
#define ENTRY(M, V, F, H) [H][F][V - 1][M - 1] = tile_##M##x##V##_##F##H,
    EACH(ENTRY, 0, 0) EACH(ENTRY, 1, 0) HALVES(ENTRY, 0) HALVES(ENTRY, 1)};

#if defined(ISA_avx512vnni)
// NULL where larger tiles are better: with long sums their ends matter less than weights that are read again.
static tile_fn woven(const itg_qproduct *p, int64_t panels, bool half, int64_t n) {
#define WOVEN_ENTRY(V, F, H, K) [K][H][F][V - 1] = woven_##V##_##F##H##K,
  static const tile_fn all[6][2][2][ITG_QTILE_PANELS] = {WEAVES(WOVEN_ENTRY, 0) WEAVES(WOVEN_ENTRY, 1)
                                                         WEAVES(WOVEN_ENTRY, 2) WEAVES(WOVEN_ENTRY, 3)
                                                         WEAVES(WOVEN_ENTRY, 4) LINES(WOVEN_ENTRY)};
  const itg_requantize *end = p->end;
  int64_t fours = 0;
  for (int64_t i = 0; i < p->n_taps; i++) fours += p->taps[i].fours;
  if (!p->n_taps || p->taps[0].fours < STEPS || fours > (panels > 2 ? 64 : 256) || n < 2 * WOVEN / panels) return NULL;
  if (end->kind == ITG_Q_SUMS || p->w_zero) return NULL;
  half = half && panels == 2;
  if (end->kind == ITG_Q_FLOATS) return end->residual ? NULL : all[ENDS_FLOATS][half][p->flip != 0][panels - 1];
  if (panels <= 2 && end->pieces && vq_bounds_later(end) && !end->residual && !end->flip)
    return all[ENDS_LINES][half][p->flip != 0][panels - 1];
  if (end->table) return all[ENDS_TABLE][half][p->flip != 0][panels - 1];
  if (!end->saturates || (end->residual && !end->high)) return NULL;
  return all[end->residual ? ENDS_RESIDUAL : end->high ? ENDS_SIGNED : ENDS_UNSIGNED][half][p->flip != 0][panels - 1];
}
#endif

static enum way way_of(const itg_requantize *end) {
  if (end->kind != ITG_Q_BYTES) return WIDE;
#if defined(ISA_avx512)
  if (!end->table && !end->high) return UNSIGNED;
  if (!end->table) return end->saturates && !end->residual ? PLAIN_SIGNED : SIGNED;
#endif
  return GROUPS;
}

void itg_qtile(ITG_QTILE_ARGS) {
  enum { COLUMNS = ITG_QTILE_PANELS * ITG_PANEL };
  int32_t bias[COLUMNS], w_zero[COLUMNS];
  float scale[COLUMNS];
  const int64_t panels = (columns + ITG_PANEL - 1) / ITG_PANEL;
  const itg_requantize *end = p->end;
  span s = {.b = b, .bias = p->bias + column, .w_zero = p->w_zero ? p->w_zero + column : NULL, .scale = end->scale,
            .column = column, .columns = columns, .way = way_of(end)};
  for (int v = 0; v < VECTORS; v++) {
    const int64_t left = columns - v * QL;
#if defined(ISA_avx512)
    s.some[v] = left >= QL ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
#else
    s.some[v] = left >= QL ? QL : left > 0 ? left : 0;
#endif
  }
  if (s.scale) s.scale += column;
  if (columns < panels * ITG_PANEL) {
    memset(bias, 0, sizeof bias);
    memset(scale, 0, sizeof scale);
    s.bias = memcpy(bias, s.bias, (size_t)columns * sizeof *bias);
    if (s.scale) s.scale = memcpy(scale, s.scale, (size_t)columns * sizeof *scale);
    if (s.w_zero) {
      memset(w_zero, 0, sizeof w_zero);
      s.w_zero = memcpy(w_zero, s.w_zero, (size_t)columns * sizeof *w_zero);
    }
  }
  const bool half = panels * ITG_PANEL - columns >= ITG_PANEL / 2 && tiles[1][0][panels - 1][0];
#if defined(ISA_avx512vnni)
  const tile_fn small = woven(p, panels, half, n);
  if (small) {
    small(p, &s, rows, n);
    return;
  }
#endif
  const tile_fn *with = tiles[half][p->flip != 0][panels - 1];
  // As many rows at a time as cost least; the last tile may do a few rows again.
  int64_t best = 1, least = INT64_MAX;
  for (int64_t m = 1; m <= MOST && m <= n; m++) {
    const int64_t cost = (n + m - 1) / m * (m * panels + 4);
    if (with[m - 1] && cost <= least) best = m, least = cost;
  }
  with[best - 1](p, &s, rows, n);
}
#else
void itg_qtile(ITG_QTILE_ARGS) {
  const itg_requantize *end = p->end;
  for (int64_t m = 0; m < n; m++) {
    uint32_t sum[ITG_PANEL] = {0};  // unsigned: sums wrap
    for (int64_t t = 0; t < p->n_taps; t++) {
      const itg_qtap *tap = p->taps + t;
      const uint8_t *x = rows[m].x + tap->x;
      const int8_t *w = (const int8_t *)b + tap->w;
      for (int64_t k = 0; k < tap->fours * ITG_FOUR; k++)
        for (int c = 0; c < ITG_PANEL; c++)
          sum[c] += (uint32_t)((x[k] ^ p->flip) * w[k / ITG_FOUR * ITG_QROW + c * ITG_FOUR + k % ITG_FOUR]);
    }
    for (int64_t c = 0; c < columns; c++) {
      const int64_t at = rows[m].out + column + c;
      uint32_t all = sum[c] + (uint32_t)p->bias[column + c];
      if (p->w_zero) all += (uint32_t)p->w_zero[column + c] * (uint32_t)rows[m].sum;
      if (end->kind == ITG_Q_SUMS) ((int32_t *)p->out)[at] = (int32_t)all;
      else if (end->kind == ITG_Q_FLOATS) ((float *)p->out)[at] = itg_q_float(end, (int32_t)all, column + c, at);
      else ((uint8_t *)p->out)[at] = itg_q_byte(end, (int32_t)all, column + c, at);
    }
  }
}
#endif
