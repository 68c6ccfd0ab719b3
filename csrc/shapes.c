// Open dimensions: a plan whose inputs have ranges of extents, and packages with several plans.
//
// Memory is planned for the largest extents. A resize reads the extents from the shapes of the
// inputs, computes the attributes that depend on them, and lets every step infer its shapes again,
// as if the file were opened with these shapes. Steps that follow from data infer on every run.
#include <stdio.h>
#include <string.h>

#include "runtime.h"

enum { MAX_STACK = 32 };

// ---- checks, once -------------------------------------------------------------------------------
static itg_status check_symbols(const itg_model *m, itg_error *e) {
  for (uint32_t i = 0; i < m->n_symbols; i++) {
    const itg_file_symbol *s = &m->symbols[i];
    if (s->plan >= m->n_plans || m->plans[s->plan].main != s->plan ||
        (i && s->plan < m->symbols[i - 1].plan))
      BAD("open dimension %u: its plan does not exist, or it is out of order", i);
    if (!itg_has_string(m->names, m->names_size, s->name))
      BAD("open dimension %u: its name is outside of section NAME", i);
    if (s->low < 0 || s->high < s->low || (uint64_t)s->high > ITG_MAX_BYTES || s->multiple < 1 ||
        s->low % s->multiple || s->high % s->multiple)
      BAD("open dimension %u: its range is not allowed", i);
  }
  return ITG_OK;
}

static itg_status check_axes(const itg_model *m, itg_error *e) {
  for (uint32_t i = 0; i < m->n_axes; i++) {
    const itg_file_axis *a = &m->axes[i], *b = i ? a - 1 : NULL;
    if (a->plan >= m->n_plans || m->plans[a->plan].main != a->plan ||
        a->input >= m->plans[a->plan].n_inputs || a->symbol >= m->n_symbols ||
        m->symbols[a->symbol].plan != a->plan)
      BAD("open axis %u: its plan, input or open dimension does not exist", i);
    if (b && (a->plan < b->plan || (a->plan == b->plan && a->input < b->input) ||
              (a->plan == b->plan && a->input == b->input && a->axis <= b->axis)))
      BAD("open axis %u is out of order", i);
    const itg_file_tensor *t = &m->tens[m->args[m->plans[a->plan].inputs + a->input]];
    if (a->axis >= t->rank || !(t->dynamic >> a->axis & 1) ||
        t->shape[a->axis] != m->symbols[a->symbol].high)
      BAD("open axis %u does not fit its input", i);
  }
  uint32_t next = 0;
  for (uint32_t k = 0; k < m->n_mains; k++) {  // every dynamic axis of an input is listed
    const itg_file_plan *p = &m->plans[m->mains[k]];
    for (uint32_t i = 0; i < p->n_inputs; i++) {
      uint8_t open = 0;
      for (; next < m->n_axes && m->axes[next].plan == m->mains[k] && m->axes[next].input == i;)
        open |= (uint8_t)(1u << m->axes[next++].axis);
      if (open != m->tens[m->args[p->inputs + i]].dynamic)
        BAD("plan %u: input %u has run-time extents that no open dimension gives", m->mains[k], i);
    }
  }
  return ITG_OK;
}

static itg_status check_formula(const itg_model *m, const itg_file_patch *p, uint32_t main,
                                itg_error *e) {
  uint32_t depth = 0;
  for (uint32_t i = p->formula; i < p->formula + p->terms; i++) {
    const itg_file_term *t = &m->terms[i];
    const bool leaf = t->code <= ITG_SYMBOL;
    if (t->code > ITG_MAXIMUM || (leaf ? depth >= MAX_STACK : depth < 2) ||
        (t->code == ITG_SYMBOL &&
         (t->value < 0 || t->value >= m->n_symbols || m->symbols[t->value].plan != main)))
      BAD("formula: term %u is not allowed", i);
    depth = leaf ? depth + 1 : depth - 1;
  }
  if (depth != 1) BAD("formula: it leaves %u results instead of one", depth);
  return ITG_OK;
}

static itg_status check_patches(const itg_model *m, itg_error *e) {
  uint32_t plan = 0;
  uint64_t terms = 0;
  for (uint32_t i = 0; i < m->n_patches; i++) {
    const itg_file_patch *p = &m->patches[i];
    if (p->step >= m->n_steps ||
        (i && (p->step < p[-1].step || (p->step == p[-1].step && p->field <= p[-1].field))))
      BAD("patch %u: its step does not exist, or it is out of order", i);
    if (m->steps[p->step].attrs_size / 8 <= p->field ||
        m->kernels[p->step]->op->flags & ITG_CONTROL)
      BAD("patch %u: its step has no such attribute, or is control flow", i);
    if (p->formula != terms || p->terms > m->n_terms - terms)
      BAD("patch %u: its formula does not follow on", i);
    terms += p->terms;
    while (p->step >= m->plans[plan].first_step + m->plans[plan].n_steps) plan++;
    if (check_formula(m, p, m->plans[plan].main, e)) return ITG_BAD_FILE;
  }
  return ITG_OK;
}

