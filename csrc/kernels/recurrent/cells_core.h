// One step of an LSTM or GRU for a block of 16 units. The register tile s[row][gate][vector] sums
// the gates over the packed recurrent weights and becomes the new state without a store in between.
#pragma once
#include "cells.h"
#include "vec.h"
#include "vmath.h"

enum { PER = ITG_UNITS / VL };  // vectors that hold the units of a block
#if defined(ISA_avx512)
enum {
  ROWS = 4,  // batch entries that share one pass over the weights; the registers are then full
};
#else
enum { ROWS = 1 };
#endif

typedef struct block {  // units [first, first + units) of one direction at one step
  int64_t hidden, first, units;
  const void *r;
  const float *gates;   // products of the inputs, a row per batch entry
  int64_t row, gate;    // floats from one row of it to the next, and from one gate to the next
  const float *before;  // the state one step ago, a row per batch entry, or NULL for zeros
  float *after;         // the state now
  float *cells;         // of an LSTM, a row per batch entry
  const float *bias;    // of the recurrent part of a GRU's hidden gate, or NULL
} block;

INLINE vf load_units(const float *p, int64_t n) {
  return n >= VL ? vload(p) : n > 0 ? vloadn(p, n) : vset(0.f);
}

INLINE void store_units(float *p, int64_t n, vf v) {
  if (n >= VL) vstore(p, v);
  else if (n > 0) vstoren(p, n, v);
}

typedef vf sums[ITG_LSTM_GATES][ROWS]
               [PER];  // LSTM: gates i, o, f, c; GRU: z, r, the recurrent part of h

// In the functions below `gates` and `rows` are constants after inlining; batch entries are counted
// from `row`.
INLINE void start_sums(const block *b, int gates, int rows, int64_t row, sums s) {
  for (int m = 0; m < rows; m++)
    for (int v = 0; v < PER; v++) {
      const float *given = b->gates + (row + m) * b->row + v * VL;
      for (int g = 0; g < gates; g++) s[g][m][v] = vload(given + g * b->gate);
      if (gates == ITG_GRU_GATES) s[2][m][v] = b->bias ? vload(b->bias + v * VL) : vset(0.f);
    }
}

// Adds the products of unit k of the state and one row of weights.
INLINE void add_row(const block *b, int gates, int rows, const float *h, int64_t k, vf (*r)[PER],
                    sums s) {
  for (int m = 0; m < rows; m++) {
    const vf state = vset(h[m * b->hidden + k]);
    for (int g = 0; g < gates; g++)
      for (int v = 0; v < PER; v++) s[g][m][v] = vfma(r[g][v], state, s[g][m][v]);
  }
}

// s += r * before, from unit k on. `type` is that of the weights; two rows of bf16 share 32-bit
// lanes.
INLINE void multiply(const block *b, int type, int gates, int rows, int64_t row, int64_t k,
                     sums s) {
  if (!b->before) return;
  const float *h = b->before + row * b->hidden;
  vf r[ITG_LSTM_GATES][PER], odd[ITG_LSTM_GATES][PER];
  if (type == ITG_BF16)
    for (const float *p = (const float *)b->r + k / 2 * gates * ITG_UNITS; k < b->hidden;
         k += 2, p += gates * ITG_UNITS) {
      for (int g = 0; g < gates; g++)
        for (int v = 0; v < PER; v++) {
          const vi both = vbits(vload(p + g * ITG_UNITS + v * VL));
          r[g][v] = vfloats(vishl(both, 16));
          odd[g][v] = vfloats(viand(both, viset((int)0xffff0000)));
        }
      add_row(b, gates, rows, h, k, r, s);
      add_row(b, gates, rows, h, k + 1, odd, s);
    }
  else if (type == ITG_F16)
    for (const uint16_t *p = (const uint16_t *)b->r + k * gates * ITG_UNITS; k < b->hidden;
         k++, p += gates * ITG_UNITS) {
      for (int g = 0; g < gates; g++)
        for (int v = 0; v < PER; v++) r[g][v] = vsome_f16(p + g * ITG_UNITS + v * VL, VL);
      add_row(b, gates, rows, h, k, r, s);
    }
  else
    for (const float *p = (const float *)b->r + k * gates * ITG_UNITS; k < b->hidden;
         k++, p += gates * ITG_UNITS) {
      for (int g = 0; g < gates; g++)
        for (int v = 0; v < PER; v++) r[g][v] = vload(p + g * ITG_UNITS + v * VL);
      add_row(b, gates, rows, h, k, r, s);
    }
}

