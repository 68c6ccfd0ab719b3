// npu.run: an NPU program, instruction by instruction, in the memories that it models. What it claims was checked when
// the file was opened (check.c, order.c), also that its result does not depend on how its queues overtake each other.
#include "move.h"

static void step(machine *m, const itg_npu_instruction *i) {
  switch (i->head.op) {
    case ITG_NPU_LOAD:
    case ITG_NPU_STORE:
    case ITG_NPU_COPY: move(m, &i->move); break;
    case ITG_NPU_CONV:
    case ITG_NPU_DEPTHWISE: product_elements(m, &i->product); break;
    case ITG_NPU_POOL: pool_elements(m, &i->pool); break;
    case ITG_NPU_ELTWISE: eltwise_elements(m, &i->eltwise); break;
    case ITG_NPU_LUT: lut_elements(m, &i->lut); break;
    case ITG_NPU_RESIZE: resize(m, &i->resize); break;
    case ITG_NPU_MATMUL: matmul_elements(m, &i->matmul); break;
    default: break;
  }
}

ITG_FN(run, any) {
  if (part) return NULL;  // instructions follow each other
  machine m = {.call = call, .program = call->in[0]->data};
  uint8_t *at = call->scratch;
  for (uint32_t c = 0; c < m.program->cores; c++) {
    m.sram[c] = at;
    at += (m.program->sram + ITG_NPU_SLACK + 63) / 64 * 64;
  }
  m.internal = at;
  m.beside = at + (m.program->internal + 63) / 64 * 64;
  const itg_npu_instruction *i = itg_npu_first(m.program);
  for (uint32_t n = 0; n < m.program->instructions; n++, i = itg_npu_next(i)) step(&m, i);
  return NULL;
}
