// Reference implementation of every instruction, one element at a time. It runs if no faster form
// applies.
#pragma once
#include "machine.h"

// ---- windows ------------------------------------------------------------------------------------
// Taps [from, to) of a kernel lie inside the input; tap k is at place + k * dilation.
typedef struct taps {
  int64_t from, to, place;
} taps;

static inline taps taps_of(int64_t out, int64_t stride, int64_t pad, int64_t kernel,
                           int64_t dilation, int64_t extent) {
  const int64_t place = out * stride - pad;
  taps t = {0, kernel, place};
  if (place < 0) t.from = itg_npu_div_up(-place, dilation);
  if (place + (kernel - 1) * dilation >= extent)
    t.to = extent > place ? itg_npu_div_up(extent - place, dilation) : 0;
  if (t.from > t.to) t.from = t.to;
  return t;
}

// Sums of bytes wrap at 32 bits, those of 16-bit numbers at 64.
static inline float sum_to_float(uint8_t dtype, int64_t sum) {
  return dtype == ITG_I16 ? (float)sum : (float)(int32_t)(uint32_t)(uint64_t)sum;
}

// Loads scale and bias of an output channel; the bias of f16 products is f32, returned as bits.
static inline void load_params(const machine *m, const itg_npu_product *p, int64_t c, float *scale,
                               int32_t *bias) {
  const uint8_t *at = m->sram[p->head.core] + p->params;
  memcpy(scale, at + (p->one_scale ? 0 : 4 * c), 4);
  memcpy(bias, at + 4 * ((p->one_scale ? 1 : (int64_t)p->dst.channels) + c), 4);
}

// The sparse weight of output o and input i of the atom at `at`. If an index occurs twice, the last
// one counts.
static inline int32_t sparse_weight(const itg_npu_product *p, const int8_t *at, int64_t o,
                                    int64_t i) {
  const itg_npu_form f = itg_npu_form_of(p);
  const int64_t oa = p->out_atom, ia = p->in_atom;
  const int64_t line = f.outputs ? i : o, along = f.outputs ? o : i, wide = f.outputs ? oa : ia;
  const int64_t group = f.block ? o / 4 * (ia / 4) + i / 4 : (line * wide + along) / f.of;
  const uint8_t *places = (const uint8_t *)at + oa * ia / f.of * f.many;
  int8_t found = 0;
  for (int64_t k = group * f.many; k < (group + 1) * f.many; k++) {
    int64_t oc, ic;
    itg_npu_sparse_place(&f, places, k, oa, ia, &oc, &ic);
    if (oc == o && ic == i) found = at[k];
  }
  return found;
}

static inline float residual_of(const itg_npu_product *p, const box *r, int64_t c, int64_t y,
                                int64_t x) {
  const uint8_t *at = element(r, c, y, x);
  return (r->dtype == ITG_F16 ? real(at) : (float)(whole(r->dtype, at) - p->r_zero)) * p->r_factor;
}

// conv and depthwise of f16. Sums are f32 in the order of rows, columns and channels; padding is 0.
static void real_product_elements(const machine *m, const itg_npu_product *p) {
  const bool deep = p->head.op == ITG_NPU_CONV, adds = p->residual.channels != 0;
  const box src = box_of(m, &p->head, &p->src), dst = box_of(m, &p->head, &p->dst);
  const box residual = box_of(m, &p->head, &p->residual);
  const uint8_t *weights = m->sram[p->head.core] + p->weights;
  const rounding end = ROUNDING(m, p, p->table, p->entries, p->base);
  const int64_t ins = deep ? src.channels : 1;
  for (int64_t oc = 0; oc < dst.channels; oc++) {
    float scale;
    int32_t bits;
    load_params(m, p, oc, &scale, &bits);
    const float bias = itg_float_of_bits((uint32_t)bits);
    for (int64_t y = 0; y < dst.height; y++)
      for (int64_t x = 0; x < dst.width; x++) {
        float sum = 0;
        for (int64_t tap = 0; tap < (int64_t)p->kernel[0] * p->kernel[1]; tap++) {
          const int64_t at_y = y * p->stride[0] - p->pad[0] + tap / p->kernel[1] * p->dilation[0];
          const int64_t at_x = x * p->stride[1] - p->pad[1] + tap % p->kernel[1] * p->dilation[1];
          const bool inside = at_y >= 0 && at_y < src.height && at_x >= 0 && at_x < src.width;
          for (int64_t ic = 0; ic < ins; ic++) {
            const float w = real(weights + 2 * itg_npu_weight_at(p, oc, tap, ic));
            sum += (inside ? real(element(&src, deep ? ic : oc, at_y, at_x)) : 0.f) * w;
          }
        }
        float t = sum * scale;
        t += bias;
        if (adds) t += residual_of(p, &residual, oc, y, x);
        put(&end, t, element(&dst, oc, y, x));
      }
  }
}

