// LSTM and GRU, one step per round: 16 units at a time, whose gates are summed up in registers over the packed
// recurrent weights and become the new state at once. Shares take blocks of units, so two threads split one sequence.
#include "cells.h"
#include "vec.h"
#include "vmath.h"

enum { PER = ITG_UNITS / VL };  // vectors that hold the units of a block
#if defined(ISA_avx512)
enum { ROWS = 4 };  // batch entries that share one pass over the weights: as many as the registers allow
#else
enum { ROWS = 1 };
#endif

typedef struct block {  // units [first, first + units) of one direction at one step
  int64_t hidden, first, units;
  const float *r;
  const float *gates;   // what the inputs give, a row per batch entry
  int64_t gates_row;    // floats from one row to the next
  const float *before;  // the state one step ago, a row per batch entry, or NULL for zeros
  float *after;         // the state now
  float *cells;         // of an LSTM, a row per batch entry
  const float *bias;    // of the recurrent part of a GRU's hidden gate, or NULL
} block;

static inline vf load_units(const float *p, int64_t n) {
  return n >= VL ? vload(p) : n > 0 ? vloadn(p, n) : vset(0.f);
}

static inline void store_units(float *p, int64_t n, vf v) {
  if (n >= VL) vstore(p, v);
  else if (n > 0) vstoren(p, n, v);
}

typedef vf sums[ITG_LSTM_GATES][ROWS][PER];

// s += r * before for `rows` batch entries from `row` on. `gates` and `rows` are constants wherever this is inlined.
static inline __attribute__((always_inline)) void multiply(const block *b, int gates, int rows, int64_t row, sums s) {
  if (!b->before) return;
  const float *r = b->r, *h = b->before + row * b->hidden;
  for (int64_t k = 0; k < b->hidden; k++, r += gates * ITG_UNITS)
    for (int m = 0; m < rows; m++) {
      const vf state = vset(h[m * b->hidden + k]);
      for (int g = 0; g < gates; g++)
        for (int v = 0; v < PER; v++) s[g][m][v] = vfma(vload(r + g * ITG_UNITS + v * VL), state, s[g][m][v]);
    }
}

static inline __attribute__((always_inline)) void lstm_rows(const block *b, int rows, int64_t row) {
  sums s;  // gates i, o, f, c
  for (int g = 0; g < ITG_LSTM_GATES; g++)
    for (int m = 0; m < rows; m++)
      for (int v = 0; v < PER; v++) s[g][m][v] = vload(b->gates + (row + m) * b->gates_row + g * ITG_UNITS + v * VL);
  multiply(b, ITG_LSTM_GATES, rows, row, s);
  for (int m = 0; m < rows; m++)
    for (int v = 0; v < PER; v++) {
      const int64_t at = (row + m) * b->hidden + b->first + v * VL, left = b->units - v * VL;
      const vf kept = vmul(v_sigmoid(s[2][m][v]), load_units(b->cells + at, left));
      const vf cell = vfma(v_sigmoid(s[0][m][v]), v_tanh(s[3][m][v]), kept);
      store_units(b->cells + at, left, cell);
      store_units(b->after + at, left, vmul(v_sigmoid(s[1][m][v]), v_tanh(cell)));
    }
}

static inline __attribute__((always_inline)) void gru_rows(const block *b, int rows, int64_t row) {
  sums s;  // gates z, r, and the recurrent part of h, on which the reset gate acts
  for (int m = 0; m < rows; m++)
    for (int v = 0; v < PER; v++) {
      const float *given = b->gates + (row + m) * b->gates_row + v * VL;
      s[0][m][v] = vload(given);
      s[1][m][v] = vload(given + ITG_UNITS);
      s[2][m][v] = b->bias ? vload(b->bias + v * VL) : vset(0.f);
    }
  multiply(b, ITG_GRU_GATES, rows, row, s);
  for (int m = 0; m < rows; m++)
    for (int v = 0; v < PER; v++) {
      const int64_t at = (row + m) * b->hidden + b->first + v * VL, left = b->units - v * VL;
      const vf given = vload(b->gates + (row + m) * b->gates_row + 2 * ITG_UNITS + v * VL);
      const vf new = v_tanh(vfma(v_sigmoid(s[1][m][v]), s[2][m][v], given));
      const vf old = b->before ? load_units(b->before + at, left) : vset(0.f);
      store_units(b->after + at, left, vfma(v_sigmoid(s[0][m][v]), vsub(old, new), new));
    }
}

