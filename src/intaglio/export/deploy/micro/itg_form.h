// The forms of the kernels: plain C, DSP (SMLAD), Helium (MVE with floats) and NEON.
//
// A form defines
//   itg_col              the element of an unfolded window
//   ITG_ROWS, ITG_COLS   outputs and pixels of the largest block
//   ITG_MORE_COLS        the same for blocks with a residual, a table, floats or zero points; or 1
//   ITG_BIAS_FIRST       1: sums start with the bias, 0: itg_finish adds it
//   ITG_DIRECT           1: pixels of i8 may be multiplied where they lie, if they are whole units
//   itg_expand           unfold n bytes
//   itg_block            add the products of `rows` rows of weights and `cols` windows
//   itg_finish           requantise n sums (plus bias)
//   ITG_KEPT_SCALES      defined if itg_finish takes scales that lie in registers
//   itg_lanes            four sums of a depthwise convolution, with itg_lanes_start and _add
#ifndef ITG_FORM_H
#define ITG_FORM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "itg_micro.h"

#define ITG_INLINE static inline __attribute__((always_inline))
#define ITG_UNROLL _Pragma("GCC unroll 16")
#define ITG_ROUND_UP(n, to) (((n) + (to) - 1) / (to) * (to))

#include "itg_round.h"

#if defined(ITG_FORM_HELIUM)
#include "itg_helium.h"
#elif defined(ITG_FORM_DSP)
#include "itg_dsp.h"
#elif defined(ITG_FORM_NEON)
#include "itg_neon.h"
#else
#include "itg_plain.h"
#endif

#if !defined(ITG_MORE_COLS)
#define ITG_MORE_COLS 1
#endif

#endif
