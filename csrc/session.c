// A session: the memory, the bound steps and the loop that runs them.
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static const itg_options no_options;

// How many shares a step is worth: forking and joining costs a few microseconds.
static uint32_t parts_for(const itg_model *m, const itg_file_step *s, uint32_t threads) {
  const itg_op *op = m->kernels[s - m->steps]->op;
  const double per_ns =
      !strcmp(op->name, "qlinear_mul") || !strcmp(op->name, "qlinear_add") ? 3 : 8;  // bytes
  double ns = (double)s->macs / 16;
  for (uint32_t k = 0; k < s->n_in + s->n_out; k++) {
    const itg_tensor *t = m->arg_tensors[s->args + k];
    if (t) ns += (double)itg_bytes(t) / per_ns;
  }
  if (op->flags & ITG_ROUNDS) {  // every round forks and joins
    const int64_t rounds = m->arg_tensors[s->args + s->n_in]->shape[0];
    ns = (double)s->macs / 16 / (double)(rounds > 0 ? rounds : 1);
  }
  double parts = ns / 4000;
  return parts >= threads ? threads : parts < 1 ? 1 : (uint32_t)parts;
}

static uint32_t threads_of(const itg_options *o) {
  return o->threads < 1 ? 1 : o->threads > ITG_MAX_THREADS ? ITG_MAX_THREADS : o->threads;
}

// ---- memory: one block holds the session, its tables, the arena, the scratch and the I/O buffers
// ----
typedef struct layout {
  uint64_t tensors, args, next, steps, plans, inputs, outputs, arena, scratch, io, total;
  uint32_t n_steps, last_plan;
} layout;

static uint64_t take(layout *l, uint64_t bytes) {
  uint64_t at = l->total;
  l->total = itg_align(l->total + bytes);
  return at;
}

// Has a session memory of its own for output i? States always; what lies in the arena is read
// there.
static bool own_output(const itg_model *m, const itg_family *f, uint32_t i, bool external) {
  if (m->output_carried[f->outputs + i]) return true;
  return !external && m->output_slots[f->outputs + i] != ITG_NONE;
}

static itg_status measure(const itg_model *m, const itg_options *o, layout *l, itg_memory *mem,
                          itg_error *e) {
  if (o->plan >= m->n_mains)
    return itg_fail(e, ITG_BAD_INPUT, "plan %u does not exist; the package has %u", o->plan,
                    m->n_mains);
  uint32_t main = m->mains[o->plan], threads = threads_of(o);
  const itg_file_plan *p = &m->plans[main];
  *l = (layout){.last_plan = main};
  while (l->last_plan < m->n_plans && m->plans[l->last_plan].main == main)
    l->n_steps += m->plans[l->last_plan++].n_steps;
  *mem = (itg_memory){.weights = m->consts_size, .arena = p->arena};
  for (uint32_t i = p->first_step; i < p->first_step + l->n_steps; i++) {
    const itg_file_step *s = &m->steps[i];
    const itg_op *op = m->kernels[i]->op;
    if (!op->scratch) continue;
    itg_tensor *const *out =
        (itg_tensor *const *)(const void *)(m->arg_tensors + s->args + s->n_in);  // read only
    const itg_call call = {m->arg_tensors + s->args, out,  s->n_in, s->n_out,
                           m->attrs + s->attrs,      NULL, 0};
    uint64_t need = op->scratch(&call, parts_for(m, s, threads));
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
  l->plans = take(l, (uint64_t)(l->last_plan - main) * sizeof(itg_steps));
  l->inputs = take(l, (uint64_t)p->n_inputs * sizeof(itg_slot));
  l->outputs = take(l, (uint64_t)p->n_outputs * sizeof(itg_slot));
  mem->tables = l->total;
  l->arena = take(l, mem->arena);
  l->scratch = take(l, mem->scratch);
  l->io = l->total;
  const itg_family *f = &m->families[main];
  for (uint32_t i = 0; i < p->n_inputs; i++)
    if (!o->external_io || m->input_carried[f->inputs + i])
      take(l, itg_bytes(m->arg_tensors[p->inputs + i]));
  for (uint32_t i = 0; i < p->n_outputs; i++)
    if (own_output(m, f, i, o->external_io)) take(l, itg_bytes(m->arg_tensors[p->outputs + i]));
  if (l->total > SIZE_MAX - ITG_ALIGN)
    return itg_fail(e, ITG_NO_MEMORY, "a session needs %llu bytes, which this CPU cannot address",
                    (unsigned long long)l->total);
  mem->io = l->total - l->io;
  mem->session = l->total;
  return ITG_OK;
}

itg_status itg_model_memory(const itg_model *m, const itg_options *o, itg_memory *mem,
                            itg_error *e) {
  layout l;
  if (!m || !mem) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", m ? "memory" : "model");
  return measure(m, o ? o : &no_options, &l, mem, e);
}

// ---- making one ---------------------------------------------------------------------------------
static void place(itg_session *s, itg_slot *slot, void *data) {
  slot->data = data;
  for (uint32_t i = slot->first; i != ITG_NONE; i = s->next[i])
    s->tensors[i].data = data ? (uint8_t *)data + s->model->tens[i].offset : NULL;
}

static void bind_tensors(itg_session *s, const layout *l, const void *weights, bool own_io) {
  const itg_model *m = s->model;
  const itg_file_plan *p = s->plan;
  const itg_family *f = &m->families[s->plan_number];
  for (uint32_t i = 0; i < p->n_inputs; i++) s->inputs[i].first = ITG_NONE;
  for (uint32_t i = 0; i < p->n_outputs; i++) s->outputs[i].first = ITG_NONE;
  for (uint32_t i = 0; i < m->n_tensors; i++) {
    const itg_file_tensor *t = &m->tens[i];
    itg_tensor *to = &s->tensors[i];
    *to = m->tensors[i];
    itg_slot *slot = NULL;
    if (t->memory == ITG_CONST) to->data = (uint8_t *)weights + t->offset;
    if (t->memory == ITG_ARENA)
      to->data = t->offset <= p->arena ? s->arena + t->offset : NULL;  // else another plan's
    if (t->memory == ITG_INPUT && t->slot >= f->inputs && t->slot - f->inputs < p->n_inputs)
      slot = &s->inputs[t->slot - f->inputs];
    if (t->memory == ITG_OUTPUT && t->slot >= f->outputs && t->slot - f->outputs < p->n_outputs)
      slot = &s->outputs[t->slot - f->outputs];
    if (!slot) continue;
    s->next[i] = slot->first;
    slot->first = i;
  }
  for (uint32_t i = 0; i < m->n_args; i++)
    s->args[i] = m->args[i] < m->n_tensors ? &s->tensors[m->args[i]] : NULL;
  uint8_t *io = (uint8_t *)s + l->io;
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    if (!own_io && !m->input_carried[f->inputs + i]) continue;
    place(s, &s->inputs[i], s->inputs[i].own = io);
    io += itg_align(itg_bytes(m->arg_tensors[p->inputs + i]));
  }
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    if (!own_output(m, f, i, !own_io))
      continue;  // one that lies elsewhere is copied if the caller binds a buffer
    place(s, &s->outputs[i], s->outputs[i].own = io);
    io += itg_align(itg_bytes(m->arg_tensors[p->outputs + i]));
  }
}

