// A session: its memory, its tensors and its bound steps.
#include <stdlib.h>
#include <string.h>

#include "session_layout.h"

static const itg_options no_options;

// ---- tensors ------------------------------------------------------------------------------------
// The slot in which a tensor lies; NULL if it lies elsewhere, or is of a plan that does not run.
static itg_slot *slot_of(const itg_session *s, const itg_session_layout *l,
                         const itg_file_tensor *t) {
  const itg_model *m = s->model;
  const itg_family *first = &m->families[l->first_plan];
  uint32_t inputs = m->n_inputs, outputs = m->n_outputs;
  if (l->last_plan < m->n_plans) {
    inputs = m->families[l->last_plan].inputs;
    outputs = m->families[l->last_plan].outputs;
  }
  if (t->memory == ITG_INPUT && t->slot >= first->inputs && t->slot < inputs)
    return &s->all_inputs[t->slot - first->inputs];
  if (t->memory == ITG_OUTPUT && t->slot >= first->outputs && t->slot < outputs)
    return &s->all_outputs[t->slot - first->outputs];
  return NULL;
}

// Buffers of the session for the inputs and outputs of a main plan. All plans use the same memory,
// states first, so that a state stays where it is when another plan runs.
static void place_io(itg_session *s, const itg_session_layout *l, uint32_t main, bool external) {
  const itg_model *m = s->model;
  const itg_file_plan *p = &m->plans[main];
  const itg_family *f = &m->families[main];
  uint8_t *io = (uint8_t *)s + l->io;
  itg_choose_plan(s, main);
  for (int state = 1; state >= 0; state--) {
    for (uint32_t i = 0; i < p->n_inputs; i++) {
      const bool carried = m->input_carried[f->inputs + i];
      if (carried != state || (external && !carried)) continue;
      itg_place(s, &s->inputs[i], s->inputs[i].own = io);
      io += itg_align(itg_bytes(m->arg_tensors[p->inputs + i]));
    }
    for (uint32_t i = 0; i < p->n_outputs; i++) {
      if (m->output_carried[f->outputs + i] != state || !itg_own_output(m, f, i, external))
        continue;  // one that lies elsewhere is copied if the caller binds a buffer
      itg_place(s, &s->outputs[i], s->outputs[i].own = io);
      io += itg_align(itg_bytes(m->arg_tensors[p->outputs + i]));
    }
  }
}

// Lets intermediate tensors lie in `arena`, and scratch memory after them. NULL: nowhere.
static void place_internal(itg_session *s, uint8_t *arena) {
  const itg_model *m = s->model;
  s->arena = arena;
  s->scratch = arena ? arena + itg_align(s->arena_size) : NULL;
  for (uint32_t i = 0; i < m->n_tensors; i++)
    if (m->tens[i].memory == ITG_ARENA)  // an offset past the arena is another plan's
      s->tensors[i].data =
          arena && m->tens[i].offset <= s->arena_size ? arena + m->tens[i].offset : NULL;
  for (uint32_t i = 0; i < s->n_steps; i++) s->steps[i].call.scratch = s->scratch;
}

static void bind_tensors(itg_session *s, const itg_session_layout *l, const void *weights) {
  const itg_model *m = s->model;
  for (uint32_t p = l->first_plan; p < l->last_plan; p++) {
    if (m->plans[p].main != p) continue;
    itg_choose_plan(s, p);
    for (uint32_t i = 0; i < s->plan->n_inputs; i++) s->inputs[i].first = ITG_NONE;
    for (uint32_t i = 0; i < s->plan->n_outputs; i++) s->outputs[i].first = ITG_NONE;
  }
  for (uint32_t i = 0; i < m->n_tensors; i++) {
    const itg_file_tensor *t = &m->tens[i];
    itg_tensor *to = &s->tensors[i];
    *to = m->tensors[i];
    if (t->memory == ITG_CONST && weights) to->data = (uint8_t *)weights + t->offset;
    itg_slot *slot = slot_of(s, l, t);
    if (!slot) continue;
    s->next[i] = slot->first;
    slot->first = i;
  }
  for (uint32_t i = 0; i < m->n_args; i++)
    s->args[i] = m->args[i] < m->n_tensors ? &s->tensors[m->args[i]] : NULL;
}

