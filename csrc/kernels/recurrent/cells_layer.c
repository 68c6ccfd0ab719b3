// LSTM and GRU layers of one sequence, input product included. A step reads all recurrent weights
// from the L2 cache, which leaves the multipliers half idle. The input product of the next 16
// steps, which reuses each weight 16 times, fills the other half: a few of its rows are computed
// with every block of units.
#include "cells_core.h"

typedef struct ahead {  // the part of the next input product that is computed with a block
  const float *w, *x;   // weights [k][16], inputs [k][16 steps]
  float *made;          // gates [16 steps][16 units]
  const float *bias;    // initial sums; NULL: those in `made`
  int64_t n;            // rows of k
} ahead;

#if defined(ISA_avx512)
// Computes the recurrent product of a block and part of the next input product, interleaved.
// Returns how many units of the state were multiplied.
INLINE int64_t along(const block *b, int gates, int64_t k, sums s, ahead a) {
  const int per =
      ITG_AHEAD /
      gates;  // units of the state per row of the product: as many instructions for both
  vf t[ITG_AHEAD];
  const float *r = (const float *)b->r + k * gates * ITG_UNITS, *h = b->before;
  for (int m = 0; m < ITG_AHEAD; m++) t[m] = vload(a.bias ? a.bias : a.made + m * ITG_UNITS);
  if (h)
    for (; a.n > 0 && k + per <= b->hidden; a.n--, a.w += ITG_UNITS, a.x += ITG_AHEAD) {
      const vf w = vload(a.w);
#pragma GCC unroll 8
      for (int j = 0; j < per; j++, k++, r += gates * ITG_UNITS) {
        const vf state = vset(h[k]);
        for (int g = 0; g < gates; g++) {
          s[g][0][0] = vfma(vload(r + g * ITG_UNITS), state, s[g][0][0]);
          t[j * gates + g] = vfma(vset(a.x[j * gates + g]), w, t[j * gates + g]);
        }
      }
      for (int m = per * gates; m < ITG_AHEAD; m++) t[m] = vfma(vset(a.x[m]), w, t[m]);
    }
  for (; a.n > 0; a.n--, a.w += ITG_UNITS, a.x += ITG_AHEAD) {
    const vf w = vload(a.w);
    for (int m = 0; m < ITG_AHEAD; m++) t[m] = vfma(vset(a.x[m]), w, t[m]);
  }
  for (int m = 0; m < ITG_AHEAD; m++) vstore(a.made + m * ITG_UNITS, t[m]);
  return k;
}
#else
enum {
  SOME = VL > 1 ? 4 : 2,  // steps at a time; registers allow no more
};
INLINE int64_t along(const block *b, int gates, int64_t k, sums s, ahead a) {
  for (int first = 0; first < ITG_AHEAD; first += SOME) {
    vf t[SOME][PER];
    float *made = a.made + first * ITG_UNITS;
    for (int m = 0; m < SOME; m++)
      for (int v = 0; v < PER; v++)
        t[m][v] = vload((a.bias ? a.bias : made + m * ITG_UNITS) + v * VL);
    for (int64_t i = 0; i < a.n; i++)
      for (int m = 0; m < SOME; m++)
        for (int v = 0; v < PER; v++)
          t[m][v] = vfma(vset(a.x[i * ITG_AHEAD + first + m]), vload(a.w + i * ITG_UNITS + v * VL),
                         t[m][v]);
    for (int m = 0; m < SOME; m++)
      for (int v = 0; v < PER; v++) vstore(made + m * ITG_UNITS + v * VL, t[m][v]);
  }
  return k;
}
#endif

typedef struct plan {  // the work of one share
  const itg_cells *s;
  const float *x, *w, *bias;
  int64_t from, to;  // its blocks
  float *turned;     // [directions][deep][16 steps]
} plan;

static const float zeros[ITG_UNITS];

