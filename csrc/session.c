// A session: its memory, its tensors and its bound steps.
#include <stdlib.h>
#include <string.h>

#include "npu/cores.h"
#include "runtime.h"

static const itg_options no_options;

static uint32_t threads_of(const itg_options *o) {
  const uint32_t most = o->pool ? itg_pool_threads(o->pool) : ITG_MAX_THREADS;
  const uint32_t wanted = o->threads ? o->threads : o->pool ? most : 1;
  return wanted > most ? most : wanted;
}

// ---- memory: one block holds the session, its tables, the arena, the scratch and the I/O buffers
// ----
typedef struct layout {
  uint64_t tensors, args, next, steps, plans, inputs, outputs, symbols, settled, attrs, arena, io,
      total;
  uint32_t first_plan, last_plan, n_steps;
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

// Bytes of the buffers for inputs and outputs of a main plan.
static uint64_t io_bytes(const itg_model *m, uint32_t main, bool external) {
  const itg_file_plan *p = &m->plans[main];
  const itg_family *f = &m->families[main];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->n_inputs; i++)
    if (!external || m->input_carried[f->inputs + i])
      bytes += itg_align(itg_bytes(m->arg_tensors[p->inputs + i]));
  for (uint32_t i = 0; i < p->n_outputs; i++)
    if (own_output(m, f, i, external))
      bytes += itg_align(itg_bytes(m->arg_tensors[p->outputs + i]));
  return bytes;
}

static itg_status find_plans(const itg_model *m, uint32_t plan, layout *l, itg_error *e) {
  l->last_plan = m->n_plans;
  if (plan == ITG_ANY_PLAN) return ITG_OK;
  if (plan >= m->n_mains)
    return itg_fail(e, ITG_BAD_INPUT, "plan %u does not exist; the package has %u", plan,
                    m->n_mains);
  l->first_plan = m->mains[plan];
  if (plan + 1 < m->n_mains) l->last_plan = m->mains[plan + 1];
  return ITG_OK;
}

static itg_status measure(const itg_model *m, const itg_options *o, layout *l, itg_memory *mem,
                          itg_error *e) {
  *l = (layout){0};
  *mem = (itg_memory){.weights = m->consts_size};
  for (uint32_t i = 1; i <= m->n_weights; i++) mem->weights += itg_constants_of(m, i).size;
  itg_status status = find_plans(m, o->plan, l, e);
  if (status) return status;
  uint64_t io = 0, attrs = 0;
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
    if (!op->scratch) continue;
    itg_tensor *const *args = (itg_tensor *const *)(const void *)(m->arg_tensors + s->args);
    const itg_call call = {m->arg_tensors + s->args, args + s->n_in, s->n_in, s->n_out,
                           m->attrs + s->attrs,      NULL,           0};  // read only
    uint64_t need = op->scratch(&call, itg_parts_for(m, s, args, threads_of(o)));
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
  l->attrs = take(l, attrs);
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
  layout l;
  if (!m || !mem) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", m ? "memory" : "model");
  return measure(m, o ? o : &no_options, &l, mem, e);
}

// ---- tensors ------------------------------------------------------------------------------------
// The slot in which a tensor lies; NULL if it lies elsewhere, or is of a plan that does not run.
static itg_slot *slot_of(const itg_session *s, const layout *l, const itg_file_tensor *t) {
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
static void place_io(itg_session *s, const layout *l, uint32_t main, bool external) {
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
      if (m->output_carried[f->outputs + i] != state || !own_output(m, f, i, external))
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

static void bind_tensors(itg_session *s, const layout *l, const void *weights) {
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

// ---- cores of an NPU ----------------------------------------------------------------------------
static bool is_npu_program(const itg_op *op) { return op->infer == itg_infer_npu_run; }

// Refuses a core_mask that the NPU programs of these plans cannot run with.
static itg_status check_cores(const itg_model *m, const layout *l, uint32_t mask, itg_error *e) {
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

// ---- steps --------------------------------------------------------------------------------------
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
static void count_writers(const itg_model *m, const layout *l, uint8_t *writers) {
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

static itg_step bound_step(itg_session *s, uint32_t plan, const itg_file_step *r, uint8_t **attrs) {
  const itg_model *m = s->model;
  const itg_kernel *kernel = m->kernels[r - m->steps];
  const uint8_t *own = m->attrs + r->attrs;
  uint32_t first, count;
  if (itg_patches_of(m, (uint32_t)(r - m->steps), &first, &count)) {
    own = memcpy(*attrs, own, r->attrs_size);
    *attrs += itg_align(r->attrs_size);
  }
  return (itg_step){
      .call = {(const itg_tensor *const *)(s->args + r->args), s->args + r->args + r->n_in, r->n_in,
               r->n_out, own, NULL, is_npu_program(kernel->op) ? s->options.core_mask : 0},
      .run = kernel->run,
      .op = kernel->op,
      .record = r,
      .parts = itg_parts_for(m, r, s->args + r->args, s->threads),
      .control = (kernel->op->flags & ITG_CONTROL) != 0,
      .plan = plan,
      .isa = kernel->isa ? kernel->isa : "scalar",
  };
}

static void bind_steps(itg_session *s, const layout *l, uint8_t *attrs) {
  const itg_model *m = s->model;
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
      *to = bound_step(s, p, r, &attrs);
      to->dynamic = (uint8_t)when;
      to++->idle = idle;
      steps->count++;
    }
  }
  s->n_steps = (uint32_t)(to - s->steps);
}

// ---- making one ---------------------------------------------------------------------------------
static void fill(itg_session *s, const layout *l, const itg_memory *mem, const itg_options *o) {
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
  s->threads = threads_of(o);
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
  layout l;
  itg_memory mem;
  if (out) *out = NULL;
  if (!m || !out) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", m ? "session" : "model");
  if (!o) o = &no_options;
  itg_status status = measure(m, o, &l, &mem, e);
  if (!status) status = check_cores(m, &l, o->core_mask, e);
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
  bind_steps(s, &l, base + l.attrs);
  place_internal(s, s->own_arena);
  itg_set_slot_sizes(s);
  itg_reset_states(s);
  s->pool = s->threads > 1 ? o->pool : NULL;
  s->own_pool = s->threads > 1 && !o->pool;
  const itg_pool_options own = {.threads = s->threads};
  if (s->own_pool && !(s->pool = itg_pool_start(&own, false))) {
    itg_session_destroy(s);
    return itg_fail(e, ITG_NO_MEMORY, "cannot start %u threads", threads_of(o));
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
