// Product of rows of bytes with packed 8-bit weights, f32 results, compiled once per ISA. The
// register tile is M rows by V panels (AVX512-VNNI: 8 x 3 = 24 sums); sum[m][v] holds row m, vector
// v of the columns. Sums are scaled to f32 in registers; activations other than bounds run over all
// rows of the tile before they are stored.
#include "qgemm.h"

#include "gelu_approx.h"

typedef struct task {
  const uint8_t *x, *w;
  int64_t k, n, panel;  // bytes of a row; columns; bytes from one panel to the next
  const float *scale, *rows;
  int64_t row_step;             // 0 where all rows have one scale
  const int32_t *sums, *start;  // start: initial sums, or NULL
  int32_t zero;                 // of the bytes as u8
  const uint8_t *zeros;         // one per row, or NULL
  int flip;
  float *out;
  itg_finish end;
  bool gelu;  // is the activation
} task;

#if defined(ITG_QVECTORS) || defined(ISA_neon)
#if defined(ISA_avx512vnni)
enum { ROWS = 8, PANELS = 3 };
#elif defined(ISA_avx512)
enum { ROWS = 6, PANELS = 2 };
#else
enum { ROWS = 4, PANELS = 1 };
#endif
enum { PARTS = ITG_PANEL / QL, VECTORS = PANELS * PARTS };

INLINE uint32_t four_at(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return four;
}

INLINE vq times(vq a, int32_t b) { return vq_mul(a, vq_set(b)); }

INLINE vf get(const float *p, int64_t n) {
  return n >= VL ? vload(p) : n > 0 ? vloadn(p, n) : vset(0.f);
}
INLINE void put(float *p, int64_t n, vf v) {
  if (n >= VL) vstore(p, v);
  else if (n > 0) vstoren(p, n, v);
}

// Applies an activation other than bounds to a tile and stores it. y holds `rows` rows of `wide`
// floats.
static __attribute__((noinline)) void activate(const task *t, float *y, int rows, int64_t row,
                                               int64_t column, int64_t columns, int64_t wide) {
  const itg_finish *end = &t->end;
  if (end->residual && !end->add_last)
    for (int m = 0; m < rows; m++) {
      const float *extra = (const float *)end->residual + (row + m) * t->n + column;
      for (int64_t i = 0; i < columns; i++) y[m * wide + i] += extra[i];
    }
#ifdef ITG_NEAR_GELU
  if (t->gelu && columns == wide && !end->add_last) {
    itg_near_gelu(y, rows, wide, t->out + row * t->n + column, t->n);
    return;
  }
  if (t->gelu) itg_near_gelu(y, rows, wide, y, wide);
  else
#endif
      if (!end->slope)
    end->act(y, rows * wide, end->args);
  for (int m = 0; m < rows; m++, y += wide) {
    if (end->slope) itg_bend(end, y, columns, column, columns);
    float *to = t->out + (row + m) * t->n + column;
    if (end->residual && end->add_last) {
      const float *extra = (const float *)end->residual + (row + m) * t->n + column;
      for (int64_t i = 0; i < columns; i++) to[i] = y[i] + extra[i];
    } else {
      memcpy(to, y, (size_t)columns * sizeof *to);
    }
  }
}

// Scales and stores a tile: M rows from `row` on by V panels from `column` on. Only the last panel
// may have fewer than 16 columns.
INLINE void finish(const int M, const int V, const task *t, vq (*sum)[VECTORS], int64_t row,
                   int64_t column, int64_t columns) {
  const int N = V * PARTS, LAST = N - PARTS;
  const itg_finish *end = &t->end;
  vf scale[VECTORS], bias[VECTORS];
  FOR_UNROLLED (16, int v = 0; v < N; v++) {
    scale[v] = vload(t->scale + column + v * VL);
    bias[v] =
        end->bias ? get(end->bias + column + v * VL, v < LAST ? VL : columns - v * VL) : vset(0.f);
  }
  float y[ROWS * VECTORS * VL];
  const vf lo = vset(end->lo), hi = vset(end->hi);
  const float *before = end->residual && !end->add_last ? end->residual : NULL;
  const float *after = end->residual && end->add_last ? end->residual : NULL;
  FOR_UNROLLED (16, int m = 0; m < M; m++) {
    const vf by = t->rows ? vset(t->rows[(row + m) * t->row_step]) : vset(1.f);
    const int64_t at = (row + m) * t->n + column;
    FOR_UNROLLED (16, int v = 0; v < N; v++) {
      vf one = vmul(vq_floats(sum[m][v]), vmul(by, scale[v]));
      if (end->bias) one = vadd(one, bias[v]);
      if (end->act) {
        vstore(y + (m * N + v) * VL, one);
        continue;
      }
      const int64_t left = v < LAST ? VL : columns - v * VL;
      if (before) one = vadd(one, get(before + at + v * VL, left));
      one = vmin(hi, vmax(lo, one));  // this order of operands keeps a NaN
      if (after) one = vadd(one, get(after + at + v * VL, left));
      put(t->out + at + v * VL, left, one);
    }
  }
  if (end->act) activate(t, y, M, row, column, columns, N * VL);
}

