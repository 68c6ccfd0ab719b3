// LSTM and GRU steps whose input products are precomputed, one time step per round. Threads split
// the units, so that two threads share one sequence.
#include "cells_core.h"

INLINE void run_rows(const block *b, int type, int gates, int rows, int64_t row) {
  sums s;
  start_sums(b, gates, rows, row, s);
  multiply(b, type, gates, rows, row, 0, s);
  finish(b, gates, rows, row, s);
}

INLINE void run_step(const itg_call *call, const itg_cells *cells, int type, int gates,
                     uint32_t part, uint32_t parts) {
  const itg_cells s = *cells;
  const int64_t wide = gates * ITG_UNITS, row = s.directions * s.blocks * wide, now = call->round;
  int64_t from, to;
  itg_share(s.directions * s.blocks, 1, part, parts, &from, &to);
  for (int64_t n = from; n < to; n++) {
    const int64_t i = turn(n, from, to, now),
                  time = goes_back(&s, i / s.blocks) ? s.steps - 1 - now : now;
    block b = block_at(&s, call, gates, i, now);
    b.gates = (const float *)call->in[0]->data + time * s.batch * row + i * wide;
    b.row = row;
    b.gate = ITG_UNITS;
    int64_t m = 0;
    for (; m + ROWS <= s.batch; m += ROWS) run_rows(&b, type, gates, ROWS, m);
    for (; m < s.batch; m++) run_rows(&b, type, gates, 1, m);
    keep_last(&s, call, &b, i, now);
  }
}

INLINE itg_words step(const itg_call *call, int gates, uint32_t part, uint32_t parts) {
  itg_cells s;
  itg_words wrong = itg_cells_of(call, gates, &s);
  if (wrong) return wrong;
  if (s.r->dtype == ITG_BF16) run_step(call, &s, ITG_BF16, gates, part, parts);
  else if (s.r->dtype == ITG_F16) run_step(call, &s, ITG_F16, gates, part, parts);
  else run_step(call, &s, ITG_F32, gates, part, parts);
  return NULL;
}

ITG_FN(lstm_steps, f32) { return step(call, ITG_LSTM_GATES, part, parts); }
ITG_FN(gru_steps, f32) { return step(call, ITG_GRU_GATES, part, parts); }
