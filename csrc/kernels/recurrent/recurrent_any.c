// lstm, gru and rnn of floats other than f32: operands are converted to double in scratch memory.
#include "gemm/dot_products.h"
#include "recurrent.h"

typedef double real;
#define dots dots_f64

static double apply(const itg_activation *a, double x) {
  switch (a->function) {
    case ITG_SIGMOID: return 1 / (1 + exp(-x));
    case ITG_TANH: return tanh(x);
    case ITG_RELU: return x > 0 ? x : 0;
    case ITG_AFFINE: return a->alpha * x + a->beta;
    case ITG_LEAKY_RELU: return x >= 0 ? x : a->alpha * x;
    case ITG_THRESHOLDED_RELU: return x > a->alpha ? x : 0;
    case ITG_SCALED_TANH: return a->alpha * tanh(a->beta * x);
    case ITG_HARD_SIGMOID: return fmin(1, fmax(0, a->alpha * x + a->beta));
    case ITG_ELU: return x >= 0 ? x : a->alpha * expm1(x);
    case ITG_SOFTSIGN: return x / (1 + fabs(x));
    default: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
  }
}

static void activate(const itg_activation *a, double clip, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = apply(a, clip > 0 ? fmin(clip, fmax(-clip, x[i])) : x[i]);
}

#include "recurrent_core.h"

static double *widened(const itg_tensor *t, double **free) {
  if (!t) return NULL;
  double *out = *free;
  const int64_t n = itg_count(t);
  for (int64_t i = 0; i < n; i++) out[i] = itg_load_f64(t->dtype, t->data, i);
  *free += n;
  return out;
}

static itg_words recurrent(const itg_call *call, enum itg_rnn_kind kind, uint32_t part,
                           uint32_t parts) {
  if (part) return NULL;  // the conversion is most of the work, so one part does it all
  itg_rnn s;
  itg_words wrong = itg_rnn_of(call, kind, &s);
  if (wrong || !s.batch) return wrong;
  double *free = (double *)call->scratch + itg_rnn_rows(&s) * (s.gates + 1) * s.hidden,
         *out[3] = {NULL, NULL, NULL};
  arrays t = {.x = widened(s.x, &free),
              .w = widened(s.w, &free),
              .r = widened(s.r, &free),
              .b = widened(s.b, &free),
              .h = widened(s.h, &free),
              .c = widened(s.c, &free),
              .p = widened(s.p, &free)};
  for (uint32_t i = 0; i < call->n_out; i++) {
    out[i] = free;
    free += itg_count(call->out[i]);
  }
  t.y = out[0];
  t.y_h = out[1];
  t.y_c = out[2];
  wrong = run(&s, &t, call->scratch, 0, 1);
  if (wrong) return wrong;
  for (uint32_t i = 0; i < call->n_out; i++)
    for (int64_t k = itg_count(call->out[i]); k-- > 0;)
      itg_store_f64(call->out[i]->dtype, call->out[i]->data, k, out[i][k]);
  return NULL;
}

#define KINDS(type)                                                     \
  ITG_FN(lstm, type) { return recurrent(call, ITG_LSTM, part, parts); } \
  ITG_FN(gru, type) { return recurrent(call, ITG_GRU, part, parts); }   \
  ITG_FN(rnn, type) { return recurrent(call, ITG_RNN, part, parts); }
KINDS(f64)
KINDS(f16)
KINDS(bf16)
