// LSTM and GRU steps with 8-bit recurrent weights, one time step per round. The previous state is
// quantised with one scale per batch entry; products use four bytes at a time; the new state is f32
// (cells_core.h).
#include "cells_core.h"
#include "int8/quantize_rows.h"
#include "int8/qvec.h"
#if defined(ISA_rvv)
#include "int8/qrvv.h"
#endif

enum { QUAD = 4 * ITG_UNITS };  // bytes of one gate and one group of four

typedef struct qblock {
  block b;
  const uint8_t *r;
  const uint8_t *state;  // rows of bytes, or NULL for zeros
  const float *state_scale, *scale;
  const int32_t *sums;
  int64_t row;  // bytes of a row of the state
} qblock;

// s += f32(r * state) * (scale of the state * scale of the column); `gates` and `rows` are
// constants where inlined.
INLINE void multiply_bytes(const qblock *q, int gates, int rows, int64_t row, sums s) {
  if (!q->state) return;
  const uint8_t *r = q->r, *h = q->state + row * q->row;
#if defined(ITG_QVECTORS) || defined(ISA_neon)
  vq sum[ITG_LSTM_GATES][ROWS][PER];
  for (int g = 0; g < gates; g++)
    for (int v = 0; v < PER; v++) {
      // The state's zero point is 128, so 128 times each column's sum is subtracted, unless
      // products are of signed bytes.
      const vq whole = vq_load(q->sums + g * ITG_UNITS + v * VL);
      const vi less = VQ_LESS ? viset(0) : visub(viset(0), vishl(whole, 7));
      for (int m = 0; m < rows; m++) sum[g][m][v] = less;
    }
  for (int64_t k = 0; k < q->row; k += 4, r += gates * QUAD)
    for (int m = 0; m < rows; m++) {
      int32_t four;
      memcpy(&four, h + m * q->row + k, sizeof four);
      const vq_four in = vq_inputs(vq_set(VQ_LESS ? four ^ (int32_t)0x80808080 : four));
      for (int g = 0; g < gates; g++)
        for (int v = 0; v < PER; v++)
          sum[g][m][v] = vq_dot(sum[g][m][v], in, vq_weights(vq_load(r + g * QUAD + v * QBYTES)));
    }
#define SUM(g, m, v) vq_floats(sum[g][m][v])
#elif defined(ISA_rvv)  // a block of 16 units is one vector
  vi sum[ITG_LSTM_GATES][ROWS][PER];
  for (int g = 0; g < gates; g++) {
    sum[g][0][0] = viset(0) - vishl(*(const vi_any *)(q->sums + g * ITG_UNITS), 7);
    for (int64_t k = 0; k < q->row; k += 4) {
      const uint8_t *const state = h + k;
      qr_sum_up(1, false, &state, r + (k / 4 * gates + g) * QUAD, 1, &sum[g][0][0]);
    }
  }
#define SUM(g, m, v) vitof(sum[g][m][v])
#else
  int32_t sum[ITG_LSTM_GATES][ROWS][PER];
  for (int g = 0; g < gates; g++)
    for (int v = 0; v < PER; v++) sum[g][0][v] = -128 * q->sums[g * ITG_UNITS + v];
  for (int64_t k = 0; k < q->row; k += 4, r += gates * QUAD)
    for (int g = 0; g < gates; g++)
      for (int v = 0; v < PER; v++)
        for (int i = 0; i < 4; i++) sum[g][0][v] += h[k + i] * (int8_t)r[g * QUAD + 4 * v + i];
#define SUM(g, m, v) (float)sum[g][m][v]
#endif
  for (int m = 0; m < rows; m++) {
    const vf by = vset(q->state_scale[row + m]);
    for (int g = 0; g < gates; g++)
      for (int v = 0; v < PER; v++) {
        const vf one = vmul(SUM(g, m, v), vmul(by, vload(q->scale + g * ITG_UNITS + v * VL)));
        s[g][m][v] = vadd(s[g][m][v], one);
      }
  }
}

INLINE void run_rows(const qblock *q, int gates, int rows, int64_t row) {
  sums s;
  start_sums(&q->b, gates, rows, row, s);
  multiply_bytes(q, gates, rows, row, s);
  finish(&q->b, gates, rows, row, s);
}

INLINE itg_words step(const itg_call *call, int gates, uint32_t part, uint32_t parts) {
  itg_cells s;
  itg_words wrong = itg_qcells_of(call, gates, &s);
  if (wrong) return wrong;
  const itg_qstate l = itg_qstate_of(&s);
  uint8_t *const bytes = (uint8_t *)call->scratch + l.total * part;
  float *const scales = (float *)(bytes + l.scales);
  const int64_t wide = gates * ITG_UNITS, row = s.directions * s.blocks * wide, now = call->round;
  int64_t from, to, done = -1;  // the direction whose state is there
  itg_share(s.directions * s.blocks, 1, part, parts, &from, &to);
  for (int64_t n = from; n < to; n++) {
    const int64_t i = turn(n, from, to, now), d = i / s.blocks,
                  time = goes_back(&s, d) ? s.steps - 1 - now : now;
    uint8_t *const state = bytes + d * s.batch * (int64_t)l.row;
    qblock q = {.b = block_at(&s, call, gates, i, now),
                .r = (const uint8_t *)s.r->data + i * (int64_t)l.row * wide,
                .state_scale = scales + d * s.batch,
                .scale = (const float *)call->in[2]->data + i * wide,
                .sums = (const int32_t *)call->in[3]->data + i * wide,
                .row = (int64_t)l.row};
    q.b.gates = (const float *)call->in[0]->data + time * s.batch * row + i * wide;
    q.b.row = row;
    q.b.gate = ITG_UNITS;
    q.state = q.b.before ? state : NULL;
    if (q.state && d != done)
      for (int64_t m = 0; m < s.batch; m++) {
        uint8_t *to_row = state + m * q.row;
        scales[d * s.batch + m] = itg_quantize_row(q.b.before + m * s.hidden, s.hidden, to_row);
        for (int64_t k = s.hidden; k < q.row; k++) to_row[k] = 0;  // their weights are zero
      }
    done = d;
    int64_t m = 0;
    for (; m + ROWS <= s.batch; m += ROWS) run_rows(&q, gates, ROWS, m);
    for (; m < s.batch; m++) run_rows(&q, gates, 1, m);
    keep_last(&s, call, &q.b, i, now);
  }
  return NULL;
}

ITG_FN(qlstm_steps, f32) { return step(call, ITG_LSTM_GATES, part, parts); }
ITG_FN(qgru_steps, f32) { return step(call, ITG_GRU_GATES, part, parts); }
