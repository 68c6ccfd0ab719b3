// Products of a few rows with a row-major matrix of weights, added to the result:
//   out[i][j] += sum over q < k of rows[i][q] * w[j * k + q]   for i < m, j < n
// f32 uses vectors: the register tile is two rows by four rows of the matrix. f64 serves all other
// floats.
#pragma once
#include "vec.h"

// sums[i][j] = x[i] . w[j] for `rows` inputs, which is a constant wherever this is inlined.
INLINE void dots_tile(int rows, const float *const *x, const float *const *w, int64_t n,
                      float sums[2][4]) {
  vf acc[2][4];
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < 4; j++) acc[i][j] = vset(0.f);
  int64_t k = 0;
  for (; k + VL <= n; k += VL)
    for (int j = 0; j < 4; j++) {
      const vf v = vload(w[j] + k);
      for (int i = 0; i < rows; i++) acc[i][j] = vfma(vload(x[i] + k), v, acc[i][j]);
    }
  if (k < n)
    for (int j = 0; j < 4; j++) {
      const vf v = vloadn(w[j] + k, n - k);
      for (int i = 0; i < rows; i++) acc[i][j] = vfma(vloadn(x[i] + k, n - k), v, acc[i][j]);
    }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < 4; j++) sums[i][j] = vsum(acc[i][j]);
}

static inline void dots_f32(const float *const *rows, int64_t m, const float *w, int64_t n,
                            int64_t k, float *const *out) {
  float sums[2][4] = {{0}};
  for (int64_t j = 0; j < n; j += 4) {
    const float *four[4];
    for (int64_t q = 0; q < 4; q++)
      four[q] = w + (j + q < n ? j + q : j) * k;  // a missing row repeats another
    for (int64_t i = 0; i < m; i += 2) {
      if (i + 1 < m) dots_tile(2, rows + i, four, k, sums);
      else dots_tile(1, rows + i, four, k, sums);
      for (int64_t p = 0; p < 2 && i + p < m; p++)
        for (int64_t q = 0; q < 4 && j + q < n; q++) out[i + p][j + q] += sums[p][q];
    }
  }
}

static inline void dots_f64(const double *const *rows, int64_t m, const double *w, int64_t n,
                            int64_t k, double *const *out) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t q = 0; q < k; q++) sum += rows[i][q] * w[j * k + q];
      out[i][j] += sum;
    }
}
