// conv, depthwise and matmul of 16 bits. Operands are converted to f32, which represents f16, and
// i16 minus a zero, exactly. Products of f16 are summed in f32, in the order of the window's rows,
// columns and channels. Products of i16 are summed in f64, which is exact. The register tile is
// WIDE_PIXELS pixels by 16 outputs.
#pragma once
#include "conv.h"

typedef float reals __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double exact __attribute__((vector_size(4 * LANES), aligned(8)));
typedef float half_reals __attribute__((vector_size(2 * LANES), aligned(4), may_alias));
#if defined(ISA_avx512)
enum { WIDE_PIXELS = 8 };
#else
enum { WIDE_PIXELS = 4 };
#endif

typedef struct wide_operands {
  float *image;   // [height][width][channels]
  float *packed;  // [groups][taps][depth][16]
  float *scale;   // [groups * 16]
  double *bias;   // [groups * 16]
} wide_operands;

static wide_operands wide_operands_of(const machine *m, const itg_npu_plan *plan) {
  uint8_t *end = m->scratch + plan->packed + plan->image;
  return (wide_operands){(float *)(void *)(m->scratch + plan->packed), (float *)(void *)m->scratch,
                         (float *)(void *)(end + plan->groups * 128), (double *)(void *)end};
}

static inline float number(uint8_t dtype, const uint8_t *at, int32_t zero) {
  return dtype == ITG_F16 ? real(at) : (float)(whole(dtype, at) - zero);
}

INLINE void widen(uint8_t dtype, const uint8_t *from, int64_t n, int32_t zero, float *to) {
  int64_t i = 0;
#if defined(ITG_QVECTORS)
  if (dtype == ITG_F16)
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i))));
#endif
  for (; i < n; i++) to[i] = number(dtype, from + 2 * i, zero);
}

// Copies the input with its padding, which is 0; each pixel has `deep` channels.
static void fill_wide(const machine *m, const itg_npu_product *p, const itg_npu_plan *plan,
                      int64_t deep, float *image) {
  const box src = box_of(m, &p->head, &p->src);
  int64_t top, bottom, left, right;
  seen(src.height, p->pad[0], plan->height, &top, &bottom);
  seen(src.width, p->pad[1], plan->width, &left, &right);
  if (bottom - top != plan->height || right - left != plan->width || deep != src.channels)
    memset(image, 0, (size_t)(plan->height * plan->width * deep) * sizeof *image);
  for (int64_t y = top; y < bottom; y++)
    for (int64_t c = 0; c < src.channels;) {
      const int64_t run = least(src.c2 - (src.first + c) % src.c2, src.channels - c);
      float *to = image + ((y + p->pad[0]) * plan->width + left + p->pad[1]) * deep + c;
      const uint8_t *from = element(&src, c, y, left);
      for (int64_t x = left; x < right; x++, to += deep, from += src.pixel) {
        if (src.item == 2) widen(src.dtype, from, run, p->x_zero, to);
        else
          for (int64_t k = 0; k < run; k++) to[k] = number(src.dtype, from + k, p->x_zero);
      }
      c += run;
    }
}

static void pack_wide(const machine *m, const itg_npu_product *p, const itg_npu_plan *plan,
                      const wide_operands *b) {
  const bool deep = p->head.op == ITG_NPU_CONV;
  const int64_t taps = (int64_t)p->kernel[0] * p->kernel[1], depth = deep ? plan->depth : 1;
  const int64_t item = (int64_t)itg_item(p->weight_type);
  const uint8_t *from = m->sram[p->head.core] + p->weights;
  memset(b->packed, 0, (size_t)(plan->groups * taps * depth * LANES) * sizeof *b->packed);
  for (int64_t c = 0; c < plan->groups * LANES; c++) {
    b->scale[c] = 0, b->bias[c] = 0;
    if (c >= p->dst.channels) continue;
    int32_t bias;
    load_params(m, p, c, &b->scale[c], &bias);
    b->bias[c] = p->src.dtype == ITG_F16 ? (double)itg_float_of_bits((uint32_t)bias) : (double)bias;
    for (int64_t tap = 0; tap < taps; tap++) {
      float *to = b->packed + (c / LANES * taps + tap) * depth * LANES + c % LANES;
      for (int64_t i = 0; i < depth; i++)
        to[i * LANES] =
            number((uint8_t)p->weight_type, from + item * itg_npu_weight_at(p, c, tap, i), 0);
    }
  }
}

