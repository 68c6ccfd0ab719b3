// Checks everything that a package file claims, once when it is opened, so that sessions can trust
// it. Files are hostile: every number is compared before it is used, and the work is linear in the
// size of the file.
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

bool itg_has_string(const char *data, uint64_t size, uint32_t at) {
  return data && at < size && !data[size - 1];
}

static bool is_fixed(const itg_file_tensor *t) {
  return t->memory == ITG_CONST || t->memory == ITG_CODE;
}

static itg_constants constants_for(const itg_model *m, const itg_file_tensor *t) {
  return t->memory == ITG_CODE ? (itg_constants){m->code, 0, m->code_size}
                               : itg_constants_of(m, t->slot);
}

static itg_status check_tensor(const itg_model *m, uint32_t i, itg_error *e) {
  const itg_file_tensor *t = &m->tens[i];
  if (!itg_has_string(m->names, m->names_size, t->name))
    BAD("tensor %u: its name is outside of section NAME", i);
  if (!itg_item(t->dtype)) BAD("tensor %u: element type %u does not exist", i, t->dtype);
  if (t->rank > ITG_MAX_RANK || t->memory > ITG_CODE || t->dynamic >> t->rank)
    BAD("tensor %u: rank %u, memory %u or dynamic axes 0x%x do not exist", i, t->rank, t->memory,
        t->dynamic);
  uint64_t item = itg_item(t->dtype), most = item, bytes = item;
  for (int k = 0; k < ITG_MAX_RANK; k++) {
    uint64_t d = (uint64_t)t->shape[k];
    if (k >= t->rank ? d != 0 : d > ITG_MAX_BYTES)
      BAD("tensor %u: extent %lld is not allowed", i, (long long)t->shape[k]);
    if (k >= t->rank) continue;
    if (d && most > ITG_MAX_BYTES / d)
      BAD("tensor %u has more than %llu bytes", i, (unsigned long long)ITG_MAX_BYTES);
    if (d) most *= d;
    bytes *= d;
  }
  if (t->size < bytes || t->size > ITG_MAX_BYTES || t->offset > ITG_MAX_BYTES || t->offset % item)
    BAD("tensor %u: %llu bytes at offset %llu do not hold its shape, or are not aligned", i,
        (unsigned long long)t->size, (unsigned long long)t->offset);
  if (is_fixed(t)) {
    if (t->memory == ITG_CONST && t->slot > m->n_weights)
      BAD("constant tensor %u lies in weight file %u, which does not exist", i, t->slot);
    const itg_constants in = constants_for(m, t);
    if (t->dynamic || t->offset % ITG_ALIGN || t->offset < in.first || t->offset > in.size ||
        t->size > in.size - t->offset)
      BAD("constant tensor %u lies outside of section %s, or is not aligned to 64", i,
          t->memory == ITG_CODE ? "CODE"
          : t->slot             ? "WGTS"
                                : "CNST");
  }
  if (t->quant == ITG_NONE) return ITG_OK;
  if (t->quant >= m->n_quants) BAD("tensor %u: quantisation %u does not exist", i, t->quant);
  const itg_file_quant *q = &m->quants[t->quant];
  bool fits = q->axis == -1 ? q->count == 1
                            : q->axis >= 0 && q->axis < t->rank && q->count == t->shape[q->axis];
  if (!fits || q->values % 8 || q->values > m->attrs_size ||
      m->attrs_size - q->values < 16ull * q->count)
    BAD("tensor %u: its quantisation does not fit its shape", i);
  return ITG_OK;
}

// Tensor `id` exists and lies inside of the memory of main plan `main`.
static itg_status check_arg(const itg_model *m, uint32_t main, uint32_t id, bool optional,
                            itg_error *e) {
  if (id == ITG_NONE && optional) return ITG_OK;
  if (id >= m->n_tensors) BAD("tensor %u does not exist", id);
  const itg_file_tensor *t = &m->tens[id];
  const itg_file_plan *p = &m->plans[main];
  const itg_family *f = &m->families[main];
  uint64_t room = 0;
  if (is_fixed(t)) return ITG_OK;
  if (t->memory == ITG_ARENA) {
    room = p->arena;
  } else if (t->memory == ITG_INPUT) {
    if (t->slot >= f->inputs && t->slot - f->inputs < p->n_inputs)
      room = itg_bytes(&m->tensors[m->input_slots[t->slot]]);
  } else if (t->slot >= f->outputs && t->slot - f->outputs < p->n_outputs &&
             m->output_slots[t->slot] != ITG_NONE) {
    room = itg_bytes(&m->tensors[m->output_slots[t->slot]]);
  }
  if (t->offset > room || t->size > room - t->offset)
    BAD("tensor %u: %llu bytes at offset %llu lie outside of its memory, which has %llu", id,
        (unsigned long long)t->size, (unsigned long long)t->offset, (unsigned long long)room);
  return ITG_OK;
}

