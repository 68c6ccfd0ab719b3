// Padding: inputs that are smaller than those of any plan run in the next larger one. They are
// padded with zeros, and outputs are cut to the part that belongs to them.
#include <string.h>

#include "runtime.h"

// ---- the file -----------------------------------------------------------------------------------
static const itg_file_tensor *port(const itg_model *m, uint32_t plan, bool input, uint32_t i) {
  const itg_file_plan *p = &m->plans[plan];
  const uint32_t first = input ? p->inputs : p->outputs;
  return i < (input ? p->n_inputs : p->n_outputs) && m->args[first + i] < m->n_tensors
             ? &m->tens[m->args[first + i]]
             : NULL;
}

itg_status itg_check_padding(const itg_model *m, itg_error *e) {
  for (uint32_t k = 0; k < m->n_mains && m->pads; k++) {
    const uint32_t plan = m->mains[k];
    if (m->plans[plan].n_inputs != m->plans[m->mains[0]].n_inputs)
      BAD("plans whose inputs are padded have different numbers of inputs");
    for (uint32_t i = 0; i < m->plans[plan].n_inputs; i++) {
      const itg_file_tensor *t = port(m, plan, true, i), *first = port(m, m->mains[0], true, i);
      if (!t || !first || t->rank != first->rank || t->dynamic)
        BAD("input %u of plan %u cannot be padded", i, plan);
    }
    for (uint32_t r = 0; r < m->n_pads; r++) {
      const itg_file_pad *pad = &m->pads[r];
      const itg_file_tensor *out = port(m, plan, false, pad->output),
                            *in = port(m, plan, true, pad->input);
      if (!out || !in || m->output_carried[m->families[plan].outputs + pad->output] ||
          m->input_carried[m->families[plan].inputs + pad->input] || pad->axis >= out->rank ||
          pad->input_axis >= in->rank || out->dynamic ||
          out->shape[pad->axis] != in->shape[pad->input_axis])
        BAD("padding %u: an output of plan %u does not follow its input", r, plan);
    }
  }
  return ITG_OK;
}

// ---- copies -------------------------------------------------------------------------------------
// Copies the leading `box` of elements from rows of shape `from` to rows of shape `to`. Both may
// be the same memory if no extent of `to` is larger.
static void copy_box(uint8_t *dst, const int64_t *to, const uint8_t *src, const int64_t *from,
                     const int64_t *box, int rank, size_t item) {
  int64_t at[ITG_MAX_RANK] = {0};
  for (int a = 0; a < rank; a++)
    if (!box[a]) return;
  const size_t run = item * (size_t)(rank ? box[rank - 1] : 1);
  for (;;) {
    int64_t there = 0, here = 0;
    for (int a = 0; a < rank; a++) there = there * to[a] + at[a], here = here * from[a] + at[a];
    memmove(dst + (size_t)there * item, src + (size_t)here * item, run);
    int a = rank - 2;
    while (a >= 0 && ++at[a] == box[a]) at[a--] = 0;
    if (a < 0) return;
  }
}

void itg_pad_input(const itg_slot *slot, const itg_tensor *t, const void *data) {
  memset(slot->own, 0, itg_bytes(t));
  copy_box(slot->own, t->shape, data, slot->cut, slot->cut, t->rank, itg_item(t->dtype));
}

void itg_cut_outputs(itg_session *s) {
  for (uint32_t i = 0; i < s->plan->n_outputs; i++) {
    const itg_tensor *t = s->args[s->plan->outputs + i];
    const itg_slot *slot = &s->outputs[i];
    if (slot->padded)
      copy_box(slot->own, slot->cut, slot->own, t->shape, slot->cut, t->rank, itg_item(t->dtype));
  }
}

// ---- shapes -------------------------------------------------------------------------------------
static uint64_t cut_bytes(const itg_slot *slot, const itg_tensor *t) {
  uint64_t bytes = itg_item(t->dtype);
  for (int a = 0; a < t->rank; a++) bytes *= (uint64_t)slot->cut[a];
  return bytes;
}

