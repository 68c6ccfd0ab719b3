// eltwise and lut: runs of elements that are contiguous in every operand.
#pragma once
#include "epilogue.h"

// Whether both have the same blocks of channels, starting at the same lane.
static bool like(const box *a, const box *b) { return a->c2 == b->c2 && a->first == b->first; }

// Whether a row of whole blocks is contiguous.
static bool dense(const box *b) { return b->pixel == b->c2 * b->item; }

// Runs `code` for every contiguous run of elements: channels [c, c + lanes) of one pixel or, with
// `join`, of a whole row of pixels.
#define FOR_RUNS(dst, join, code)                                                                 \
  for (int64_t c = 0; c < (dst)->channels;) {                                                     \
    const int64_t left = (dst)->c2 - ((dst)->first + c) % (dst)->c2;                              \
    const int64_t lanes = left < (dst)->channels - c ? left : (dst)->channels - c;                \
    const int64_t pixels = (join) && lanes == (dst)->c2 ? (dst)->width : 1, run = lanes * pixels; \
    for (int64_t y = 0; y < (dst)->height; y++)                                                   \
      for (int64_t x = 0; x < (dst)->width; x += pixels) {                                        \
        code                                                                                      \
      }                                                                                           \
    c += lanes;                                                                                   \
  }

INLINE void pair_sixteen(const itg_npu_eltwise *e, const rounding *end, uint8_t a_type,
                         const uint8_t *a, uint8_t b_type, const uint8_t *b, uint8_t *to) {
  int32_t one[LANES], two[LANES];
  float t[LANES];
  if (a_type == ITG_F16) {
    float left[LANES], right[LANES];
    load_halves(a, left);
    load_halves(b, right);
    if (e->kind == ITG_NPU_MUL)
      for (int i = 0; i < LANES; i++) t[i] = left[i] * right[i] * e->a_factor;
    else
      for (int i = 0; i < LANES; i++) t[i] = left[i] * e->a_factor + right[i] * e->b_factor;
    finish(end, t, to);
    return;
  }
  load_whole(a_type, a, one);
  load_whole(b_type, b, two);
  if (e->kind == ITG_NPU_MUL) {
    if (a_type == ITG_I16 || b_type == ITG_I16)
      for (int i = 0; i < LANES; i++)
        t[i] = (float)((int64_t)(one[i] - e->a_zero) * (two[i] - e->b_zero)) * e->a_factor;
    else
      for (int i = 0; i < LANES; i++)
        t[i] = (float)((one[i] - e->a_zero) * (two[i] - e->b_zero)) * e->a_factor;
  } else {
    for (int i = 0; i < LANES; i++)
      t[i] = (float)(one[i] - e->a_zero) * e->a_factor + (float)(two[i] - e->b_zero) * e->b_factor;
  }
  finish(end, t, to);
}

INLINE void pair_run(const itg_npu_eltwise *e, const rounding *end, const uint8_t a_type,
                     const uint8_t *a, const uint8_t b_type, const uint8_t *b, uint8_t *to,
                     int64_t n) {
  const int64_t a_item = (int64_t)itg_item(a_type), b_item = (int64_t)itg_item(b_type);
  const int64_t item = (int64_t)itg_item(end->dtype);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    pair_sixteen(e, end, a_type, a + i * a_item, b_type, b + i * b_item, to + i * item);
  if (i == n) return;
  uint8_t results[LANES * 4];
  pair_sixteen(e, end, a_type, a + i * a_item, b_type, b + i * b_item, results);
  memcpy(to + i * item, results, (size_t)((n - i) * item));
}

static void eltwise(const machine *m, const itg_npu_eltwise *e) {
  const box a = box_of(m, &e->head, &e->src), dst = box_of(m, &e->head, &e->dst);
  box b = box_of(m, &e->head, &e->other);
  const bool whole_b = b.height == dst.height && b.width == dst.width;
  stretch(&b, &dst);
  if (!like(&a, &dst) || !like(&b, &dst)) {
    eltwise_elements(m, e);
    return;
  }
  const rounding end = ROUNDING(m, e, e->table, e->entries, e->base);
  const bool join = dense(&a) && dense(&b) && dense(&dst) && whole_b;
#define RUNS(one, two)                                                             \
  FOR_RUNS(&dst, join,                                                             \
           pair_run(e, &end, one, element(&a, c, y, x), two, element(&b, c, y, x), \
                    element(&dst, c, y, x), run);)
  if (a.dtype == ITG_I8 && b.dtype == ITG_I8) RUNS(ITG_I8, ITG_I8)
  else if (a.dtype == ITG_U8 && b.dtype == ITG_U8) RUNS(ITG_U8, ITG_U8)
  else if (a.dtype == ITG_F16) RUNS(ITG_F16, ITG_F16)
  else RUNS(a.dtype, b.dtype)
#undef RUNS
}

static void lut(const machine *m, const itg_npu_lut *l) {
  const box src = box_of(m, &l->head, &l->src), dst = box_of(m, &l->head, &l->dst);
  if (!like(&src, &dst) || src.item != 1 || dst.item != 1) {
    lut_elements(m, l);
    return;
  }
  uint8_t table[256];  // indexed by the byte as u8
  const rounding end = table_of(m, l);
  for (int i = 0; i < 256; i++) look_up(&end, src.dtype == ITG_I8 ? (int8_t)i : i, &table[i]);
  const bool join = dense(&src) && dense(&dst);
  FOR_RUNS(&dst, join, {
    const uint8_t *from = element(&src, c, y, x);
    uint8_t *to = element(&dst, c, y, x);
    for (int64_t i = 0; i < run; i++) to[i] = table[from[i]];
  })
}
