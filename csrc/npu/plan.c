// How the simulator runs products of an NPU program, and the memory that it needs beside the
// modelled one.
#include "program.h"

static uint64_t up(uint64_t n) { return (n + 63) / 64 * 64; }

// The cores' SRAM, the memory that they share, then the scratch of the largest product.
size_t itg_scratch_npu_run(const itg_call *call, uint32_t parts) {
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

// The scratch of a product: none where its input has many more borders than pixels.
itg_npu_plan itg_npu_plan_of(const itg_npu_product *p) {
  const bool deep = p->head.op == ITG_NPU_CONV;
  const uint64_t taps = (uint64_t)p->kernel[0] * p->kernel[1];
  itg_npu_plan made = {.depth = itg_npu_div_up(p->src.channels, 4),
                       .groups = itg_npu_div_up(p->dst.channels, 16)};
  made.height = (int64_t)(p->dst.height - 1) * p->stride[0] +
                (int64_t)(p->kernel[0] - 1) * p->dilation[0] + 1;
  made.width =
      (int64_t)(p->dst.width - 1) * p->stride[1] + (int64_t)(p->kernel[1] - 1) * p->dilation[1] + 1;
  made.wide = itg_item(p->src.dtype) == 2;
  if (made.wide) made.depth = p->src.channels;
  const uint64_t deepest = (uint64_t)(made.wide ? made.depth : made.depth * 4);
  const unsigned __int128 image = (unsigned __int128)made.height * (uint64_t)made.width *
                                  (deep ? deepest : (uint64_t)made.groups * 16);
  const uint64_t pixels = (uint64_t)p->src.height * p->src.width, lanes = deepest + 16;
  made.fast =
      !(made.wide && p->sparse) && image <= 16 * (unsigned __int128)(pixels * lanes) + (1u << 20);
  if (!made.fast) return made;
  made.packed = up((uint64_t)made.groups * taps * (uint64_t)(deep ? made.depth * 64 : 64));
  made.image = up((uint64_t)image * (made.wide ? 4 : 1) + ITG_NPU_SLACK);
  made.total = made.packed + made.image + (uint64_t)made.groups * 192;
  return made;
}

itg_npu_plan itg_npu_plan_of_matmul(const itg_npu_matmul *p) {
  const uint64_t rows = p->src.height;
  itg_npu_plan made = {.depth = itg_npu_div_up(p->src.channels, 4),
                       .groups = itg_npu_div_up(p->dst.channels, 16)};
  made.height = (int64_t)rows, made.width = 1, made.fast = true;
  made.wide = itg_item(p->src.dtype) == 2 || itg_item(p->other.dtype) == 2;
  if (made.wide) made.depth = p->src.channels;
  made.packed = up((uint64_t)made.groups * (uint64_t)made.depth * 64);
  made.image = up(rows * (uint64_t)made.depth * 4 + ITG_NPU_SLACK);
  made.total = made.packed + made.image + (uint64_t)made.groups * 192 + up(rows * 4);
  return made;
}