// Sums of 16 outputs of some pixels, in f32. Strides of the window count floats.
INLINE void sum_reals(const window *v, const float *const *at, const float *w, const int pixels,
                      float (*sums)[LANES]) {
  reals acc[WIDE_PIXELS];
  for (int q = 0; q < pixels; q++) acc[q] = (reals){0};
  for (int64_t r = 0; r < v->rows; r++)
    for (int64_t c = 0; c < v->columns; c++) {
      const int64_t by = r * v->row + c * v->column;
      for (int64_t s = 0; s < v->steps; s++, w += LANES)
        FOR_UNROLLED (16, int q = 0; q < pixels; q++) acc[q] += *(const reals *)w * at[q][by + s];
    }
  for (int q = 0; q < pixels; q++) memcpy(sums[q], &acc[q], sizeof acc[q]);
}

// The same in f64.
INLINE void sum_exact(const window *v, const float *const *at, const float *w, const int pixels,
                      double (*sums)[LANES]) {
  exact acc[WIDE_PIXELS][2];
  for (int q = 0; q < pixels; q++) acc[q][0] = acc[q][1] = (exact){0};
  for (int64_t r = 0; r < v->rows; r++)
    for (int64_t c = 0; c < v->columns; c++) {
      const int64_t by = r * v->row + c * v->column;
      for (int64_t s = 0; s < v->steps; s++, w += LANES)
        FOR_UNROLLED (16, int h = 0; h < 2; h++) {
          const exact weights =
              __builtin_convertvector(*(const half_reals *)(w + h * LANES / 2), exact);
          FOR_UNROLLED (16, int q = 0; q < pixels; q++)
            acc[q][h] += weights * (double)at[q][by + s];
        }
    }
  for (int q = 0; q < pixels; q++) memcpy(sums[q], acc[q], sizeof acc[q]);
}

static __attribute__((noinline)) void sums_of(const window *v, const float *const *at,
                                              const float *w, int pixels, bool floats,
                                              double (*sums)[LANES]) {
  float few[WIDE_PIXELS][LANES];
  if (!floats) {
    if (pixels == WIDE_PIXELS) sum_exact(v, at, w, WIDE_PIXELS, sums);
    else
      for (int q = 0; q < pixels; q++) sum_exact(v, at + q, w, 1, sums + q);
    return;
  }
  if (pixels == WIDE_PIXELS) sum_reals(v, at, w, WIDE_PIXELS, few);
  else
    for (int q = 0; q < pixels; q++) sum_reals(v, at + q, w, 1, few + q);
  for (int q = 0; q < pixels; q++)
    for (int i = 0; i < LANES; i++) sums[q][i] = few[q][i];
}

INLINE void end_wide(const ending *e, const place *p, const double *sums, const double *bias,
                     bool floats, int64_t y, int64_t x) {
  if (e->round.dtype == ITG_I32) {  // the lower 32 bits of the sums
    uint32_t low[LANES];
    for (int i = 0; i < LANES; i++) low[i] = (uint32_t)(uint64_t)(int64_t)(sums[i] + bias[i]);
    put_place(e, p, y, x, (const uint8_t *)low);
    return;
  }
  float t[LANES];
  if (floats)
    for (int i = 0; i < LANES; i++) t[i] = (float)sums[i] * p->scale[i] + (float)bias[i];
  else
    for (int i = 0; i < LANES; i++) t[i] = (float)(sums[i] + bias[i]) * p->scale[i];
  end_reals(e, p, t, y, x);
}

