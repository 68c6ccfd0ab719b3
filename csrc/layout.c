// Layouts of inputs: an input that the first steps transpose may be given transposed already.
#include <string.h>

#include "runtime.h"

enum { MAX_CHAIN = 4, MAX_TENSORS = 8 };  // of a file that is hostile

static const int64_t perms[][4] = {[ITG_NHWC] = {0, 2, 3, 1}, [ITG_NCHW] = {0, 3, 1, 2}};

// What happens to an input before it is transposed.
typedef struct readers {
  const itg_session *session;
  uint32_t main;
  uint32_t layout;  // that the transposing steps make of it; 0: none is known yet
  // Called for each transposing step; `direct`: it reads the input itself.
  void (*found)(const struct readers *r, uint32_t step, bool direct);
  itg_slot *slot;
  uint32_t wanted;
  uint32_t tensors;  // that were followed
} readers;

static uint32_t layout_of(const itg_model *m, uint32_t step) {
  const itg_file_step *s = &m->steps[step];
  if (strcmp(m->kernels[step]->op->name, "transpose") || m->arg_tensors[s->args]->rank != 4)
    return 0;
  const itg_attrs_transpose *a = (const void *)(m->attrs + s->attrs);
  for (uint32_t k = ITG_NHWC; k <= ITG_NCHW; k++)
    if (!memcmp(a->perm, perms[k], sizeof perms[k])) return k;
  return 0;
}

// Whether a step computes each element of its result from the same element of input 0 alone.
static bool elementwise(const itg_model *m, uint32_t step) {
  static const char *const names[] = {"quantize_linear", "dequantize_linear", "cast"};
  const itg_file_step *s = &m->steps[step];
  bool known = false;
  for (int k = 0; k < 3; k++) known |= !strcmp(m->kernels[step]->op->name, names[k]);
  for (uint32_t k = 1; k < s->n_in; k++)
    if (m->arg_tensors[s->args + k] && itg_count(m->arg_tensors[s->args + k]) != 1) return false;
  return known && s->n_out == 1;
}

static bool is_output(const itg_model *m, uint32_t main, uint32_t tensor) {
  const itg_file_plan *p = &m->plans[main];
  for (uint32_t i = 0; i < p->n_outputs; i++)
    if (m->args[p->outputs + i] == tensor) return true;
  return false;
}

static uint32_t last_step(const itg_session *s, uint32_t main) {
  const itg_model *m = s->model;
  uint32_t p = main;
  while (p + 1 < m->n_plans && m->plans[p + 1].main == main) p++;
  return m->plans[p].first_step + m->plans[p].n_steps;
}

// Whether all steps that read a tensor transpose it to the same layout, at the latest after a few
// steps that work element by element.
static bool all_transpose(readers *r, uint32_t tensor, int depth) {
  const itg_model *m = r->session->model;
  bool any = false;
  if (is_output(m, r->main, tensor) || depth > MAX_CHAIN || ++r->tensors > MAX_TENSORS)
    return false;
  for (uint32_t i = m->plans[r->main].first_step; i < last_step(r->session, r->main); i++) {
    const itg_file_step *s = &m->steps[i];
    for (uint32_t k = 0; k < s->n_in; k++) {
      if (m->args[s->args + k] != tensor) continue;
      const uint32_t layout = k ? 0 : layout_of(m, i);
      any = true;
      if (layout && (!r->layout || r->layout == layout)) {
        r->layout = layout;
        if (r->found) r->found(r, i, !depth);
      } else if (layout || k || !elementwise(m, i) ||
                 !all_transpose(r, m->args[s->args + s->n_in], depth + 1)) {
        return false;
      }
    }
  }
  return any;
}

// The layout in which plan `main` reads an input, or 0.
static uint32_t read_layout(itg_session *s, uint32_t main, uint32_t index) {
  const itg_model *m = s->model;
  readers r = {.session = s, .main = main};
  if (m->input_carried[m->families[main].inputs + index]) return 0;
  return all_transpose(&r, m->args[m->plans[main].inputs + index], 0) ? r.layout : 0;
}

// ---- steps that no longer transpose -------------------------------------------------------------
static itg_words copy(const itg_call *call, uint32_t part, uint32_t parts) {
  if (!part) memcpy(call->out[0]->data, call->in[0]->data, itg_bytes(call->out[0]));
  return NULL;
}

