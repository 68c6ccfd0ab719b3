// Runs a session on numpy's arrays: C finds their type, shape and address in numpy's struct, which
// takes Python's own access to them ten times as long. Only the Python package calls this.
#include "arrays.h"

#include <string.h>

// The elements of an object, if it is an array that `rule` allows; else NULL.
static uint8_t *elements_of(const itg_arrays *a, const itg_array_rule *rule, const void *object) {
  const uint8_t *o = object;
  void *kind, *data, *type;
  intptr_t *shape;
  int rank, flags;
  memcpy(&kind, o + a->kind_at, sizeof kind);
  if (kind != a->kind) return NULL;
  memcpy(&type, o + a->type_at, sizeof type);
  memcpy(&rank, o + a->rank_at, sizeof rank);
  memcpy(&flags, o + a->flags_at, sizeof flags);
  if (type != rule->type || (uint32_t)rank != rule->rank ||
      ((uint32_t)flags & rule->flags) != rule->flags)
    return NULL;
  memcpy(&shape, o + a->shape_at, sizeof shape);
  for (uint32_t i = 0; i < rule->rank; i++)
    if (shape[i] != rule->shape[i]) return NULL;
  memcpy(&data, o + a->data_at, sizeof data);
  return data;
}

static bool overlap(const itg_arrays *a, uint32_t input, uint32_t output) {
  const itg_array_rule *x = &a->rules[input], *y = &a->rules[a->n_inputs + output];
  const uintptr_t from = (uintptr_t)a->inputs[x->number], to = (uintptr_t)a->outputs[y->number];
  return from < to + y->bytes && to < from + x->bytes;
}

uint32_t itg_run_arrays(itg_session *s, const itg_arrays *a) {
  for (uint32_t i = 0; i < a->n_inputs + a->n_outputs; i++) {
    const itg_array_rule *rule = &a->rules[i];
    uint8_t *data = elements_of(a, rule, a->objects[i]);
    if (!data) return ITG_OTHER_ARRAYS;
    if (i < a->n_inputs) a->inputs[rule->number] = data;
    else a->outputs[rule->number] = data;
  }
  for (uint32_t i = 0; i < a->n_inputs; i++)
    for (uint32_t k = 0; k < a->n_outputs; k++)
      if (overlap(a, i, k)) return ITG_OTHER_ARRAYS;
  return itg_run_with(s, a->inputs, a->outputs);
}