// Computes all pixels of the result. `down` and `across` are the floats of the image between the
// windows of neighbouring output rows and columns.
static void multiply_wide(const window *v, const wide_operands *b, const ending *end,
                          const itg_npu_plan *plan, int64_t down, int64_t across, bool floats) {
  const int64_t wide = end->dst.width;
  for (int64_t g = 0; g < plan->groups; g++) {
    const place here = place_of(end, g);
    for (int64_t left = end->dst.height * wide, y = 0, x = 0; left > 0; left -= WIDE_PIXELS) {
      const int some = (int)least(WIDE_PIXELS, left);
      const float *at[WIDE_PIXELS];
      double sums[WIDE_PIXELS][LANES];
      int64_t ys[WIDE_PIXELS], xs[WIDE_PIXELS];
      for (int q = 0; q < some; q++) {
        at[q] = b->image + y * down + x * across;
        ys[q] = y, xs[q] = x;
        if (++x == wide) x = 0, y++;
      }
      sums_of(v, at, b->packed + g * v->group, some, floats, sums);
      for (int q = 0; q < some; q++)
        end_wide(end, &here, sums[q], b->bias + g * LANES, floats, ys[q], xs[q]);
    }
  }
}

static void conv_wide(machine *m, const itg_npu_product *p, const itg_npu_plan *plan) {
  const wide_operands b = wide_operands_of(m, plan);
  const int64_t taps = (int64_t)p->kernel[0] * p->kernel[1], deep = plan->depth;
  pack_wide(m, p, plan, &b);
  fill_wide(m, p, plan, deep, b.image);
  window v = {.rows = p->kernel[0], .steps = deep, .columns = p->kernel[1]};
  v.row = p->dilation[0] * plan->width * deep, v.column = p->dilation[1] * deep;
  v.group = taps * deep * LANES;
  if (p->dilation[1] == 1) v.steps *= v.columns, v.columns = 1;
  const ending end = ending_of(m, p, b.scale);
  multiply_wide(&v, &b, &end, plan, p->stride[0] * plan->width * deep, p->stride[1] * deep,
                p->src.dtype == ITG_F16);
}

static void depthwise_wide(machine *m, const itg_npu_product *p, const itg_npu_plan *plan) {
  const wide_operands b = wide_operands_of(m, plan);
  const int64_t deep = plan->groups * LANES, taps = (int64_t)p->kernel[0] * p->kernel[1];
  const bool floats = p->src.dtype == ITG_F16;
  pack_wide(m, p, plan, &b);
  fill_wide(m, p, plan, deep, b.image);
  const ending end = ending_of(m, p, b.scale);
  for (int64_t g = 0; g < plan->groups; g++) {
    const place here = place_of(&end, g);
    const float *w = b.packed + g * taps * LANES;
    for (int64_t y = 0; y < end.dst.height; y++)
      for (int64_t x = 0; x < end.dst.width; x++) {
        const float *at =
            b.image + (y * p->stride[0] * plan->width + x * p->stride[1]) * deep + g * LANES;
        double sums[LANES];
        reals acc = {0};
        exact wide[2] = {{0}, {0}};
        for (int64_t i = 0; i < p->kernel[0]; i++)
          for (int64_t j = 0; j < p->kernel[1]; j++) {
            const float *pixel =
                at + (i * p->dilation[0] * plan->width + j * p->dilation[1]) * deep;
            const float *tap = w + (i * p->kernel[1] + j) * LANES;
            if (floats) acc += *(const reals *)pixel * *(const reals *)tap;
            else
              for (int h = 0; h < 2; h++)
                wide[h] +=
                    __builtin_convertvector(*(const half_reals *)(pixel + h * LANES / 2), exact) *
                    __builtin_convertvector(*(const half_reals *)(tap + h * LANES / 2), exact);
          }
        if (floats)
          for (int i = 0; i < LANES; i++) sums[i] = acc[i];
        else memcpy(sums, wide, sizeof sums);
        end_wide(&end, &here, sums, b.bias + g * LANES, floats, y, x);
      }
  }
}
