// Contexts: their list, rknn_init, rknn_dup_context, rknn_destroy, cores and shapes.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rknn_internal.h"

#define OUTSIDE (RKNN_FLAG_MEM_ALLOC_OUTSIDE | RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rk_context *contexts;

int rk_fail(int code, const char *function, const char *format, ...) {
  va_list list;
  char words[1024];
  va_start(list, format);
  vsnprintf(words, sizeof words, format, list);
  va_end(list);
  fprintf(stderr, "E RKNN: %s: %s\n", function, words);
  return code;
}

int rk_failed(itg_status status, const char *function, const char *words) {
  static const int codes[] = {
      [ITG_OK] = RKNN_SUCC,
      [ITG_BAD_FILE] = RKNN_ERR_MODEL_INVALID,
      [ITG_BAD_INPUT] = RKNN_ERR_PARAM_INVALID,
      [ITG_UNSUPPORTED] = RKNN_ERR_TARGET_PLATFORM_UNMATCH,
      [ITG_RUN_ERROR] = RKNN_ERR_FAIL,
      [ITG_NO_MEMORY] = RKNN_ERR_MALLOC_FAIL,
      [ITG_BUSY] = RKNN_ERR_FAIL,
      [ITG_BAD_KEY] = RKNN_ERR_MODEL_INVALID,
      [ITG_NO_PLUGIN] = RKNN_ERR_MODEL_INVALID,
  };
  return rk_fail(codes[status], function, "%s", *words ? words : itg_status_words(status));
}

int rk_log_level(void) {
  const char *level = getenv("RKNN_LOG_LEVEL");
  return level ? atoi(level) : 0;
}

const rk_platform *rk_platform_of(const char *name) {
  static const rk_platform known[] = {
      {"rk3588", 3, 16, 8}, {"rk3576", 2, 16, 8},  {"rk3562", 1, 16, 8}, {"rk3566", 1, 8, 4},
      {"rk3568", 1, 8, 4},  {"rv1103", 1, 16, 4},  {"rv1106", 1, 16, 4}, {"rv1103b", 1, 8, 4},
      {"rv1106b", 1, 8, 4}, {"rv1126b", 1, 16, 8}, {"rk2118", 1, 16, 8},
  };
  for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].name, name)) return &known[i];
  return known;
}

// ---- the list -----------------------------------------------------------------------------------
rk_context *rk_find(rknn_context context, bool matmul) {
  pthread_mutex_lock(&lock);
  rk_context *found = contexts;
  while (found && (rknn_context)(uintptr_t)found != context) found = found->next;
  pthread_mutex_unlock(&lock);
  return found && found->is_matmul == matmul ? found : NULL;
}

void rk_add(rk_context *context) {
  pthread_mutex_lock(&lock);
  context->next = contexts;
  contexts = context;
  pthread_mutex_unlock(&lock);
}

bool rk_remove(rk_context *context) {
  pthread_mutex_lock(&lock);
  rk_context **at = &contexts;
  while (*at && *at != context) at = &(*at)->next;
  const bool found = *at != NULL;
  if (found) *at = context->next;
  pthread_mutex_unlock(&lock);
  return found;
}

// ---- sessions -----------------------------------------------------------------------------------
int rk_rebuild(rk_context *c, const char *function) {
  itg_error error = {{0}};
  itg_session *made = NULL;
  itg_view held;
  if (c->flag & RKNN_FLAG_COLLECT_MODEL_INFO_ONLY) return RKNN_SUCC;
  itg_status status = itg_session_create(c->model->model, &c->options, &made, &error);
  if (status && c->options.core_mask) {  // a model without NPU programs has no cores to choose
    itg_options without = c->options;
    without.core_mask = 0;
    status = itg_session_create(c->model->model, &without, &made, &error);
  }
  if (status) return rk_failed(status, function, error.words);
  if (c->shaped) status = itg_set_shapes(made, (const int64_t (*)[ITG_MAX_RANK])c->shapes);
  for (uint32_t i = 0; c->session && !status && i < c->model->n_inputs; i++) {
    const uint32_t at = c->model->inputs[i].index;  // those that were copied stay
    if (c->inputs[i].mem) continue;
    if (!(status = itg_get_input(c->session, at, &held)) && held.data)
      status = itg_set_input(made, at, held.data, held.bytes);
  }
  int code = RKNN_SUCC;
  if (status) {
    code = rk_failed(status, function, itg_session_error(made));
    itg_session_destroy(made);
  } else {
    itg_session_destroy(c->session);
    c->session = made;
  }
  return code;
}

