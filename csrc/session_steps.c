// The steps of a session, bound to their kernels, tensors and attributes.
#include <string.h>

#include "npu/cores.h"
#include "session_layout.h"

static bool is_npu_program(const itg_op *op) { return op->infer == itg_infer_npu_run; }

itg_status itg_check_cores(const itg_model *m, const itg_session_layout *l, uint32_t mask,
                           itg_error *e) {
  const uint32_t first = m->plans[l->first_plan].first_step;
  uint32_t programs = 0;
  for (uint32_t i = first; mask && i < first + l->n_steps; i++) {
    if (!is_npu_program(m->kernels[i]->op)) continue;
    programs++;
    const itg_words wrong = itg_npu_check_cores(m->arg_tensors[m->steps[i].args]->data, mask);
    if (wrong) return itg_fail(e, ITG_BAD_INPUT, "%s", wrong);
  }
  if (mask && !programs)
    return itg_fail(e, ITG_BAD_INPUT,
                    "core_mask 0x%x: the package has no NPU program, it runs on the CPU; leave "
                    "core_mask out, and use threads",
                    mask);
  return ITG_OK;
}

static bool in_same_place(const itg_model *m, const itg_file_step *s) {
  return itg_same_place(&m->tens[m->args[s->args]], &m->tens[m->args[s->args + s->n_in]]);
}

// When the shapes of a step are known. A resize may settle a tensor only if one step alone gives it
// a shape: `writers` counts them.
static enum itg_when when_known(itg_session *s, const uint8_t *writers, uint32_t plan,
                                const itg_file_step *r, uint32_t flags) {
  const itg_model *m = s->model;
  const uint32_t *args = m->args + r->args;
  bool varies = flags & (ITG_EXTENT | ITG_VALUES), settled = m->plans[plan].main == plan;
  if (flags & (ITG_EXTENT | ITG_VALUES | ITG_CONTROL)) settled = false;
  for (uint32_t k = 0; k < r->n_in + r->n_out; k++) {
    if (args[k] == ITG_NONE || !m->tens[args[k]].dynamic) continue;
    varies = true;
    if (k < r->n_in ? !s->settled[args[k]] : writers[args[k]] != 1) settled = false;
  }
  uint32_t first, count;
  if (itg_patches_of(m, (uint32_t)(r - m->steps), &first, &count)) varies = true;
  if (!varies) return ITG_AT_OPEN;
  if (!settled) return ITG_AT_RUN_TIME;
  for (uint32_t k = r->n_in; k < r->n_in + r->n_out; k++) s->settled[args[k]] = 1;
  return ITG_AT_RESIZE;
}

// How many steps give each tensor a shape, up to 2. Control flow gives shapes to the inputs of its
// sub-plans.
static void count_writers(const itg_model *m, const itg_session_layout *l, uint8_t *writers) {
  for (uint32_t p = l->first_plan; p < l->last_plan; p++) {
    const itg_file_plan *plan = &m->plans[p];
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
      const uint32_t id = m->args[plan->inputs + i];
      if (id != ITG_NONE) writers[id] = 2;
    }
    for (uint32_t i = plan->first_step; i < plan->first_step + plan->n_steps; i++) {
      const itg_file_step *s = &m->steps[i];
      const uint32_t *out = m->args + s->args + s->n_in;
      for (uint32_t k = 0; k < s->n_out; k++)
        if (writers[out[k]] < 2) writers[out[k]]++;
    }
  }
}

typedef struct step_memory {
  uint8_t *attrs, *prepared;  // that the next step gets
} step_memory;

static itg_step bound_step(itg_session *s, uint32_t plan, const itg_file_step *r,
                           step_memory *memory) {
  const itg_model *m = s->model;
  const itg_kernel *kernel = m->kernels[r - m->steps];
  const uint8_t *own = m->attrs + r->attrs;
  uint32_t first, count;
  if (itg_patches_of(m, (uint32_t)(r - m->steps), &first, &count)) {
    own = memcpy(memory->attrs, own, r->attrs_size);
    memory->attrs += itg_align(r->attrs_size);
  }
  itg_step step = {
      .call = {(const itg_tensor *const *)(s->args + r->args), s->args + r->args + r->n_in, r->n_in,
               r->n_out, own, NULL, is_npu_program(kernel->op) ? s->options.core_mask : 0},
      .run = kernel->run,
      .prepare = itg_prepare_of(kernel->op),
      .op = kernel->op,
      .record = r,
      .parts = itg_parts_for(m, r, s->args + r->args, s->threads),
      .control = (kernel->op->flags & ITG_CONTROL) != 0,
      .plan = plan,
      .isa = kernel->isa ? kernel->isa : "scalar",
  };
  if (step.prepare) {
    step.whole.prepared = memory->prepared;
    memory->prepared += itg_align(step.prepare(&step.call, memory->prepared));
  }
  return step;
}

void itg_bind_steps(itg_session *s, const itg_session_layout *l) {
  const itg_model *m = s->model;
  step_memory memory = {(uint8_t *)s + l->attrs, (uint8_t *)s + l->prepared};
  itg_step *to = s->steps;
  uint8_t *writers = s->settled + m->n_tensors;
  count_writers(m, l, writers);
  for (uint32_t i = 0; i < m->n_axes; i++)
    s->settled[m->args[m->plans[m->axes[i].plan].inputs + m->axes[i].input]] = 1;
  for (uint32_t p = l->first_plan; p < l->last_plan; p++) {
    itg_steps *steps = &s->plans[p - l->first_plan];
    steps->first = to;
    for (uint32_t i = 0; i < m->plans[p].n_steps; i++) {
      const itg_file_step *r = &m->steps[m->plans[p].first_step + i];
      const uint32_t flags = m->kernels[r - m->steps]->op->flags;
      const enum itg_when when = when_known(s, writers, p, r, flags);
      const bool idle = flags & ITG_VIEW && when != ITG_AT_RUN_TIME && in_same_place(m, r);
      if (idle && when == ITG_AT_OPEN) continue;  // nothing to compute, ever
      *to = bound_step(s, p, r, &memory);
      to->dynamic = (uint8_t)when;
      to++->idle = idle;
      steps->count++;
    }
  }
  s->n_steps = (uint32_t)(to - s->steps);
}
