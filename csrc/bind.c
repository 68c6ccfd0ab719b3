// What a caller gives to a session and gets from it: inputs, outputs and states.
#include <string.h>

#include "runtime.h"

void itg_point(itg_session *s, itg_slot *slot) {
  for (uint32_t i = slot->first; i != ITG_NONE; i = s->next[i]) {
    const itg_file_tensor *t = &s->model->tens[i];
    const uint64_t offset = t->memory == ITG_ARENA ? 0 : t->offset;  // layout.c put it here
    s->tensors[i].data = slot->data ? (uint8_t *)slot->data + offset : NULL;
  }
}

void itg_place(itg_session *s, itg_slot *slot, void *data) {
  slot->data = data;
  slot->buffer = NULL;
  itg_point(s, slot);
}

// ---- inputs and outputs -------------------------------------------------------------------------
// The slot of input or output `index`, if it exists and a buffer for it has `bytes` bytes.
static itg_status find(itg_session *s, bool input, uint32_t index, size_t bytes, itg_slot **found) {
  if (!s) return ITG_BAD_INPUT;
  const itg_model *m = s->model;
  const char *what = input ? "input" : "output";
  uint32_t count = input ? s->plan->n_inputs : s->plan->n_outputs,
           first = input ? s->plan->inputs : s->plan->outputs;
  s->error.words[0] = 0;
  if (index >= count)
    return itg_fail(&s->error, ITG_BAD_INPUT, "%s %u does not exist; the model has %u", what, index,
                    count);
  *found = &(input ? s->inputs : s->outputs)[index];
  if (bytes != (*found)->bytes)
    return itg_fail(&s->error, ITG_BAD_INPUT, "%s '%.80s' takes %llu bytes, the buffer has %zu",
                    what, itg_name(m, m->tens[m->args[first + index]].name),
                    (unsigned long long)(*found)->bytes, bytes);
  return ITG_OK;
}

itg_status itg_set_input(itg_session *s, uint32_t index, const void *data, size_t bytes) {
  itg_slot *slot;
  itg_status status = find(s, true, index, bytes, &slot);
  if (status) return status;
  if (bytes && !data)
    return itg_fail(&s->error, ITG_BAD_INPUT, "input %u: its data is NULL; give %zu bytes", index,
                    bytes);
  if (!slot->own)
    return itg_fail(&s->error, ITG_BAD_INPUT,
                    "input %u: the session has external_io; use itg_bind_input", index);
  if (slot->padded) itg_pad_input(slot, s->args[s->plan->inputs + index], data);
  else if (bytes) memcpy(slot->own, data, bytes);
  itg_place(s, slot, slot->own);
  return ITG_OK;
}

static itg_status bind_to(itg_session *s, bool input, uint32_t index, void *data) {
  const itg_tensor *t = s->args[(input ? s->plan->inputs : s->plan->outputs) + index];
  if ((uintptr_t)data % itg_item(t->dtype))
    return itg_fail(&s->error, ITG_BAD_INPUT,
                    "%s %u: its buffer is not aligned to the element size of %s",
                    input ? "input" : "output", index, itg_dtype_name(t->dtype));
  itg_slot *slot = input ? &s->inputs[index] : &s->outputs[index];
  if (slot->padded && data)
    return itg_fail(&s->error, ITG_BAD_INPUT, "%s %u is padded, so it is copied: use %s",
                    input ? "input" : "output", index, input ? "itg_set_input" : "itg_get_output");
  itg_place(s, slot, data ? data : slot->own);
  return ITG_OK;
}

static itg_status bind(itg_session *s, bool input, uint32_t index, void *data, size_t bytes) {
  itg_slot *slot;
  itg_status status = find(s, input, index, bytes, &slot);
  return status ? status : bind_to(s, input, index, data);
}

// A list that is NULL leaves its inputs or outputs as they are.
itg_status itg_bind_all(itg_session *s, const void *const *inputs, void *const *outputs) {
  const itg_file_plan *p = s->plan;
  itg_status status = ITG_OK;
  for (uint32_t i = 0; inputs && !status && i < p->n_inputs; i++)
    status = bind_to(s, true, i, (void *)inputs[i]);
  for (uint32_t i = 0; outputs && !status && i < p->n_outputs; i++)
    status = bind_to(s, false, i, outputs[i]);
  return status;
}