itg_status itg_check_shapes(const itg_model *m, itg_error *e) {
  itg_status status = check_symbols(m, e);
  if (!status) status = check_axes(m, e);
  return status ? status : check_patches(m, e);
}

bool itg_patches_of(const itg_model *m, uint32_t step, uint32_t *first, uint32_t *count) {
  uint32_t low = 0, high = m->n_patches;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (m->patches[middle].step < step) low = middle + 1;
    else high = middle;
  }
  *first = low;
  for (*count = 0; low + *count < m->n_patches && m->patches[low + *count].step == step;) ++*count;
  return *count > 0;
}

// ---- formulas -----------------------------------------------------------------------------------
static bool compute(uint32_t code, int64_t a, int64_t b, int64_t *to) {
  switch (code) {
    case ITG_ADD: return !__builtin_add_overflow(a, b, to);
    case ITG_SUBTRACT: return !__builtin_sub_overflow(a, b, to);
    case ITG_MULTIPLY: return !__builtin_mul_overflow(a, b, to);
    case ITG_MINIMUM: *to = a < b ? a : b; return true;
    case ITG_MAXIMUM: *to = a > b ? a : b; return true;
    default: break;
  }
  if (b == -1 && a == INT64_MIN) return false;
  if (!b) return *to = 0, true;                      // as in src/intaglio/symint.py
  const int64_t down = a % b && (a < 0) != (b < 0);  // Python rounds down, C towards zero
  *to = code == ITG_MODULO ? a % b + (down ? b : 0) : a / b - down;
  return true;
}

static bool evaluate(const itg_model *m, const itg_file_patch *p, const int64_t *symbols,
                     int64_t *to) {
  int64_t stack[MAX_STACK];
  uint32_t depth = 0;
  for (uint32_t i = p->formula; i < p->formula + p->terms; i++) {
    const itg_file_term *t = &m->terms[i];
    if (t->code == ITG_NUMBER) stack[depth++] = t->value;
    else if (t->code == ITG_SYMBOL) stack[depth++] = symbols[t->value];
    else if (depth--, !compute(t->code, stack[depth - 1], stack[depth], &stack[depth - 1]))
      return false;
  }
  *to = stack[0];
  return true;
}

// ---- resizing -----------------------------------------------------------------------------------
// How many shares a step is worth: forking and joining costs a few microseconds.
uint32_t itg_parts_for(const itg_model *m, const itg_file_step *s, itg_tensor *const *args,
                       uint32_t threads) {
  const itg_op *op = m->kernels[s - m->steps]->op;
  if (op->flags & ITG_CALLER) return 1;
  const double per_ns =
      !strcmp(op->name, "qlinear_mul") || !strcmp(op->name, "qlinear_add") ? 3 : 8;  // bytes
  const itg_tensor *first = s->n_out ? args[s->n_in] : NULL;
  const itg_tensor *planned = s->n_out ? m->arg_tensors[s->args + s->n_in] : NULL;
  double macs = (double)s->macs;  // at the largest extents
  if (first && itg_bytes(planned)) macs *= (double)itg_bytes(first) / (double)itg_bytes(planned);
  double ns = macs / 16;
  for (uint32_t k = 0; k < s->n_in + s->n_out; k++)
    if (args[k]) ns += (double)itg_bytes(args[k]) / per_ns;
  if (op->flags & ITG_ROUNDS)  // every round forks and joins
    ns = macs / 16 / (double)(first->shape[0] > 0 ? first->shape[0] : 1);
  double parts = ns / 4000;
  return parts >= threads ? threads : parts < 1 ? 1 : (uint32_t)parts;
}

void itg_set_slot_sizes(itg_session *s) {
  const itg_model *m = s->model;
  for (uint32_t i = 0; i < s->plan->n_inputs; i++)
    s->inputs[i].bytes = itg_bytes(s->args[s->plan->inputs + i]);
  for (uint32_t i = 0; i < s->plan->n_outputs; i++) {
    const uint32_t id = m->args[s->plan->outputs + i];  // data decides: at most what was planned
    if (m->tens[id].dynamic && !s->settled[id])
      memcpy(s->tensors[id].shape, m->tens[id].shape, sizeof s->tensors[id].shape);
    s->outputs[i].bytes = itg_bytes(&s->tensors[id]);
  }
}

