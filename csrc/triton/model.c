// Opens a package and compares it with the model's configuration.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../compat/rknn_json.h"
#include "triton.h"

static const struct {
  uint8_t dtype, bytes;
  TRITONSERVER_DataType type;
  const char *name;
} TYPES[] = {
    {ITG_F32, 4, TRITONSERVER_TYPE_FP32, "TYPE_FP32"},
    {ITG_F16, 2, TRITONSERVER_TYPE_FP16, "TYPE_FP16"},
    {ITG_BF16, 2, TRITONSERVER_TYPE_BF16, "TYPE_BF16"},
    {ITG_F64, 8, TRITONSERVER_TYPE_FP64, "TYPE_FP64"},
    {ITG_I8, 1, TRITONSERVER_TYPE_INT8, "TYPE_INT8"},
    {ITG_I16, 2, TRITONSERVER_TYPE_INT16, "TYPE_INT16"},
    {ITG_I32, 4, TRITONSERVER_TYPE_INT32, "TYPE_INT32"},
    {ITG_I64, 8, TRITONSERVER_TYPE_INT64, "TYPE_INT64"},
    {ITG_U8, 1, TRITONSERVER_TYPE_UINT8, "TYPE_UINT8"},
    {ITG_U16, 2, TRITONSERVER_TYPE_UINT16, "TYPE_UINT16"},
    {ITG_U32, 4, TRITONSERVER_TYPE_UINT32, "TYPE_UINT32"},
    {ITG_U64, 8, TRITONSERVER_TYPE_UINT64, "TYPE_UINT64"},
    {ITG_BOOL, 1, TRITONSERVER_TYPE_BOOL, "TYPE_BOOL"},
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES, MAX_THREADS = 256 };

// "" or what is wrong
typedef struct words {
  char text[400];
} words;

#define SAY(w, ...) (snprintf((w)->text, sizeof(w)->text, __VA_ARGS__), false)

static bool describe(triton_tensor *t, bool batched, words *w) {
  for (int i = 0; i < N_TYPES; i++) {
    if (TYPES[i].dtype != t->info.dtype) continue;
    t->type = TYPES[i].type;
    t->element = TYPES[i].bytes;
    t->row = t->info.bytes;
    if (batched && t->info.shape[0] > 0) t->row /= (uint64_t)t->info.shape[0];
    return true;
  }
  return SAY(w, "tensor '%.80s' is %s, which the protocol does not have", t->info.name,
             itg_dtype_name(t->info.dtype));
}

static int by_batch(const void *a, const void *b) {
  const triton_plan *x = a, *y = b;
  return (x->batch > y->batch) - (x->batch < y->batch);
}

// Each plan's batch: all inputs and outputs have it as their first extent, and else equal shapes.
static bool batches(triton_model *m, uint32_t max_batch, words *w) {
  const uint32_t count = itg_model_plans(m->model);
  if (count > TRITON_PLANS)
    return SAY(w, "the package has %u sizes; at most %d", count, TRITON_PLANS);
  for (uint32_t p = 0; p < count; p++) {
    int64_t batch = 0;
    for (uint32_t i = 0; i < m->inputs + m->outputs; i++) {
      itg_info info;
      const bool in = i < m->inputs;
      const itg_info *first = in ? &m->input[i].info : &m->output[i - m->inputs].info;
      if (in ? itg_model_input(m->model, p, i, &info)
             : itg_model_output(m->model, p, i - m->inputs, &info))
        return SAY(w, "its sizes cannot be read");
      if (!i) batch = info.rank ? info.shape[0] : 0;
      bool same = info.rank && info.rank == first->rank && info.shape[0] == batch && !info.dynamic;
      for (int a = 1; a < info.rank; a++) same &= info.shape[a] == first->shape[a];
      if (!same)
        return SAY(w,
                   "max_batch_size is %u, but tensor '%.80s' has no batch as its first extent; "
                   "set max_batch_size to 0",
                   max_batch, info.name);
    }
    if (batch < 1 || batch > 1 << 20) return SAY(w, "a batch of %lld rows", (long long)batch);
    m->plan[m->plans++] = (triton_plan){p, (uint32_t)batch};
  }
  qsort(m->plan, m->plans, sizeof *m->plan, by_batch);
  m->max_batch = m->plan[m->plans - 1].batch;
  if (max_batch > m->max_batch)
    return SAY(w,
               "max_batch_size is %u; the package's largest batch is %u; compile it with --batch, "
               "or lower max_batch_size",
               max_batch, m->max_batch);
  return true;
}