INLINE void finish(const block *b, int gates, int rows, int64_t row, sums s) {
  for (int m = 0; m < rows; m++)
    for (int v = 0; v < PER; v++) {
      const int64_t at = (row + m) * b->hidden + b->first + v * VL, left = b->units - v * VL;
      if (gates == ITG_LSTM_GATES) {
        const vf kept = vmul(v_sigmoid(s[2][m][v]), load_units(b->cells + at, left));
        const vf cell = vfma(v_sigmoid(s[0][m][v]), v_tanh(s[3][m][v]), kept);
        store_units(b->cells + at, left, cell);
        store_units(b->after + at, left, vmul(v_sigmoid(s[1][m][v]), v_tanh(cell)));
      } else {  // the reset gate acts on the recurrent part alone
        const vf given = vload(b->gates + (row + m) * b->row + 2 * b->gate + v * VL);
        const vf new = v_tanh(vfma(v_sigmoid(s[1][m][v]), s[2][m][v], given));
        const vf old = b->before ? load_units(b->before + at, left) : vset(0.f);
        store_units(b->after + at, left, vfma(v_sigmoid(s[0][m][v]), vsub(old, new), new));
      }
    }
}

// Copies the units of a block, all batch entries; from NULL come zeros.
static void copy_units(const block *b, int64_t batch, const float *from, float *to) {
  for (int64_t m = 0; m < batch; m++)
    for (int64_t k = b->first; k < b->first + b->units; k++)
      to[m * b->hidden + k] = from ? from[m * b->hidden + k] : 0;
}

INLINE bool goes_back(const itg_cells *s, int64_t direction) {
  return s->backward || direction == 1;
}

// Block i of all directions at step `now`; the caller computes the products of the inputs.
INLINE block block_at(const itg_cells *s, const itg_call *call, int gates, int64_t i, int64_t now) {
  const int64_t d = i / s->blocks, first = i % s->blocks * ITG_UNITS, state = s->batch * s->hidden;
  const int64_t time = goes_back(s, d) ? s->steps - 1 - now : now,
                last = goes_back(s, d) ? time + 1 : time - 1;
  float *y = call->out[0]->data, *cells = gates == ITG_LSTM_GATES ? call->out[2]->data : NULL;
  const float *h0 = s->h ? s->h->data : NULL, *extra = s->last ? s->last->data : NULL;
  block b = {
      .hidden = s->hidden,
      .first = first,
      .units = s->hidden - first < ITG_UNITS ? s->hidden - first : ITG_UNITS,
      .r = (const char *)s->r->data +
           (size_t)(i * s->hidden * gates * ITG_UNITS) * itg_item(s->r->dtype),
      .before = now  ? y + (last * s->directions + d) * state
                : h0 ? h0 + d * state
                     : NULL,
      .after = y + (time * s->directions + d) * state,
      .cells = cells ? cells + d * state : NULL,
      .bias = gates == ITG_GRU_GATES && extra ? extra + i * ITG_UNITS : NULL,
  };
  if (b.cells && !now) copy_units(&b, s->batch, extra ? extra + d * state : NULL, b.cells);
  return b;
}

INLINE void keep_last(const itg_cells *s, const itg_call *call, const block *b, int64_t i,
                      int64_t now) {
  if (now == s->steps - 1)
    copy_units(b, s->batch, b->after,
               (float *)call->out[1]->data + i / s->blocks * s->batch * s->hidden);
}

// Steps alternate between forward and backward order, because the weights that a step read last are
// still cached.
INLINE int64_t turn(int64_t n, int64_t from, int64_t to, int64_t now) {
  return now % 2 ? from + to - 1 - n : n;
}
