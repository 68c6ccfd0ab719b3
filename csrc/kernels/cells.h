// What the steps of an LSTM or GRU are given, read once from a call.
#pragma once
#include "infer.h"

enum { ITG_UNITS = 16, ITG_LSTM_GATES = 4, ITG_GRU_GATES = 3 };
enum { ITG_AHEAD = 16 };  // steps whose inputs a layer multiplies together, while it does as many before them

typedef struct itg_cells {
  int64_t steps, batch, directions, blocks, hidden;
  int64_t deep;               // of a layer: numbers per input
  const itg_tensor *r, *h;    // recurrent weights, initial state or NULL
  const itg_tensor *last;     // LSTM: initial cell or NULL; GRU: bias of the hidden gate's recurrent part or NULL
  bool backward;              // the first direction goes back in time
} itg_cells;

itg_words itg_cells_of(const itg_call *call, int gates, itg_cells *to);  // refuses what cannot be computed
itg_words itg_layer_of(const itg_call *call, int gates, itg_cells *to);
