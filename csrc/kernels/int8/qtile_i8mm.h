// Tiles of pairs of rows, by smmla: two rows of eight bytes along k times two columns. Included by
// qtile_neon.h.
//
// sum[pair][v] holds columns 2 v and 2 v + 1 of both rows. Two neighbouring rows of a packed panel
// are zipped, so that eight bytes of a column follow each other: once for all rows of a call, or,
// if there are few, in every tile.
#pragma once

enum { MOST_PAIRS = MOST_ROWS / 2 };
typedef int32x4_t pair_sums[8];

// Zips the weights of two groups of four bytes; `second` may be NULL for zeros.
INLINE void zipped(const int N, const int8_t *first, const int8_t *second, int8x16_t *w) {
  FOR_UNROLLED (4, int v = 0; v < N; v++) {
    const int32x4_t a = vreinterpretq_s32_s8(vld1q_s8(first + 16 * v));
    const int32x4_t b = second ? vreinterpretq_s32_s8(vld1q_s8(second + 16 * v)) : vdupq_n_s32(0);
    w[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
    w[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
  }
}

#define LOWS(a, b) \
  vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)))
#define HIGHS(a, b) \
  vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)))

INLINE void add_eights(const int P, const int N, pair_sums *sum, const int8x16_t *x,
                       const int8x16_t *w) {
  FOR_UNROLLED (8, int v = 0; v < 2 * N; v++)
    FOR_UNROLLED (3, int i = 0; i < P; i++) sum[i][v] = vmmlaq_s32(sum[i][v], x[i], w[v]);
}

// Adds the products with two groups of four bytes, two columns at a time.
INLINE void add_zipped(const int P, const int N, pair_sums *sum, const int8x16_t *x,
                       const int8_t *from) {
  FOR_UNROLLED (4, int v = 0; v < N; v++) {
    const int32x4_t a = vreinterpretq_s32_s8(vld1q_s8(from + 16 * v)),
                    b = vreinterpretq_s32_s8(vld1q_s8(from + ITG_QROW + 16 * v));
    const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(a, b)),
                    high = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    FOR_UNROLLED (3, int i = 0; i < P; i++) {
      sum[i][2 * v] = vmmlaq_s32(sum[i][2 * v], x[i], low);
      sum[i][2 * v + 1] = vmmlaq_s32(sum[i][2 * v + 1], x[i], high);
    }
  }
}

INLINE int8x16_t eights_of(const uint8_t *a, const uint8_t *b, const int FLIP) {
  return flipped(vreinterpretq_s8_u8(vcombine_u8(vld1_u8(a), vld1_u8(b))), FLIP);
}

INLINE void sum_pairs(const int P, const int N, const int FLIP, const itg_qproduct *p,
                      const span *s, const uint8_t *const *row, pair_sums *sum) {
  for (int64_t t = 0; t < p->n_taps; t++) {
    const itg_qtap tap = p->taps[t];
    const int8_t *from = (const int8_t *)s->b + tap.w;
    int64_t k = tap.x, left = tap.fours;
    int8x16_t w[8], x[MOST_PAIRS], y[MOST_PAIRS];
    for (; left >= 4; left -= 4, k += 16, from += 4 * ITG_QROW) {
      FOR_UNROLLED (3, int i = 0; i < P; i++) {
        const int8x16_t a = input(row[2 * i] + k, FLIP), b = input(row[2 * i + 1] + k, FLIP);
        x[i] = LOWS(a, b);
        y[i] = HIGHS(a, b);
      }
      add_zipped(P, N, sum, x, from);
      add_zipped(P, N, sum, y, from + 2 * ITG_QROW);
    }
    if (left >= 2) {
      FOR_UNROLLED (3, int i = 0; i < P; i++)
        x[i] = eights_of(row[2 * i] + k, row[2 * i + 1] + k, FLIP);
      zipped(N, from, from + ITG_QROW, w);
      add_eights(P, N, sum, x, w);
      left -= 2, k += 8, from += 2 * ITG_QROW;
    }
    if (left) {
      FOR_UNROLLED (3, int i = 0; i < P; i++)
        x[i] = flipped(LOWS(four_of(row[2 * i] + k), four_of(row[2 * i + 1] + k)), FLIP);
      zipped(N, from, NULL, w);
      add_eights(P, N, sum, x, w);
    }
  }
}

