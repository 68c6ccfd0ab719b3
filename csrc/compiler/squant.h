// Rounding of weights, for quantisation.
#pragma once
#include "intaglio.h"

// Rounds w [outputs][inputs][kernel] + offset * scale to steps of `scale` (both by output), within
// low and high. The errors of every kernel, and those of every output, sum to at most half a step:
// the weights whose error grows least are moved by one step. `off` and `moved` are scratch for the
// weights of one output.
ITG_API void itg_squant(const float *w, const float *scale, const float *offset, uint64_t outputs,
                        uint64_t inputs, uint64_t kernel, int32_t low, int32_t high, double *off,
                        uint32_t *moved, int16_t *made);
