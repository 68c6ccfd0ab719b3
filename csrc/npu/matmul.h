// matmul, computed as a 1x1 convolution: the second operand is packed as weights, and each row of
// the first is a pixel.
#pragma once
#include "conv16.h"

// Packs b [n][k] as i8 in groups of four along k and 16 along n.
static void pack_other(const box *b, bool turned, int64_t depth, int64_t groups, uint8_t flip,
                       int8_t *to) {
  const int64_t ks = turned ? b->channels : b->height, ns = turned ? b->height : b->channels;
  if (ks % 4 || ns % LANES) memset(to, 0, (size_t)(groups * depth * 64));
  for (int64_t c = 0; c < b->channels; c++) {
    const uint8_t *from = element(b, c, 0, 0);
    for (int64_t y = 0; y < b->height; y++, from += b->row) {
      const int64_t k = turned ? c : y, n = turned ? y : c;
      to[(n / LANES * depth + k / 4) * 64 + n % LANES * 4 + k % 4] = (int8_t)(*from ^ flip);
    }
  }
}

static ending ending_of_matmul(const machine *m, const itg_npu_matmul *p, const float *scale) {
  ending end = {.dst = box_of(m, &p->head, &p->dst), .scale = scale};
  end.round = ROUNDING(m, p, 0, 0, 0);
  end.dst_lanes = has_lanes(&end.dst);
  return end;
}

// matmul of 16 bits: operands are f32 in scratch.
static void matmul_wide(const machine *m, const itg_npu_matmul *p, const itg_npu_plan *plan) {
  const wide_operands b = wide_operands_of(m, plan);
  const box other = box_of(m, &p->head, &p->other);
  memset(b.packed, 0, (size_t)(plan->groups * plan->depth * LANES) * sizeof *b.packed);
  for (int64_t c = 0; c < other.channels; c++)
    for (int64_t y = 0; y < other.height; y++) {
      const int64_t k = p->turned ? c : y, n = p->turned ? y : c;
      const float one = number(other.dtype, element(&other, c, y, 0), p->b_zero);
      b.packed[(n / LANES * plan->depth + k) * LANES + n % LANES] = one;
    }
  for (int64_t i = 0; i < plan->groups * LANES; i++) b.scale[i] = p->factor, b.bias[i] = 0;
  const itg_npu_product image = {.head = p->head, .src = p->src, .x_zero = p->a_zero};
  fill_wide(m, &image, plan, plan->depth, b.image);
  const ending end = ending_of_matmul(m, p, b.scale);
  const window v = {.rows = 1, .columns = 1, .steps = plan->depth, .group = plan->depth * LANES};
  multiply_wide(&v, &b, &end, plan, plan->depth, plan->depth, p->src.dtype == ITG_F16);
}

static void matmul(machine *m, const itg_npu_matmul *p) {
  const itg_npu_plan plan = itg_npu_plan_of_matmul(p);
  m->packed = NULL;
  if (!plan.fast) {
    matmul_elements(m, p);
    return;
  }
  if (plan.wide) {
    matmul_wide(m, p, &plan);
    return;
  }
  const operands b = operands_of(m, &plan);
  const box a = box_of(m, &p->head, &p->src), other = box_of(m, &p->head, &p->other);
  const int64_t deep = plan.depth * 4, rows = a.height;
  const uint8_t flip = a.dtype == ITG_I8 ? 0x80 : 0, other_flip = other.dtype == ITG_I8 ? 0 : 0x80;
  const uint32_t a_zero = (uint32_t)(p->a_zero + flip), b_zero = (uint32_t)(p->b_zero - other_flip);
  pack_other(&other, p->turned, plan.depth, plan.groups, other_flip, b.packed);
  const itg_npu_product image = {.head = p->head,
                                 .src = p->src};  // the input of the 1x1 convolution
  fill_image(m, &image, &plan, deep, flip, b.image);
  // sum of (a - a_zero)(b - b_zero) = sum of ab - a_zero sum of b - b_zero (sum of a - a_zero K)
  for (int64_t g = 0; g < plan.groups; g++) {
    int32_t sums[LANES];
    sum_weights(b.packed + g * plan.depth * 64, plan.depth, sums);
    for (int64_t i = 0; i < LANES; i++) {
      b.scale[g * LANES + i] = p->factor;
      b.bias[g * LANES + i] = (int32_t)(0u - (uint32_t)sums[i] * a_zero);
    }
  }
  int32_t *more = (int32_t *)(void *)(m->scratch + plan.total) - rows;
  for (int64_t y = 0; y < rows; y++) {
    uint32_t sum = 0;
    for (int64_t k = 0; k < a.channels; k++) sum += b.image[y * deep + k];
    more[y] = (int32_t)(0u - b_zero * (sum - a_zero * (uint32_t)a.channels));
  }
  const ending end = ending_of_matmul(m, p, b.scale);
  const window v = {.rows = 1, .columns = 1, .steps = plan.depth, .group = plan.depth * 64};
  multiply(&v, &b, &end, plan.groups, deep, deep, more);
}
