// How the simulator computes products of an NPU program, and the scratch memory that it needs.
#include "program.h"

static uint64_t up(uint64_t n) { return (n + 63) / 64 * 64; }

// Scratch of the step: the SRAM of all cores, the memory that they share, the largest product.
uint64_t itg_scratch_npu_run(const itg_call *call, uint32_t parts) {
  const itg_npu_program *p = call->in[0]->data;
  const itg_npu_instruction *i = itg_npu_first(p);
  uint64_t most = 0;
  for (uint32_t n = 0; n < p->instructions; n++, i = itg_npu_next(i)) {
    uint64_t need = 0;
    if (i->head.op == ITG_NPU_CONV || i->head.op == ITG_NPU_DEPTHWISE)
      need = itg_npu_plan_of(&i->product).total;
    if (i->head.op == ITG_NPU_MATMUL) need = itg_npu_plan_of_matmul(&i->matmul).total;
    if (need > most) most = need;
  }
  return p->cores * up(p->sram + ITG_NPU_SLACK) + up(p->internal) + most + ITG_NPU_SLACK;
}

// The plan of a product. A product whose padding is much larger than its input gets no scratch and
// is computed element by element.
itg_npu_plan itg_npu_plan_of(const itg_npu_product *p) {
  const bool deep = p->head.op == ITG_NPU_CONV;
  const uint64_t taps = (uint64_t)p->kernel[0] * p->kernel[1];
  itg_npu_plan plan = {.depth = itg_npu_div_up(p->src.channels, 4),
                       .groups = itg_npu_div_up(p->dst.channels, 16)};
  plan.height = (int64_t)(p->dst.height - 1) * p->stride[0] +
                (int64_t)(p->kernel[0] - 1) * p->dilation[0] + 1;
  plan.width =
      (int64_t)(p->dst.width - 1) * p->stride[1] + (int64_t)(p->kernel[1] - 1) * p->dilation[1] + 1;
  plan.wide = itg_item(p->src.dtype) == 2;
  if (plan.wide) plan.depth = p->src.channels;
  const uint64_t deepest = (uint64_t)(plan.wide ? plan.depth : plan.depth * 4);
  const uint64_t image = itg_npu_times(itg_npu_times((uint64_t)plan.height, (uint64_t)plan.width),
                                       deep ? deepest : (uint64_t)plan.groups * 16);
  const uint64_t pixels = (uint64_t)p->src.height * p->src.width, lanes = deepest + 16;
  plan.fast =
      !(plan.wide && p->sparse) && image < UINT64_MAX && image <= 16 * pixels * lanes + (1u << 20);
  if (!plan.fast) return plan;
  plan.packed = up((uint64_t)plan.groups * taps * (uint64_t)(deep ? plan.depth * 64 : 64));
  plan.image = up(image * (plan.wide ? 4 : 1) + ITG_NPU_SLACK);
  plan.total = plan.packed + plan.image + (uint64_t)plan.groups * 192;
  return plan;
}

itg_npu_plan itg_npu_plan_of_matmul(const itg_npu_matmul *p) {
  const uint64_t rows = p->src.height;
  itg_npu_plan plan = {.depth = itg_npu_div_up(p->src.channels, 4),
                       .groups = itg_npu_div_up(p->dst.channels, 16)};
  plan.height = (int64_t)rows, plan.width = 1, plan.fast = true;
  plan.wide = itg_item(p->src.dtype) == 2 || itg_item(p->other.dtype) == 2;
  if (plan.wide) plan.depth = p->src.channels;
  plan.packed = up((uint64_t)plan.groups * (uint64_t)plan.depth * 64);
  plan.image = up(rows * (uint64_t)plan.depth * 4 + ITG_NPU_SLACK);
  plan.total = plan.packed + plan.image + (uint64_t)plan.groups * 192 + up(rows * 4);
  return plan;
}
