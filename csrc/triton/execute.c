// Answers requests: one alone without copies where its batch was compiled, several in one run.
#include <string.h>
#include <time.h>

#include "triton.h"

typedef struct job {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Response *response;
  TRITONSERVER_Error *error;  // NULL: it goes well
  uint64_t rows;
  uint64_t wanted;                       // bits of the outputs that it asks for
  uint64_t bytes[TRITON_TENSORS];        // of inputs
  const int64_t *shape[TRITON_TENSORS];  // of inputs
  uint32_t rank[TRITON_TENSORS];
  TRITONBACKEND_Input *input[TRITON_TENSORS];
  uint32_t buffers[TRITON_TENSORS];
  void *out[TRITON_TENSORS];
} job;

typedef struct times {
  uint64_t start, compute_start, compute_end;
} times;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(job *j, TRITONSERVER_Error *error) {
  if (!j->error) j->error = error;
  else triton_failed(error);
}

static void wanted_outputs(const triton_model *m, job *j) {
  uint32_t count = 0;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestOutputCount(j->request, &count);
  for (uint32_t i = 0; i < count && !error; i++) {
    const char *name = "";
    error = TRITONBACKEND_RequestOutputName(j->request, i, &name);
    uint32_t k = 0;
    while (!error && k < m->outputs && strcmp(m->output[k].info.name, name)) k++;
    if (!error && k == m->outputs)
      error = triton_error(TRITONSERVER_ERROR_INVALID_ARG, "the model has no output '%.80s'", name);
    else j->wanted |= 1ull << k;
  }
  fail(j, error);
}

// Type, shape and size of each input, and the request's rows.
static void look(const triton_model *m, job *j) {
  if (triton_failed(TRITONBACKEND_ResponseNew(&j->response, j->request))) j->response = NULL;
  wanted_outputs(m, j);
  j->rows = 1;
  for (uint32_t i = 0; i < m->inputs && !j->error; i++) {
    const triton_tensor *t = &m->input[i];
    TRITONSERVER_DataType type;
    fail(j, TRITONBACKEND_RequestInput(j->request, t->info.name, &j->input[i]));
    if (j->error) return;
    fail(j, TRITONBACKEND_InputProperties(j->input[i], NULL, &type, &j->shape[i], &j->rank[i],
                                          &j->bytes[i], &j->buffers[i]));
    if (j->error) return;
    const int64_t rows = m->max_batch && j->rank[i] ? j->shape[i][0] : 1;
    if (!i) j->rows = (uint64_t)rows;
    uint64_t size = t->element;
    bool fits = type == t->type && j->rank[i] == t->info.rank && rows >= 1 &&
                (uint64_t)rows == j->rows && (!m->max_batch || j->rows <= m->max_batch);
    for (uint32_t a = 0; a < j->rank[i] && fits; a++) {
      const int64_t n = j->shape[i][a];
      fits = n >= 0 && (m->open || (a == 0 && m->max_batch) || n == t->info.shape[a]) &&
             (!n || size <= (1ull << 40) / (uint64_t)n);
      size *= (uint64_t)n;
    }
    if (!fits || size != j->bytes[i])
      fail(j, triton_error(TRITONSERVER_ERROR_INVALID_ARG,
                           "input '%.80s' has %llu bytes and a type or shape that the model does "
                           "not take",
                           t->info.name, (unsigned long long)j->bytes[i]));
  }
}

// The bytes of an input at `to`.
static void gather(job *j, uint32_t i, uint8_t *to) {
  uint64_t at = 0;
  for (uint32_t b = 0; b < j->buffers[i] && !j->error; b++) {
    const void *data = NULL;
    uint64_t size = 0;
    int64_t id = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    fail(j, TRITONBACKEND_InputBuffer(j->input[i], b, &data, &size, &memory, &id));
    if (!j->error && (memory > TRITONSERVER_MEMORY_CPU_PINNED || size > j->bytes[i] - at))
      fail(j, triton_error(TRITONSERVER_ERROR_INTERNAL, "an input's buffers do not fit"));
    if (!j->error && size) memcpy(to + at, data, size);
    at += size;
  }
  if (!j->error && at != j->bytes[i])
    fail(j, triton_error(TRITONSERVER_ERROR_INTERNAL, "an input's buffers do not fit"));
}