itg_status itg_bind_input(itg_session *s, uint32_t index, const void *data, size_t bytes) {
  return bind(s, true, index, (void *)data, bytes);  // no step writes to an input
}

itg_status itg_bind_output(itg_session *s, uint32_t index, void *data, size_t bytes) {
  return bind(s, false, index, data, bytes);
}

static itg_status bind_buffer(itg_session *s, bool input, uint32_t index, itg_buffer *b) {
  itg_slot *slot;
  uint64_t size;
  void *data = itg_buffer_data(b, &size);
  if (!s) return ITG_BAD_INPUT;
  const itg_slot *slots = input ? s->inputs : s->outputs;
  const bool there = index < (input ? s->plan->n_inputs : s->plan->n_outputs);
  const bool enough = there && (!b || size >= slots[index].bytes);
  itg_status status = find(s, input, index, (size_t)(enough ? slots[index].bytes : size), &slot);
  if (status) return status;
  if (b && !input && !itg_buffer_writable(b))
    return itg_fail(&s->error, ITG_BAD_INPUT,
                    "output %u: its buffer is read-only; make it with ITG_BUFFER_WRITE", index);
  if ((status = bind_to(s, input, index, data))) return status;
  slot->buffer = b;
  s->buffers |= b != NULL;
  return ITG_OK;
}

itg_status itg_bind_input_buffer(itg_session *s, uint32_t index, itg_buffer *buffer) {
  return bind_buffer(s, true, index, buffer);
}

itg_status itg_bind_output_buffer(itg_session *s, uint32_t index, itg_buffer *buffer) {
  return bind_buffer(s, false, index, buffer);
}

uint32_t itg_output_unread(const itg_session *s, uint32_t index) {
  const itg_model *m = s ? s->model : NULL;
  if (!m || !m->n_plugins || index >= s->plan->n_outputs) return 0;
  if (m->output_carried[m->families[s->plan_number].outputs + index]) return 0;
  const uint32_t id = s->outputs[index].first;
  if (id == ITG_NONE || s->next[id] != ITG_NONE || m->args[s->plan->outputs + index] != id)
    return 0;
  uint32_t named = 0, written = 0;
  for (uint32_t i = 0; i < m->n_args; i++) named += m->args[i] == id;
  for (uint32_t i = 0; i < s->n_steps; i++) {
    const itg_call *call = &s->steps[i].call;
    for (uint32_t k = 0; k < call->n_out; k++) written += call->out[k] == &s->tensors[id];
  }
  return named == 2 && written == 1;  // by the step, and in the list of outputs
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
    if (bytes && from != UINT64_MAX)
      memcpy(to, itg_constants_of(s->model, s->states[i].file).data + from, bytes);
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

static itg_status view_of(itg_session *s, bool input, uint32_t index, itg_view *view) {
  if (!s) return ITG_BAD_INPUT;
  const char *what = input ? "input" : "output";
  const uint32_t count = input ? s->plan->n_inputs : s->plan->n_outputs;
  s->error.words[0] = 0;
  if (!view) return itg_fail(&s->error, ITG_BAD_INPUT, "%s %u: its view is NULL", what, index);
  if (index >= count)
    return itg_fail(&s->error, ITG_BAD_INPUT, "%s %u does not exist; the model has %u", what, index,
                    count);
  const itg_tensor *t = s->args[(input ? s->plan->inputs : s->plan->outputs) + index];
  const itg_slot *slot = &(input ? s->inputs : s->outputs)[index];
  const void *data = slot->data ? slot->data : t->data;
  *view = (itg_view){.data = data, .dtype = t->dtype, .rank = t->rank, .bytes = itg_bytes(t)};
  memcpy(view->shape, t->shape, sizeof view->shape);
  if (input) itg_layout_shape(slot, view->shape);
  if (slot->padded) {
    memcpy(view->shape, slot->cut, sizeof view->shape);
    view->bytes = slot->bytes;
  }
  return ITG_OK;
}

itg_status itg_get_input(itg_session *s, uint32_t index, itg_view *view) {
  return view_of(s, true, index, view);
}

itg_status itg_get_output(itg_session *s, uint32_t index, itg_view *view) {
  return view_of(s, false, index, view);
}
