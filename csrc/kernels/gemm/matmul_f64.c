// Matrix product of f64, compiled once per ISA: spectra of audio front ends, which ONNX files
// compute in double precision.
#include "matrices.h"
#include "tile.h"
#include "vec.h"

#if defined(ISA_avx512)
typedef __m512d vd;
enum { LANES = 8, ROWS = 8 };
#define dload(p) _mm512_loadu_pd(p)
#define dstore(p, v) _mm512_storeu_pd(p, v)
#define dset(x) _mm512_set1_pd(x)
#define dfma(a, b, c) _mm512_fmadd_pd(a, b, c)
#elif defined(ISA_avx2)
typedef __m256d vd;
enum { LANES = 4, ROWS = 4 };
#define dload(p) _mm256_loadu_pd(p)
#define dstore(p, v) _mm256_storeu_pd(p, v)
#define dset(x) _mm256_set1_pd(x)
#define dfma(a, b, c) _mm256_fmadd_pd(a, b, c)
#elif defined(ISA_rvv)
typedef double vd __attribute__((ext_vector_type(8)));
typedef double vd_any __attribute__((ext_vector_type(8), aligned(8), may_alias));
enum { LANES = 8, ROWS = 4 };
#define dload(p) (*(const vd_any *)(p))
#define dstore(p, v) (*(vd_any *)(p) = (v))
#define dset(x) ((vd)(double)(x))
#define dfma(a, b, c) __builtin_elementwise_fma(a, b, c)
#elif defined(ISA_neon) && !defined(ISA_armv7)
typedef float64x2_t vd;
enum { LANES = 2, ROWS = 4 };
#define dload(p) vld1q_f64(p)
#define dstore(p, v) vst1q_f64(p, v)
#define dset(x) vdupq_n_f64(x)
#define dfma(a, b, c) vfmaq_f64(c, a, b)
#else
typedef double vd;
enum { LANES = 1, ROWS = 4 };
#define dload(p) (*(p))
#define dstore(p, v) (*(p) = (v))
#define dset(x) (x)
#define dfma(a, b, c) ((a) * (b) + (c))
#endif
enum { VECTORS = 2, COLUMNS = VECTORS * LANES };

// `rows` x COLUMNS of the result, held in registers; inlined with constant sizes.
INLINE void tile_f64(int rows, const double *a, const double *b, int64_t k, int64_t n,
                     double *out) {
  vd sums[ROWS][VECTORS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < VECTORS; v++) sums[r][v] = dset(0.0);
  for (int64_t i = 0; i < k; i++) {
    vd right[VECTORS];
    for (int v = 0; v < VECTORS; v++) right[v] = dload(b + i * n + v * LANES);
    for (int r = 0; r < rows; r++) {
      const vd left = dset(a[r * k + i]);
      for (int v = 0; v < VECTORS; v++) sums[r][v] = dfma(left, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < VECTORS; v++) dstore(out + r * n + v * LANES, sums[r][v]);
}

// Rows 0 .. m of one matrix. Columns are the outer loop: the part of b that a column of tiles reads
// stays in the cache.
static void product(const double *a, const double *b, int64_t m, int64_t k, int64_t n,
                    double *out) {
  int64_t j = 0;
  for (; j + COLUMNS <= n; j += COLUMNS) {
    int64_t r = 0;
    for (; r + ROWS <= m; r += ROWS) tile_f64(ROWS, a + r * k, b + j, k, n, out + r * n + j);
    for (; r < m; r++) tile_f64(1, a + r * k, b + j, k, n, out + r * n + j);
  }
  for (; j < n; j++)
    for (int64_t r = 0; r < m; r++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++) sum += a[r * k + i] * b[i * n + j];
      out[r * n + j] = sum;
    }
}

ITG_FN(matmul, f64) {
  const itg_tensor *a = call->in[0], *b = call->in[1], *out = call->out[0];
  const matrices s = matrices_of(a, b);
  const int rank = out->rank - !s.vector_a - !s.vector_b;
  int64_t r, to;
  itg_share(itg_count_range(out, 0, rank) * s.m, 1, part, parts, &r, &to);
  while (r < to) {  // the rows of one matrix after another
    const int64_t batch = r / s.m, first = r % s.m;
    const int64_t rows = s.m - first < to - r ? s.m - first : to - r;
    const int64_t left = itg_matrix_at(a, s.vector_a ? 1 : 2, out, rank, batch) * s.m + first;
    const int64_t right = itg_matrix_at(b, s.vector_b ? 1 : 2, out, rank, batch) * s.k * s.n;
    product((const double *)a->data + left * s.k, (const double *)b->data + right, rows, s.k, s.n,
            (double *)out->data + r * s.n);
    r += rows;
  }
  return NULL;
}