// The input where the server has it; gathered at `staging` if it lies in pieces.
static const void *in_place(const triton_model *m, job *j, uint32_t i, uint8_t *staging) {
  const void *data = NULL;
  uint64_t size = 0;
  int64_t id = 0;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  if (j->buffers[i] == 1 &&
      !triton_failed(TRITONBACKEND_InputBuffer(j->input[i], 0, &data, &size, &memory, &id)) &&
      memory <= TRITONSERVER_MEMORY_CPU_PINNED && size == j->bytes[i] &&
      (uintptr_t)data % m->input[i].element == 0)
    return data;
  gather(j, i, staging);
  return staging;
}

// Memory of the server for an output of this shape; NULL if nobody asked for it.
static void *output_buffer(const triton_model *m, job *j, uint32_t k, const int64_t *shape,
                           uint32_t rank, uint64_t bytes) {
  void *buffer = NULL;
  if (!j->response || j->error || !(j->wanted >> k & 1)) return NULL;
  TRITONBACKEND_Output *output;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  const triton_tensor *t = &m->output[k];
  fail(j, TRITONBACKEND_ResponseOutput(j->response, &output, t->info.name, t->type, shape, rank));
  if (!j->error) fail(j, TRITONBACKEND_OutputBuffer(output, &buffer, bytes, &memory, &id));
  if (!j->error && memory > TRITONSERVER_MEMORY_CPU_PINNED)
    fail(j, triton_error(TRITONSERVER_ERROR_UNSUPPORTED, "outputs are written to CPU memory"));
  return j->error ? NULL : buffer;
}

static void finish(TRITONBACKEND_ModelInstance *owner, job *j, const times *t) {
  if (j->response)  // the client may be gone: nothing is to be done then
    triton_failed(
        TRITONBACKEND_ResponseSend(j->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, j->error));
  triton_failed(TRITONBACKEND_ModelInstanceReportStatistics(
      owner, j->request, !j->error, t->start, t->compute_start, t->compute_end, now_ns()));
  triton_failed(TRITONBACKEND_RequestRelease(j->request, TRITONBACKEND_REQUEST_RELEASE_ALL));
  if (j->error) TRITONSERVER_ErrorDelete(j->error);
}

static void ran(job *j, itg_session *session, itg_status status) {
  if (!status) return;
  const char *words = itg_session_error(session);
  fail(j, triton_error(status == ITG_RUN_ERROR || status == ITG_BAD_INPUT
                           ? TRITONSERVER_ERROR_INVALID_ARG
                           : TRITONSERVER_ERROR_INTERNAL,
                       "%s", *words ? words : itg_status_words(status)));
}

// Outputs whose shapes are known after the run: copied.
static void copy_outputs(const triton_model *m, job *j, itg_session *session) {
  for (uint32_t k = 0; k < m->outputs && !j->error; k++) {
    itg_view view;
    if (!(j->wanted >> k & 1)) continue;
    ran(j, session, itg_get_output(session, k, &view));
    if (j->error) return;
    void *to = output_buffer(m, j, k, view.shape, view.rank, view.bytes);
    if (to && view.bytes) memcpy(to, view.data, view.bytes);
  }
}

// A request whose shapes the session takes as they are.
static void run_open(triton_instance *x, job *j, times *t) {
  const triton_model *m = x->model;
  itg_session *session = x->session[0];
  int64_t shapes[TRITON_TENSORS][ITG_MAX_RANK] = {{0}};
  for (uint32_t i = 0; i < m->inputs; i++)
    for (uint32_t a = 0; a < j->rank[i]; a++) shapes[i][a] = j->shape[i][a];
  ran(j, session, itg_set_shapes(session, shapes));
  for (uint32_t i = 0; i < m->inputs && !j->error; i++) {
    itg_view view;
    ran(j, session, itg_get_input(session, i, &view));
    if (j->error) break;
    if (view.bytes != j->bytes[i])
      fail(j, triton_error(TRITONSERVER_ERROR_INTERNAL, "an input's size does not fit"));
    else gather(j, i, (uint8_t *)view.data);  // the session's own buffer
  }
  t->compute_start = now_ns();
  if (!j->error) ran(j, session, itg_run(session));
  t->compute_end = now_ns();
  copy_outputs(m, j, session);
}