void itg_choose_plan(itg_session *s, uint32_t main) {
  const itg_model *m = s->model;
  const itg_family *first = &m->families[s->first_plan], *f = &m->families[main];
  s->plan_number = main;
  s->plan = &m->plans[main];
  s->inputs = s->all_inputs + (f->inputs - first->inputs);
  s->outputs = s->all_outputs + (f->outputs - first->outputs);
  s->states = itg_states_of(m, main, &s->n_states);
}

static itg_status patch(itg_session *s, const itg_step *step) {
  const itg_model *m = s->model;
  uint32_t first, count;
  if (!itg_patches_of(m, (uint32_t)(step->record - m->steps), &first, &count)) return ITG_OK;
  int64_t *fields = (int64_t *)step->call.attrs;  // the session's own copy
  for (uint32_t i = first; i < first + count; i++)
    if (!evaluate(m, &m->patches[i], s->symbols, &fields[m->patches[i].field]))
      return itg_step_fails(s, step, "an attribute cannot be computed for these shapes");
  return ITG_OK;
}

// Work and scratch memory of a step at its present shapes.
static itg_status divide(itg_session *s, itg_step *step) {
  const itg_file_step *r = step->record;
  step->parts = itg_parts_for(s->model, r, s->args + r->args, s->threads);
  if (!step->op->scratch || step->op->scratch(&step->call, step->parts) <= s->scratch_size)
    return ITG_OK;
  step->parts = 1;
  if (step->op->scratch(&step->call, 1) <= s->scratch_size) return ITG_OK;
  return itg_step_fails(s, step, "it needs more scratch memory than at the largest shapes");
}

static itg_status apply(itg_session *s) {
  const itg_model *m = s->model;
  for (uint32_t i = 0; i < m->n_axes; i++)
    if (m->axes[i].plan == s->plan_number)
      s->args[s->plan->inputs + m->axes[i].input]->shape[m->axes[i].axis] =
          s->symbols[m->axes[i].symbol];
  for (uint32_t p = s->plan_number; p < m->n_plans && m->plans[p].main == s->plan_number; p++) {
    const itg_steps *steps = &s->plans[p - s->first_plan];
    for (itg_step *step = steps->first; step < steps->first + steps->count; step++) {
      itg_status status = patch(s, step);
      if (status) return status;
      if (step->dynamic != ITG_AT_RESIZE) continue;
      itg_words words = itg_infer_step(s, step);
      if (words) return itg_step_fails(s, step, words);
      if ((status = divide(s, step))) return status;
      itg_prepare_step(step);
    }
  }
  itg_set_slot_sizes(s);
  return ITG_OK;
}

// The open dimensions of plan `main` for the shapes of its inputs, into `symbols`; false, with the
// number of the input in *wrong, if one does not fit. `only`: the one input that has a shape.
static bool match(const itg_session *s, uint32_t main, const int64_t (*shapes)[ITG_MAX_RANK],
                  uint32_t only, int64_t *symbols, uint32_t *wrong) {
  const itg_model *m = s->model;
  const itg_file_plan *p = &m->plans[main];
  uint32_t next = 0;
  while (next < m->n_axes && m->axes[next].plan < main) next++;
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const itg_file_tensor *t = &m->tens[m->args[p->inputs + i]];
    const bool asked = (only == ITG_NONE || only == i) &&
                       !m->input_carried[m->families[main].inputs + i];  // not the session's own
    const int64_t *shape = asked ? shapes[only == ITG_NONE ? i : 0] : t->shape;
    *wrong = i;
    for (uint32_t a = 0; a < ITG_MAX_RANK; a++) {
      const bool open = next < m->n_axes && m->axes[next].plan == main &&
                        m->axes[next].input == i && m->axes[next].axis == a;
      const uint32_t symbol = open ? m->axes[next++].symbol : 0;
      if (!asked) continue;
      if (!open && shape[a] != t->shape[a]) return false;
      if (!open) continue;
      const itg_file_symbol *range = &m->symbols[symbol];
      if (shape[a] < range->low || shape[a] > range->high || shape[a] % range->multiple ||
          (symbols[symbol] >= 0 && symbols[symbol] != shape[a]))
        return false;
      symbols[symbol] = shape[a];
    }
  }
  return true;
}

