// Small tiles whose epilogue overlaps the products of the next tile (software pipelining). Included
// by qtile.c with VNNI.
//
// The conversion of sums to bytes uses other execution ports than the products do, but it depends
// on the sums, and the products of the next tile are too many instructions away for out-of-order
// execution. So 12 sums (old[m][v]) are converted between the products of the next 12 (sum[m][v]):
// 24 registers of sums, up to 4 of weights, one of inputs.
enum {
  TILE_SUMS = 12,  // vectors of sums of a tile: M rows by N vectors
  STEPS = 4,       // groups of four along k between which the previous tile is converted
};
typedef enum {
  ENDS_SIGNED,
  ENDS_UNSIGNED,
  ENDS_RESIDUAL,
  ENDS_FLOATS,
  ENDS_TABLE,
  ENDS_LINES
} ending;

typedef struct last {  // the epilogue of the previous tile
  const float *scale;
  uint8_t *out;
  const itg_requantize *end;
  vq zero, most;  // most: the last entry of the table
  __mmask16 some[VECTORS];
  int64_t left;  // columns of the last vector
  int64_t at[TILE_SUMS];
} last;

INLINE void finish_one(const ending KIND, const int N, const int i, const last *l, vq sum) {
  vf y = vmul(vq_floats(sum), vload(l->scale + i % N * QL));
  const int64_t at = l->at[i / N] + i % N * QL;
  if (KIND == ENDS_FLOATS) {
    if (i % N < N - 1 || l->left == QL) vq_store_halves((float *)l->out + at, (vq)y);
    else put_few((float *)l->out + at, l->left, y);
    return;
  }
  if (KIND == ENDS_RESIDUAL)
    y = vadd(y, vq_residual(l->end, l->end->residual + at, l->some[i % N]));
  put_vector(vq_add(vq_rounded(y), l->zero), l->out + at, l->some[i % N], KIND != ENDS_UNSIGNED);
}

// The most common epilogue with a fused activation: i8 results of a piecewise linear table, no
// residual.
INLINE void finish_lines(const int N, const int n, const last *l, const span *s, const int64_t *at,
                         vq (*sum)[VECTORS]) {
#if defined(__AVX512VBMI__)
  vq y[4];
  FOR_UNROLLED (16, int i = 0; i < n * N; i++)
    y[i] = vq_add(vq_rounded(vmul(vq_floats(sum[i / N][i % N]), vload(l->scale + i % N * QL))),
                  l->zero);
  const vq left = vq_pack_numbers(y, n * N, l->most, 0),
           right = vq_pack_numbers(y, n * N, l->most, 1);
  put_bytes(N, n, l->out, at, s, vq_on_lines(left, right, l->end));
#else
  (void)N, (void)n, (void)l, (void)s, (void)at, (void)sum;
#endif
}

// The part of the previous tile's epilogue that runs after row m of step k. Without a table, 12
// vectors are spread evenly over the M rows of the four steps; with one, each step converts whole
// rows after its row 0.
INLINE void finish_piece(const ending KIND, const int N, const int k, const int m, const last *l,
                         const span *s, vq (*old)[VECTORS]) {
  const int M = TILE_SUMS / N, EACH = TILE_SUMS / STEPS, ROWS = N >= 3 ? 1 : 4 / N;
  if (KIND < ENDS_TABLE) {
    FOR_UNROLLED (16, int e = m * EACH / M; e < (m + 1) * EACH / M; e++)
      finish_one(KIND, N, k * EACH + e, l, old[(k * EACH + e) / N][(k * EACH + e) % N]);
  } else if (m == 0 && k * ROWS < M && KIND == ENDS_LINES) {
    finish_lines(N, ROWS, l, s, l->at + k * ROWS, old + k * ROWS);
  } else if (m == 0 && k * ROWS < M) {
    finish_group(N, ROWS, l->end, vq_end_of(l->end), s, l->out, l->at + k * ROWS,
                 (const vq(*)[VECTORS])old + k * ROWS);
  }
}

INLINE void pipeline(const int N, const int HALF, const ending KIND, const itg_qproduct *p,
                     const span *s, const itg_qrow *rows, int64_t n) {
  const int M = TILE_SUMS / N;
  const itg_qtap *tap, *end = p->taps + p->n_taps, first = p->taps[0];
  const itg_qtap rest = {first.x + STEPS * ITG_FOUR, first.w + STEPS * ITG_QROW,
                         first.fours - STEPS};
  const int64_t panel = p->panel;
  const vq flip = vq_flip(p);
  const uint8_t *row[TILE_SUMS], *b = s->b;
  last l = {.scale = s->scale,
            .out = p->out,
            .end = p->end,
            .zero = vq_set(p->end->zero),
            .left = s->columns - (N - 1) * QL,
            .most = vq_set16((short)(p->end->entries - 1))};
  if (KIND == ENDS_LINES) __asm__("" : "+m"(l));  // else GCC broadcasts the constants every time
  FOR_UNROLLED (16, int v = 0; v < N; v++) l.some[v] = s->some[v];
  FOR_UNROLLED (16, int m = 0; m < M; m++) row[m] = rows[m].x;
  vq sum[TILE_SUMS][VECTORS], old[TILE_SUMS][VECTORS];
  start(M, N, s, rows, sum);
  for (tap = p->taps; tap < end; tap++) sum_up(M, N, HALF, *tap, panel, flip, b, row, sum);
  for (int64_t i = 0;;) {
    FOR_UNROLLED (16, int m = 0; m < M; m++) {
      l.at[m] = rows[i + m].out + s->column;
      FOR_UNROLLED (16, int v = 0; v < N; v++) old[m][v] = sum[m][v];
    }
    const int64_t next = i + 2 * M <= n ? i + M : n - M;
    if (next <= i) break;
    i = next;
    FOR_UNROLLED (16, int m = 0; m < M; m++) row[m] = rows[i + m].x;
    start(M, N, s, rows + i, sum);
    FOR_UNROLLED (16, int k = 0; k < STEPS; k++) {
      vq_four y[VECTORS];
      FOR_UNROLLED (16, int v = 0; v < N; v++)
        y[v] = vq_weights(vq_load(b + first.w + k * ITG_QROW + v * panel));
      FOR_UNROLLED (16, int m = 0; m < M; m++) {
        const uint32_t in = four_at(row[m] + first.x + k * ITG_FOUR);
        add_products(N, HALF, sum[m], vq_inputs(vq_xor(vq_set((int32_t)in), flip)), y);
        finish_piece(KIND, N, k, m, &l, s, old);
      }
    }
    sum_up(M, N, HALF, rest, panel, flip, b, row, sum);
    for (tap = p->taps + 1; tap < end; tap++) sum_up(M, N, HALF, *tap, panel, flip, b, row, sum);
  }
  FOR_UNROLLED (16, int k = 0; k < STEPS; k++)
    FOR_UNROLLED (16, int m = 0; m < M; m++) finish_piece(KIND, N, k, m, &l, s, old);
}

#define PIPELINED(V, H, K)                                                                       \
  static void pipelined_##V##_##H##K(const itg_qproduct *p, const span *s, const itg_qrow *rows, \
                                     int64_t n) {                                                \
    pipeline(V, H, (ending)K, p, s, rows, n);                                                    \
  }