// A request of a compiled batch: the session reads and writes the server's memory.
static void run_alone(triton_instance *x, job *j, uint32_t plan, times *t) {
  const triton_model *m = x->model;
  itg_session *session = x->session[plan];
  const void *in[TRITON_TENSORS];
  void *out[TRITON_TENSORS];
  for (uint32_t i = 0; i < m->inputs && !j->error; i++) in[i] = in_place(m, j, i, x->in[i]);
  for (uint32_t k = 0; k < m->outputs && !j->error; k++) {
    const triton_tensor *o = &m->output[k];
    int64_t shape[ITG_MAX_RANK];
    memcpy(shape, o->info.shape, sizeof shape);
    if (m->max_batch) shape[0] = (int64_t)j->rows;
    void *to = m->varying ? NULL : output_buffer(m, j, k, shape, o->info.rank, j->rows * o->row);
    j->out[k] = to;
    out[k] = to && (uintptr_t)to % o->element == 0 ? to : x->out[k];
  }
  t->compute_start = now_ns();
  if (!j->error) ran(j, session, itg_run_with(session, in, out));
  t->compute_end = now_ns();
  if (m->varying) copy_outputs(m, j, session);
  for (uint32_t k = 0; k < m->outputs && !j->error; k++)
    if (j->out[k] && j->out[k] != out[k]) memcpy(j->out[k], out[k], j->rows * m->output[k].row);
}

// Several requests in one run; rows that are left over are computed from what lies there.
static void run_joined(triton_instance *x, job *jobs, uint32_t count, uint32_t plan, times *t) {
  const triton_model *m = x->model;
  itg_session *session = x->session[plan];
  const void *in[TRITON_TENSORS];
  void *out[TRITON_TENSORS];
  uint64_t row = 0;
  for (uint32_t n = 0; n < count; row += jobs[n++].rows)
    for (uint32_t i = 0; i < m->inputs; i++) gather(&jobs[n], i, x->in[i] + row * m->input[i].row);
  for (uint32_t i = 0; i < m->inputs; i++) {
    in[i] = x->in[i];
    memset(x->in[i] + row * m->input[i].row, 0, (m->plan[plan].batch - row) * m->input[i].row);
  }
  for (uint32_t k = 0; k < m->outputs; k++) out[k] = x->out[k];
  t->compute_start = now_ns();
  const itg_status status = itg_run_with(session, in, out);
  t->compute_end = now_ns();
  row = 0;
  for (uint32_t n = 0; n < count; row += jobs[n++].rows) {
    job *j = &jobs[n];
    ran(j, session, status);
    for (uint32_t k = 0; k < m->outputs && !j->error; k++) {
      const triton_tensor *o = &m->output[k];
      int64_t shape[ITG_MAX_RANK];
      memcpy(shape, o->info.shape, sizeof shape);
      shape[0] = (int64_t)j->rows;
      void *to = output_buffer(m, j, k, shape, o->info.rank, j->rows * o->row);
      if (to) memcpy(to, x->out[k] + row * o->row, j->rows * o->row);
    }
  }
}

static uint32_t plan_for(const triton_model *m, uint64_t rows) {
  uint32_t p = 0;
  while (p + 1 < m->plans && m->plan[p].batch < rows) p++;
  return p;
}

enum { GROUP = 64 };  // requests that are joined at most

// Runs `count` good requests, which together have at most max_batch rows.
static void run_group(TRITONBACKEND_ModelInstance *owner, triton_instance *x, job *jobs,
                      uint32_t count, uint64_t rows, uint64_t start) {
  const triton_model *m = x->model;
  times t = {start, start, start};
  const uint32_t plan = m->max_batch ? plan_for(m, rows) : 0;
  if (m->open) run_open(x, jobs, &t);
  else if (count == 1 && (!m->max_batch || m->plan[plan].batch == rows))
    run_alone(x, jobs, plan, &t);
  else run_joined(x, jobs, count, plan, &t);
  for (uint32_t n = 0; n < count; n++) finish(owner, &jobs[n], &t);
  triton_failed(TRITONBACKEND_ModelInstanceReportBatchStatistics(
      owner, rows, t.start, t.compute_start, t.compute_end, now_ns()));
}

void triton_execute(TRITONBACKEND_ModelInstance *owner, triton_instance *x,
                    TRITONBACKEND_Request **requests, uint32_t count) {
  const uint64_t start = now_ns();
  const uint64_t most = x->model->max_batch ? x->model->max_batch : 1;
  job group[GROUP];
  uint32_t held = 0;
  uint64_t rows = 0;
  for (uint32_t n = 0; n < count; n++) {
    job j = {.request = requests[n]};
    look(x->model, &j);
    if (j.error || !j.response) {
      const times t = {start, start, start};
      finish(owner, &j, &t);
      continue;
    }
    if (held && (held == GROUP || rows + j.rows > most)) {
      run_group(owner, x, group, held, rows, start);
      held = 0;
      rows = 0;
    }
    group[held++] = j;
    rows += j.rows;
  }
  if (held) run_group(owner, x, group, held, rows, start);
}