static int64_t eights_of_taps(const itg_qproduct *p) {
  int64_t eights = 0;
  for (int64_t t = 0; t < p->n_taps; t++) eights += (p->taps[t].fours + 1) / 2;
  return eights;
}

// Zips the weights of a span of N vectors, tap after tap; NULL if they are too many.
INLINE const int8_t *zip_span(const int N, const itg_qproduct *p, const span *s, int8_t *to) {
  if (eights_of_taps(p) > ZIPPED / (32 * N)) return NULL;
  int8_t *at = to;
  for (int64_t t = 0; t < p->n_taps; t++) {
    const int8_t *from = (const int8_t *)s->b + p->taps[t].w;
    for (int64_t left = p->taps[t].fours; left > 0; left -= 2, from += 2 * ITG_QROW) {
      int8x16_t w[8];
      zipped(N, from, left > 1 ? from + ITG_QROW : NULL, w);
      FOR_UNROLLED (8, int v = 0; v < 2 * N; v++, at += 16) vst1q_s8(at, w[v]);
    }
  }
  return to;
}

// Adds the products with eight bytes of every column. Registers hardly suffice: with FLIP gcc
// spills less if four vectors of weights are loaded at once, without it if two are.
INLINE void add_stored(const int P, const int N, const int FLIP, pair_sums *sum, const int8x16_t *x,
                       const int8_t *from) {
  if (FLIP) {
    FOR_UNROLLED (2, int v = 0; v < 2 * N; v += 4) {
      const int8x16x4_t w = vld1q_s8_x4(from + 16 * v);
      FOR_UNROLLED (4, int j = 0; j < 4; j++)
        FOR_UNROLLED (3, int i = 0; i < P; i++)
          sum[i][v + j] = vmmlaq_s32(sum[i][v + j], x[i], w.val[j]);
    }
    return;
  }
  FOR_UNROLLED (4, int v = 0; v < 2 * N; v += 2) {
    const int8x16_t a = vld1q_s8(from + 16 * v), b = vld1q_s8(from + 16 * v + 16);
    FOR_UNROLLED (3, int i = 0; i < P; i++) {
      sum[i][v] = vmmlaq_s32(sum[i][v], x[i], a);
      sum[i][v + 1] = vmmlaq_s32(sum[i][v + 1], x[i], b);
    }
  }
}

INLINE void sum_zipped(const int P, const int N, const int FLIP, const itg_qproduct *p,
                       const span *s, const uint8_t *const *row, pair_sums *sum) {
  const int8_t *from = s->zipped;
  for (int64_t t = 0; t < p->n_taps; t++) {
    const itg_qtap tap = p->taps[t];
    int64_t k = tap.x, left = tap.fours;
    int8x16_t x[MOST_PAIRS], y[MOST_PAIRS];
    for (; left >= 4; left -= 4, k += 16, from += 64 * N) {
      FOR_UNROLLED (3, int i = 0; i < P; i++) {
        const int8x16_t a = input(row[2 * i] + k, FLIP), b = input(row[2 * i + 1] + k, FLIP);
        x[i] = LOWS(a, b);
        y[i] = HIGHS(a, b);
      }
      add_stored(P, N, FLIP, sum, x, from);
      add_stored(P, N, FLIP, sum, y, from + 32 * N);
    }
    if (left >= 2) {
      FOR_UNROLLED (3, int i = 0; i < P; i++)
        x[i] = eights_of(row[2 * i] + k, row[2 * i + 1] + k, FLIP);
      add_stored(P, N, FLIP, sum, x, from);
      left -= 2, k += 8, from += 32 * N;
    }
    if (left) {
      FOR_UNROLLED (3, int i = 0; i < P; i++)
        x[i] = flipped(LOWS(four_of(row[2 * i] + k), four_of(row[2 * i + 1] + k)), FLIP);
      add_stored(P, N, FLIP, sum, x, from);
      from += 32 * N;
    }
  }
}

