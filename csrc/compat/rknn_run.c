// Inputs, runs and outputs: the general API, and memory of the caller.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rknn_internal.h"

static rk_context *found(rknn_context context, const char *function, int *code) {
  rk_context *c = rk_find(context, false);
  *code = RKNN_SUCC;
  if (!c) *code = rk_fail(RKNN_ERR_CTX_INVALID, function, "no such context; call rknn_init first");
  else if (!c->session)
    *code = rk_fail(RKNN_ERR_FAIL, function,
                    "the context has RKNN_FLAG_COLLECT_MODEL_INFO_ONLY; leave it out to run");
  return *code ? NULL : c;
}

// A tensor as it lies in the caller's memory: like `held`, but in this type and format.
static int view_as(const rk_model *m, const rk_view *held, rknn_tensor_type type,
                   rknn_tensor_format fmt, rk_view *made) {
  *made = *held;
  made->type = type;
  if (!rk_type_size(type)) return RKNN_ERR_PARAM_INVALID;
  if (held->fmt == RKNN_TENSOR_UNDEFINED || fmt == RKNN_TENSOR_UNDEFINED) return RKNN_SUCC;
  if ((unsigned)fmt >= RKNN_TENSOR_FORMAT_MAX) return RKNN_ERR_PARAM_INVALID;
  made->fmt = fmt;
  made->c2 = rk_type_size(type) == 1 ? m->platform->c2_int8 : m->platform->c2_half;
  return RKNN_SUCC;
}

// What the runtime's normalisation and quantisation would have made of the values is undone.
static rk_change as_npu(const rk_tensor *t, rknn_tensor_type type) {
  rk_change change = {.mean = t->mean, .std = t->std, .n_mean = t->n_mean, .n_std = t->n_std};
  if (t->quantised && type == t->type && t->type != t->held) {
    change.from_scale = t->scale;
    change.from_zp = t->zp;
  }
  return change;
}

// The session's own buffer of an input.
static rk_view own_input(rk_context *c, const rk_tensor *t) {
  itg_view view = {0};
  itg_get_input(c->session, t->index, &view);
  itg_bind_input(c->session, t->index, NULL, view.bytes);
  itg_get_input(c->session, t->index, &view);
  return rk_held_view(t, view.shape, view.rank, (void *)view.data);
}

// ---- inputs -------------------------------------------------------------------------------------
static int set_input(rk_context *c, const char *function, const rknn_input *in) {
  const rk_model *m = c->model;
  if (in->index >= m->n_inputs)
    return rk_fail(RKNN_ERR_INPUT_INVALID, function, "index is %u; the model has %u inputs",
                   in->index, m->n_inputs);
  const rk_tensor *t = &m->inputs[in->index];
  if (!in->buf)
    return rk_fail(RKNN_ERR_INPUT_INVALID, function, "input '%s': buf is NULL; give its data",
                   t->name);
  rk_view from, to = own_input(c, t);
  const bool through = in->pass_through;
  const rknn_tensor_format native = t->blocked ? RKNN_TENSOR_NC1HWC2 : RKNN_TENSOR_NHWC;
  if (view_as(m, &to, through ? t->type : in->type, through ? native : in->fmt, &from))
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "input '%s': type is %d, fmt %d; use types from RKNN_TENSOR_FLOAT32 on but "
                   "INT4, and RKNN_TENSOR_NHWC or RKNN_TENSOR_NCHW",
                   t->name, (int)in->type, (int)in->fmt);
  from.data = in->buf;
  if (in->size != rk_view_bytes(&from))
    return rk_fail(
        RKNN_ERR_INPUT_INVALID, function,
        "input '%s': size is %u, %s data of its shape have %llu bytes; resize the input, "
        "or correct type and size",
        t->name, in->size, get_type_string(from.type), (unsigned long long)rk_view_bytes(&from));
  const rk_change change = as_npu(t, t->type);
  rk_copy(&from, &to, through ? &change : NULL);
  c->inputs[in->index].mem = NULL;
  return RKNN_SUCC;
}

RK_API int rknn_inputs_set(rknn_context context, uint32_t n_inputs, rknn_input inputs[]) {
  int code;
  rk_context *c = found(context, __func__, &code);
  if (!c) return code;
  if (!inputs || !n_inputs || n_inputs > c->model->n_inputs)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "%u inputs%s; the model has %u", n_inputs,
                   inputs ? "" : " at NULL", c->model->n_inputs);
  rk_wait(c, __func__, 0);
  for (uint32_t i = 0; !code && i < n_inputs; i++) code = set_input(c, __func__, &inputs[i]);
  return code;
}

