// The register tile of 8-bit products for ARM: M rows by one panel, of which N vectors of
// four columns have any. Products are of signed bytes (qvec_neon.h). Included by qtile.c.
//
//   i8mm      sum[pair][v]: two rows by two columns, of which smmla adds products of eight bytes
//   dotprod   sum[m][v]: row m, columns 4 v to 4 v + 3; sdot takes four bytes of a row as a lane
//   NEON      the same in two vectors, that of the pairs of bytes 0, 1 and 2, 3 along k
//
// In every form 16 bytes of each row and four rows of weights are loaded at a time.
#pragma once
#include "qtile_neon_finish.h"

#if defined(ISA_i8mm)
enum { MOST_ROWS = 6, ZIPPED = 24 << 10 };  // bytes of zipped weights that a call keeps
#elif defined(ISA_dotprod)
enum { MOST_ROWS = 5 };  // 20 sums, 5 inputs and 4 weights: six rows spilled
#elif defined(ISA_armv7)
enum { MOST_ROWS = 1 };  // of 16 registers, 8 are sums
#else
enum { MOST_ROWS = 2 };
#endif

#define DOT_LANE(sum, w, x, lane) sum = vdotq_laneq_s32(sum, w, x, lane)

INLINE int8x16_t four_of(const uint8_t *p) {
  int32_t four;
  memcpy(&four, p, sizeof four);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

INLINE int8x16_t eight_of(const uint8_t *p) {  // the upper half is not used
  return vreinterpretq_s8_u8(vcombine_u8(vld1_u8(p), vdup_n_u8(0)));
}

INLINE int8x16_t input(const uint8_t *p, const int FLIP) {
  const uint8x16_t x = vld1q_u8(p);
  return vreinterpretq_s8_u8(FLIP ? veorq_u8(x, vdupq_n_u8(0x80)) : x);
}

INLINE int8x16_t flipped(int8x16_t x, const int FLIP) {
  return FLIP ? veorq_s8(x, vdupq_n_s8(-128)) : x;
}

// Loads the weights of one group of four bytes along k for M rows.
INLINE void weights_at(const int M, const int N, const int8_t *from, int8x16_t *w) {
  if (M == 1 && N == 4) {  // one instruction, which wants neighbouring registers
    const int8x16x4_t all = vld1q_s8_x4(from);
    FOR_UNROLLED (4, int v = 0; v < 4; v++) w[v] = all.val[v];
    return;
  }
  FOR_UNROLLED (4, int v = 0; v < N; v++) w[v] = vld1q_s8(from + 16 * v);
}

// ---- sums ---------------------------------------------------------------------------------------
#if defined(ISA_dotprod)
// Adds the products of group `lane` of the 16 bytes of each row.
INLINE void add_lane(const int M, const int N, row_sums *sum, const int8x16_t *x,
                     const int8_t *from, const int LANE) {
  int8x16_t w[4];
  weights_at(M, N, from, w);
  FOR_UNROLLED (6, int m = 0; m < M; m++)
    FOR_UNROLLED (4, int v = 0; v < N; v++) {
      if (LANE == 0) DOT_LANE(sum[m][v], w[v], x[m], 0);
      if (LANE == 1) DOT_LANE(sum[m][v], w[v], x[m], 1);
      if (LANE == 2) DOT_LANE(sum[m][v], w[v], x[m], 2);
      if (LANE == 3) DOT_LANE(sum[m][v], w[v], x[m], 3);
    }
}

INLINE void sum_taps(const int M, const int N, const int FLIP, const itg_qproduct *p, const span *s,
                     const uint8_t *const *row, row_sums *sum) {
  for (int64_t t = 0; t < p->n_taps; t++) {
    const itg_qtap tap = p->taps[t];
    const int8_t *w = (const int8_t *)s->b + tap.w;
    int64_t k = tap.x, left = tap.fours;
    for (; left >= 4; left -= 4, k += 16, w += 4 * ITG_QROW) {
      int8x16_t x[MOST_ROWS];
      FOR_UNROLLED (6, int m = 0; m < M; m++) x[m] = input(row[m] + k, FLIP);
      add_lane(M, N, sum, x, w, 0);
      add_lane(M, N, sum, x, w + ITG_QROW, 1);
      add_lane(M, N, sum, x, w + 2 * ITG_QROW, 2);
      add_lane(M, N, sum, x, w + 3 * ITG_QROW, 3);
    }
    if (left >= 2) {
      int8x16_t x[MOST_ROWS];
      FOR_UNROLLED (6, int m = 0; m < M; m++) x[m] = flipped(eight_of(row[m] + k), FLIP);
      add_lane(M, N, sum, x, w, 0);
      add_lane(M, N, sum, x, w + ITG_QROW, 1);
      left -= 2, k += 8, w += 2 * ITG_QROW;
    }
    if (left) {
      int8x16_t x[MOST_ROWS];
      FOR_UNROLLED (6, int m = 0; m < M; m++) x[m] = flipped(four_of(row[m] + k), FLIP);
      add_lane(M, N, sum, x, w, 0);
    }
  }
}
#else
INLINE void add_four(const int M, const int N, int32x4_t (*sum)[4][2], const int8x16_t *x,
                     const int8_t *from) {
  FOR_UNROLLED (4, int v = 0; v < N; v++) {
    const int8x16_t w = vld1q_s8(from + 16 * v);
    FOR_UNROLLED (6, int m = 0; m < M; m++) vq_pairs(sum[m][v], x[m], w);
  }
}

#define LANE_OF(x, lane) vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane))

INLINE void sum_taps(const int M, const int N, const int FLIP, const itg_qproduct *p, const span *s,
                     const uint8_t *const *row, row_sums *sums) {
  int32x4_t sum[MOST_ROWS][4][2];
  FOR_UNROLLED (6, int m = 0; m < M; m++)
    FOR_UNROLLED (4, int v = 0; v < N; v++) sum[m][v][0] = sum[m][v][1] = vdupq_n_s32(0);
  for (int64_t t = 0; t < p->n_taps; t++) {
    const itg_qtap tap = p->taps[t];
    const int8_t *w = (const int8_t *)s->b + tap.w;
    int64_t k = tap.x, left = tap.fours;
    for (; left >= 4; left -= 4, k += 16, w += 4 * ITG_QROW) {
      int8x16_t x[MOST_ROWS], lane[MOST_ROWS];
      FOR_UNROLLED (6, int m = 0; m < M; m++) x[m] = input(row[m] + k, FLIP);
      FOR_UNROLLED (6, int m = 0; m < M; m++) lane[m] = LANE_OF(x[m], 0);
      add_four(M, N, sum, lane, w);
      FOR_UNROLLED (6, int m = 0; m < M; m++) lane[m] = LANE_OF(x[m], 1);
      add_four(M, N, sum, lane, w + ITG_QROW);
      FOR_UNROLLED (6, int m = 0; m < M; m++) lane[m] = LANE_OF(x[m], 2);
      add_four(M, N, sum, lane, w + 2 * ITG_QROW);
      FOR_UNROLLED (6, int m = 0; m < M; m++) lane[m] = LANE_OF(x[m], 3);
      add_four(M, N, sum, lane, w + 3 * ITG_QROW);
    }
    for (; left > 0; left--, k += 4, w += ITG_QROW) {
      int8x16_t x[MOST_ROWS];
      FOR_UNROLLED (6, int m = 0; m < M; m++) x[m] = flipped(four_of(row[m] + k), FLIP);
      add_four(M, N, sum, x, w);
    }
  }
  FOR_UNROLLED (6, int m = 0; m < M; m++)
    FOR_UNROLLED (4, int v = 0; v < N; v++)
      sums[m][v] = vaddq_s32(sums[m][v], vpaddq_s32(sum[m][v][0], sum[m][v][1]));
}
#endif

// ---- results ------------------------------------------------------------------------------------
// Rounds two vectors of scaled sums to numbers of 16 bits and adds the zero point. SMALL: none is
// larger than that.
INLINE int16x8_t rounded_sixteen(vf a, vf b, vq_end end, const int SMALL) {
  const int32x4_t x = vcvtnq_s32_f32(a), y = vcvtnq_s32_f32(b);
  const int16x8_t narrow =
      SMALL ? vuzpq_s16(vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(y)).val[0]
            : vqmovn_high_s32(vqmovn_s32(x), y);
  return vqaddq_s16(narrow, end.zero);
}

// Keeps gcc from computing the addresses of all rows before the products.
#define FORGET(pointer) __asm__("" : "+r"(pointer))

// Stores m rows of 8 or 16 bytes.
INLINE void finish_plain(const int M, const int N, const int SMALL, const int BARE,
                         const itg_qproduct *p, const span *s, const itg_qrow *rows, row_sums *sum,
                         int m) {
  uint8_t *out = (uint8_t *)p->out + s->column;
  const vq_end end = s->end;
  FORGET(rows);
  vf by[4], y[4];  // loaded once: stores of bytes may change *s, as far as the compiler knows
  FOR_UNROLLED (4, int v = 0; v < N; v++) by[v] = vload(s->scale + 4 * v);
  FOR_UNROLLED (6, int r = 0; r < M; r++) {
    FOR_UNROLLED (4, int v = 0; v < N; v++) y[v] = vmul(vcvtq_f32_s32(sum[r][v]), by[v]);
    const int16x8_t a = rounded_sixteen(y[0], y[1], end, SMALL),
                    b = N == 4 ? rounded_sixteen(y[2], y[3], end, SMALL) : a;
    const uint8x16_t bytes = vq_bounded(vqmovn_high_s16(vqmovn_s16(a), b), end, BARE);
    if (r >= m) continue;
    if (N == 4) vst1q_u8(out + rows[r].out, bytes);
    else vst1_u8(out + rows[r].out, vget_low_u8(bytes));
  }
}

INLINE void finish(const int M, const int N, const itg_qproduct *p, const span *s,
                   const itg_qrow *rows, row_sums *sum, int m) {
  if (s->plain) {
    if (!s->small) finish_plain(M, N, 0, 0, p, s, rows, sum, m);
    else if (s->bare) finish_plain(M, N, 1, 1, p, s, rows, sum, m);
    else finish_plain(M, N, 1, 0, p, s, rows, sum, m);
    return;
  }
  row_sums kept[MOST_ROWS];
  FOR_UNROLLED (6, int r = 0; r < M; r++)
    FOR_UNROLLED (4, int v = 0; v < 4; v++) kept[r][v] = v < N ? sum[r][v] : sum[r][0];
  store_rows(p, s, rows, m, (const row_sums *)kept);
}

// ---- tiles --------------------------------------------------------------------------------------
INLINE void start(const int M, const int N, const span *s, const itg_qrow *rows, bool zeros,
                  row_sums *sum) {
  FOR_UNROLLED (4, int v = 0; v < N; v++) {
    const int32x4_t bias = vld1q_s32(s->bias + 4 * v);
    FOR_UNROLLED (6, int m = 0; m < M; m++) sum[m][v] = bias;
  }
  if (zeros)
    FOR_UNROLLED (6, int m = 0; m < M; m++)
      FOR_UNROLLED (4, int v = 0; v < N; v++)
        sum[m][v] = vmlaq_n_s32(sum[m][v], vld1q_s32(s->w_zero + 4 * v), rows[m].sum);
}

#if defined(ISA_i8mm)
#include "qtile_i8mm.h"
#endif

#if defined(ISA_armv7)  // over a loop of tiles gcc keeps so much in registers that sums spill
#define TILE_ATTRIBUTES __attribute__((noinline))
#else
#define TILE_ATTRIBUTES inline __attribute__((always_inline))
#endif

typedef void (*tile_fn)(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n);
// Computes n rows, M at a time; the last tile may repeat a few.
#define TILE(M, N, FLIP)                                                                          \
  static TILE_ATTRIBUTES void once_##M##x##N##_##FLIP(const itg_qproduct *p, const span *s,       \
                                                      const itg_qrow *rows) {                     \
    const uint8_t *row[MOST_ROWS];                                                                \
    FOR_UNROLLED (6, int m = 0; m < M; m++) row[m] = rows[m].x;                                   \
    row_sums sum[MOST_ROWS];                                                                      \
    start(M, N, s, rows, p->w_zero != NULL, sum);                                                 \
    sum_taps(M, N, FLIP, p, s, row, sum);                                                         \
    finish(M, N, p, s, rows, sum, M);                                                             \
  }                                                                                               \
  static void tile_##M##x##N##_##FLIP(const itg_qproduct *p, const span *s, const itg_qrow *rows, \
                                      int64_t n) {                                                \
    for (int64_t i = 0;;) {                                                                       \
      once_##M##x##N##_##FLIP(p, s, rows + i);                                                    \
      if (i + M >= n) return;                                                                     \
      i = i + 2 * M <= n ? i + M : n - M;                                                         \
    }                                                                                             \
  }
