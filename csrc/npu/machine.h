// The modelled memories of an NPU, access to features, and rounding and storing of results.
#pragma once
#include "program.h"

typedef struct machine {                              // the state of one run
  uint8_t *sram[ITG_NPU_CORES], *internal, *scratch;  // scratch: outside the modelled memories
  const itg_call *call;
  const itg_npu_program *program;
  const itg_npu_product *packed;  // the instruction whose packed weights are in scratch, or NULL
} machine;

static inline uint8_t *base_of(const machine *m, const itg_npu_head *h, const itg_npu_feature *f) {
  switch (f->space) {
    case ITG_NPU_SRAM: return m->sram[h->core] + f->offset;
    case ITG_NPU_WEIGHTS: return (uint8_t *)m->call->in[1]->data + f->offset;
    case ITG_NPU_INTERNAL: return m->internal + f->offset;
    case ITG_NPU_INPUT: return (uint8_t *)m->call->in[2 + f->slot]->data + f->offset;
    default: return (uint8_t *)m->call->out[f->slot]->data + f->offset;
  }
}

typedef struct box {  // a feature with its address in memory
  uint8_t *at;
  int64_t plane, row, pixel, channels, height, width, c2, first, item;
  uint8_t dtype;
} box;

static inline box box_of(const machine *m, const itg_npu_head *h, const itg_npu_feature *f) {
  return (box){base_of(m, h, f), f->plane, f->row,   f->pixel,           f->channels, f->height,
               f->width,         f->c2,    f->first, itg_item(f->dtype), f->dtype};
}

static inline uint8_t *element(const box *b, int64_t c, int64_t y, int64_t x) {
  const int64_t lane = b->first + c;
  return b->at + lane / b->c2 * b->plane + y * b->row + x * b->pixel + lane % b->c2 * b->item;
}

static inline float real(const uint8_t *at) {  // loads f16
  uint16_t bits;
  memcpy(&bits, at, sizeof bits);
  return itg_f16_to_f32(bits);
}

static inline int32_t whole(uint8_t dtype, const uint8_t *at) {
  if (dtype == ITG_I16) {
    int16_t v;
    memcpy(&v, at, sizeof v);
    return v;
  }
  return dtype == ITG_I8 ? (int8_t)*at : *at;
}

// Broadcasts extents of 1 to those of `like`, with strides of 0.
static inline void stretch(box *b, const box *like) {
  if (b->channels == 1 && like->channels > 1) {
    b->at += b->first * b->item;
    b->plane = 0, b->c2 = 1, b->first = 0, b->channels = like->channels;
  }
  if (b->height == 1 && like->height > 1) b->row = 0, b->height = like->height;
  if (b->width == 1 && like->width > 1) b->pixel = 0, b->width = like->width;
}

// ---- results ------------------------------------------------------------------------------------
typedef struct rounding {
  float low, high;           // bounds of integer results, minus the zero
  float least, most;         // bounds of float results
  int32_t zero, base, last;  // base: number of the table's first entry; last: index of its last
  const uint8_t *table;      // or NULL
  uint8_t dtype;
  bool floats;  // results are floats and a table is a curve of f16; false: integers
} rounding;

#define ROUNDING(m, i, table, entries, base)                                                       \
  rounding_of(m, (i)->head.core, (i)->src.dtype, (i)->dst.dtype, (i)->y_zero, (i)->low, (i)->high, \
              (i)->least, (i)->most, table, entries, base)

static inline rounding rounding_of(const machine *m, uint8_t core, uint8_t src, uint8_t dst,
                                   int32_t zero, int32_t low, int32_t high, float least, float most,
                                   uint32_t table, uint32_t entries, int32_t base) {
  const bool real = dst == ITG_F32 || dst == ITG_F16;
  return (rounding){(float)((int64_t)low - zero),  // unused if nothing is rounded
                    (float)((int64_t)high - zero),
                    least,
                    most,
                    zero,
                    base,
                    (int32_t)entries - 1,
                    entries ? m->sram[core] + table : NULL,
                    dst,
                    real && (!entries || src == ITG_F16)};
}

static inline rounding table_of(const machine *m, const itg_npu_lut *l) {
  return rounding_of(m, l->head.core, l->src.dtype, l->dst.dtype, 0, 0, 0, -INFINITY, INFINITY,
                     l->table, l->entries, l->base);
}

static inline void look_up(const rounding *r, int64_t v, uint8_t *to) {
  const int64_t i = v - r->base, inside = i < 0 ? 0 : i > r->last ? r->last : i;
  const size_t item = itg_item(r->dtype);
  memcpy(to, r->table + inside * (int64_t)item, item);
}

static inline float clamped(const rounding *r, float t) {  // keeps a NaN
  const float above = r->least > t ? r->least : t;
  return r->most < above ? r->most : above;
}

// A function of f16 is stored as its values at every 32nd f16 from -inf to inf. Between them it is
// interpolated linearly.
enum { CURVE_TOP = 0x7c00, CURVE_STEP = 32 };

static inline float curved(const rounding *r, uint16_t bits) {
  const int32_t far = bits & 0x7fff, size = far < CURVE_TOP ? far : CURVE_TOP;
  const int32_t place = (bits >> 15 ? -size : size) + CURVE_TOP;
  const int32_t at = place / CURVE_STEP < r->last - 1 ? place / CURVE_STEP : r->last - 1;
  const float part = (float)(place - at * CURVE_STEP) * (1.f / CURVE_STEP);
  float ends[2];
  memcpy(ends, r->table + 4 * (int64_t)at, sizeof ends);
  return far > CURVE_TOP ? itg_float_of_bits(0x7fc00000) : ends[0] + (ends[1] - ends[0]) * part;
}

static inline void put_float(const rounding *r, float t, uint8_t *to) {
  t = clamped(r, t);
  uint16_t half = itg_f32_to_f16(t);
  if (r->table) half = itg_f32_to_f16(curved(r, half));
  if (r->dtype == ITG_F32) memcpy(to, &t, sizeof t);
  else memcpy(to, &half, sizeof half);
}

static inline void put(const rounding *r, float t, uint8_t *to) {
  if (r->floats) {
    put_float(r, t, to);
    return;
  }
  const float above = t > r->low ? t : r->low;
  const int32_t v = (int32_t)rintf(above < r->high ? above : r->high) + r->zero;
  const int16_t wide = (int16_t)v;
  if (r->table) look_up(r, v, to);
  else if (r->dtype == ITG_I16) memcpy(to, &wide, sizeof wide);
  else *to = (uint8_t)v;
}

// Stores the sum itself if the result is i32; returns whether it did.
static inline bool put_sum(const rounding *r, int64_t sum, uint8_t *to) {
  const uint32_t low = (uint32_t)(uint64_t)sum;
  if (r->dtype == ITG_I32) memcpy(to, &low, sizeof low);
  return r->dtype == ITG_I32;
}