static itg_status check_range(const itg_model *m, uint32_t first, uint64_t count, uint64_t *used,
                              const char *what, itg_error *e) {
  *used += count;  // no argument is listed twice, so that the work stays linear
  if (first > m->n_args || count > m->n_args - first || *used > m->n_args)
    BAD("%s: arguments lie outside of ARGS", what);
  return ITG_OK;
}

// Plans: families of a main plan and its sub-plans, one after the other, whose steps follow each
// other without gaps.
static itg_status check_plans(itg_model *m, itg_error *e) {
  uint32_t main = ITG_NONE;
  uint64_t steps = 0, used = 0;
  if (!m->n_plans) BAD("file has no plan");
  for (uint32_t p = 0; p < m->n_plans; p++) {
    const itg_file_plan *plan = &m->plans[p];
    if (plan->main == p) main = p, m->mains[m->n_mains++] = p;
    if (main == ITG_NONE || plan->main != main || plan->arena > ITG_MAX_BYTES ||
        (main != p && plan->arena))
      BAD("plan %u: its main plan or its arena is not allowed", p);
    if (!itg_has_string(m->names, m->names_size, plan->name))
      BAD("plan %u: its name is outside of section NAME", p);
    if (plan->first_step != steps || plan->n_steps > m->n_steps - steps)
      BAD("plan %u: its steps do not follow on", p);
    steps += plan->n_steps;
    if (check_range(m, plan->inputs, plan->n_inputs, &used, "plan", e)) return ITG_BAD_FILE;
    if (check_range(m, plan->outputs, plan->n_outputs, &used, "plan", e)) return ITG_BAD_FILE;
    if (main != p) {
      m->families[p] = m->families[main];
      continue;
    }
    m->families[p] = (itg_family){m->n_inputs, m->n_outputs, 0};
    m->n_inputs += plan->n_inputs;
    m->n_outputs += plan->n_outputs;
  }
  if (steps != m->n_steps)
    BAD("%llu steps belong to no plan", (unsigned long long)(m->n_steps - steps));
  for (uint32_t i = 0; i < m->n_steps; i++)
    if (check_range(m, m->steps[i].args, (uint64_t)m->steps[i].n_in + m->steps[i].n_out, &used,
                    "step", e))
      return ITG_BAD_FILE;
  return ITG_OK;
}

static itg_status check_slots(itg_model *m, itg_error *e) {
  if (!(m->input_slots = calloc(m->n_inputs + 1ull, sizeof(uint32_t))) ||
      !(m->output_slots = calloc(m->n_outputs + 1ull, sizeof(uint32_t))))
    return itg_fail(e, ITG_NO_MEMORY, "no memory to open a package with %u inputs", m->n_inputs);
  for (uint32_t k = 0; k < m->n_mains; k++) {
    uint32_t p = m->mains[k];
    const itg_file_plan *plan = &m->plans[p];
    const uint32_t *inputs = m->args + plan->inputs, *outputs = m->args + plan->outputs;
    for (uint32_t i = 0; i < plan->n_inputs; i++) {
      const itg_file_tensor *t = inputs[i] < m->n_tensors ? &m->tens[inputs[i]] : NULL;
      if (!t || t->memory != ITG_INPUT || t->slot != m->families[p].inputs + i || t->offset)
        BAD("plan %u: input %u is not at the start of input slot %u", p, i, i);
      m->input_slots[t->slot] = inputs[i];
    }
    for (uint32_t i = 0; i < plan->n_outputs; i++) {
      const itg_file_tensor *t = outputs[i] < m->n_tensors ? &m->tens[outputs[i]] : NULL;
      if (!t) BAD("plan %u: output %u does not exist", p, i);
      bool direct = t->memory == ITG_OUTPUT && t->slot == m->families[p].outputs + i && !t->offset;
      m->output_slots[m->families[p].outputs + i] = direct ? outputs[i] : ITG_NONE;
    }
  }
  return ITG_OK;
}

