// The operands of LSTM and GRU steps, read once from a call.
#pragma once
#include "infer.h"

enum { ITG_UNITS = 16, ITG_LSTM_GATES = 4, ITG_GRU_GATES = 3 };
enum {
  ITG_AHEAD = 16,  // steps whose input products are computed together, during the 16 steps before
};

typedef struct itg_cells {
  int64_t steps, batch, directions, blocks, hidden;
  int64_t deep;             // of a layer: numbers per input
  const itg_tensor *r, *h;  // recurrent weights, initial state or NULL
  const itg_tensor
      *last;  // LSTM: initial cell or NULL; GRU: bias of the hidden gate's recurrent part or NULL
  bool backward;  // the first direction goes back in time
} itg_cells;

itg_words itg_cells_of(const itg_call *call, int gates,
                       itg_cells *to);  // refuses what cannot be computed
itg_words itg_layer_of(const itg_call *call, int gates, itg_cells *to);
itg_words itg_qcells_of(const itg_call *call, int gates,
                        itg_cells *to);  // with recurrent weights of bytes

typedef struct itg_qstate {  // bytes of scratch that hold the state of a step as bytes
  uint64_t row, scales, total;
} itg_qstate;

static inline itg_qstate itg_qstate_of(const itg_cells *s) {
  const uint64_t rows = (uint64_t)(s->directions * s->batch),
                 row = ((uint64_t)s->hidden + 3) & ~(uint64_t)3;
  const uint64_t scales = (rows * row + 63) & ~(uint64_t)63;
  return (itg_qstate){row, scales, (scales + rows * sizeof(float) + 63) & ~(uint64_t)63};
}