#if defined(ISA_i8mm) || defined(ISA_armv7)  // i8mm multiplies other numbers of rows in pairs
#define EACH(T, N, FLIP) T(1, N, FLIP)
enum { EACH_ROWS = 1 };
#elif defined(ISA_dotprod)
#define EACH(T, N, FLIP) T(1, N, FLIP) T(2, N, FLIP) T(3, N, FLIP) T(4, N, FLIP) T(5, N, FLIP)
enum { EACH_ROWS = 5 };
#else
#define EACH(T, N, FLIP) T(1, N, FLIP) T(2, N, FLIP)
enum { EACH_ROWS = 2 };
#endif
EACH(TILE, 4, 0)
EACH(TILE, 4, 1)
EACH(TILE, 2, 0)
EACH(TILE, 2, 1)
#if defined(ISA_i8mm)
PAIRED(4, 0)
PAIRED(4, 1)
PAIRED(2, 0)
PAIRED(2, 1)

// Multiplies up to MOST_ROWS rows in pairs, or all rows with zipped weights.
static void run_pairs(const itg_qproduct *p, const span *s, const itg_qrow *rows, int64_t n,
                      bool few, bool flip) {
#define PAIRED_ENTRY(N, FLIP) \
  { pairs_1x##N##_##FLIP, pairs_2x##N##_##FLIP, pairs_3x##N##_##FLIP, strips_3x##N##_##FLIP }
  static const pairs_fn all[2][2][MOST_PAIRS + 1] = {{PAIRED_ENTRY(4, 0), PAIRED_ENTRY(4, 1)},
                                                     {PAIRED_ENTRY(2, 0), PAIRED_ENTRY(2, 1)}};
  all[few][flip][s->zipped ? MOST_PAIRS : (n + 1) / 2 - 1](p, s, rows, n);
}
#endif

#if defined(ISA_dotprod)
#include "qtile_alone.h"
#endif

// Do all scaled sums fit 16 bits? Products are at most 128 * 128.
static bool fits_sixteen(const itg_qproduct *p, const span *s) {
  int64_t fours = 0;
  for (int64_t t = 0; t < p->n_taps; t++) fours += p->taps[t].fours;
  const vf more = vdupq_n_f32((float)(fours * ITG_FOUR) * 16384);
  vf most = vdupq_n_f32(0);
  FOR_UNROLLED (4, int v = 0; v < 4; v++) {
    const vf sum = vaddq_f32(vabsq_f32(vcvtq_f32_s32(vld1q_s32(s->bias + 4 * v))), more);
    most = vmaxq_f32(most, vmul(sum, vabsq_f32(vload(s->scale + 4 * v))));
  }
  const float32x2_t two = vpmax_f32(vget_low_f32(most), vget_high_f32(most));
  return vget_lane_f32(vpmax_f32(two, two), 0) < 32000;
}

// Copies four bytes for each column; zeros follow.
INLINE void copy_span(void *to, const void *from, int64_t columns) {
  if (columns == ITG_PANEL) {
    memcpy(to, from, ITG_PANEL * 4);
    return;
  }
  memset(to, 0, ITG_PANEL * 4);
  memcpy(to, from, (size_t)columns * 4);
}

static void start_span(const itg_qproduct *p, span *s, int64_t column, int64_t columns) {
  copy_span(s->bias, p->bias + column, columns);
  if (p->end->scale) copy_span(s->scale, p->end->scale + column, columns);
  if (p->w_zero) copy_span(s->w_zero, p->w_zero + column, columns);
}

// Adds to the bias what signed inputs lack: VQ_LESS times the sums of the weights of all taps.
static void add_less(const itg_qproduct *p, span *s) {
  vq sum[4] = {vq_set(0), vq_set(0), vq_set(0), vq_set(0)};
  for (int64_t t = 0; p->less && t < p->n_taps; t++) {
    const int32_t *from = p->less + p->taps[t].w / ITG_FOUR,
                  *to = from + p->taps[t].fours * ITG_PANEL;
    FOR_UNROLLED (4, int v = 0; v < 4; v++)
      sum[v] = vq_add(sum[v], visub(vq_load(to + 4 * v), vq_load(from + 4 * v)));
  }
  for (int64_t t = 0; !p->less && t < p->n_taps; t++) {
    const int8_t *w = (const int8_t *)s->b + p->taps[t].w;
    int64_t left = p->taps[t].fours;
    for (; left >= 4; left -= 4, w += 4 * ITG_QROW)
      FOR_UNROLLED (4, int i = 0; i < 4; i++) vq_add_row(sum, w + i * ITG_QROW);
    for (; left > 0; left--, w += ITG_QROW) vq_add_row(sum, w);
  }
  FOR_UNROLLED (4, int v = 0; v < 4; v++)
    vst1q_s32(s->bias + 4 * v, vmlaq_n_s32(vld1q_s32(s->bias + 4 * v), vq_signed(sum[v]), VQ_LESS));
}

void itg_qtile(ITG_QTILE_ARGS) {
  span s;
  s.b = b;
  s.zipped = NULL;
  s.column = column;
  s.columns = columns;
  s.plain = false;
  start_span(p, &s, column, columns);
#if defined(ISA_dotprod)
  const bool alone = n == 1 && !p->less;
#else
  const bool alone = false;
#endif
  if (!alone) add_less(p, &s);
  if (p->end->kind == ITG_Q_BYTES) {
    s.end = vq_end_of(p->end);
    s.bare = vq_is_bare(p->end);
    s.plain = !p->end->residual && !p->end->table && (columns == 8 || columns == ITG_PANEL);
    if (alone && columns < ITG_PANEL) s.plain = false;
    s.small = s.plain && !p->w_zero && !alone && fits_sixteen(p, &s);
  }
  const bool few = columns <= 8, flip = !p->flip;
#if defined(ISA_dotprod)
  if (alone) {
    if (flip) alone_1(p, &s, rows);
    else alone_0(p, &s, rows);
    return;
  }
#endif
#define ENTRY(M, N, FLIP) tile_##M##x##N##_##FLIP,
  static const tile_fn tiles[2][2][MOST_ROWS] = {{{EACH(ENTRY, 4, 0)}, {EACH(ENTRY, 4, 1)}},
                                                 {{EACH(ENTRY, 2, 0)}, {EACH(ENTRY, 2, 1)}}};
#if defined(ISA_i8mm)
  FOR_UNROLLED (4, int v = 0; v < 4; v++) {
    const float64x2_t by = vreinterpretq_f64_f32(vload(s.scale + 4 * v));
    vstore(s.twice + 8 * v, vreinterpretq_f32_f64(vdupq_laneq_f64(by, 0)));
    vstore(s.twice + 8 * v + 4, vreinterpretq_f32_f64(vdupq_laneq_f64(by, 1)));
  }
  int8_t kept[ZIPPED];
  if (n >= 2 * MOST_ROWS) s.zipped = few ? zip_span(2, p, &s, kept) : zip_span(4, p, &s, kept);
  if (p->pairs) {
    run_packed(p, &s, rows, n, few);
    return;
  }
  const int64_t count = s.zipped ? 1 : (n + MOST_ROWS - 1) / MOST_ROWS;
  for (int64_t i = 0, r = 0, next; n > 1 && i < count; i++, r = next) {
    next = itg_split(n, count, i + 1);
    run_pairs(p, &s, rows + r, next - r, few, flip);
  }
  if (n > 1) return;
#endif
  // The fewest tiles, of as few rows as make them.
  const int64_t tall = EACH_ROWS < n ? EACH_ROWS : n, of = (n + tall - 1) / tall;
  tiles[few][flip][(n + of - 1) / of - 1](p, &s, rows, n);
}
