// What the steps of an LSTM or GRU are given, read once from a call.
#pragma once
#include "infer.h"

enum { ITG_UNITS = 16, ITG_LSTM_GATES = 4, ITG_GRU_GATES = 3 };

typedef struct itg_cells {
  int64_t steps, batch, directions, blocks, hidden;
  bool backward;  // the first direction goes back in time
} itg_cells;

itg_words itg_cells_of(const itg_call *call, int gates, itg_cells *to);  // refuses what cannot be computed
