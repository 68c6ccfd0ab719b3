// The operands of a grouped convolution with windows three pixels wide (grouped.c).
#pragma once
#include "gemm/tile.h"
#include "window.h"

enum { ITG_GROUPED_WIDTH = 3 };  // of the window

// Weights are [panels of 16 output channels][lines of the window][input channels of a
// group][3][16].
typedef struct itg_grouped {
  itg_window w;
  int64_t deep, per;         // input and output channels of a group
  int64_t inputs, channels;  // of all groups
} itg_grouped;

itg_words itg_grouped_of(const itg_call *call, itg_grouped *g, itg_tensor *out);