static bool listed(const rk_json *config, const char *key, const triton_tensor *known, uint32_t n,
                   words *w) {
  const rk_json *list = rk_json_get(config, key);
  if (rk_json_count(list) != n)
    return SAY(w, "config.pbtxt names %u tensors as %s; the package has %u", rk_json_count(list),
               key, n);
  for (const rk_json *t = list->first; t; t = t->next) {
    const char *name = rk_json_text(t, "name"), *type = rk_json_text(t, "data_type");
    uint32_t i = 0;
    while (i < n && strcmp(known[i].info.name, name ? name : "")) i++;
    if (i == n)
      return SAY(w,
                 "config.pbtxt names the %s '%.80s'; the package has none of this name, its "
                 "first is '%.80s'",
                 key, name ? name : "", known[0].info.name);
    for (int k = 0; k < N_TYPES; k++)
      if (TYPES[k].type == known[i].type && (!type || strcmp(TYPES[k].name, type)))
        return SAY(w, "config.pbtxt says %.40s for '%.80s'; the package has %s", type ? type : "",
                   name, TYPES[k].name);
  }
  return true;
}

static uint32_t threads_of(const rk_json *config, words *w) {
  const rk_json *given = rk_json_get(rk_json_get(config, "parameters"), "threads");
  const char *text = rk_json_text(given, "string_value");
  if (!given) return 1;
  char *end = NULL;
  const long n = text ? strtol(text, &end, 10) : 0;
  if (n >= 1 && n <= MAX_THREADS && !*end) return (uint32_t)n;
  (void)SAY(w, "parameter threads is '%.20s'; give 1 to %d", text ? text : "", MAX_THREADS);
  return 0;
}

static bool read_model(triton_model *m, const rk_json *config, words *w) {
  const rk_json *given = rk_json_get(config, "max_batch_size");
  const uint32_t max_batch =
      given && given->number > 0 && given->number < 1 << 20 ? (uint32_t)given->number : 0;
  m->inputs = itg_model_inputs(m->model, 0);
  m->outputs = itg_model_outputs(m->model, 0);
  if (!m->inputs || !m->outputs || m->inputs > TRITON_TENSORS || m->outputs > TRITON_TENSORS)
    return SAY(w, "it has %u inputs and %u outputs; 1 to %d are served", m->inputs, m->outputs,
               TRITON_TENSORS);
  if (itg_model_states(m->model, 0))
    return SAY(w,
               "it has a state, which this backend does not keep for each sequence; use "
               "`intaglio serve`, or `intaglio serve --ray`");
  if (!(m->threads = threads_of(config, w))) return false;
  m->open = itg_model_symbols(m->model, 0) || (!max_batch && itg_model_plans(m->model) > 1);
  for (uint32_t i = 0; i < m->inputs; i++)
    if (itg_model_input(m->model, 0, i, &m->input[i].info) ||
        !describe(&m->input[i], max_batch > 0, w))
      return false;
  for (uint32_t i = 0; i < m->outputs; i++) {
    if (itg_model_output(m->model, 0, i, &m->output[i].info) ||
        !describe(&m->output[i], max_batch > 0, w))
      return false;
    m->varying |= m->output[i].info.dynamic != 0;
  }
  if (!listed(config, "input", m->input, m->inputs, w)) return false;
  if (!listed(config, "output", m->output, m->outputs, w)) return false;
  if (max_batch && m->open)
    return SAY(w,
               "it has open dimensions, whose requests are not joined; set max_batch_size to 0, "
               "or compile it with --batch 1,2,4");
  if (max_batch) return batches(m, max_batch, w);
  m->plans = 1;
  m->plan[0] = (triton_plan){m->open ? ITG_ANY_PLAN : 0, 1};
  return true;
}

TRITONSERVER_Error *triton_open(const char *path, const char *text, size_t size,
                                triton_model **model) {
  itg_error error = {""};
  words w = {""};
  triton_model *m = calloc(1, sizeof *m);
  rk_json *config = rk_json_parse(text, size);
  TRITONSERVER_Error *failed = NULL;
  if (!m || !config)
    failed =
        triton_error(TRITONSERVER_ERROR_INTERNAL, "intaglio: the configuration cannot be read");
  else if (itg_model_open_file(path, 0, &m->model, &error))
    failed = triton_error(TRITONSERVER_ERROR_INVALID_ARG, "intaglio: %s: %s", path, error.words);
  else if (!read_model(m, config, &w))
    failed = triton_error(TRITONSERVER_ERROR_INVALID_ARG, "intaglio: %s: %s", path,
                          w.text[0] ? w.text : "its tensors cannot be read");
  rk_json_free(config);
  if (failed) triton_close(m);
  else *model = m;
  return failed;
}

void triton_close(triton_model *m) {
  if (m) itg_model_close(m->model);
  free(m);
}