static void destroy(rk_context *c) {
  rk_free_ops(c);
  itg_session_destroy(c->session);
  for (uint32_t i = 0; c->previous && i < c->model->n_outputs; i++)
    free((void *)c->previous[i].data);
  free(c->previous);
  free(c->inputs);
  free(c->outputs);
  free(c->perf);
  pthread_mutex_lock(&lock);
  const bool last = c->model && !--c->model->users;
  pthread_mutex_unlock(&lock);
  if (last) rk_close(c->model);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

// A context of an open model; the model belongs to it, also if it fails.
static int make(const char *function, rk_model *model, uint32_t flag, const itg_options *options,
                rknn_context *to) {
  rk_context *c = calloc(1, sizeof *c);
  if (!c) {
    if (!model->users) rk_close(model);
    return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for a context");
  }
  c->model = model;
  c->flag = flag;
  pthread_mutex_init(&c->lock, NULL);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&c->changed, &clock);
  pthread_condattr_destroy(&clock);
  pthread_mutex_lock(&lock);
  model->users++;
  pthread_mutex_unlock(&lock);
  c->inputs = calloc(model->n_inputs + 1, sizeof *c->inputs);
  c->outputs = calloc(model->n_outputs + 1, sizeof *c->outputs);
  c->previous = calloc(model->n_outputs + 1, sizeof *c->previous);
  if (!c->inputs || !c->outputs || !c->previous) {
    destroy(c);
    return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for a context");
  }
  c->options = *options;
  const int code = rk_rebuild(c, function);
  if (code) {
    destroy(c);
    return code;
  }
  rk_name_nodes(c);
  rk_add(c);
  *to = (rknn_context)(uintptr_t)c;
  return RKNN_SUCC;
}

static uint32_t threads(void) {
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  return cpus < 2 ? 1 : cpus > 4 ? 4 : (uint32_t)cpus;
}

RK_API int rknn_init(rknn_context *context, void *model, uint32_t size, uint32_t flag,
                     rknn_init_extend *extend) {
  if (context) *context = 0;
  if (!context || !model)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "%s is NULL; give the address of %s",
                   context ? "model" : "context",
                   context ? "a path (size 0) or of a model's bytes" : "a rknn_context");
  if (flag & (RKNN_FLAG_FENCE_IN_OUTSIDE | RKNN_FLAG_FENCE_OUT_OUTSIDE))
    return rk_fail(RKNN_ERR_DEVICE_UNAVAILABLE, __func__,
                   "flag 0x%x has RKNN_FLAG_FENCE_*; a PC has no fences of an NPU driver; leave "
                   "them out and use rknn_wait",
                   flag);
  if (flag & RKNN_FLAG_SHARE_WEIGHT_MEM && (!extend || !rk_find(extend->ctx, false)))
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "RKNN_FLAG_SHARE_WEIGHT_MEM needs extend->ctx, the context of the model with "
                   "the weights");
  rk_model *made = NULL;
  const int code = rk_open(__func__, model, size, flag, extend, &made);
  if (code) return code;
  const itg_options options = {
      .plan = ITG_ANY_PLAN,
      .threads = threads(),
      .profile = flag & RKNN_FLAG_COLLECT_PERF_MASK || rk_log_level() >= 4,
      .internal_later = (flag & OUTSIDE) != 0,
  };
  return make(__func__, made, flag, &options, context);
}

RK_API int rknn_dup_context(rknn_context *context_in, rknn_context *context_out) {
  if (context_out && context_out != context_in) *context_out = 0;
  if (!context_in || !context_out)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "a context is NULL; give the addresses of two");
  const rk_context *c = rk_find(*context_in, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, __func__, "context_in is not one of rknn_init");
  itg_options options = c->options;  // both may run at the same time: internal memory of its own
  options.internal = NULL;
  options.internal_size = 0;
  options.internal_later = (c->flag & OUTSIDE) != 0;
  return make(__func__, c->model, c->flag, &options, context_out);
}

RK_API int rknn_destroy(rknn_context context) {
  rk_context *c = rk_find(context, false);
  if (!c || !rk_remove(c))
    return rk_fail(RKNN_ERR_CTX_INVALID, __func__,
                   "no such context; it is destroyed already, or rknn_init failed");
  rk_wait(c, __func__, 0);
  destroy(c);
  return RKNN_SUCC;
}

// ---- cores --------------------------------------------------------------------------------------
static int set_cores(rk_context *c, const char *function, uint32_t mask) {
  rk_wait(c, function, 0);
  const uint32_t before = c->options.core_mask;
  c->options.core_mask = mask;
  const int code = rk_rebuild(c, function);
  if (code) c->options.core_mask = before;
  return code;
}

RK_API int rknn_set_core_mask(rknn_context context, rknn_core_mask core_mask) {
  rk_context *c = rk_find(context, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, __func__, "no such context; call rknn_init first");
  const uint32_t mask = (uint32_t)core_mask, all = (1u << c->model->platform->cores) - 1;
  if (mask == RKNN_NPU_CORE_ALL || !mask) return set_cores(c, __func__, mask);
  if (mask > RKNN_NPU_CORE_0_1_2 || mask == 5 || mask == 6 || mask & ~all)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "core_mask is 0x%x; %s has %u NPU core%s; use RKNN_NPU_CORE_AUTO, or one of "
                   "RKNN_NPU_CORE_0, _1, _2, _0_1, _0_1_2 that it has",
                   mask, c->model->platform->name, c->model->platform->cores,
                   c->model->platform->cores > 1 ? "s" : "");
  return set_cores(c, __func__, mask);
}