static bool in_same_place(const itg_model *m, const itg_file_step *s) {
  const itg_file_tensor *x = &m->tens[m->args[s->args]], *y = &m->tens[m->args[s->args + s->n_in]];
  return x->memory == y->memory && x->slot == y->slot && x->offset == y->offset;
}

static void bind_steps(itg_session *s, const layout *l) {
  const itg_model *m = s->model;
  itg_step *to = s->steps;
  for (uint32_t p = s->plan_number; p < l->last_plan; p++) {
    itg_steps *steps = &s->plans[p - s->plan_number];
    steps->first = to;
    for (uint32_t i = m->plans[p].first_step; i < m->plans[p].first_step + m->plans[p].n_steps;
         i++) {
      const itg_file_step *record = &m->steps[i];
      const itg_kernel *kernel = m->kernels[i];
      uint32_t flags = kernel->op->flags;
      bool dynamic = flags & (ITG_EXTENT | ITG_VALUES);
      for (uint32_t k = 0; k < record->n_in + record->n_out; k++) {
        uint32_t id = m->args[record->args + k];
        if (id != ITG_NONE && m->tens[id].dynamic) dynamic = true;
      }
      if (flags & ITG_VIEW && !dynamic && in_same_place(m, record)) continue;  // nothing to compute
      *to++ = (itg_step){
          .call = {(const itg_tensor *const *)(s->args + record->args),
                   s->args + record->args + record->n_in, record->n_in, record->n_out,
                   m->attrs + record->attrs, s->scratch},
          .run = kernel->run,
          .op = kernel->op,
          .record = record,
          .parts = parts_for(m, record, s->threads),
          .dynamic = dynamic,
          .control = (flags & ITG_CONTROL) != 0,
          .plan = p,
          .isa = kernel->isa,
      };
      steps->count++;
    }
  }
  s->n_steps = (uint32_t)(to - s->steps);
}

