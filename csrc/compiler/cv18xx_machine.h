// What the parts of the CV18xx simulator share: tensors in local memory, rounding, memory for work.
#pragma once
#include <stddef.h>
#include <string.h>

#include "cv18xx.h"

enum { UNITS = 16 };           // an aligned row of channels is a multiple of this
enum { MOST_WORK = 1 << 30 };  // element operations of one command; no real one has more
enum { AUTOMATIC, COMPACT, CHANNELS, MANUAL };  // short_*_str

// A tensor in local memory: channel c lies in lane (lane + c) % lanes.
typedef struct {
  int64_t lane, offset, n, c, h, w, n_str, c_str, h_str, w_str;
} view;

static inline int64_t up_to(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

static inline int refuse(itg_cv18xx *m, const char *why) {
  m->why = why;
  return 0;
}

// The first byte of a channel.
static inline uint8_t *channel(const itg_cv18xx *m, const view *v, int64_t n, int64_t c) {
  int64_t lane = v->lane + c;
  return m->local + lane % m->lanes * m->lane_bytes + v->offset + n * v->n_str +
         lane / m->lanes * v->c_str;
}

static inline view place(const itg_cv18xx *m, uint32_t address, int64_t n, int64_t c, int64_t h,
                         int64_t w) {
  return (view){.lane = address / m->lane_bytes,
                .offset = address % m->lane_bytes,
                .n = n,
                .c = c,
                .h = h,
                .w = w};
}

static inline void strides(view *v, int64_t n, int64_t c, int64_t h, int64_t w) {
  v->n_str = n;
  v->c_str = c;
  v->h_str = h;
  v->w_str = w;
}

// The strides that the chip itself computes.
static inline void own_strides(const itg_cv18xx *m, view *v, int64_t bytes, uint32_t kind) {
  int64_t plane = v->h * v->w * bytes;
  if (kind == AUTOMATIC) plane = up_to(plane, UNITS);
  if (kind == CHANNELS) plane = bytes;
  strides(v, plane * ((v->c + m->lanes - 1) / m->lanes), plane, v->w * bytes, bytes);
}

// Whether every element of a tensor lies in local memory.
static inline int inside(itg_cv18xx *m, const view *v, int64_t bytes) {
  if (v->n < 1 || v->c < 1 || v->h < 1 || v->w < 1) return refuse(m, "a tensor is empty");
  if (v->lane >= m->lanes) return refuse(m, "an address is beyond the lanes");
  int64_t last = v->offset + (v->n - 1) * v->n_str + (v->lane + v->c - 1) / m->lanes * v->c_str +
                 (v->h - 1) * v->h_str + (v->w - 1) * v->w_str + bytes;
  return last <= m->lane_bytes || refuse(m, "a tensor is beyond the end of local memory");
}

// v / 2^shift, halves away from zero.
static inline int64_t shift_away(int64_t v, int shift) {
  if (!shift) return v;
  int64_t half = 1LL << (shift - 1);
  return v < 0 ? -((-v + half) >> shift) : (v + half) >> shift;
}

// v / 2^shift, halves upwards.
static inline int64_t shift_up(int64_t v, int shift) {
  return shift ? (v + (1LL << (shift - 1))) >> shift : v;
}

static inline int64_t within(int64_t v, int64_t low, int64_t high) {
  return v < low ? low : v > high ? high : v;
}

// The byte that a number becomes.
static inline uint8_t byte_of(int64_t v, uint32_t is_signed) {
  return (uint8_t)(is_signed ? within(v, -128, 127) : within(v, 0, 255));
}

static inline int32_t read_byte(const uint8_t *p, uint32_t is_signed) {
  return is_signed ? (int8_t)*p : *p;
}

static inline float bf16_float(uint16_t bits) {
  union {
    uint32_t bits;
    float value;
  } u = {.bits = (uint32_t)bits << 16};
  return u.value;
}

static inline uint16_t float_bf16(float value) {
  union {
    float value;
    uint32_t bits;
  } u = {.value = value};
  if (value != value) return 0x7FC0;
  uint16_t bits = (uint16_t)((u.bits + 0x7FFF + (u.bits >> 16 & 1)) >> 16);
  return (bits & 0x7F80) == 0x7F80 ? 0x7F7F : bits;  // no infinity: the largest number
}

static inline uint16_t read16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline void write16(uint8_t *p, uint16_t v) {
  p[0] = (uint8_t)v;
  p[1] = (uint8_t)(v >> 8);
}

int itg_cv18xx_copy(itg_cv18xx *m, const itg_cv18xx_tdma *t);    // any command of the TDMA
int itg_cv18xx_conv(itg_cv18xx *m, const itg_cv18xx_tiu *t);     // tsk_typ 0
int itg_cv18xx_windows(itg_cv18xx *m, const itg_cv18xx_tiu *t);  // tsk_typ 1
int itg_cv18xx_matmul(itg_cv18xx *m, const itg_cv18xx_tiu *t);   // tsk_typ 2
int itg_cv18xx_eltwise(itg_cv18xx *m, const itg_cv18xx_tiu *t);  // tsk_typ 3

// Memory for the work of one command; NULL: there is none.
void *itg_cv18xx_scratch(itg_cv18xx *m, int64_t bytes);