// States: an input and an output of one type each, no slot in two of them, those of a plan one
// after the other.
static itg_status check_states(itg_model *m, itg_error *e) {
  if (!(m->input_carried = calloc(m->n_inputs + 1ull, 1)) ||
      !(m->output_carried = calloc(m->n_outputs + 1ull, 1)))
    return itg_fail(e, ITG_NO_MEMORY, "no memory to open a package with %u inputs", m->n_inputs);
  for (uint32_t i = 0; i < m->n_states; i++) {
    const itg_file_state *s = &m->states[i];
    const itg_file_plan *p = s->plan < m->n_plans ? &m->plans[s->plan] : NULL;
    if (!p || p->main != s->plan || (i && s->plan < m->states[i - 1].plan) ||
        s->input >= p->n_inputs || s->output >= p->n_outputs)
      BAD("state %u: its plan, input or output does not exist, or it is out of order", i);
    const itg_tensor *x = m->arg_tensors[p->inputs + s->input],
                     *y = m->arg_tensors[p->outputs + s->output];
    if (x->dtype != y->dtype || !itg_same_shape(x, y) ||
        m->tens[m->args[p->inputs + s->input]].dynamic ||
        m->tens[m->args[p->outputs + s->output]].dynamic)
      BAD("state %u: its input and its output differ in type", i);
    uint8_t *in = &m->input_carried[m->families[s->plan].inputs + s->input];
    uint8_t *out = &m->output_carried[m->families[s->plan].outputs + s->output];
    if ((*in)++ || (*out)++) BAD("state %u: another state has its input or output", i);
    if (s->initial == UINT64_MAX) continue;
    if (s->file > m->n_weights) BAD("state %u: weight file %u does not exist", i, s->file);
    const itg_constants from = itg_constants_of(m, s->file);
    if (s->initial % ITG_ALIGN || s->initial < from.first || s->initial > from.size ||
        itg_bytes(x) > from.size - s->initial)
      BAD("state %u: what it begins with lies outside of section CNST", i);
  }
  return ITG_OK;
}

static bool overlap(const itg_file_tensor *a, const itg_file_tensor *b) {
  return a->memory == b->memory && a->slot == b->slot && a->offset < b->offset + b->size &&
         b->offset < a->offset + a->size;
}

// A kernel may check an input and then trust it, so its outputs must not lie on its inputs unless
// the op allows that.
static itg_status check_overlap(const itg_model *m, const itg_file_step *s, const itg_op *op,
                                itg_error *e) {
  const uint32_t *in = m->args + s->args, *out = in + s->n_in;
  for (uint32_t o = 0; o < s->n_out; o++) {
    const itg_file_tensor *y = &m->tens[out[o]];
    for (uint32_t k = 0; k < o; k++)
      if (overlap(y, &m->tens[out[k]])) BAD("%s: its outputs lie on each other", op->name);
    for (uint32_t k = 0; k < s->n_in; k++) {
      if (in[k] == ITG_NONE || !overlap(y, &m->tens[in[k]])) continue;
      const itg_file_tensor *x = &m->tens[in[k]];
      bool like = x->dtype == y->dtype && itg_same_shape(&m->tensors[in[k]], &m->tensors[out[o]]);
      bool in_place = op->flags & ITG_INPLACE || (op->flags & ITG_INPLACE_FIRST && k == 0);
      bool view = op->flags & ITG_VIEW && k == 0;
      if (o || !itg_same_place(x, y) || !((in_place && like) || view))
        BAD("%s: output %u lies on input %u", op->name, o, k);
    }
  }
  return ITG_OK;
}

