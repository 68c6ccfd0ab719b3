// Product of f32 rows with a packed matrix of 4- or 8-bit integers (weight-only quantisation),
// compiled once per ISA. Up to ITG_WGEMM_FEW rows: weights are decoded in registers, and the
// product takes the time of reading them. More rows: a few panels of weights are decoded to f32 in
// scratch memory and multiplied by the register tile.
#include "wgemm.h"
#include "vec.h"

enum { PARTS = ITG_PANEL / VL };
#if defined(ISA_avx512)
enum { PANELS = 4 };  // of a tile with few rows
#else
enum { PANELS = 2 };
#endif

// ---- decoding -----------------------------------------------------------------------------------
#if defined(ISA_avx512)
INLINE vf from_bytes(const uint8_t *p) {
  return vitof(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE vi pairs(const uint8_t *p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
INLINE vf nibble(vi v) {  // looks up the number of the low four bits
  return _mm512_permutexvar_ps(
      v, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
}
#elif defined(ISA_avx2)
INLINE vf from_bytes(const uint8_t *p) {
  return vitof(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vi pairs(const uint8_t *p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
INLINE vf nibble(vi v) { return vitof(visub(viand(v, viset(15)), viset(8))); }
#elif defined(ISA_neon)
INLINE vi pairs(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)))));
}
INLINE vf from_bytes(const uint8_t *p) {  // the sign goes to the top and comes back
  return vitof(visar(vishl(pairs(p), 24), 24));
}
INLINE vf nibble(vi v) { return vitof(visub(viand(v, viset(15)), viset(8))); }
#elif defined(ISA_rvv)
INLINE vi pairs(const uint8_t *p) { return vec_to(*(const vec_u8_any *)p, vi); }
INLINE vf from_bytes(const uint8_t *p) { return vec_to(vec_to(*(const vec_i8_any *)p, vm), vf); }
INLINE vf nibble(vi v) { return vitof(visub(viand(v, viset(15)), viset(8))); }
#else
INLINE vf from_bytes(const uint8_t *p) { return (float)*(const int8_t *)p; }
INLINE vi pairs(const uint8_t *p) { return *p; }
INLINE vf nibble(vi v) { return (float)(int)(v & 15) - 8; }
#endif

// ---- few rows -----------------------------------------------------------------------------------
// sum[m][v] += x * w over k in [from, to), M rows by N vectors. `w` is the start of the panel,
// `row` the floats between rows of x.
INLINE void block_sums(const int M, const int N, const int FOUR, const float *x, int64_t row,
                       const uint8_t *w, int64_t panel, int64_t from, int64_t to,
                       vf (*sum)[PANELS * PARTS]) {
  if (!FOUR) {
    for (int64_t k = from; k < to; k++)
      FOR_UNROLLED (16, int v = 0; v < N; v++) {
        const vf y = from_bytes(w + v / PARTS * panel + k * ITG_PANEL + v % PARTS * VL);
        FOR_UNROLLED (16, int m = 0; m < M; m++)
          sum[m][v] = vfma(vset(x[m * row + k]), y, sum[m][v]);
      }
    return;
  }
  for (int64_t k = from; k < to; k += 2)
    FOR_UNROLLED (16, int v = 0; v < N; v++) {
      const vi both = pairs(w + v / PARTS * panel + k / 2 * ITG_PANEL + v % PARTS * VL);
      const vf one = nibble(both), two = nibble(vishr(both, 4));
      FOR_UNROLLED (16, int m = 0; m < M; m++)
        sum[m][v] = vfma(vset(x[m * row + k]), one, sum[m][v]);
      if (k + 1 < to)
        FOR_UNROLLED (16, int m = 0; m < M; m++)
          sum[m][v] = vfma(vset(x[m * row + k + 1]), two, sum[m][v]);
    }
}

// Multiplies rows [from, from + M) with `count` panels from `first` on over the whole depth. `y`
// receives M x count x 16 sums.
INLINE void few(const int M, const int V, const int FOUR, const itg_wgemm *g, const float *x,
                int64_t first, const float *sums, float *y) {
  const int N = V * PARTS;
  const uint8_t *w = g->w + first * g->panel;
  for (int64_t b = 0; b < g->blocks; b++) {
    const int64_t from = b * g->block, to = from + g->block < g->k ? from + g->block : g->k;
    vf sum[M][PANELS * PARTS];
    FOR_UNROLLED (16, int m = 0; m < M; m++)
      FOR_UNROLLED (16, int v = 0; v < N; v++) sum[m][v] = vset(0.f);
    block_sums(M, N, FOUR, x, g->k, w, g->panel, from, to, sum);
    FOR_UNROLLED (16, int v = 0; v < N; v++) {
      const int64_t at = ((first + v / PARTS) * g->blocks + b) * ITG_PANEL + v % PARTS * VL;
      const vf scale = vload(g->scale + at);
      FOR_UNROLLED (16, int m = 0; m < M; m++) {
        float *to_y = y + (m * V + v / PARTS) * ITG_PANEL + v % PARTS * VL;
        vf s = sum[m][v];
        if (g->zero) s = vsub(s, vmul(vload(g->zero + at), vset(sums[m * g->blocks + b])));
        vstore(to_y, b ? vfma(s, scale, vload(to_y)) : vmul(s, scale));
      }
    }
  }
}

#define FEW(M, V, F)                                                             \
  static void few_##M##x##V##_##F(const itg_wgemm *g, const float *x, int64_t p, \
                                  const float *sums, float *y) {                 \
    few(M, V, F, g, x, p, sums, y);                                              \
  }
#if defined(ISA_avx512)
#define EACH(T, F) \
  T(1, 1, F)       \
  T(1, 2, F)       \
  T(1, 3, F)       \
  T(1, 4, F)       \
  T(2, 1, F)       \
  T(2, 2, F)       \
  T(2, 3, F)       \
  T(2, 4, F) T(3, 1, F) T(3, 2, F) T(3, 3, F) T(3, 4, F) T(4, 1, F) T(4, 2, F) T(4, 3, F) T(4, 4, F)
#else
#define EACH(T, F) \
  T(1, 1, F) T(1, 2, F) T(2, 1, F) T(2, 2, F) T(3, 1, F) T(3, 2, F) T(4, 1, F) T(4, 2, F)
#endif
EACH(FEW, 0)
EACH(FEW, 1)
typedef void (*few_fn)(const itg_wgemm *g, const float *x, int64_t p, const float *sums, float *y);
#define ENTRY(M, V, F) [M - 1][V - 1] = few_##M##x##V##_##F,
static const few_fn few_table[2][ITG_WGEMM_FEW][PANELS] = {{EACH(ENTRY, 0)}, {EACH(ENTRY, 1)}};

// Epilogue: bias, residual and activation of `columns` sums of one row, stored to `out`.
static void finish(const itg_finish *end, float *y, int64_t at, int64_t column, int64_t columns,
                   float *out) {
  const float *residual = end->residual ? (const float *)end->residual + at : NULL;
  for (int64_t c = 0; c < columns; c++) {
    float one = y[c] + (end->bias ? end->bias[column + c] : 0.f);
    if (residual && !end->add_last) one += residual[c];
    y[c] = one < end->lo ? end->lo : one > end->hi ? end->hi : one;
  }
  if (end->act) itg_bend(end, y, columns, column, columns);
  for (int64_t c = 0; c < columns; c++)
    out[at + c] = residual && end->add_last ? y[c] + residual[c] : y[c];
}

static void run_few(const itg_wgemm *g, int64_t first, int64_t last, float *sums) {
  if (g->zero)
    for (int64_t i = 0; i < g->m * g->blocks; i++) {
      const int64_t from = i % g->blocks * g->block,
                    to = from + g->block < g->k ? from + g->block : g->k;
      float sum = 0;
      for (int64_t k = from; k < to; k++) sum += g->x[i / g->blocks * g->k + k];
      sums[i] = sum;
    }
  for (int64_t p = first; p < last; p += PANELS) {
    const int64_t count = last - p < PANELS ? last - p : PANELS, column = p * ITG_PANEL;
    const int64_t columns = column + count * ITG_PANEL < g->n ? count * ITG_PANEL : g->n - column;
    float y[ITG_WGEMM_FEW * PANELS * ITG_PANEL];
    few_table[g->bits == 4][g->m - 1][count - 1](g, g->x, p, sums, y);
    for (int64_t m = 0; m < g->m; m++)
      finish(&g->end, y + m * count * ITG_PANEL, m * g->n + column, column, columns, g->out);
  }
}

// ---- many rows ----------------------------------------------------------------------------------
INLINE void put(float *to, vf q, vf scale, vf zero, bool zeros) {
  vstore(to, vmul(zeros ? vsub(q, zero) : q, scale));
}

static void to_floats(const itg_wgemm *g, int64_t p, float *to) {  // decodes panel p
  const uint8_t *w = g->w + p * g->panel;
  for (int64_t b = 0; b < g->blocks; b++) {
    const int64_t from = b * g->block, end = from + g->block < g->k ? from + g->block : g->k;
    for (int v = 0; v < PARTS; v++) {
      const int64_t at = (p * g->blocks + b) * ITG_PANEL + v * VL;
      const vf scale = vload(g->scale + at), zero = g->zero ? vload(g->zero + at) : vset(0.f);
      const bool zeros = g->zero != NULL;
      float *y = to + v * VL;
      if (g->bits == 8)
        for (int64_t k = from; k < end; k++)
          put(y + k * ITG_PANEL, from_bytes(w + k * ITG_PANEL + v * VL), scale, zero, zeros);
      else
        for (int64_t k = from; k < end; k += 2) {
          const vi both = pairs(w + k / 2 * ITG_PANEL + v * VL);
          put(y + k * ITG_PANEL, nibble(both), scale, zero, zeros);
          if (k + 1 < end) put(y + (k + 1) * ITG_PANEL, nibble(vishr(both, 4)), scale, zero, zeros);
        }
    }
  }
}

static void run_many(const itg_wgemm *g, int64_t from, int64_t to, int64_t first, int64_t last,
                     float *scratch) {
  const int64_t most = itg_wgemm_panels(g->k);
  for (int64_t p = first; p < last; p += most) {
    const int64_t count = last - p < most ? last - p : most, column = p * ITG_PANEL;
    for (int64_t i = 0; i < count; i++) to_floats(g, p + i, scratch + i * g->k * ITG_PANEL);
    const int64_t columns = column + count * ITG_PANEL < g->n ? count * ITG_PANEL : g->n - column;
    const itg_product_task t = {g->x, g->k, g->k, scratch, columns, column, g->out, g->n, g->end};
    itg_product(&t, from, to, 0, count);
  }
}

ITG_FN(wgemm, f32) {
  const itg_attrs_wgemm *a = call->attrs;
  itg_wgemm g;
  itg_tensor out;
  itg_wgemm_of(call, &g, &out);
  if (itg_empty(&out)) return NULL;
  g.out = call->out[0]->data;
  g.end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  float *const scratch = (float *)((char *)call->scratch + itg_wgemm_scratch(&g) * part);
  int64_t from = 0, to = g.m, first = 0, last = g.panels;
  if (g.panels >= (int64_t)parts || g.m <= ITG_WGEMM_FEW)
    itg_share(g.panels, 1, part, parts, &first, &last);
  else itg_share(g.m, 1, part, parts, &from, &to);
  if (first >= last || from >= to) return NULL;
  if (g.m <= ITG_WGEMM_FEW) run_few(&g, first, last, scratch);
  else run_many(&g, from, to, first, last, scratch);
  return NULL;
}
