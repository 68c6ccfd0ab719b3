// lstm, gru and rnn on f32: gate products are dots of contiguous rows, two inputs by four weights at a time.
#include "recurrent.h"
#include "vmath.h"

typedef float real;

// sums[i][j] = x[i] . w[j] for `rows` inputs, which is a constant wherever this is inlined.
static inline __attribute__((always_inline)) void tile(int rows, const float *const *x, const float *const *w, int64_t n,
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

static void dots(const float *const *rows, int64_t m, const float *w, int64_t n, int64_t k, float *const *out) {
  float sums[2][4] = {{0}};
  for (int64_t j = 0; j < n; j += 4) {
    const float *four[4];
    for (int64_t q = 0; q < 4; q++) four[q] = w + (j + q < n ? j + q : j) * k;  // a missing row repeats another
    for (int64_t i = 0; i < m; i += 2) {
      if (i + 1 < m) tile(2, rows + i, four, k, sums);
      else tile(1, rows + i, four, k, sums);
      for (int64_t p = 0; p < 2 && i + p < m; p++)
        for (int64_t q = 0; q < 4 && j + q < n; q++) out[i + p][j + q] += sums[p][q];
    }
  }
}

static vf apply(const itg_activation *a, vf x) {
  const vf alpha = vset((float)a->alpha), beta = vset((float)a->beta), nought = vset(0.f), one = vset(1.f);
  switch (a->function) {
    case ITG_SIGMOID: return v_sigmoid(x);
    case ITG_TANH: return v_tanh(x);
    case ITG_RELU: return vmax(nought, x);
    case ITG_AFFINE: return vadd(vmul(alpha, x), beta);
    case ITG_LEAKY_RELU: return vselect(vge(x, nought), x, vmul(alpha, x));
    case ITG_THRESHOLDED_RELU: return vselect(vgt(x, alpha), x, nought);
    case ITG_SCALED_TANH: return vmul(alpha, v_tanh(vmul(beta, x)));
    case ITG_HARD_SIGMOID: return vmin(one, vmax(nought, vadd(vmul(alpha, x), beta)));
    case ITG_ELU: return vselect(vge(x, nought), x, vmul(alpha, v_expm1(x)));
    case ITG_SOFTSIGN: return vdiv(x, vadd(one, vabs(x)));
    default: return v_softplus(x);
  }
}

static void activate(const itg_activation *a, double clip, float *x, int64_t n) {
  const vf top = vset(clip > 0 ? (float)clip : INFINITY), bottom = vset(clip > 0 ? (float)-clip : -INFINITY);
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vstore(x + i, apply(a, vmin(top, vmax(bottom, vload(x + i)))));
  if (i < n) vstoren(x + i, n - i, apply(a, vmin(top, vmax(bottom, vloadn(x + i, n - i)))));
}

#include "recurrent_core.h"

static itg_words recurrent(const itg_call *call, enum itg_rnn_kind kind, uint32_t part, uint32_t parts) {
  itg_rnn s;
  itg_words wrong = itg_rnn_of(call, kind, &s);
  if (wrong || !s.batch) return wrong;
#define DATA(t) ((t) ? (t)->data : NULL)
  const arrays t = {.x = s.x->data, .w = s.w->data, .r = s.r->data, .b = DATA(s.b), .h = DATA(s.h), .c = DATA(s.c),
                    .p = DATA(s.p), .y = call->out[0]->data, .y_h = call->out[1]->data,
                    .y_c = kind == ITG_LSTM ? call->out[2]->data : NULL};
  float *scratch = (float *)call->scratch + part * itg_rnn_rows(&s) * (s.gates + 1) * s.hidden;
  return run(&s, &t, scratch, part, parts);
}

ITG_FN(lstm, f32) { return recurrent(call, ITG_LSTM, part, parts); }
ITG_FN(gru, f32) { return recurrent(call, ITG_GRU, part, parts); }
ITG_FN(rnn, f32) { return recurrent(call, ITG_RNN, part, parts); }