// ---- making one ---------------------------------------------------------------------------------
static void fill(itg_session *s, const itg_session_layout *l, const itg_memory *mem,
                 const itg_options *o) {
  const itg_model *m = s->model;
  uint8_t *base = (uint8_t *)s;
  s->first_plan = l->first_plan;
  s->last_plan = l->last_plan;
  for (uint32_t p = l->first_plan; p < l->last_plan; p++)
    if (m->plans[p].main == p) s->n_slots += m->plans[p].n_inputs;
  s->tensors = (void *)(base + l->tensors);
  s->args = (void *)(base + l->args);
  s->next = (void *)(base + l->next);
  s->steps = (void *)(base + l->steps);
  s->plans = (void *)(base + l->plans);
  s->all_inputs = (void *)(base + l->inputs);
  s->all_outputs = (void *)(base + l->outputs);
  s->symbols = (void *)(base + l->symbols);
  s->wanted = s->symbols + m->n_symbols;
  s->settled = base + l->settled;
  s->own_arena = o->internal ? o->internal : l->arena ? base + l->arena : NULL;
  s->arena_size = mem->arena;
  s->scratch_size = mem->scratch;
  s->threads = itg_threads_of(o);
  s->profile = o->profile;
  s->options = *o;
  s->max_steps = o->max_steps ? o->max_steps : 1000000000;
  for (uint32_t i = 0; i < m->n_symbols; i++) s->symbols[i] = m->symbols[i].high;
  bind_tensors(s, l, o->weights);
  for (uint32_t p = l->last_plan; p-- > l->first_plan;)
    if (m->plans[p].main == p) place_io(s, l, p, o->external_io);
}

itg_status itg_session_create(const itg_model *m, const itg_options *o, itg_session **out,
                              itg_error *e) {
  itg_session_layout l;
  itg_memory mem;
  if (out) *out = NULL;
  if (!m || !out) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", m ? "session" : "model");
  if (!o) o = &no_options;
  itg_status status = itg_measure_session(m, o, &l, &mem, e);
  if (!status) status = itg_check_cores(m, &l, o->core_mask, e);
  if (status) return status;
  if (o->memory && ((uintptr_t)o->memory % ITG_ALIGN || o->memory_size < mem.session))
    return itg_fail(e, ITG_BAD_INPUT,
                    "memory for a session must be aligned to 64 and have %llu bytes; it has %llu",
                    (unsigned long long)mem.session, (unsigned long long)o->memory_size);
  if (o->weights && m->n_weights)
    return itg_fail(e, ITG_BAD_INPUT,
                    "weights of this package lie in a weight file; open it with another one, or "
                    "with its bytes in your memory, instead");
  if ((uintptr_t)o->weights % ITG_ALIGN)
    return itg_fail(e, ITG_BAD_INPUT, "weights must be aligned to 64 bytes");
  if (o->internal && ((uintptr_t)o->internal % ITG_ALIGN || o->internal_size < mem.internal))
    return itg_fail(e, ITG_BAD_INPUT,
                    "internal memory must be aligned to 64 and have %llu bytes; it has %llu",
                    (unsigned long long)mem.internal, (unsigned long long)o->internal_size);
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
  s->owned = owned;
  itg_forks();  // counts from here on
  fill(s, &l, &mem, o);
  itg_bind_steps(s, &l);
  place_internal(s, s->own_arena);
  itg_set_slot_sizes(s);
  itg_reset_states(s);
  s->pool = s->threads > 1 ? o->pool : NULL;
  s->own_pool = s->threads > 1 && !o->pool;
  const itg_pool_options own = {.threads = s->threads};
  if (s->own_pool && !(s->pool = itg_pool_start(&own, false))) {
    itg_session_destroy(s);
    return itg_fail(e, ITG_NO_MEMORY, "cannot start %u threads", itg_threads_of(o));
  }
  *out = s;
  return ITG_OK;
}

itg_status itg_session_share(const itg_session *s, const itg_options *options, itg_session **out,
                             itg_error *e) {
  if (out) *out = NULL;
  if (!s) return itg_fail(e, ITG_BAD_INPUT, "session is NULL");
  itg_options o = options ? *options : s->options;
  if (!options) o.memory = o.internal = NULL;
  if (!o.weights) o.weights = s->options.weights;
  return itg_session_create(s->model, &o, out, e);
}

itg_status itg_set_internal(itg_session *s, void *memory, size_t bytes) {
  if (!s) return ITG_BAD_INPUT;
  if (!itg_begin(s)) return ITG_BUSY;
  const uint64_t needs = itg_align(s->arena_size) + itg_align(s->scratch_size);
  itg_status status = ITG_OK;
  s->error.words[0] = 0;
  if (memory && ((uintptr_t)memory % ITG_ALIGN || bytes < needs))
    status = itg_fail(&s->error, ITG_BAD_INPUT,
                      "internal memory must be aligned to 64 and have %llu bytes; it has %zu",
                      (unsigned long long)needs, bytes);
  else place_internal(s, memory ? memory : s->own_arena);
  for (uint32_t i = 0; !status && i < s->n_slots; i++)
    if (s->all_inputs[i].layout) itg_point(s, &s->all_inputs[i]);
  itg_end(s);
  return status;
}

void itg_session_destroy(itg_session *s) {
  if (!s) return;
  if (s->own_pool) itg_pool_destroy(s->pool);
  free(s->owned);
}

const char *itg_session_error(const itg_session *s) {
  return s ? s->error.words : "session is NULL; make one with itg_session_create";
}
