// Requantisation of sums of 8-bit products: scaling, residual, bounds, rounding, lookup. This file
// has the parameters that all kernels share and the arithmetic of a single element. The vector
// forms (qvec.h) give the same bits.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// Sums become bytes: clamp(rint(float(sum) * scale) + zero). The zero of the output is subtracted
// from its bounds, and the clamp comes before rounding. So one clamp serves overflow, saturation
// and relu, and its result fits 16 bits.
typedef struct itg_requantize {
  const int32_t *bias;  // per output channel, with the input's zero folded in
  const float *scale;
  float lo, hi;
  int32_t zero;
  int high;        // 0x80 where the result is i8: xor with it turns u8 into i8
  bool small;      // scaled sums fit 32 bits
  bool saturates;  // no clamp is needed: scaled sums fit 32 bits, and the bounds are those of the
                   // type, which narrowing with saturation enforces
  enum {
    ITG_Q_BYTES,
    ITG_Q_FLOATS,
    ITG_Q_SUMS
  } kind;                   // of the result; floats are scaled but not rounded, sums neither
  const uint8_t *residual;  // added before rounding, laid out like the result: bytes, or floats
                            // if the result is floats
  float r_scale;            // a residual of bytes adds f32(byte - r_zero) * r_scale
  int32_t r_zero;
  int r_high;            // 0x80 if the residual is i8; it is read as u8, and r_zero is 128 larger
  const uint8_t *table;  // maps each rounded number to its result; `zero` then moves the lower
                         // bound to 0, so that numbers index the table
  int64_t entries;       // of the table; memory can be read up to the next multiple of 128
  int pieces, shift;     // a piecewise linear table: each piece covers 2^shift numbers; pieces is 0
                         // for a table with one entry per number
  int flip;              // 0x80 if the results of a piecewise linear table are u8
} itg_requantize;

static inline itg_requantize itg_requantize_of(const int32_t *bias, const float *scale,
                                               int64_t channels, int64_t zero, int64_t lo,
                                               int64_t hi, int64_t low) {
  int32_t most = 0;  // max |scale|, compared by its bits, because GCC vectorises integer maxima
  for (int64_t i = 0; i < channels; i++) {
    int32_t bits;
    memcpy(&bits, scale + i, sizeof bits);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  const bool small = most < 0x3f000000;  // 0.5
  return (itg_requantize){.bias = bias,
                          .scale = scale,
                          .lo = (float)(lo - zero),
                          .hi = (float)(hi - zero),
                          .zero = (int32_t)zero,
                          .high = low ? 0x80 : 0,
                          .small = small,
                          .saturates = small && hi - lo == 255};
}

// Adds a residual of bytes; `low` says that it is i8.
static inline void itg_requantize_residual(itg_requantize *q, const void *bytes, int64_t zero,
                                           float scale, bool low) {
  q->residual = bytes;
  q->r_scale = scale;
  q->r_high = low ? 0x80 : 0;
  q->r_zero = (int32_t)zero + q->r_high;
  q->small &= fabsf(scale) < 1 << 20;
  q->saturates &= q->small;
}

static inline uint8_t itg_requantized(const itg_requantize *q, int32_t sum, int64_t channel) {
  const float y = (float)sum * q->scale[channel], above = y > q->lo ? y : q->lo;
  return (uint8_t)((int32_t)rintf(above < q->hi ? above : q->hi) + q->zero);
}

// A piecewise linear table stores [rises, lower bytes of starts, upper bytes of starts], one of
// each per piece. The result for the r-th number of piece b is (start[b] + rise[b] * r) >> 7. This
// changes every start so that r may be the lower byte of the number and the result is signed, which
// saves two instructions.
static inline void itg_q_move_lines(itg_requantize *q, uint8_t *table) {
  for (int b = 0; b < q->pieces; b++) {
    uint8_t *low = table + q->pieces + b, *high = low + q->pieces;
    const int32_t r = (b << q->shift) & 255,
                  start = (*low | *high << 8) - (int8_t)table[b] * r - (128 << 7);
    *low = (uint8_t)start;
    *high = (uint8_t)(start >> 8);
  }
}

static inline uint8_t itg_q_on_line(const itg_requantize *q, int32_t number) {
  const uint8_t *piece = q->table + (number >> q->shift);
  const int32_t start = piece[q->pieces] | piece[2 * q->pieces] << 8;
  const int32_t y = (int16_t)(uint16_t)(start + (int8_t)piece[0] * (number & 255)) >> 7;
  return (uint8_t)(y < -128 ? -128 : y > 127 ? 127 : y) ^ (uint8_t)q->flip;
}

// Requantises one sum with residual and table; `at` is the index of the result.
static inline uint8_t itg_q_byte(const itg_requantize *q, int32_t sum, int64_t channel,
                                 int64_t at) {
  float y = (float)sum * q->scale[channel];
  if (q->residual) y += (float)((q->residual[at] ^ q->r_high) - q->r_zero) * q->r_scale;
  const float above = y > q->lo ? y : q->lo;
  const int32_t number = (int32_t)rintf(above < q->hi ? above : q->hi) + q->zero;
  if (q->pieces) return itg_q_on_line(q, number);
  return q->table ? q->table[number] : (uint8_t)number;
}

static inline float itg_q_float(const itg_requantize *q, int32_t sum, int64_t channel, int64_t at) {
  const float y = (float)sum * q->scale[channel];
  return q->residual ? y + ((const float *)q->residual)[at] : y;
}
