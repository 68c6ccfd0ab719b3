// How much memory a session needs, and where in it everything lies.
#include "session_layout.h"

static const itg_options no_options;

uint32_t itg_threads_of(const itg_options *o) {
  const uint32_t most = o->pool ? itg_pool_threads(o->pool) : ITG_MAX_THREADS;
  const uint32_t wanted = o->threads ? o->threads : o->pool ? most : 1;
  return wanted > most ? most : wanted;
}

static uint64_t take(itg_session_layout *l, uint64_t bytes) {
  uint64_t at = l->total;
  l->total = itg_align(l->total + bytes);
  return at;
}

bool itg_own_output(const itg_model *m, const itg_family *f, uint32_t i, bool external) {
  if (m->output_carried[f->outputs + i]) return true;
  return !external && m->output_slots[f->outputs + i] != ITG_NONE;
}

// Bytes of the buffers for inputs and outputs of a main plan.
static uint64_t io_bytes(const itg_model *m, uint32_t main, bool external) {
  const itg_file_plan *p = &m->plans[main];
  const itg_family *f = &m->families[main];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->n_inputs; i++)
    if (!external || m->input_carried[f->inputs + i])
      bytes += itg_align(itg_bytes(m->arg_tensors[p->inputs + i]));
  for (uint32_t i = 0; i < p->n_outputs; i++)
    if (itg_own_output(m, f, i, external))
      bytes += itg_align(itg_bytes(m->arg_tensors[p->outputs + i]));
  return bytes;
}

static itg_status find_plans(const itg_model *m, uint32_t plan, itg_session_layout *l,
                             itg_error *e) {
  l->last_plan = m->n_plans;
  if (plan == ITG_ANY_PLAN) return ITG_OK;
  if (plan >= m->n_mains)
    return itg_fail(e, ITG_BAD_INPUT, "plan %u does not exist; the package has %u", plan,
                    m->n_mains);
  l->first_plan = m->mains[plan];
  if (plan + 1 < m->n_mains) l->last_plan = m->mains[plan + 1];
  return ITG_OK;
}

itg_status itg_measure_session(const itg_model *m, const itg_options *o, itg_session_layout *l,
                               itg_memory *mem, itg_error *e) {
  *l = (itg_session_layout){0};
  *mem = (itg_memory){.weights = m->consts_size};
  for (uint32_t i = 1; i <= m->n_weights; i++) mem->weights += itg_constants_of(m, i).size;
  itg_status status = find_plans(m, o->plan, l, e);
  if (status) return status;
  uint64_t io = 0, attrs = 0, prepared = 0;
  uint32_t n_inputs = 0, n_outputs = 0;
  for (uint32_t p = l->first_plan; p < l->last_plan; p++) {
    l->n_steps += m->plans[p].n_steps;
    if (m->plans[p].arena > mem->arena) mem->arena = m->plans[p].arena;
    if (m->plans[p].main != p) continue;
    const uint64_t bytes = io_bytes(m, p, o->external_io);
    if (bytes > io) io = bytes;
    n_inputs += m->plans[p].n_inputs;
    n_outputs += m->plans[p].n_outputs;
  }
  const uint32_t first = m->plans[l->first_plan].first_step;
  for (uint32_t i = first; i < first + l->n_steps; i++) {
    const itg_file_step *s = &m->steps[i];
    const itg_op *op = m->kernels[i]->op;
    uint32_t patch, patches;
    if (itg_patches_of(m, i, &patch, &patches)) attrs += itg_align(s->attrs_size);
    const itg_prepare_fn prepare = itg_prepare_of(op);
    if (!op->scratch && !prepare) continue;
    itg_tensor *const *args = (itg_tensor *const *)(const void *)(m->arg_tensors + s->args);
    const itg_call call = {m->arg_tensors + s->args, args + s->n_in, s->n_in, s->n_out,
                           m->attrs + s->attrs,      NULL,           0};  // read only
    if (prepare) prepared += itg_align(prepare(&call, NULL));
    if (!op->scratch) continue;
    uint64_t need = op->scratch(&call, itg_parts_for(m, s, args, itg_threads_of(o)));
    if (need > ITG_MAX_BYTES)
      return itg_fail(e, ITG_NO_MEMORY, "step %u (%s) needs %llu bytes of scratch memory", i,
                      op->name, (unsigned long long)need);
    if (need > mem->scratch) mem->scratch = need;
  }
  take(l, sizeof(itg_session));
  l->tensors = take(l, (uint64_t)m->n_tensors * sizeof(itg_tensor));
  l->args = take(l, (uint64_t)m->n_args * sizeof(itg_tensor *));
  l->next = take(l, (uint64_t)m->n_tensors * sizeof(uint32_t));
  l->steps = take(l, (uint64_t)l->n_steps * sizeof(itg_step));
  l->plans = take(l, (uint64_t)(l->last_plan - l->first_plan) * sizeof(itg_steps));
  l->inputs = take(l, (uint64_t)n_inputs * sizeof(itg_slot));
  l->outputs = take(l, (uint64_t)n_outputs * sizeof(itg_slot));
  l->symbols = take(l, (uint64_t)m->n_symbols * 2 * sizeof(int64_t));
  l->settled = take(l, 2ull * m->n_tensors);
  l->attrs = take(l, attrs);        // that open dimensions change
  l->prepared = take(l, prepared);  // for steps whose kernels read it
  mem->tables = l->total;
  mem->internal = itg_align(mem->arena) + itg_align(mem->scratch);
  if (!o->internal && !o->internal_later) {
    l->arena = take(l, mem->arena);
    take(l, mem->scratch);  // behind the arena
  }
  l->io = take(l, io);
  if (l->total > SIZE_MAX - ITG_ALIGN)
    return itg_fail(e, ITG_NO_MEMORY, "a session needs %llu bytes, which this CPU cannot address",
                    (unsigned long long)l->total);
  mem->io = io;
  mem->session = l->total;
  return ITG_OK;
}

itg_status itg_model_memory(const itg_model *m, const itg_options *o, itg_memory *mem,
                            itg_error *e) {
  itg_session_layout l;
  if (!m || !mem) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", m ? "memory" : "model");
  return itg_measure_session(m, o ? o : &no_options, &l, mem, e);
}