RK_API int rknn_set_batch_core_num(rknn_context context, int core_num) {
  rk_context *c = rk_find(context, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, __func__, "no such context; call rknn_init first");
  const int cores = (int)c->model->platform->cores;
  if (core_num < 1 || core_num > cores)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "core_num is %d; %s has 1 to %d", core_num,
                   c->model->platform->name, cores);
  return set_cores(c, __func__, core_num == 1 ? 0 : (1u << core_num) - 1);
}

// ---- shapes -------------------------------------------------------------------------------------
static int take_shape(const rk_context *c, const char *function, const rknn_tensor_attr *attr,
                      int64_t (*shapes)[ITG_MAX_RANK]) {
  const rk_model *m = c->model;
  if (attr->index >= m->n_inputs)
    return rk_fail(RKNN_ERR_INPUT_INVALID, function, "index is %u; the model has %u inputs",
                   attr->index, m->n_inputs);
  const rk_tensor *t = &m->inputs[attr->index];
  itg_info info;
  itg_model_input(m->model, 0, t->index, &info);
  if (attr->n_dims != info.rank)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function, "input '%s' has %u dims, n_dims is %u",
                   t->name, info.rank, attr->n_dims);
  const bool last = attr->fmt == RKNN_TENSOR_NHWC;
  if (attr->n_dims == 4 && !last && attr->fmt != RKNN_TENSOR_NCHW)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "input '%s': fmt is %s; set RKNN_TENSOR_NHWC for 4 dims", t->name,
                   get_format_string(attr->fmt));
  static const uint8_t same[] = {0, 1, 2, 3}, to_nchw[] = {0, 3, 1, 2}, to_nhwc[] = {0, 2, 3, 1};
  const uint8_t *order = attr->n_dims != 4 || last == t->channels_last ? same
                         : last                                        ? to_nchw
                                                                       : to_nhwc;
  int64_t *row = shapes[t->index];
  for (uint32_t i = 0; i < ITG_MAX_RANK; i++)
    row[i] = i < info.rank ? attr->dims[info.rank == 4 ? order[i] : i] : 0;
  return RKNN_SUCC;
}

static int set_shapes(rk_context *c, const char *function, uint32_t n,
                      const rknn_tensor_attr *attr) {
  const rk_model *m = c->model;
  int64_t shapes[RKNN_MAX_DIMS * 4][ITG_MAX_RANK];
  if (!c->session)
    return rk_fail(RKNN_ERR_FAIL, function,
                   "the context has RKNN_FLAG_COLLECT_MODEL_INFO_ONLY; leave it out to set shapes");
  rk_wait(c, function, 0);
  for (uint32_t i = 0; i < m->n_itg_inputs; i++) {  // inputs that are not given stay
    itg_view now;
    itg_get_input(c->session, i, &now);
    memcpy(shapes[i], now.shape, sizeof *shapes);
  }
  for (uint32_t i = 0; i < n; i++) {
    const int code = take_shape(c, function, &attr[i], shapes);
    if (code) return code;
  }
  itg_status status = itg_set_shapes(c->session, (const int64_t (*)[ITG_MAX_RANK])shapes);
  if (status)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "%s; RKNN_QUERY_INPUT_DYNAMIC_RANGE lists the shapes of the model",
                   itg_session_error(c->session));
  memcpy(c->shapes, shapes, sizeof shapes);
  c->shaped = true;
  itg_view now;  // memory that was set is for other shapes
  for (uint32_t i = 0; i < m->n_inputs; i++) {
    c->inputs[i].mem = NULL;
    if (!itg_get_input(c->session, m->inputs[i].index, &now))
      itg_bind_input(c->session, m->inputs[i].index, NULL, now.bytes);
  }
  for (uint32_t i = 0; i < m->n_outputs; i++) {
    c->outputs[i].mem = NULL;
    if (!itg_get_output(c->session, m->outputs[i].index, &now))
      itg_bind_output(c->session, m->outputs[i].index, NULL, now.bytes);
  }
  return RKNN_SUCC;
}

RK_API int rknn_set_input_shape(rknn_context ctx, rknn_tensor_attr *attr) {
  rk_context *c = rk_find(ctx, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, __func__, "no such context; call rknn_init first");
  if (!attr) return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "attr is NULL; query it first");
  return set_shapes(c, __func__, 1, attr);
}

RK_API int rknn_set_input_shapes(rknn_context ctx, uint32_t n_inputs, rknn_tensor_attr attr[]) {
  rk_context *c = rk_find(ctx, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, __func__, "no such context; call rknn_init first");
  if (!attr || n_inputs != c->model->n_inputs)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "%u attributes%s; the model has %u inputs",
                   n_inputs, attr ? "" : " at NULL", c->model->n_inputs);
  return set_shapes(c, __func__, n_inputs, attr);
}