static int bind_mem(rk_context *c, const char *function, rknn_tensor_mem *mem,
                    const rknn_tensor_attr *attr, bool input, uint32_t i) {
  const rk_tensor *t = input ? &c->model->inputs[i] : &c->model->outputs[i];
  rk_binding b = {.mem = mem};
  itg_view now;
  itg_status status = input ? itg_get_input(c->session, t->index, &now)
                            : itg_get_output(c->session, t->index, &now);
  if (status) return rk_failed(status, function, itg_session_error(c->session));
  const rk_view held = rk_held_view(t, now.shape, now.rank, NULL);
  const int wrong = input ? RKNN_ERR_INPUT_INVALID : RKNN_ERR_OUTPUT_INVALID;
  const bool known = input || attr->type == t->type || attr->type == t->held ||
                     attr->type == RKNN_TENSOR_FLOAT32 || attr->type == RKNN_TENSOR_FLOAT16;
  if (!known || view_as(c->model, &held, attr->type, attr->fmt, &b.view))
    return rk_fail(wrong, function,
                   "'%s': type is %d, fmt %d; set %s or RKNN_TENSOR_FLOAT32, and a "
                   "format of queries",
                   t->name, (int)attr->type, (int)attr->fmt, get_type_string(t->type));
  if (held.fmt != RKNN_TENSOR_UNDEFINED && input) {
    if (attr->w_stride > b.view.w) b.view.w_stride = attr->w_stride;
    if (attr->h_stride > b.view.h) b.view.h_stride = attr->h_stride;
  }
  if (mem->size < rk_view_bytes(&b.view))
    return rk_fail(wrong, function,
                   "'%s': the memory has %u bytes, %llu are needed for %s in %s; create it with "
                   "size_with_stride, or n_elems times the size of the type",
                   t->name, mem->size, (unsigned long long)rk_view_bytes(&b.view),
                   get_type_string(b.view.type), get_format_string(b.view.fmt));
  const bool raw = t->quantised && attr->type == t->type && t->type != t->held;
  if (input && (attr->pass_through || raw)) b.change = as_npu(t, attr->type);
  if (!input && raw) b.change.to_scale = t->scale, b.change.to_zp = t->zp;
  if (!input && t->quantised && t->type == t->held && attr->type != t->held)
    b.change.from_scale = t->scale, b.change.from_zp = t->zp;
  b.direct = rk_same_bytes(&held, &b.view) && b.change.from_scale == 0 && b.change.to_scale == 0 &&
             !b.change.n_mean && !b.change.n_std &&
             (uintptr_t)rk_mem_data(mem) % rk_type_size(t->held) == 0;
  (input ? c->inputs : c->outputs)[i] = b;
  return RKNN_SUCC;
}

RK_API int rknn_set_io_mem(rknn_context ctx, rknn_tensor_mem *mem, rknn_tensor_attr *attr) {
  int code;
  rk_context *c = found(ctx, __func__, &code);
  if (!c) return code;
  if (!mem || !attr || !rk_mem_lives(mem))
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "%s; give memory of rknn_create_mem and an attribute of rknn_query",
                   !attr ? "attr is NULL"
                   : mem ? "mem was destroyed"
                         : "mem is NULL");
  rk_wait(c, __func__, 0);
  const rk_model *m = c->model;
  for (int input = 1; input >= 0; input--)
    for (uint32_t i = 0; i < (input ? m->n_inputs : m->n_outputs); i++)
      if (!strncmp((input ? m->inputs : m->outputs)[i].name, attr->name, RKNN_MAX_NAME_LEN))
        return bind_mem(c, __func__, mem, attr, input, i);
  return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                 "the model has no input or output '%.80s'; take attr from rknn_query", attr->name);
}