static inline __attribute__((always_inline)) void run_rows(const block *b, int gates, int rows, int64_t row) {
  if (gates == ITG_LSTM_GATES) lstm_rows(b, rows, row);
  else gru_rows(b, rows, row);
}

static inline __attribute__((always_inline)) void run_block(const block *b, int gates, int64_t batch) {
  int64_t row = 0;
  for (; row + ROWS <= batch; row += ROWS) run_rows(b, gates, ROWS, row);
  for (; row < batch; row++) run_rows(b, gates, 1, row);
}

// Copies the units of a block, all batch entries; from NULL come zeros.
static void copy_units(const block *b, int64_t batch, const float *from, float *to) {
  for (int64_t m = 0; m < batch; m++)
    for (int64_t k = b->first; k < b->first + b->units; k++) to[m * b->hidden + k] = from ? from[m * b->hidden + k] : 0;
}

static inline __attribute__((always_inline)) itg_words step(const itg_call *call, int gates, uint32_t part,
                                                            uint32_t parts) {
  itg_cells s;
  itg_words wrong = itg_cells_of(call, gates, &s);
  if (wrong) return wrong;
  const itg_tensor *h0 = itg_input(call, 2), *extra = itg_input(call, 3);
  const int64_t wide = gates * ITG_UNITS, row = s.directions * s.blocks * wide, state = s.batch * s.hidden;
  int64_t from, to;
  itg_share(s.directions * s.blocks, 1, part, parts, &from, &to);
  for (int64_t n = from; n < to; n++) {
    // Forth and back: what a step read last is still in the cache when the next begins.
    const int64_t i = call->round % 2 ? from + to - 1 - n : n;
    const int64_t d = i / s.blocks, first = i % s.blocks * ITG_UNITS;
    const bool back = s.backward || d == 1;
    const int64_t time = back ? s.steps - 1 - call->round : call->round, last = back ? time + 1 : time - 1;
    float *y = call->out[0]->data, *cells = gates == ITG_LSTM_GATES ? call->out[2]->data : NULL;
    block b = {
        .hidden = s.hidden,
        .first = first,
        .units = s.hidden - first < ITG_UNITS ? s.hidden - first : ITG_UNITS,
        .r = (const float *)call->in[1]->data + i * s.hidden * wide,
        .gates = (const float *)call->in[0]->data + time * s.batch * row + i * wide,
        .gates_row = row,
        .before = call->round ? y + (last * s.directions + d) * state : h0 ? (const float *)h0->data + d * state : NULL,
        .after = y + (time * s.directions + d) * state,
        .cells = cells ? cells + d * state : NULL,
        .bias = gates == ITG_GRU_GATES && extra ? (const float *)extra->data + i * ITG_UNITS : NULL,
    };
    if (b.cells && !call->round) copy_units(&b, s.batch, extra ? (const float *)extra->data + d * state : NULL, b.cells);
    run_block(&b, gates, s.batch);
    if (call->round == s.steps - 1) copy_units(&b, s.batch, b.after, (float *)call->out[1]->data + d * state);
  }
  return NULL;
}

ITG_FN(lstm_steps, f32) { return step(call, ITG_LSTM_GATES, part, parts); }
ITG_FN(gru_steps, f32) { return step(call, ITG_GRU_GATES, part, parts); }