// Computes a tile. Sums start at -zero times the sums of the weights, plus `start`.
INLINE void tile(const int M, const int V, const task *t, int64_t row, int64_t column,
                 int64_t columns) {
  const int N = V * PARTS;
  const vq flip = vq_set((t->flip ^ VQ_LESS) ? (int32_t)0x80808080 : 0);  // makes input bytes u8,
                                                                          // or with NEON i8
  vq sum[ROWS][VECTORS];
  FOR_UNROLLED (16, int v = 0; v < N; v++) {
    const vq start = t->start ? vq_load(t->start + column + v * QL) : vq_set(0);
    const vq whole = vq_load(t->sums + column + v * QL);
    if (t->zeros) {
      FOR_UNROLLED (16, int m = 0; m < M; m++)
        sum[m][v] = viadd(start, times(whole, VQ_LESS - (t->zeros[row + m] ^ t->flip)));
    } else {
      sum[0][v] = viadd(start, times(whole, VQ_LESS - t->zero));
      FOR_UNROLLED (16, int m = 1; m < M; m++) sum[m][v] = sum[0][v];
    }
  }
  const uint8_t *w = t->w + column / ITG_PANEL * t->panel, *x = t->x + row * t->k;
  const int64_t k = t->k, panel = t->panel;
  for (int64_t i = 0; i < k; i += ITG_FOUR, w += ITG_QROW) {
    vq_four y[VECTORS];
    FOR_UNROLLED (16, int v = 0; v < N; v++)
      y[v] = vq_weights(vq_load(w + v / PARTS * panel + v % PARTS * QBYTES));
    FOR_UNROLLED (16, int m = 0; m < M; m++) {
      const vq_four in = vq_inputs(vq_xor(vq_set((int32_t)four_at(x + m * k + i)), flip));
      FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = vq_dot(sum[m][v], in, y[v]);
    }
  }
  finish(M, V, t, sum, row, column, columns);
}

typedef void (*tile_fn)(const task *t, int64_t row, int64_t column, int64_t columns);
#define TILE(M, V)                                                                          \
  static void tile_##M##x##V(const task *t, int64_t row, int64_t column, int64_t columns) { \
    tile(M, V, t, row, column, columns);                                                    \
  }
#if defined(ISA_avx512vnni)
#define EACH_ROWS(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V) T(6, V) T(7, V) T(8, V)
#define EACH(T) EACH_ROWS(T, 1) EACH_ROWS(T, 2) EACH_ROWS(T, 3)
#elif defined(ISA_avx512)
#define EACH_ROWS(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V) T(6, V)
#define EACH(T) EACH_ROWS(T, 1) EACH_ROWS(T, 2)
#else
#define EACH(T) T(1, 1) T(2, 1) T(3, 1) T(4, 1)
#endif
EACH(TILE)

static void run_tile(const task *t, int rows, int64_t row, int64_t column, int64_t columns) {
#define ENTRY(M, V) [V - 1][M - 1] = tile_##M##x##V,
  static const tile_fn table[PANELS][ROWS] = {EACH(ENTRY)};
  table[(columns - 1) / ITG_PANEL][rows - 1](t, row, column, columns);
}
#else
// Scales and stores the sums of one row.
static void finish_row(const task *t, const uint32_t *sum, int64_t row, int64_t column,
                       int64_t columns) {
  const itg_finish *end = &t->end;
  float y[ITG_PANEL];
  const int64_t at = row * t->n + column;
  const float *residual = end->residual ? (const float *)end->residual + at : NULL;
  for (int64_t c = 0; c < columns; c++) {
    y[c] = (float)(int32_t)sum[c] *
           ((t->rows ? t->rows[row * t->row_step] : 1.f) * t->scale[column + c]);
    if (end->bias) y[c] += end->bias[column + c];
    if (residual && !end->add_last) y[c] += residual[c];
    y[c] = y[c] < end->lo ? end->lo : y[c] > end->hi ? end->hi : y[c];
  }
  if (end->act) itg_bend(end, y, columns, column, columns);
  for (int64_t c = 0; c < columns; c++)
    t->out[at + c] = residual && end->add_last ? y[c] + residual[c] : y[c];
}

#if defined(ISA_rvv)
#include "qrvv.h"
enum { ROWS = QR_ROWS, PANELS = 1 };

INLINE void tile(const int M, const task *t, int64_t row, int64_t column, int64_t columns) {
  const uint8_t *w = t->w + column / ITG_PANEL * t->panel, *x[ROWS];
  vi sum[ROWS], start = viset(0);
  if (t->start) start = *(const vi_any *)(t->start + column);
  if (t->flip) start += qr_columns(w, t->k / ITG_FOUR);
  FOR_UNROLLED (16, int m = 0; m < M; m++) {
    const int32_t zero = t->zeros ? t->zeros[row + m] ^ t->flip : t->zero;
    sum[m] = start - *(const vi_any *)(t->sums + column) * viset(zero);
    x[m] = t->x + (row + m) * t->k;
  }
  if (t->flip) qr_sum_up(M, true, x, w, t->k / ITG_FOUR, sum);
  else qr_sum_up(M, false, x, w, t->k / ITG_FOUR, sum);
  uint32_t kept[ROWS][ITG_PANEL];
  FOR_UNROLLED (16, int m = 0; m < M; m++) *(vi_any *)kept[m] = sum[m];
  for (int m = 0; m < M; m++) finish_row(t, kept[m], row + m, column, columns);
}