void itg_end_padding(itg_session *s) {
  for (uint32_t i = 0; i < s->plan->n_inputs; i++) s->inputs[i].padded = false;
  for (uint32_t i = 0; i < s->plan->n_outputs; i++) s->outputs[i].padded = false;
  s->padded = false;
}

static bool holds(const itg_session *s, uint32_t main, const int64_t (*shapes)[ITG_MAX_RANK]) {
  const itg_model *m = s->model;
  const itg_file_plan *p = &m->plans[main];
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const itg_file_tensor *t = &m->tens[m->args[p->inputs + i]];
    if (m->input_carried[m->families[main].inputs + i]) continue;
    for (int a = 0; a < ITG_MAX_RANK; a++)
      if (shapes[i][a] < 0 || shapes[i][a] > t->shape[a] || (a >= t->rank && shapes[i][a]))
        return false;
  }
  return true;
}

// Marks the inputs and outputs of the present plan that are larger than the caller's.
static itg_status cut(itg_session *s, const int64_t (*shapes)[ITG_MAX_RANK]) {
  const itg_model *m = s->model;
  for (uint32_t i = 0; i < s->plan->n_inputs; i++) {
    itg_slot *slot = &s->inputs[i];
    const itg_tensor *t = s->args[s->plan->inputs + i];
    if (m->input_carried[m->families[s->plan_number].inputs + i]) continue;
    memcpy(slot->cut, shapes[i], sizeof slot->cut);
    slot->padded = memcmp(slot->cut, t->shape, sizeof slot->cut) != 0;
    if (slot->padded && (!slot->own || slot->layout))
      return itg_fail(&s->error, ITG_BAD_INPUT,
                      "input %u is padded, which needs the session's own memory for it: create it "
                      "without external_io, in the declared layout",
                      i);
    slot->bytes = cut_bytes(slot, t);
    if (slot->padded) itg_place(s, slot, slot->own);
  }
  for (uint32_t i = 0; i < s->plan->n_outputs; i++) {
    itg_slot *slot = &s->outputs[i];
    const itg_tensor *t = s->args[s->plan->outputs + i];
    memcpy(slot->cut, t->shape, sizeof slot->cut);
    for (uint32_t r = 0; r < m->n_pads; r++)
      if (m->pads[r].output == i)
        slot->cut[m->pads[r].axis] = shapes[m->pads[r].input][m->pads[r].input_axis];
    slot->padded = memcmp(slot->cut, t->shape, sizeof slot->cut) != 0;
    if (!slot->padded) continue;
    if (!slot->own)
      return itg_fail(&s->error, ITG_BAD_INPUT,
                      "output %u is padded, which needs the session's own memory for it", i);
    slot->bytes = cut_bytes(slot, t);
    itg_place(s, slot, slot->own);
  }
  s->padded = true;
  return ITG_OK;
}

static itg_status pad_shapes(itg_session *s, const int64_t (*shapes)[ITG_MAX_RANK]) {
  const itg_model *m = s->model;
  for (uint32_t p = s->first_plan; m->pads && p < s->last_plan; p++) {
    if (m->plans[p].main != p || !holds(s, p, shapes)) continue;
    itg_status status = itg_take_plan(s, p);
    if (!status) status = cut(s, shapes);
    if (!status) return ITG_OK;
    itg_end_padding(s);
    itg_set_slot_sizes(s);
    return status;
  }
  return ITG_BAD_INPUT;  // the words are those of itg_set_shapes
}

itg_status itg_set_padded_shapes(itg_session *s, const int64_t (*shapes)[ITG_MAX_RANK]) {
  itg_status status = itg_set_shapes(s, shapes);
  if (status != ITG_BAD_INPUT || !s || !shapes || !s->model->pads) return status;
  if (!itg_begin(s)) return ITG_BUSY;
  status = pad_shapes(s, shapes);
  if (!status) s->error.words[0] = 0;
  itg_end(s);
  return status;
}