// ---- runs ---------------------------------------------------------------------------------------
static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int compute(rk_context *c) {
  static const char function[] = "rknn_run";
  itg_status status = ITG_OK;
  itg_view view;
  const rk_model *m = c->model;
  for (uint32_t i = 0; !status && i < m->n_inputs + m->n_outputs; i++) {
    const bool input = i < m->n_inputs;
    const rk_tensor *t = input ? &m->inputs[i] : &m->outputs[i - m->n_inputs];
    const rk_binding *b = input ? &c->inputs[i] : &c->outputs[i - m->n_inputs];
    if (!b->mem) continue;
    if (!rk_mem_lives(b->mem))
      return rk_fail(input ? RKNN_ERR_INPUT_INVALID : RKNN_ERR_OUTPUT_INVALID, function,
                     "the memory of '%s' was destroyed; set another one", t->name);
    status = input ? itg_get_input(c->session, t->index, &view)
                   : itg_get_output(c->session, t->index, &view);
    void *data = b->direct ? rk_mem_data(b->mem) : NULL;  // NULL: the session's own memory
    if (!status && !input) status = itg_bind_output(c->session, t->index, data, view.bytes);
    if (!status && b->direct && input)
      status = itg_bind_input(c->session, t->index, data, view.bytes);
    if (b->direct || !input) continue;
    rk_view from = b->view, to = own_input(c, t);
    from.data = rk_mem_data(b->mem);
    rk_copy(&from, &to, &b->change);
  }
  const int64_t begin = now_us();
  rk_running = c;
  c->run_stamp++;
  if (!status) status = itg_run(c->session);
  rk_running = NULL;
  c->microseconds = now_us() - begin;
  if (status)
    return rk_failed(status, function,
                     status == ITG_BUSY ? "the context runs on another thread; use rknn_dup_context"
                                        : itg_session_error(c->session));
  for (uint32_t i = 0; i < m->n_outputs; i++) {
    const rk_binding *b = &c->outputs[i];
    if (!b->mem || b->direct) continue;
    itg_get_output(c->session, m->outputs[i].index, &view);
    const rk_view from = rk_held_view(&m->outputs[i], view.shape, view.rank, (void *)view.data);
    rk_view to = b->view;
    to.data = rk_mem_data(b->mem);
    rk_copy(&from, &to, &b->change);
  }
  return RKNN_SUCC;
}

