// Rotary position embedding and gated activations (GLU, SwiGLU, ...) of f32 rows.
#include <string.h>

#include "activate.h"
#include "infer.h"
#include "vec.h"

// ---- rotary embedding ---------------------------------------------------------------------------
static void turn_halves(const float *x, const float *cosine, const float *sine, float *y,
                        int64_t n) {
  for (int64_t i = 0; i < n; i += VL) {
    const int64_t w = n - i < VL ? n - i : VL;
    const vf c = w < VL ? vloadn(cosine + i, w) : vload(cosine + i),
             s = w < VL ? vloadn(sine + i, w) : vload(sine + i);
    const vf a = w < VL ? vloadn(x + i, w) : vload(x + i),
             b = w < VL ? vloadn(x + n + i, w) : vload(x + n + i);
    const vf real = vsub(vmul(c, a), vmul(s, b)), imaginary = vadd(vmul(s, a), vmul(c, b));
    if (w < VL) {
      vstoren(y + i, w, real);
      vstoren(y + n + i, w, imaginary);
    } else {
      vstore(y + i, real);
      vstore(y + n + i, imaginary);
    }
  }
}

static void turn_neighbours(const float *x, const float *cosine, const float *sine, float *y,
                            int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = cosine[i] * a - sine[i] * b;
    y[2 * i + 1] = sine[i] * a + cosine[i] * b;
  }
}

ITG_FN(rotary_embedding, f32) {
  const itg_attrs_rotary_embedding *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *angles = call->in[1];
  if (itg_empty(x)) return NULL;
  const int last = x->rank - 1;
  const int64_t size = x->shape[last], n = angles->shape[angles->rank - 1];
  int64_t step[ITG_MAX_RANK], turn[ITG_MAX_RANK], row, end, at = 0;
  itg_share(itg_count_range(x, 0, last), 1, part, parts, &row, &end);
  for (int64_t axis = last - 1, rest = row; axis >= 0; rest /= x->shape[axis], axis--) {
    const int64_t own = axis - (x->rank - angles->rank);
    step[axis] = own < 0 || angles->shape[own] == 1
                     ? 0
                     : itg_count_range(angles, (int)own + 1, angles->rank);
    turn[axis] = rest % x->shape[axis];
    at += turn[axis] * step[axis];
  }
  for (; row < end; row++) {
    const float *from = (const float *)x->data + row * size;
    const float *cosine = (const float *)angles->data + at,
                *sine = (const float *)call->in[2]->data + at;
    float *to = (float *)call->out[0]->data + row * size;
    (attrs->interleaved ? turn_neighbours : turn_halves)(from, cosine, sine, to, n);
    memcpy(to + 2 * n, from + 2 * n, (size_t)(size - 2 * n) * sizeof *to);
    for (int axis = last - 1; axis >= 0; axis--) {
      at += step[axis];
      if (++turn[axis] < x->shape[axis]) break;
      at -= turn[axis] * step[axis];
      turn[axis] = 0;
    }
  }
  return NULL;
}

// ---- gated activations --------------------------------------------------------------------------
enum { STRETCH = 1024 };  // floats of a block: they stay in the L1 cache for the product

ITG_FN(glu, f32) {
  static const int64_t acts[] = {ITG_ACT_sigmoid,   ITG_ACT_swish, ITG_ACT_gelu,
                                 ITG_ACT_gelu_tanh, ITG_ACT_relu,  ITG_ACT_tanh};
  const itg_attrs_glu *a = call->attrs;
  const itg_tensor *x = call->in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int axis = itg_axis(a->axis, x->rank);
  const int64_t half = itg_count_range(out, axis, out->rank),
                stretches = (half + STRETCH - 1) / STRETCH;
  const itg_act_fn act = itg_act(acts[a->act]);
  const double args[2] = {1, 0};
  int64_t unit, end;
  itg_share(itg_count_range(out, 0, axis) * stretches, 1, part, parts, &unit, &end);
  for (; unit < end; unit++) {
    const int64_t from = unit % stretches * STRETCH,
                  n = half - from < STRETCH ? half - from : STRETCH;
    const float *first = (const float *)x->data + unit / stretches * 2 * half + from,
                *second = first + half;
    const float *gate = a->gate_first ? first : second, *by = a->gate_first ? second : first;
    float *y = (float *)out->data + unit / stretches * half + from;
    memcpy(y, gate, (size_t)n * sizeof *y);
    if (act) act(y, n, args);
    else
      for (int64_t i = 0; i < n; i++) y[i] = y[i] > 0 ? y[i] : 0;
    for (int64_t i = 0; i < n; i++) y[i] *= by[i];
  }
  return NULL;
}