static itg_status refuse(itg_session *s, uint32_t input, const int64_t *shape) {
  const itg_model *m = s->model;
  const uint32_t id = m->args[s->plan->inputs + input];
  char words[160] = "", *to = words, *end = words + sizeof words;
  for (int a = 0; a < m->tens[id].rank && to < end - 24; a++)
    to += snprintf(to, (size_t)(end - to), "%s%lld", a ? "x" : "", (long long)shape[a]);
  const bool listed = s->options.plan == ITG_ANY_PLAN && m->n_mains > 1;
  return itg_fail(&s->error, ITG_BAD_INPUT, "input '%.60s' cannot have the shape %.60s: %s",
                  itg_name(m, m->tens[id].name), *words ? words : "()",
                  listed ? "it is not in the package's list of shapes; pad the inputs to the next "
                           "larger one where that is right"
                         : "it is outside of the ranges that the package was compiled for, or "
                           "contradicts another input");
}

static uint64_t state_bytes(const itg_session *s) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < s->n_states; i++)
    bytes = 31 * bytes + itg_bytes(s->args[s->plan->inputs + s->states[i].input]);
  return bytes;
}

itg_status itg_take_plan(itg_session *s, uint32_t main) {
  itg_end_padding(s);
  if (main != s->plan_number) {
    const uint32_t before = s->n_states;
    const uint64_t bytes = state_bytes(s);
    itg_choose_plan(s, main);
    if (s->n_states != before || state_bytes(s) != bytes) itg_reset_states(s);
  }
  s->unshaped = apply(s) != ITG_OK;  // the words are those of the step that refuses
  return s->unshaped ? ITG_BAD_INPUT : ITG_OK;
}

// Finds a plan for the shapes, the present one first, and resizes to them.
static itg_status reshape(itg_session *s, const int64_t (*shapes)[ITG_MAX_RANK], uint32_t only) {
  const itg_model *m = s->model;
  uint32_t wrong = 0, found = ITG_NONE;
  for (uint32_t k = s->first_plan; found == ITG_NONE && k <= s->last_plan; k++) {
    const uint32_t p = k == s->first_plan ? s->plan_number : k - 1;
    const itg_file_plan *plan = &m->plans[p];
    if (plan->main != p || plan->n_inputs != s->plan->n_inputs) continue;
    for (uint32_t i = 0; i < m->n_symbols; i++)
      if (m->symbols[i].plan == p) s->wanted[i] = -1;
    if (match(s, p, shapes, only, s->wanted, &wrong)) found = p;
  }
  if (found == ITG_NONE) return refuse(s, wrong, shapes[only == ITG_NONE ? wrong : 0]);
  for (uint32_t i = 0; i < m->n_symbols; i++) {
    if (m->symbols[i].plan != found) continue;
    if (s->wanted[i] >= 0) s->symbols[i] = s->wanted[i];  // else it stays as it was
  }
  return itg_take_plan(s, found);
}

static itg_status start(itg_session *s, const void *given, const char *remedy) {
  if (!itg_begin(s)) return ITG_BUSY;
  s->error.words[0] = 0;
  if (given || !s->plan->n_inputs) return ITG_OK;
  itg_end(s);
  return itg_fail(&s->error, ITG_BAD_INPUT, "the shape is NULL; %s", remedy);
}

itg_status itg_set_shapes(itg_session *s, const int64_t (*shapes)[ITG_MAX_RANK]) {
  if (!s) return ITG_BAD_INPUT;
  itg_status status = start(s, shapes, "give one row of extents for each input");
  if (status) return status;
  status = reshape(s, shapes, ITG_NONE);
  itg_end(s);
  return status;
}

itg_status itg_set_shape(itg_session *s, uint32_t input, const int64_t *shape, uint32_t rank) {
  if (!s) return ITG_BAD_INPUT;
  itg_status status = start(s, shape, "give the extents of the input");
  if (status) return status;
  int64_t full[1][ITG_MAX_RANK] = {{0}};
  if (input >= s->plan->n_inputs || rank != s->args[s->plan->inputs + input]->rank) {
    status = itg_fail(&s->error, ITG_BAD_INPUT, "input %u does not exist, or has not %u axes",
                      input, rank);
  } else {
    for (uint32_t a = 0; a < rank; a++) full[0][a] = shape[a];
    status = reshape(s, (const int64_t (*)[ITG_MAX_RANK])full, input);
  }
  itg_end(s);
  return status;
}

uint32_t itg_session_plan(const itg_session *s) {
  uint32_t number = 0;
  while (s && s->model->mains[number] != s->plan_number) number++;
  return number;
}