static void *work(void *argument) {
  rk_context *c = argument;
  const int result = compute(c);
  pthread_mutex_lock(&c->lock);
  c->result = result;
  c->done = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

// Waits for a run that does not block; its result, or RKNN_ERR_TIMEOUT.
int rk_wait(rk_context *c, const char *function, int32_t timeout_ms) {
  if (!c->working) return RKNN_SUCC;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += timeout_ms % 1000 * 1000000l;
  if (until.tv_nsec >= 1000000000l) until.tv_sec++, until.tv_nsec -= 1000000000l;
  int late = 0;
  pthread_mutex_lock(&c->lock);
  while (!c->done && !late)
    late = timeout_ms > 0 ? pthread_cond_timedwait(&c->changed, &c->lock, &until)
                          : pthread_cond_wait(&c->changed, &c->lock);
  const bool done = c->done;
  pthread_mutex_unlock(&c->lock);
  if (!done)
    return rk_fail(RKNN_ERR_TIMEOUT, function, "the run takes longer than %d ms; wait again",
                   timeout_ms);
  pthread_join(c->worker, NULL);
  c->working = false;
  return c->result;
}

// Outputs of the last run, before the next one begins.
static int keep_outputs(rk_context *c) {
  for (uint32_t i = 0; i < c->model->n_outputs; i++) {
    itg_view view, *kept = &c->previous[i];
    if (c->outputs[i].mem) continue;  // it is in the caller's memory
    itg_get_output(c->session, c->model->outputs[i].index, &view);
    free((void *)kept->data);
    *kept = view;
    void *data = malloc(view.bytes + 1);
    if ((kept->data = data) == NULL) return RKNN_ERR_MALLOC_FAIL;
    memcpy(data, view.data, view.bytes);
  }
  return RKNN_SUCC;
}

RK_API int rknn_run(rknn_context context, rknn_run_extend *extend) {
  int code;
  rk_context *c = found(context, __func__, &code);
  if (!c) return code;
  const bool async = c->flag & RKNN_FLAG_ASYNC_MASK;
  code = rk_wait(c, __func__, 0);
  if (!code && async && c->frame) code = keep_outputs(c);
  if (code) return code;
  c->frame++;
  if (extend) extend->frame_id = c->frame;
  if (async || (extend && extend->non_block)) {
    c->done = false;
    c->working = !pthread_create(&c->worker, NULL, work, c);
    if (c->working) return RKNN_SUCC;  // else run it here
  }
  c->result = code = compute(c);
  if (!code && rk_log_level() >= 4) {
    rknn_perf_detail detail;
    if (!rknn_query(context, RKNN_QUERY_PERF_DETAIL, &detail, sizeof detail))
      fputs(detail.perf_data, stdout);
  }
  return code;
}

RK_API int rknn_wait(rknn_context context, rknn_run_extend *extend) {
  int code;
  rk_context *c = found(context, __func__, &code);
  if (!c) return code;
  if (extend) extend->frame_id = c->frame;
  return rk_wait(c, __func__, extend ? extend->timeout_ms : 0);
}

// ---- outputs ------------------------------------------------------------------------------------
static int get_output(rk_context *c, const char *function, rknn_output *out, bool before) {
  const rk_model *m = c->model;
  if (out->index >= m->n_outputs)
    return rk_fail(RKNN_ERR_OUTPUT_INVALID, function, "index is %u; the model has %u outputs",
                   out->index, m->n_outputs);
  const rk_tensor *t = &m->outputs[out->index];
  const rk_binding *bound = &c->outputs[out->index];
  if (bound->mem && bound->direct && !rk_mem_lives(bound->mem))
    return rk_fail(RKNN_ERR_OUTPUT_INVALID, function,
                   "output '%s' is in memory that was destroyed; set another one and run again",
                   t->name);
  itg_view view = c->previous[out->index];
  if (!before || !view.data) {
    const int code = rk_wait(c, function, 0);
    if (code) return code;
    itg_get_output(c->session, t->index, &view);
  }
  const rk_view from = rk_held_view(t, view.shape, view.rank, (void *)view.data);
  rk_view to = from;
  rk_change change = {0};
  to.type = out->want_float ? RKNN_TENSOR_FLOAT32 : t->type;
  const uint64_t bytes = rk_view_bytes(&to);
  if (t->quantised && to.type != t->held) {
    if (out->want_float) change.from_scale = t->scale, change.from_zp = t->zp;
    else change.to_scale = t->scale, change.to_zp = t->zp;
  }
  if (out->is_prealloc && (!out->buf || out->size < bytes))
    return rk_fail(RKNN_ERR_OUTPUT_INVALID, function,
                   "output '%s': the preallocated buffer %s, %llu bytes are needed", t->name,
                   out->buf ? "is too small" : "is NULL", (unsigned long long)bytes);
  if (!out->is_prealloc && !(out->buf = malloc(bytes + 1)))
    return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for output '%s'", t->name);
  if (!out->is_prealloc) out->size = (uint32_t)bytes;
  to.data = out->buf;
  rk_copy(&from, &to, &change);
  return RKNN_SUCC;
}

RK_API int rknn_outputs_get(rknn_context context, uint32_t n_outputs, rknn_output outputs[],
                            rknn_output_extend *extend) {
  int code;
  rk_context *c = found(context, __func__, &code);
  if (!c) return code;
  if (!outputs || !n_outputs || n_outputs > c->model->n_outputs)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "%u outputs%s; the model has %u", n_outputs,
                   outputs ? "" : " at NULL", c->model->n_outputs);
  if (!c->frame) return rk_fail(RKNN_ERR_FAIL, __func__, "nothing ran yet; call rknn_run first");
  const bool before = c->flag & RKNN_FLAG_ASYNC_MASK && c->frame > 1;
  if (!before && !(code = rk_wait(c, __func__, 0))) code = c->result;
  if (code) return code;
  if (extend) extend->frame_id = c->frame - before;
  for (uint32_t i = 0; i < n_outputs; i++)
    if ((code = get_output(c, __func__, &outputs[i], before))) {
      rknn_outputs_release(context, i, outputs);
      break;
    }
  return code;
}

RK_API int rknn_outputs_release(rknn_context context, uint32_t n_ouputs, rknn_output outputs[]) {
  if (!rk_find(context, false))
    return rk_fail(RKNN_ERR_CTX_INVALID, __func__, "no such context; release before rknn_destroy");
  if (!outputs && n_ouputs)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "outputs is NULL; give those of "
                   "rknn_outputs_get");
  for (uint32_t i = 0; i < n_ouputs; i++)
    if (!outputs[i].is_prealloc) {
      free(outputs[i].buf);
      outputs[i].buf = NULL;
    }
  return RKNN_SUCC;
}