static void run_tile(const task *t, int rows, int64_t row, int64_t column, int64_t columns) {
  switch (rows) {
    case 1: tile(1, t, row, column, columns); break;
    case 2: tile(2, t, row, column, columns); break;
    case 3: tile(3, t, row, column, columns); break;
    case 4: tile(4, t, row, column, columns); break;
    default: tile(5, t, row, column, columns); break;
  }
}
#else
enum { ROWS = 1, PANELS = 1 };

static void run_tile(const task *t, int rows, int64_t row, int64_t column, int64_t columns) {
  const uint8_t *x = t->x + row * t->k, *w = t->w + column / ITG_PANEL * t->panel;
  uint32_t sum[ITG_PANEL];  // unsigned, so that sums may wrap
  const uint32_t zero = (uint32_t)(t->zeros ? t->zeros[row] ^ t->flip : t->zero);
  for (int c = 0; c < ITG_PANEL; c++)
    sum[c] = (t->start ? (uint32_t)t->start[column + c] : 0) - zero * (uint32_t)t->sums[column + c];
  for (int64_t i = 0; i < t->k; i += ITG_FOUR, w += ITG_QROW)
    for (int j = 0; j < ITG_FOUR; j++)
      for (int c = 0; c < ITG_PANEL; c++)
        sum[c] += (uint32_t)((x[i + j] ^ t->flip) * (int8_t)w[c * ITG_FOUR + j]);
  finish_row(t, sum, row, column, columns);
}
#endif
#endif

enum { NEAR = 256 << 10 };  // bytes of rows that are multiplied with all weights while cached

static void run(const task *t, int64_t from, int64_t to, int64_t first, int64_t last) {
  const int64_t spans = (last - first + PANELS - 1) / PANELS;
  int64_t most = NEAR / (t->k + 1);
  most = most < ROWS ? ROWS : most;
  const int64_t blocks = (to - from + most - 1) / most;
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t start = from + itg_split(to - from, blocks, b),
                  rows = from + itg_split(to - from, blocks, b + 1) - start;
    const int64_t tiles = (rows + ROWS - 1) / ROWS;
    for (int64_t s = 0; s < spans; s++) {
      const int64_t p = first + itg_split(last - first, spans, s),
                    q = first + itg_split(last - first, spans, s + 1);
      const int64_t columns = (q * ITG_PANEL < t->n ? q * ITG_PANEL : t->n) - p * ITG_PANEL;
      for (int64_t i = 0; i < tiles; i++) {
        const int64_t row = itg_split(rows, tiles, i), count = itg_split(rows, tiles, i + 1) - row;
        run_tile(t, (int)count, start + row, p * ITG_PANEL, columns);
      }
    }
  }
}

ITG_FN(qgemm, any) {
  const itg_attrs_qgemm *a = call->attrs;
  const itg_tensor *x = call->in[0], *rows = itg_input(call, ITG_QGEMM_ROWS),
                   *zero = itg_input(call, ITG_QGEMM_ZERO);
  if (itg_empty(call->out[0])) return NULL;
  const int64_t k = x->shape[x->rank - 1], m = itg_count_range(x, 0, x->rank - 1),
                panels = call->in[1]->shape[0];
  const itg_tensor *start = itg_input(call, ITG_QGEMM_START);
  const bool low = x->dtype == ITG_I8;
  const int32_t given = !zero ? (int32_t)a->x_zero
                        : low ? *(const int8_t *)zero->data
                              : *(const uint8_t *)zero->data;
  const task t = {.x = x->data,
                  .w = call->in[1]->data,
                  .k = k,
                  .n = a->n,
                  .panel = k * ITG_PANEL,
                  .scale = call->in[ITG_QGEMM_SCALE]->data,
                  .rows = rows ? rows->data : NULL,
                  .row_step = rows && itg_count(rows) > 1,
                  .sums = call->in[ITG_QGEMM_SUMS]->data,
                  .start = start ? start->data : NULL,
                  .zero = given + (low ? 128 : 0),
                  .zeros = zero && itg_count(zero) > 1 ? zero->data : NULL,
                  .flip = low ? 0x80 : 0,
                  .out = call->out[0]->data,
                  .end = itg_finish_of(call, a->act, a->act_args, a->add_last),
                  .gelu = a->act == ITG_ACT_gelu};
  int64_t from = 0, to = m, first = 0, last = panels;
  if (a->n > m && panels >= 2 * (int64_t)parts) itg_share(panels, 1, part, parts, &first, &last);
  else itg_share(m, 1, part, parts, &from, &to);
  run(&t, from, to, first, last);
  return NULL;
}