itg_status itg_session_create(const itg_model *m, const itg_options *o, itg_session **out,
                              itg_error *e) {
  layout l;
  itg_memory mem;
  if (out) *out = NULL;
  if (!m || !out) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", m ? "session" : "model");
  if (!o) o = &no_options;
  itg_status status = measure(m, o, &l, &mem, e);
  if (status) return status;
  if (o->memory && ((uintptr_t)o->memory % ITG_ALIGN || o->memory_size < mem.session))
    return itg_fail(e, ITG_BAD_INPUT,
                    "memory for a session must be aligned to 64 and have %llu bytes; it has %llu",
                    (unsigned long long)mem.session, (unsigned long long)o->memory_size);
  if ((uintptr_t)o->weights % ITG_ALIGN)
    return itg_fail(e, ITG_BAD_INPUT, "weights must be aligned to 64 bytes");
  void *owned =
      o->memory
          ? NULL
          : calloc(1, (size_t)mem.session + ITG_ALIGN);  // zero: no one's old data shows through
  uint8_t *base = o->memory ? o->memory : owned;
  if (!base)
    return itg_fail(e, ITG_NO_MEMORY, "no memory for a session, which needs %llu bytes",
                    (unsigned long long)mem.session);
  base += -(uintptr_t)base % ITG_ALIGN;
  itg_session *s = (itg_session *)base;
  memset(base, 0, (size_t)mem.tables);
  s->model = m;
  s->plan_number = m->mains[o->plan];
  s->plan = &m->plans[s->plan_number];
  s->owned = owned;
  s->tensors = (void *)(base + l.tensors);
  s->args = (void *)(base + l.args);
  s->next = (void *)(base + l.next);
  s->steps = (void *)(base + l.steps);
  s->plans = (void *)(base + l.plans);
  s->inputs = (void *)(base + l.inputs);
  s->outputs = (void *)(base + l.outputs);
  s->arena = base + l.arena;
  s->scratch = base + l.scratch;
  s->scratch_size = mem.scratch;
  s->threads = threads_of(o);
  s->profile = o->profile;
  s->states = itg_states_of(m, s->plan_number, &s->n_states);
  s->max_steps = o->max_steps ? o->max_steps : 1000000000;
  itg_forks();  // counts from here on
  bind_tensors(s, &l, o->weights ? o->weights : m->consts, !o->external_io);
  bind_steps(s, &l);
  itg_reset_states(s);
  if (s->threads > 1 && !(s->pool = itg_pool_create(s->threads))) {
    itg_session_destroy(s);
    return itg_fail(e, ITG_NO_MEMORY, "cannot start %u threads", threads_of(o));
  }
  *out = s;
  return ITG_OK;
}

void itg_session_destroy(itg_session *s) {
  if (!s) return;
  itg_pool_destroy(s->pool);
  free(s->owned);
}

const char *itg_session_error(const itg_session *s) {
  return s ? s->error.words : "session is NULL; make one with itg_session_create";
}

// ---- inputs and outputs -------------------------------------------------------------------------
// The tensor of input or output `index`, if it exists and takes `bytes` bytes.
static itg_status find(itg_session *s, bool input, uint32_t index, size_t bytes,
                       const itg_tensor **found) {
  if (!s) return ITG_BAD_INPUT;
  const itg_model *m = s->model;
  const char *what = input ? "input" : "output";
  uint32_t count = input ? s->plan->n_inputs : s->plan->n_outputs,
           first = input ? s->plan->inputs : s->plan->outputs;
  s->error.words[0] = 0;
  if (index >= count)
    return itg_fail(&s->error, ITG_BAD_INPUT, "%s %u does not exist; the model has %u", what, index,
                    count);
  const itg_tensor *t = *found = m->arg_tensors[first + index];
  if (bytes != itg_bytes(t))
    return itg_fail(&s->error, ITG_BAD_INPUT, "%s '%.80s' takes %llu bytes, the buffer has %zu",
                    what, itg_name(m, m->tens[m->args[first + index]].name),
                    (unsigned long long)itg_bytes(t), bytes);
  return ITG_OK;
}

itg_status itg_set_input(itg_session *s, uint32_t index, const void *data, size_t bytes) {
  const itg_tensor *t;
  itg_status status = find(s, true, index, bytes, &t);
  if (status) return status;
  itg_slot *slot = &s->inputs[index];
  if (bytes && !data)
    return itg_fail(&s->error, ITG_BAD_INPUT, "input %u: its data is NULL; give %zu bytes", index,
                    bytes);
  if (!slot->own)
    return itg_fail(&s->error, ITG_BAD_INPUT,
                    "input %u: the session has external_io; use itg_bind_input", index);
  if (bytes) memcpy(slot->own, data, bytes);
  place(s, slot, slot->own);
  return ITG_OK;
}