// conv and depthwise of integers
static void product_elements(const machine *m, const itg_npu_product *p) {
  if (p->src.dtype == ITG_F16) {
    real_product_elements(m, p);
    return;
  }
  const bool deep = p->head.op == ITG_NPU_CONV, adds = p->residual.channels != 0;
  const box src = box_of(m, &p->head, &p->src), dst = box_of(m, &p->head, &p->dst);
  const box residual = box_of(m, &p->head, &p->residual);
  const int64_t item = (int64_t)itg_item(p->weight_type);
  const int8_t *weights = (const int8_t *)m->sram[p->head.core] + p->weights;
  const rounding end = ROUNDING(m, p, p->table, p->entries, p->base);
  const int64_t oa = p->out_atom, ia = p->in_atom, deeper = itg_npu_div_up(src.channels, ia);
  const int64_t atom = itg_npu_atom_bytes(p);
  for (int64_t oc = 0; oc < dst.channels; oc++) {
    float scale;
    int32_t bias;
    load_params(m, p, oc, &scale, &bias);
    for (int64_t y = 0; y < dst.height; y++)
      for (int64_t x = 0; x < dst.width; x++) {
        const taps v =
            taps_of(y, p->stride[0], p->pad[0], p->kernel[0], p->dilation[0], src.height);
        const taps h = taps_of(x, p->stride[1], p->pad[1], p->kernel[1], p->dilation[1], src.width);
        int64_t sum = bias;
        for (int64_t i = v.from; i < v.to; i++)
          for (int64_t j = h.from; j < h.to; j++) {
            const int64_t at_y = v.place + i * p->dilation[0], at_x = h.place + j * p->dilation[1];
            const int64_t tap = i * p->kernel[1] + j;
            for (int64_t ic = 0; ic < (deep ? src.channels : 1); ic++) {
              const int64_t block =
                  (oc / oa * p->kernel[0] * p->kernel[1] + tap) * deeper + ic / ia;
              const int32_t w =
                  p->sparse
                      ? sparse_weight(p, weights + block * atom, oc % oa, ic % ia)
                      : whole((uint8_t)p->weight_type,
                              (const uint8_t *)weights + item * itg_npu_weight_at(p, oc, tap, ic));
              sum += (int64_t)(whole(src.dtype, element(&src, deep ? ic : oc, at_y, at_x)) -
                               p->x_zero) *
                     w;
            }
          }
        if (put_sum(&end, sum, element(&dst, oc, y, x))) continue;
        float t = sum_to_float(src.dtype, sum) * scale;
        if (adds) t += residual_of(p, &residual, oc, y, x);
        put(&end, t, element(&dst, oc, y, x));
      }
  }
}

typedef struct pool_window {  // the window of one output pixel
  taps v, h;
  int64_t inside;  // number of taps inside the input
  float factor;    // from the sum of the inputs to the quantised mean
} pool_window;

static inline pool_window pool_window_at(const itg_npu_pool *p, int64_t y, int64_t x) {
  const taps v = taps_of(y, p->stride[0], p->pad[0], p->kernel[0], p->dilation[0], p->src.height);
  const taps h = taps_of(x, p->stride[1], p->pad[1], p->kernel[1], p->dilation[1], p->src.width);
  const int64_t inside = (v.to - v.from) * (h.to - h.from),
                all = (int64_t)p->kernel[0] * p->kernel[1];
  return (pool_window){v, h, inside,
                       p->x_scale / (p->y_scale * (float)(p->count_pad ? all
                                                          : inside     ? inside
                                                                       : 1))};
}

static inline const uint8_t *pool_tap(const itg_npu_pool *p, const box *src, const pool_window *w,
                                      int64_t c, int64_t i, int64_t j) {
  return element(src, c, w->v.place + i * p->dilation[0], w->h.place + j * p->dilation[1]);
}

static void real_pool_elements(const machine *m, const itg_npu_pool *p) {
  const box src = box_of(m, &p->head, &p->src), dst = box_of(m, &p->head, &p->dst);
  const rounding end = ROUNDING(m, p, 0, 0, 0);
  for (int64_t y = 0; y < dst.height; y++)
    for (int64_t x = 0; x < dst.width; x++) {
      const pool_window w = pool_window_at(p, y, x);
      for (int64_t c = 0; c < dst.channels; c++) {
        float best = -INFINITY, sum = 0;
        for (int64_t i = w.v.from; i < w.v.to; i++)
          for (int64_t j = w.h.from; j < w.h.to; j++) {
            const float one = real(pool_tap(p, &src, &w, c, i, j));
            best = one > best ? one : best;
            sum += one;
          }
        put(&end, p->kind == ITG_NPU_AVG ? sum * w.factor : best, element(&dst, c, y, x));
      }
    }
}