// Finds the tensor and its views; false if a step may write to them, so that they need memory of
// their own.
static bool only_read(const readers *r, uint32_t tensor, uint32_t *all, uint32_t *count) {
  const itg_model *m = r->session->model;
  if (m->tens[tensor].memory != ITG_ARENA || is_output(m, r->main, tensor)) return false;
  if (*count == MAX_TENSORS) return false;
  all[(*count)++] = tensor;
  for (uint32_t i = m->plans[r->main].first_step; i < last_step(r->session, r->main); i++) {
    const itg_file_step *s = &m->steps[i];
    const uint32_t *args = m->args + s->args, flags = m->kernels[i]->op->flags;
    for (uint32_t k = 0; k < s->n_in; k++) {
      if (args[k] != tensor) continue;
      if (flags & ITG_CONTROL) return false;
      for (uint32_t n = s->n_in; n < s->n_in + s->n_out; n++)
        if (itg_same_place(&m->tens[args[n]], &m->tens[tensor]) &&
            (!(flags & ITG_VIEW) || k || !only_read(r, args[n], all, count)))
          return false;
    }
  }
  return true;
}

// Moves tensors of the arena into the slot of the input, or back.
static void move_tensors(const readers *r, const uint32_t *all, uint32_t count) {
  itg_session *s = (itg_session *)r->session;
  for (uint32_t k = 0; k < count; k++) {
    const uint64_t offset = s->model->tens[all[k]].offset;
    uint32_t *link = &r->slot->first;
    while (*link != ITG_NONE && *link != all[k]) link = &s->next[*link];
    if (r->wanted && *link == ITG_NONE) {
      s->next[all[k]] = ITG_NONE;
      *link = all[k];
    } else if (!r->wanted && *link == all[k]) {
      *link = s->next[all[k]];
      s->tensors[all[k]].data = s->arena ? s->arena + offset : NULL;
    }
  }
}

static void switch_step(const readers *r, uint32_t number, bool direct) {
  itg_session *s = (itg_session *)r->session;
  const itg_model *m = s->model;
  const itg_file_step *record = &m->steps[number];
  uint32_t all[MAX_TENSORS], count = 0;
  const bool moved = direct && only_read(r, m->args[record->args + record->n_in], all, &count);
  for (uint32_t i = 0; i < s->n_steps; i++) {
    if (s->steps[i].record != record) continue;
    s->steps[i].idle = r->wanted && moved;
    s->steps[i].run = r->wanted ? copy : m->kernels[number]->run;
  }
  if (moved) move_tensors(r, all, count);
}

// ---- the interface ------------------------------------------------------------------------------
itg_status itg_input_layout(itg_session *s, uint32_t index, uint32_t *layout) {
  if (!s) return ITG_BAD_INPUT;
  s->error.words[0] = 0;
  if (!layout || index >= s->plan->n_inputs)
    return itg_fail(&s->error, ITG_BAD_INPUT, "layout is NULL, or input %u does not exist", index);
  *layout = read_layout(s, s->plan_number, index);
  return ITG_OK;
}

static const char *name_of(uint32_t layout) { return layout == ITG_NHWC ? "NHWC" : "NCHW"; }

static itg_status check_layout(itg_session *s, uint32_t index, uint32_t layout) {
  const itg_model *m = s->model;
  if (layout > ITG_NCHW)
    return itg_fail(&s->error, ITG_BAD_INPUT, "layout is %u; use enum itg_layout", layout);
  for (uint32_t p = s->first_plan; p < s->last_plan; p++) {
    if (m->plans[p].main != p) continue;
    if (index >= m->plans[p].n_inputs)
      return itg_fail(&s->error, ITG_BAD_INPUT, "input %u does not exist", index);
    const uint32_t found = read_layout(s, p, index);
    if (layout && found != layout)
      return itg_fail(&s->error, ITG_BAD_INPUT,
                      "input '%.80s' cannot be %s: its first steps read it as %s; compile the "
                      "model with --input-layout %s",
                      itg_name(m, m->tens[m->args[m->plans[p].inputs + index]].name),
                      name_of(layout), found ? name_of(found) : "the model says", name_of(layout));
  }
  return ITG_OK;
}

itg_status itg_set_input_layout(itg_session *s, uint32_t index, uint32_t layout) {
  if (!s) return ITG_BAD_INPUT;
  if (!itg_begin(s)) return ITG_BUSY;
  s->error.words[0] = 0;
  const itg_model *m = s->model;
  const itg_status status = check_layout(s, index, layout);
  for (uint32_t p = s->first_plan; !status && p < s->last_plan; p++) {
    if (m->plans[p].main != p) continue;
    const uint32_t slot = m->families[p].inputs - m->families[s->first_plan].inputs + index;
    readers r = {.session = s,
                 .main = p,
                 .found = switch_step,
                 .slot = &s->all_inputs[slot],
                 .wanted = layout};
    if (r.slot->layout == layout) continue;
    r.slot->layout = (uint8_t)layout;
    all_transpose(&r, m->args[m->plans[p].inputs + index], 0);
    itg_point(s, r.slot);
  }
  itg_end(s);
  return status;
}

void itg_layout_shape(const itg_slot *slot, int64_t *shape) {
  int64_t declared[4];
  if (!slot->layout) return;
  memcpy(declared, shape, sizeof declared);
  for (int k = 0; k < 4; k++) shape[k] = declared[perms[slot->layout][k]];
}
