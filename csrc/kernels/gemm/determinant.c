// Determinants, by elimination with the largest pivot of each column.
#include "infer.h"

itg_words itg_infer_det(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 1);
  const itg_tensor *x = call->in[0];
  REFUSE(!itg_is_wide_float(x->dtype), "the data must be floats");
  REFUSE(x->rank < 2 || x->shape[x->rank - 1] != x->shape[x->rank - 2],
         "square matrices are needed");
  itg_set_type(out, x->dtype, x->rank - 2);
  for (int i = 0; i < out->rank; i++) out->shape[i] = x->shape[i];
  return NULL;
}

uint64_t itg_scratch_det(const itg_call *call, uint32_t parts) {
  const itg_tensor *x = call->in[0];
  return itg_empty(x) ? 0
                      : (uint64_t)itg_count_range(x, x->rank - 2, x->rank) * parts * sizeof(double);
}

static double determinant(double *a, int64_t n) {
  double product = 1;
  for (int64_t k = 0; k < n; k++) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; i++)
      if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
    if (a[pivot * n + k] == 0) return 0;
    for (int64_t j = k; j < n && pivot != k; j++) {
      const double other = a[pivot * n + j];
      a[pivot * n + j] = a[k * n + j];
      a[k * n + j] = other;
    }
    product *= pivot == k ? a[k * n + k] : -a[k * n + k];
    for (int64_t i = k + 1; i < n; i++) {
      const double factor = a[i * n + k] / a[k * n + k];
      for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return product;
}

ITG_FN(det, any) {
  const itg_tensor *x = call->in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int64_t n = x->shape[x->rank - 1];
  double *a = (double *)call->scratch + part * n * n;
  int64_t i, end;
  itg_share(itg_count(out), 1, part, parts, &i, &end);
  for (; i < end; i++) {
    for (int64_t k = 0; k < n * n; k++) a[k] = itg_load_f64(x->dtype, x->data, i * n * n + k);
    itg_store_f64(x->dtype, out->data, i, determinant(a, n));
  }
  return NULL;
}