static void pool_elements(const machine *m, const itg_npu_pool *p) {
  if (p->src.dtype == ITG_F16) {
    real_pool_elements(m, p);
    return;
  }
  const box src = box_of(m, &p->head, &p->src), dst = box_of(m, &p->head, &p->dst);
  const rounding end = ROUNDING(m, p, 0, 0, 0);
  const int32_t lowest = src.dtype == ITG_U8 ? 0 : src.dtype == ITG_I8 ? -128 : -32768;
  for (int64_t y = 0; y < dst.height; y++)
    for (int64_t x = 0; x < dst.width; x++) {
      const pool_window w = pool_window_at(p, y, x);
      for (int64_t c = 0; c < dst.channels; c++) {
        int32_t best = lowest;
        int64_t sum = 0;
        for (int64_t i = w.v.from; i < w.v.to; i++)
          for (int64_t j = w.h.from; j < w.h.to; j++) {
            const int32_t one = whole(src.dtype, pool_tap(p, &src, &w, c, i, j));
            best = one > best ? one : best;
            sum += one;
          }
        const int32_t above = best > p->low ? best : p->low,
                      bounded = above < p->high ? above : p->high;
        const int16_t wide = (int16_t)bounded;
        uint8_t *to = element(&dst, c, y, x);
        if (p->kind == ITG_NPU_AVG) put(&end, (float)(sum - w.inside * p->x_zero) * w.factor, to);
        else if (dst.item == 2) memcpy(to, &wide, 2);
        else *to = (uint8_t)bounded;
      }
    }
}

static void eltwise_elements(const machine *m, const itg_npu_eltwise *e) {
  const box a = box_of(m, &e->head, &e->src), dst = box_of(m, &e->head, &e->dst);
  box b = box_of(m, &e->head, &e->other);
  const rounding end = ROUNDING(m, e, e->table, e->entries, e->base);
  stretch(&b, &dst);
  for (int64_t c = 0; c < dst.channels; c++)
    for (int64_t y = 0; y < dst.height; y++)
      for (int64_t x = 0; x < dst.width; x++) {
        float t;
        if (a.dtype == ITG_F16) {
          const float left = real(element(&a, c, y, x)), right = real(element(&b, c, y, x));
          if (e->kind == ITG_NPU_MUL) t = left * right * e->a_factor;
          else t = left * e->a_factor + right * e->b_factor;
          put(&end, t, element(&dst, c, y, x));
          continue;
        }
        const int32_t one = whole(a.dtype, element(&a, c, y, x)) - e->a_zero;
        const int32_t two = whole(b.dtype, element(&b, c, y, x)) - e->b_zero;
        if (e->kind == ITG_NPU_MUL) t = (float)((int64_t)one * two) * e->a_factor;
        else t = (float)one * e->a_factor + (float)two * e->b_factor;
        put(&end, t, element(&dst, c, y, x));
      }
}

static void lut_elements(const machine *m, const itg_npu_lut *l) {
  const box src = box_of(m, &l->head, &l->src), dst = box_of(m, &l->head, &l->dst);
  const rounding end = table_of(m, l);
  for (int64_t c = 0; c < dst.channels; c++)
    for (int64_t y = 0; y < dst.height; y++)
      for (int64_t x = 0; x < dst.width; x++)
        if (end.floats) put_float(&end, real(element(&src, c, y, x)), element(&dst, c, y, x));
        else look_up(&end, whole(src.dtype, element(&src, c, y, x)), element(&dst, c, y, x));
}

static void matmul_elements(const machine *m, const itg_npu_matmul *p) {
  const box a = box_of(m, &p->head, &p->src), b = box_of(m, &p->head, &p->other),
            dst = box_of(m, &p->head, &p->dst);
  const rounding end = ROUNDING(m, p, 0, 0, 0);
  const bool wide = a.dtype == ITG_I16 || b.dtype == ITG_I16;
  for (int64_t c = 0; c < dst.channels; c++)
    for (int64_t y = 0; y < dst.height; y++) {
      int64_t sum = 0;
      float reals = 0;
      for (int64_t k = 0; k < a.channels; k++) {
        const uint8_t *other = p->turned ? element(&b, k, c, 0) : element(&b, c, k, 0);
        if (a.dtype == ITG_F16) reals += real(element(&a, k, y, 0)) * real(other);
        else
          sum += (int64_t)(whole(a.dtype, element(&a, k, y, 0)) - p->a_zero) *
                 (whole(b.dtype, other) - p->b_zero);
      }
      if (put_sum(&end, sum, element(&dst, c, y, 0))) continue;
      const float total = a.dtype == ITG_F16 ? reals : sum_to_float(wide ? ITG_I16 : ITG_I8, sum);
      put(&end, total * p->factor, element(&dst, c, y, 0));
    }
}