// ---- packed rows --------------------------------------------------------------------------------
// Tiles of six rows: of each pair eight bytes along k of one row, then of the other; tap after tap.
enum { PACKED_EIGHT = 16 * MOST_PAIRS };  // bytes of a tile for eight bytes along k

INLINE int8_t *pack_tile(const int FLIP, const itg_qproduct *p, const itg_qrow *rows, int8_t *to) {
  for (int64_t t = 0; t < p->n_taps; t++) {
    int64_t k = p->taps[t].x, left = p->taps[t].fours;
    for (; left >= 4; left -= 4, k += 16, to += 2 * PACKED_EIGHT)
      FOR_UNROLLED (3, int i = 0; i < MOST_PAIRS; i++) {
        const int8x16_t a = input(rows[2 * i].x + k, FLIP), b = input(rows[2 * i + 1].x + k, FLIP);
        vst1q_s8(to + 16 * i, LOWS(a, b));
        vst1q_s8(to + PACKED_EIGHT + 16 * i, HIGHS(a, b));
      }
    if (left >= 2) {
      FOR_UNROLLED (3, int i = 0; i < MOST_PAIRS; i++)
        vst1q_s8(to + 16 * i, eights_of(rows[2 * i].x + k, rows[2 * i + 1].x + k, FLIP));
      left -= 2, k += 8, to += PACKED_EIGHT;
    }
    if (left) {
      FOR_UNROLLED (3, int i = 0; i < MOST_PAIRS; i++)
        vst1q_s8(to + 16 * i,
                 flipped(LOWS(four_of(rows[2 * i].x + k), four_of(rows[2 * i + 1].x + k)), FLIP));
      to += PACKED_EIGHT;
    }
  }
  return to;
}

// The last tile may repeat rows.
int64_t itg_qtile_pairs(const itg_qproduct *p, const itg_qrow *rows, int64_t n, int8_t *to,
                        int64_t room) {
  const int64_t tiles = (n + MOST_ROWS - 1) / MOST_ROWS, eights = eights_of_taps(p);
  const int64_t bytes = tiles * eights * PACKED_EIGHT;
  if (n < 2 * MOST_ROWS || bytes > room || eights > ZIPPED / 128) return 0;
  for (int64_t i = 0, r = 0; i < tiles; i++, r += MOST_ROWS) {
    const itg_qrow *six = rows + (r < n - MOST_ROWS ? r : n - MOST_ROWS);
    to = p->flip ? pack_tile(0, p, six, to) : pack_tile(1, p, six, to);
  }
  return bytes;
}

INLINE void add_packed(const int N, pair_sums *sum, const int8_t *from, const int8_t *w) {
  int8x16_t x[MOST_PAIRS];
  FOR_UNROLLED (3, int i = 0; i < MOST_PAIRS; i++) x[i] = vld1q_s8(from + 16 * i);
  FOR_UNROLLED (4, int v = 0; v < 2 * N; v += 2) {
    const int8x16_t a = vld1q_s8(w + 16 * v), b = vld1q_s8(w + 16 * v + 16);
    FOR_UNROLLED (3, int i = 0; i < MOST_PAIRS; i++) {
      sum[i][v] = vmmlaq_s32(sum[i][v], x[i], a);
      sum[i][v + 1] = vmmlaq_s32(sum[i][v + 1], x[i], b);
    }
  }
}