static itg_status check_step(const itg_model *m, uint32_t plan, uint32_t i, itg_error *e) {
  const itg_file_step *s = &m->steps[i];
  if (!itg_has_string(m->names, m->names_size, s->op))
    BAD("step %u: its op is outside of section NAME", i);
  if (s->origin != ITG_NONE && m->origins &&
      !itg_has_string(m->origins, m->origins_size, s->origin))
    BAD("step %u: its origin is outside of section ORIG", i);
  const char *name = itg_name(m, s->op);
  const itg_op *op = i && m->kernels[i - 1] && s->op == m->steps[i - 1].op ? m->kernels[i - 1]->op
                                                                           : itg_find_op(name);
  if (!op) op = itg_needed_op(m, s->op);
  if (!op)
    return itg_fail(e, ITG_UNSUPPORTED, "step %u: this runtime has no op '%.60s'; update intaglio",
                    i, name);
  if (s->attrs % 8 || s->attrs > m->attrs_size || s->attrs_size > m->attrs_size - s->attrs)
    BAD("step %u (%s): attributes lie outside of ATTR", i, name);
  const int64_t *text = (const void *)(m->attrs + s->attrs);  // its length comes first
  const bool whole = op->flags & ITG_TEXT ? s->attrs_size >= 8 && *text == s->attrs_size - 8ll
                                          : s->attrs_size == op->attrs_size;
  if (!whole)
    BAD("step %u (%s): attributes have %u bytes; that does not fit the op", i, name, s->attrs_size);
  const uint32_t *in = m->args + s->args, *out = in + s->n_in;
  uint32_t main = m->plans[plan].main;
  for (uint32_t k = 0; k < s->n_in + s->n_out; k++)
    if (check_arg(m, main, in[k], k < s->n_in, e)) return ITG_BAD_FILE;
  bool typed_by_input = s->n_in && in[0] != ITG_NONE;
  if (!typed_by_input && !s->n_out) BAD("step %u (%s) has neither an input nor an output", i, name);
  uint8_t dtype = m->tens[typed_by_input ? in[0] : out[0]].dtype;
  const uint32_t isa = op->flags & ITG_ANY_ISA ? itg_cpu_isa() : m->isa;
  if (!(m->kernels[i] = itg_find_kernel(op, itg_dtype_name(dtype), isa)))
    return itg_fail(e, ITG_UNSUPPORTED, "step %u: op %s has no kernel for %s; update intaglio", i,
                    name, itg_dtype_name(dtype));
  if (op->flags & ITG_CONTROL) return itg_check_control(m, plan, s, e);

  if (s->n_out > ITG_MAX_OUTPUTS)
    BAD("step %u (%s) has %u outputs; at most %u are allowed", i, name, s->n_out, ITG_MAX_OUTPUTS);
  for (uint32_t k = 0; k < s->n_out; k++) {
    const itg_file_tensor *y = &m->tens[out[k]];
    bool no_write = !k && op->flags & ITG_VIEW && typed_by_input &&
                    itg_same_place(&m->tens[in[0]], y);  // a view in place
    if (y->memory != ITG_ARENA && y->memory != ITG_OUTPUT && !no_write)
      BAD("step %u (%s) writes to a constant or an input", i, name);
  }
  if (check_overlap(m, s, op, e)) return ITG_BAD_FILE;
  itg_tensor inferred[ITG_MAX_OUTPUTS];
  memset(inferred, 0, sizeof inferred);
  const itg_call call = {m->arg_tensors + s->args, NULL, s->n_in, s->n_out,
                         m->attrs + s->attrs,      NULL, 0};
  itg_words words = op->infer(&call, inferred);
  if (words) BAD("step %u (%s): %s", i, name, words);
  for (uint32_t k = 0; k < s->n_out; k++) {
    const itg_file_tensor *t = &m->tens[out[k]];
    bool fits = inferred[k].dtype == t->dtype && inferred[k].rank == t->rank;
    for (int a = 0; fits && a < t->rank; a++)
      fits = t->dynamic >> a & 1 ? inferred[k].shape[a] >= 0 && inferred[k].shape[a] <= t->shape[a]
                                 : inferred[k].shape[a] == t->shape[a];
    if (!fits) BAD("step %u (%s): type of output %u differs from what its inputs give", i, name, k);
  }
  return ITG_OK;
}

itg_status itg_check_model(itg_model *m, itg_error *e) {
  m->tensors = calloc(m->n_tensors + 1ull, sizeof *m->tensors);
  m->arg_tensors = calloc(m->n_args + 1ull, sizeof *m->arg_tensors);
  m->kernels = calloc(m->n_steps + 1ull, sizeof *m->kernels);
  m->families = calloc(m->n_plans + 1ull, sizeof *m->families);
  m->mains = calloc(m->n_plans + 1ull, sizeof *m->mains);
  if (!m->tensors || !m->arg_tensors || !m->kernels || !m->families || !m->mains)
    return itg_fail(e, ITG_NO_MEMORY, "no memory to open a package with %u tensors", m->n_tensors);
  for (uint32_t i = 0; i < m->n_tensors; i++) {
    if (check_tensor(m, i, e)) return ITG_BAD_FILE;
    const itg_file_tensor *t = &m->tens[i];
    itg_tensor *to = &m->tensors[i];
    *to = (itg_tensor){.capacity = t->size, .dtype = t->dtype, .rank = t->rank};
    memcpy(to->shape, t->shape, sizeof to->shape);
    if (is_fixed(t)) to->data = (void *)(constants_for(m, t).data + t->offset);
  }
  for (uint32_t i = 0; i < m->n_args; i++)
    m->arg_tensors[i] = m->args[i] < m->n_tensors ? &m->tensors[m->args[i]] : NULL;
  itg_status status = check_plans(m, e);
  if (!status) status = itg_check_plugins(m, e);
  if (!status) status = check_slots(m, e);
  if (!status) status = check_states(m, e);
  for (uint32_t p = m->n_plans;
       !status && p-- > 0;) {  // sub-plans first: control flow asks how deep they go
    const itg_file_plan *plan = &m->plans[p];
    for (uint32_t k = 0; !status && k < plan->n_inputs; k++)
      status = check_arg(m, plan->main, m->args[plan->inputs + k], plan->main != p, e);
    for (uint32_t k = 0; !status && k < plan->n_outputs; k++)
      status = check_arg(m, plan->main, m->args[plan->outputs + k], false, e);
    for (uint32_t k = 0; !status && k < plan->n_steps; k++)
      status = check_step(m, p, plan->first_step + k, e);
  }
  if (!status) status = itg_check_shapes(m, e);
  return status ? status : itg_check_padding(m, e);
}