static itg_status bind_to(itg_session *s, bool input, uint32_t index, const itg_tensor *t,
                          void *data) {
  if ((uintptr_t)data % itg_item(t->dtype))
    return itg_fail(&s->error, ITG_BAD_INPUT,
                    "%s %u: its buffer is not aligned to the element size of %s",
                    input ? "input" : "output", index, itg_dtype_name(t->dtype));
  itg_slot *slot = input ? &s->inputs[index] : &s->outputs[index];
  place(s, slot, data ? data : slot->own);
  return ITG_OK;
}

static itg_status bind(itg_session *s, bool input, uint32_t index, void *data, size_t bytes) {
  const itg_tensor *t = NULL;
  itg_status status = find(s, input, index, bytes, &t);
  if (status) return status;
  return bind_to(s, input, index, t, data);
}

// A list that is NULL leaves its inputs or outputs as they are.
itg_status itg_bind_all(itg_session *s, const void *const *inputs, void *const *outputs) {
  const itg_file_plan *p = s->plan;
  itg_status status = ITG_OK;
  for (uint32_t i = 0; inputs && !status && i < p->n_inputs; i++)
    status = bind_to(s, true, i, s->model->arg_tensors[p->inputs + i], (void *)inputs[i]);
  for (uint32_t i = 0; outputs && !status && i < p->n_outputs; i++)
    status = bind_to(s, false, i, s->model->arg_tensors[p->outputs + i], outputs[i]);
  return status;
}

itg_status itg_bind_input(itg_session *s, uint32_t index, const void *data, size_t bytes) {
  return bind(s, true, index, (void *)data, bytes);  // no step writes to an input
}

itg_status itg_bind_output(itg_session *s, uint32_t index, void *data, size_t bytes) {
  return bind(s, false, index, data, bytes);
}

// ---- states -------------------------------------------------------------------------------------
static const itg_tensor *state_tensor(const itg_session *s, uint32_t i) {
  return s->model->arg_tensors[s->plan->inputs + s->states[i].input];
}

void itg_reset_states(itg_session *s) {
  for (uint32_t i = 0; s && i < s->n_states; i++) {
    const uint64_t bytes = itg_bytes(state_tensor(s, i)), from = s->states[i].initial;
    uint8_t *to = s->inputs[s->states[i].input].own;
    if (bytes && from == UINT64_MAX) memset(to, 0, bytes);
    if (bytes && from != UINT64_MAX) memcpy(to, s->model->consts + from, bytes);
  }
}

// If the caller bound a buffer, the caller copies it from output to input.
void itg_carry_states(itg_session *s) {
  for (uint32_t i = 0; i < s->n_states; i++) {
    itg_slot *in = &s->inputs[s->states[i].input], *out = &s->outputs[s->states[i].output];
    const uint64_t bytes = itg_bytes(state_tensor(s, i));
    if (bytes && in->data == in->own && out->data == out->own) memcpy(in->own, out->own, bytes);
  }
}

itg_status itg_get_state(itg_session *s, uint32_t index, itg_view *view) {
  if (!s) return ITG_BAD_INPUT;
  s->error.words[0] = 0;
  if (!view) return itg_fail(&s->error, ITG_BAD_INPUT, "state %u: its view is NULL", index);
  if (index >= s->n_states)
    return itg_fail(&s->error, ITG_BAD_INPUT, "state %u does not exist", index);
  const itg_tensor *t = state_tensor(s, index);
  void *data = s->inputs[s->states[index].input].own;
  *view = (itg_view){.data = data, .dtype = t->dtype, .rank = t->rank, .bytes = itg_bytes(t)};
  memcpy(view->shape, t->shape, sizeof view->shape);
  return ITG_OK;
}

itg_status itg_set_state(itg_session *s, uint32_t index, const void *data, size_t bytes) {
  if (!s) return ITG_BAD_INPUT;
  if (index >= s->n_states)
    return itg_fail(&s->error, ITG_BAD_INPUT, "state %u does not exist", index);
  return itg_set_input(s, s->states[index].input, data, bytes);
}

itg_status itg_get_output(itg_session *s, uint32_t index, itg_view *view) {
  if (!s) return ITG_BAD_INPUT;
  s->error.words[0] = 0;
  if (!view) return itg_fail(&s->error, ITG_BAD_INPUT, "output %u: its view is NULL", index);
  if (index >= s->plan->n_outputs)
    return itg_fail(&s->error, ITG_BAD_INPUT, "output %u does not exist; the model has %u", index,
                    s->plan->n_outputs);
  const itg_tensor *t = s->args[s->plan->outputs + index];
  const void *data = s->outputs[index].data ? s->outputs[index].data : t->data;
  *view = (itg_view){.data = data, .dtype = t->dtype, .rank = t->rank, .bytes = itg_bytes(t)};
  memcpy(view->shape, t->shape, sizeof view->shape);
  return ITG_OK;
}