// Converts and stores the sums of pairs of rows. They are narrowed as they lie: a vector has two
// columns of both rows, and the bytes of two columns move together in the end.
INLINE void finish_pairs(const int P, const int N, const int SMALL, const int BARE,
                         const itg_qproduct *p, const span *s, const itg_qrow *rows, pair_sums *sum,
                         int m) {
  uint8_t *out = (uint8_t *)p->out + s->column;
  const vq_end end = s->end;
  FORGET(rows);
  vf by[8];  // loaded once: stores of bytes may change *s, as far as the compiler knows
  FOR_UNROLLED (8, int v = 0; v < 2 * N; v++) by[v] = vload(s->twice + 4 * v);
  FOR_UNROLLED (3, int i = 0; i < P; i++) {
    int16x8_t half[4];
    FOR_UNROLLED (4, int v = 0; v < N; v++)
      half[v] = rounded_sixteen(vmul(vcvtq_f32_s32(sum[i][2 * v]), by[2 * v]),
                                vmul(vcvtq_f32_s32(sum[i][2 * v + 1]), by[2 * v + 1]), end, SMALL);
    const uint8x16_t low = vq_bounded(vqmovn_high_s16(vqmovn_s16(half[0]), half[1]), end, BARE);
    uint8x16_t high = low;
    if (N == 4) high = vq_bounded(vqmovn_high_s16(vqmovn_s16(half[2]), half[3]), end, BARE);
    const uint16x8_t a = vreinterpretq_u16_u8(low), b = vreinterpretq_u16_u8(high);
    const uint8x16_t first = vreinterpretq_u8_u16(vuzp1q_u16(a, b)),
                     second = vreinterpretq_u8_u16(vuzp2q_u16(a, b));
    if (N == 4) vst1q_u8(out + rows[2 * i].out, first);
    else vst1_u8(out + rows[2 * i].out, vget_low_u8(first));
    if (2 * i + 1 >= m) continue;
    if (N == 4) vst1q_u8(out + rows[2 * i + 1].out, second);
    else vst1_u8(out + rows[2 * i + 1].out, vget_low_u8(second));
  }
}

INLINE void start_pairs(const int P, const int N, const span *s, pair_sums *sum) {
  FOR_UNROLLED (4, int v = 0; v < N; v++) {
    const int64x2_t bias = vreinterpretq_s64_s32(vld1q_s32(s->bias + 4 * v));
    FOR_UNROLLED (3, int i = 0; i < P; i++) {
      sum[i][2 * v] = vreinterpretq_s32_s64(vdupq_laneq_s64(bias, 0));
      sum[i][2 * v + 1] = vreinterpretq_s32_s64(vdupq_laneq_s64(bias, 1));
    }
  }
}

INLINE void end_pairs(const int P, const int N, const itg_qproduct *p, const span *s,
                      const itg_qrow *rows, pair_sums *sum, int m) {
  if (s->plain && !p->w_zero) {
    if (!s->small) finish_pairs(P, N, 0, 0, p, s, rows, sum, m);
    else if (s->bare) finish_pairs(P, N, 1, 1, p, s, rows, sum, m);
    else finish_pairs(P, N, 1, 0, p, s, rows, sum, m);
    return;
  }
  row_sums made[MOST_ROWS];
  FOR_UNROLLED (3, int i = 0; i < P; i++)
    FOR_UNROLLED (4, int v = 0; v < N; v++) {
      const int64x2_t a = vreinterpretq_s64_s32(sum[i][2 * v]),
                      b = vreinterpretq_s64_s32(sum[i][2 * v + 1]);
      made[2 * i][v] = vreinterpretq_s32_s64(vzip1q_s64(a, b));
      made[2 * i + 1][v] = vreinterpretq_s32_s64(vzip2q_s64(a, b));
    }
  if (p->w_zero)
    FOR_UNROLLED (6, int r = 0; r < 2 * P; r++)
      FOR_UNROLLED (4, int v = 0; v < N; v++)
        made[r][v] = vmlaq_n_s32(made[r][v], vld1q_s32(s->w_zero + 4 * v), rows[r < m ? r : 0].sum);
  FOR_UNROLLED (6, int r = 0; r < 2 * P; r++)
    FOR_UNROLLED (4, int v = N; v < 4; v++) made[r][v] = made[r][0];
  store_rows(p, s, rows, m, (const row_sums *)made);
}

