// npu.run: simulates an NPU program, one instruction at a time. check.c and hazards.c have checked
// the program when the file was opened.
#include "depthwise.h"
#include "matmul.h"
#include "copy.h"
#include "eltwise.h"
#include "conv16.h"

// Forgets the packed weights if instruction i overwrites the weights that they were packed from.
static void forget(machine *m, const itg_npu_instruction *i) {
  const itg_npu_feature *f = &i->move.dst;
  const itg_npu_product *p = m->packed;
  if (!p || i->head.op == ITG_NPU_BARRIER || f->space != ITG_NPU_SRAM ||
      i->head.core != p->head.core)
    return;
  const uint64_t end = f->offset + itg_npu_blocks(f) * f->plane + (uint64_t)f->height * f->row +
                       (uint64_t)f->width * f->pixel + f->c2 * itg_item(f->dtype);  // upper bound
  if (f->offset < (uint64_t)p->weights + p->weight_bytes && end > p->weights) m->packed = NULL;
}

static void product(machine *m, const itg_npu_product *p) {
  const itg_npu_plan plan = itg_npu_plan_of(p);
  if (plan.fast && !plan.wide) {
    (p->head.op == ITG_NPU_CONV ? conv : depthwise)(m, p, plan);
    return;
  }
  m->packed = NULL;
  if (!plan.fast) product_elements(m, p);
  else (p->head.op == ITG_NPU_CONV ? conv_wide : depthwise_wide)(m, p, &plan);
}

static void step(machine *m, const itg_npu_instruction *i) {
  forget(m, i);
  switch (i->head.op) {
    case ITG_NPU_LOAD:
    case ITG_NPU_STORE:
    case ITG_NPU_COPY: move(m, &i->move); break;
    case ITG_NPU_CONV:
    case ITG_NPU_DEPTHWISE: product(m, &i->product); break;
    case ITG_NPU_POOL: pool(m, &i->pool); break;
    case ITG_NPU_ELTWISE: eltwise(m, &i->eltwise); break;
    case ITG_NPU_LUT: lut(m, &i->lut); break;
    case ITG_NPU_RESIZE: resize(m, &i->resize); break;
    case ITG_NPU_MATMUL: matmul(m, &i->matmul); break;
    default: break;
  }
}

// Fewer cores than the program is for: several of its cores use one memory in turn, each up to its
// next barrier.
static void run_in_turn(machine *m) {
  struct {
    const itg_npu_instruction *next;
    uint32_t number;
  } at[ITG_NPU_CORES];
  const uint32_t cores = m->program->cores, count = m->program->instructions;
  uint32_t ended = 0;
  for (uint32_t c = 0; c < cores; c++) at[c].next = itg_npu_first(m->program), at[c].number = 0;
  while (ended < cores) {
    ended = 0;
    for (uint32_t c = 0; c < cores; c++) {
      bool barrier = false;
      m->packed = NULL;  // their weights lie in the memory of another core
      while (at[c].number < count && !barrier) {
        const itg_npu_instruction *i = at[c].next;
        at[c].number++, at[c].next = itg_npu_next(i);
        if (i->head.core != c) continue;
        step(m, i);
        barrier = i->head.op == ITG_NPU_BARRIER;
      }
      ended += at[c].number == count;
    }
  }
}

ITG_FN(run, any) {
  if (part) return NULL;  // one thread runs all instructions in order
  machine m = {.call = call, .program = call->in[0]->data};
  const uint32_t cores = itg_npu_cores_of(m.program, (uint32_t)call->round);
  const uint64_t each = (m.program->sram + ITG_NPU_SLACK + 63) / 64 * 64;
  uint8_t *at = call->scratch;
  for (uint32_t c = 0; c < m.program->cores; c++) m.sram[c] = at + c % cores * each;
  m.internal = at += cores * each;
  m.scratch = at + (m.program->internal + 63) / 64 * 64;
  const itg_npu_instruction *i = itg_npu_first(m.program);
  if (cores < m.program->cores) run_in_turn(&m);
  else
    for (uint32_t n = 0; n < m.program->instructions; n++, i = itg_npu_next(i)) step(&m, i);
  return NULL;
}
