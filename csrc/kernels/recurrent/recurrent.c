// lstm, gru and rnn on f32.
#include "gemm/dot_products.h"
#include "recurrent.h"
#include "vmath.h"

typedef float real;
#define dots dots_f32

static vf apply(const itg_activation *a, vf x) {
  const vf alpha = vset((float)a->alpha), beta = vset((float)a->beta), nought = vset(0.f),
           one = vset(1.f);
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
  const vf top = vset(clip > 0 ? (float)clip : INFINITY),
           bottom = vset(clip > 0 ? (float)-clip : -INFINITY);
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vstore(x + i, apply(a, vmin(top, vmax(bottom, vload(x + i)))));
  if (i < n) vstoren(x + i, n - i, apply(a, vmin(top, vmax(bottom, vloadn(x + i, n - i)))));
}

#include "recurrent_core.h"

static itg_words recurrent(const itg_call *call, enum itg_rnn_kind kind, uint32_t part,
                           uint32_t parts) {
  itg_rnn s;
  itg_words wrong = itg_rnn_of(call, kind, &s);
  if (wrong || !s.batch) return wrong;
#define DATA(t) ((t) ? (t)->data : NULL)
  const arrays t = {.x = s.x->data,
                    .w = s.w->data,
                    .r = s.r->data,
                    .b = DATA(s.b),
                    .h = DATA(s.h),
                    .c = DATA(s.c),
                    .p = DATA(s.p),
                    .y = call->out[0]->data,
                    .y_h = call->out[1]->data,
                    .y_c = kind == ITG_LSTM ? call->out[2]->data : NULL};
  float *scratch = (float *)call->scratch + part * itg_rnn_rows(&s) * (s.gates + 1) * s.hidden;
  return run(&s, &t, scratch, part, parts);
}

ITG_FN(lstm, f32) { return recurrent(call, ITG_LSTM, part, parts); }
ITG_FN(gru, f32) { return recurrent(call, ITG_GRU, part, parts); }
ITG_FN(rnn, f32) { return recurrent(call, ITG_RNN, part, parts); }
