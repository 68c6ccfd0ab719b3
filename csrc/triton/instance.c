// Sessions of one instance: one for each batch size, over the weights that all instances share.
#include <stdlib.h>
#include <string.h>

#include "triton.h"

static void *aligned(uint64_t size) {
  void *made = aligned_alloc(64, (size + 63) / 64 * 64 + 64);
  if (made) memset(made, 0, size);
  return made;
}

static TRITONSERVER_Error *sessions(triton_instance *x) {
  const triton_model *m = x->model;
  uint64_t internal = 0;
  itg_error error = {""};
  itg_options options = {.threads = m->threads, .external_io = !m->open};
  for (uint32_t i = 0; i < m->plans; i++) {
    itg_memory memory;
    options.plan = m->plan[i].number;
    if (itg_model_memory(m->model, &options, &memory, &error))
      return triton_error(TRITONSERVER_ERROR_INTERNAL, "intaglio: %s", error.words);
    if (memory.internal > internal) internal = memory.internal;
  }
  if (m->plans > 1) {  // which run one after the other
    if (!(x->internal = aligned(internal)))
      return triton_error(TRITONSERVER_ERROR_UNAVAILABLE, "intaglio: no memory for an instance");
    options.internal = x->internal;
    options.internal_size = internal;
  }
  for (uint32_t i = 0; i < m->plans; i++) {
    options.plan = m->plan[i].number;
    if (itg_session_create(m->model, &options, &x->session[i], &error))
      return triton_error(TRITONSERVER_ERROR_INTERNAL, "intaglio: %s", error.words);
    x->sessions++;
  }
  return NULL;
}

TRITONSERVER_Error *triton_instance_create(triton_model *m, triton_instance **instance) {
  triton_instance *x = calloc(1, sizeof *x);
  if (!x) return triton_error(TRITONSERVER_ERROR_UNAVAILABLE, "intaglio: no memory");
  x->model = m;
  TRITONSERVER_Error *error = sessions(x);
  const uint64_t rows = m->open ? 0 : m->max_batch ? m->max_batch : 1;  // open: in the session
  for (uint32_t i = 0; i < m->inputs && !error; i++)
    if (!(x->in[i] = aligned(rows * m->input[i].row)))
      error = triton_error(TRITONSERVER_ERROR_UNAVAILABLE, "intaglio: no memory for inputs");
  for (uint32_t i = 0; i < m->outputs && !error; i++)
    if (!(x->out[i] = aligned(rows * m->output[i].row)))
      error = triton_error(TRITONSERVER_ERROR_UNAVAILABLE, "intaglio: no memory for outputs");
  if (error) triton_instance_destroy(x);
  else *instance = x;
  return error;
}

void triton_instance_destroy(triton_instance *x) {
  if (!x) return;
  for (uint32_t i = 0; i < x->sessions; i++) itg_session_destroy(x->session[i]);
  for (uint32_t i = 0; i < TRITON_TENSORS; i++) {
    free(x->in[i]);
    free(x->out[i]);
  }
  free(x->internal);
  free(x);
}