// Computes m rows, 2 P or one less: the last row then is there twice. STORED: the weights are
// zipped.
INLINE void pairs_of(const int P, const int N, const int FLIP, const int STORED,
                     const itg_qproduct *p, const span *s, const itg_qrow *rows, int m) {
  const uint8_t *row[MOST_ROWS];
  pair_sums sum[MOST_PAIRS];
  FOR_UNROLLED (6, int r = 0; r < 2 * P; r++) row[r] = rows[r < m ? r : m - 1].x;
  start_pairs(P, N, s, sum);
  if (STORED) sum_zipped(P, N, FLIP, p, s, row, sum);
  else sum_pairs(P, N, FLIP, p, s, row, sum);
  end_pairs(P, N, p, s, rows, sum, m);
}

typedef void (*pairs_fn)(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n);
#define PAIRS(P, N, FLIP)                                                                          \
  static void pairs_##P##x##N##_##FLIP(const itg_qproduct *p, const span *s, const itg_qrow *rows, \
                                       int64_t n) {                                                \
    pairs_of(P, N, FLIP, 0, p, s, rows, (int)n);                                                   \
  }
// With zipped weights: n rows, at least 2 P of them; the last tile may repeat a few. A tile is a
// function, for in a loop of tiles gcc keeps so much in registers that sums spill.
#define STRIPS(P, N, FLIP)                                                    \
  static __attribute__((noinline)) void strip_##P##x##N##_##FLIP(             \
      const itg_qproduct *p, const span *s, const itg_qrow *rows) {           \
    pairs_of(P, N, FLIP, 1, p, s, rows, 2 * P);                               \
  }                                                                           \
  static void strips_##P##x##N##_##FLIP(const itg_qproduct *p, const span *s, \
                                        const itg_qrow *rows, int64_t n) {    \
    for (int64_t i = 0;;) {                                                   \
      strip_##P##x##N##_##FLIP(p, s, rows + i);                               \
      if (i + 2 * P >= n) return;                                             \
      i = i + 4 * P <= n ? i + 2 * P : n - 2 * P;                             \
    }                                                                         \
  }
// With packed rows too.
#define PACKED(N)                                                                         \
  static __attribute__((noinline)) void packed_##N(const itg_qproduct *p, const span *s,  \
                                                   const itg_qrow *rows, const int8_t *x, \
                                                   int64_t eights) {                      \
    pair_sums sum[MOST_PAIRS];                                                            \
    start_pairs(MOST_PAIRS, N, s, sum);                                                   \
    const int8_t *w = s->zipped;                                                          \
    for (; eights; eights--, x += PACKED_EIGHT, w += 32 * N) add_packed(N, sum, x, w);    \
    end_pairs(MOST_PAIRS, N, p, s, rows, sum, MOST_ROWS);                                 \
  }
PACKED(2)
PACKED(4)

static void run_packed(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n,
                       bool few) {
  const int64_t eights = eights_of_taps(p);
  const int8_t *x = p->pairs;
  for (int64_t r = 0; r < n; r += MOST_ROWS, x += eights * PACKED_EIGHT) {
    const itg_qrow *six = rows + (r < n - MOST_ROWS ? r : n - MOST_ROWS);
    if (few) packed_2(p, s, six, x, eights);
    else packed_4(p, s, six, x, eights);
  }
}
#define PAIRED(N, FLIP) PAIRS(1, N, FLIP) PAIRS(2, N, FLIP) PAIRS(3, N, FLIP) STRIPS(3, N, FLIP)