// Computes rows [at, end) of the next input product for the blocks of a thread, counted over all
// their gates; `made` belongs to the thread.
INLINE int64_t advance(const plan *p, const block *b, int gates, int64_t k, sums s, int64_t at,
                       int64_t end, float *made) {
  const int64_t deep = p->s->deep;
  while (at < end) {
    const int64_t panel = at / deep, row = at % deep, gate = p->from * gates + panel,
                  d = gate / (gates * p->s->blocks);
    const ahead a = {
        .w = p->w + (gate * deep + row) * ITG_UNITS,
        .x = p->turned + (d * deep + row) * ITG_AHEAD,
        .made = made + panel * ITG_AHEAD * ITG_UNITS,
        .bias = row       ? NULL
                : p->bias ? p->bias + gate * ITG_UNITS
                          : zeros,
        .n = deep - row < end - at ? deep - row : end - at,
    };
    k = along(b, gates, k, s, a);
    at += a.n;
  }
  return k;
}

// Transposes the inputs of 16 steps from `first` on, in the order of each direction; past the last
// step they are zeros.
static void turn_inputs(const plan *p, int64_t first) {
  const int64_t deep = p->s->deep, steps = p->s->steps;
  for (int64_t d = p->from / p->s->blocks; d < p->s->directions && d * p->s->blocks < p->to; d++)
    for (int m = 0; m < ITG_AHEAD; m++) {
      const int64_t now = first + m, time = goes_back(p->s, d) ? steps - 1 - now : now;
      float *to = p->turned + d * deep * ITG_AHEAD + m;
      for (int64_t k = 0; k < deep; k++)
        to[k * ITG_AHEAD] = now < steps ? p->x[time * deep + k] : 0;
    }
}

INLINE itg_words step(const itg_call *call, int gates, uint32_t part, uint32_t parts) {
  static const block nobody;
  itg_cells s;
  itg_words wrong = itg_layer_of(call, gates, &s);
  if (wrong) return wrong;
  const int64_t now = call->round, phase = now % ITG_AHEAD, size = gates * ITG_AHEAD * ITG_UNITS;
  const int64_t all = s.directions * s.blocks * size;
  float *scratch = call->scratch,
        *turned = scratch + 2 * all + part * s.directions * s.deep * ITG_AHEAD;
  const itg_tensor *bias = itg_input(call, 3);
  plan p = {.s = &s,
            .x = call->in[0]->data,
            .w = call->in[1]->data,
            .bias = bias ? bias->data : NULL,
            .turned = turned};
  itg_share(s.directions * s.blocks, 1, part, parts, &p.from, &p.to);
  const int64_t count = p.to - p.from, rows = count * gates * s.deep;
  float *made = scratch + now / ITG_AHEAD % 2 * all + p.from * size;
  float *next = scratch + (now / ITG_AHEAD + 1) % 2 * all + p.from * size;
  sums none;
  if (!now) {
    turn_inputs(&p, 0);
    advance(&p, &nobody, gates, 0, none, 0, rows, made);
  }
  const bool more = now - phase + ITG_AHEAD < s.steps;  // a later product is due
  if (more && !phase) turn_inputs(&p, ITG_AHEAD + now);
  const int64_t each = (gates * s.deep + ITG_AHEAD - 1) / ITG_AHEAD;
  for (int64_t n = p.from; n < p.to; n++) {
    const int64_t i = turn(n, p.from, p.to, now), at = (phase * count + n - p.from) * each;
    block b = block_at(&s, call, gates, i, now);
    b.gates = made + (i - p.from) * size + phase * ITG_UNITS;
    b.gate = ITG_AHEAD * ITG_UNITS;
    sums sum;
    start_sums(&b, gates, 1, 0, sum);
    int64_t k = 0;
    if (more && at < rows)
      k = advance(&p, &b, gates, 0, sum, at, at + each < rows ? at + each : rows, next);
    multiply(&b, ITG_F32, gates, 1, 0, k, sum);
    finish(&b, gates, 1, 0, sum);
    keep_last(&s, call, &b, i, now);
  }
  return NULL;
}

ITG_FN(lstm_layer, f32) { return step(call, ITG_LSTM_GATES, part, parts); }
ITG_FN(gru_layer, f32) { return step(call, ITG_GRU_GATES, part, parts); }
