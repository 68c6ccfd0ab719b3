// Models: the file or the bytes, the key, and the metadata that RKNN.export_rknn wrote.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rknn_internal.h"

enum { HEAD = 32, ALIGNMENT = 64, MAX_OPERATORS = 64, MAX_INPUTS = RKNN_MAX_DIMS * 4 };

rknn_tensor_type rk_type_of(uint8_t dtype) {
  switch (dtype) {
    case ITG_F32: return RKNN_TENSOR_FLOAT32;
    case ITG_F16: return RKNN_TENSOR_FLOAT16;
    case ITG_BF16: return RKNN_TENSOR_BFLOAT16;
    case ITG_I8: return RKNN_TENSOR_INT8;
    case ITG_U8: return RKNN_TENSOR_UINT8;
    case ITG_I16: return RKNN_TENSOR_INT16;
    case ITG_U16: return RKNN_TENSOR_UINT16;
    case ITG_I32: return RKNN_TENSOR_INT32;
    case ITG_U32: return RKNN_TENSOR_UINT32;
    case ITG_I64: return RKNN_TENSOR_INT64;
    case ITG_BOOL: return RKNN_TENSOR_BOOL;
    default: return RKNN_TENSOR_TYPE_MAX;
  }
}

// ---- bytes --------------------------------------------------------------------------------------
// The range of a file that rknn_init_extend gives, or the first bytes of the file, aligned.
static int read_file(const char *function, const char *path, int64_t offset, uint32_t size,
                     void **made, size_t *got) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return rk_fail(RKNN_ERR_MODEL_INVALID, function, "cannot open '%.400s': %s; check the path",
                   path, strerror(errno));
  int code = RKNN_SUCC;
  *made = aligned_alloc(ALIGNMENT, ((size_t)size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  *got = 0;
  if (!*made) code = rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for %u bytes", size);
  else if (fseeko(file, offset, SEEK_SET) || (*got = fread(*made, 1, size, file), ferror(file)))
    code =
        rk_fail(RKNN_ERR_MODEL_INVALID, function,
                "cannot read '%.400s': %s; give the path of an .rknn file", path, strerror(errno));
  fclose(file);
  if (code) free(*made);
  return code;
}

static int refuse_other_files(const char *function, const uint8_t *head, size_t size) {
  if (size >= 4 && !memcmp(head, "RKNN", 4))
    return rk_fail(RKNN_ERR_MODEL_INVALID, function,
                   "the model was written by Rockchip's compiler: it holds commands for the NPU of "
                   "a board and not the model; convert the original model with intaglio.compat "
                   "(python -m intaglio.compat convert.py)");
  if (size < HEAD || memcmp(head, "ITG1", 4))
    return rk_fail(RKNN_ERR_MODEL_INVALID, function,
                   "the model is no package of Intaglio; RKNN.export_rknn of intaglio.compat and "
                   "`intaglio compile` write one");
  return RKNN_SUCC;
}

static int open_bytes(const char *function, rk_model *m, const void *data, size_t size,
                      const itg_open_options *options) {
  itg_error error = {{0}};
  itg_status status = ITG_NO_PLUGIN;
  for (int i = 0; i < MAX_OPERATORS && status == ITG_NO_PLUGIN; i++) {
    if (i && !rk_stand_in(error.words)) break;
    rk_free_nodes(m);
    rk_begin_open(m);
    status = data ? itg_model_open_with(data, size, options, &m->model, &error)
                  : itg_model_open_file_with(m->path, options, &m->model, &error);
    rk_end_open();
  }
  return status ? rk_failed(status, function, error.words) : RKNN_SUCC;
}

// The folder of a path, for weights beside it.
static char *folder_of(const char *path) {
  char *folder = path ? strdup(path) : NULL, *slash = folder ? strrchr(folder, '/') : NULL;
  if (slash) slash[slash == folder] = 0;
  else if (folder) strcpy(folder, *folder ? "." : "");
  return folder;
}

// ---- metadata -----------------------------------------------------------------------------------
static bool numbers(const rk_json *list, float **values, uint32_t *count) {
  const uint32_t n = rk_json_count(list);
  if (!n) return !list || list->kind == RK_LIST;
  if (list->kind != RK_LIST || !(*values = malloc(n * sizeof **values))) return false;
  *count = 0;
  for (const rk_json *x = list->first; x; x = x->next) {
    if (x->kind != RK_NUMBER) return false;
    (*values)[(*count)++] = (float)x->number;
  }
  return true;
}

// Element type, scale and zero point of queries, as export_rknn found them.
static bool take_type(rk_tensor *t, const rk_json *about) {
  const char *type = rk_json_text(about, "type");
  if (!type || (t->held != RKNN_TENSOR_FLOAT32 && t->held != RKNN_TENSOR_FLOAT16)) return true;
  if (!strcmp(type, "f16")) t->type = RKNN_TENSOR_FLOAT16;
  else if (!strcmp(type, "f32")) t->type = RKNN_TENSOR_FLOAT32;
  else {
    const rk_json *scale = rk_json_get(about, "scale"), *zero = rk_json_get(about, "zero");
    if (!scale || !zero || !(scale->number > 0) || !(scale->number < 1e30) ||
        !(zero->number >= -32768) || !(zero->number <= 32767))
      return false;
    t->type = !strcmp(type, "i16")  ? RKNN_TENSOR_INT16
              : !strcmp(type, "u8") ? RKNN_TENSOR_UINT8
                                    : RKNN_TENSOR_INT8;
    t->quantised = true;
    t->scale = (float)scale->number;
    t->zp = (int32_t)zero->number;
  }
  return true;
}

static bool is_picture(int64_t channels) { return channels == 1 || channels == 3 || channels == 4; }

static bool describe(rk_tensor *t, const itg_info *info, uint32_t index) {
  t->index = index;
  snprintf(t->name, sizeof t->name, "%s", info->name);
  t->held = t->type = rk_type_of(info->dtype);
  if (info->n_scale == 1 && info->scale && info->zero) {
    t->quantised = true;
    t->scale = (float)*info->scale;
    t->zp = (int32_t)*info->zero;
  }
  t->channels_last = info->rank == 4 && is_picture(info->shape[3]) && !is_picture(info->shape[1]);
  return t->type != RKNN_TENSOR_TYPE_MAX;
}

static bool is_state(const itg_model *m, uint32_t index, bool input) {
  itg_state state;
  for (uint32_t i = 0; i < itg_model_states(m, 0); i++)
    if (!itg_model_state(m, 0, i, &state) && (input ? state.input : state.output) == index)
      return true;
  return false;
}

static int list_tensors(const char *function, rk_model *m) {
  const uint32_t counts[2] = {itg_model_outputs(m->model, 0), itg_model_inputs(m->model, 0)};
  m->n_itg_inputs = counts[1];
  m->inputs = calloc(counts[1] + 1, sizeof *m->inputs);
  m->outputs = calloc(counts[0] + 1, sizeof *m->outputs);
  if (!m->inputs || !m->outputs)
    return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for %u inputs", counts[1]);
  if (counts[1] > MAX_INPUTS)
    return rk_fail(RKNN_ERR_MODEL_INVALID, function,
                   "the model has %u inputs; at most %d work here", counts[1], MAX_INPUTS);
  for (int input = 0; input < 2; input++)
    for (uint32_t i = 0; i < counts[input]; i++) {
      itg_info info;
      if (input) itg_model_input(m->model, 0, i, &info);
      else itg_model_output(m->model, 0, i, &info);
      rk_tensor *t = input ? &m->inputs[m->n_inputs] : &m->outputs[m->n_outputs];
      if (is_state(m->model, i, input)) continue;
      if (!describe(t, &info, i))
        return rk_fail(RKNN_ERR_MODEL_INVALID, function,
                       "%s '%.80s' has element type %s, which RKNN's API lacks; compile the model "
                       "with inputs and outputs in f32",
                       input ? "input" : "output", info.name, itg_dtype_name(info.dtype));
      ++*(input ? &m->n_inputs : &m->n_outputs);
    }
  return RKNN_SUCC;
}

// Puts inputs in the order of the list and takes mean, std and layout from it.
static bool take_inputs(rk_model *m, const rk_json *inputs, const rk_json *tensors) {
  uint32_t at = 0;
  if (!inputs || inputs->kind != RK_LIST || rk_json_count(inputs) != m->n_inputs) return false;
  for (const rk_json *x = inputs->first; x; x = x->next, at++) {
    const char *name = rk_json_text(x, "name");
    const rk_json *last = rk_json_get(x, "channels_last");
    uint32_t i = at;
    while (name && i < m->n_inputs && strcmp(m->inputs[i].name, name)) i++;
    if (!name || i == m->n_inputs) return false;
    const rk_tensor other = m->inputs[i];
    m->inputs[i] = m->inputs[at];
    m->inputs[at] = other;
    rk_tensor *t = &m->inputs[at];
    itg_info info;
    itg_model_input(m->model, 0, t->index, &info);
    t->channels_last = info.rank == 4 && last && last->number != 0;
    const int64_t channels = info.rank == 4 ? info.shape[t->channels_last ? 3 : 1] : 1;
    if (!numbers(rk_json_get(x, "mean"), &t->mean, &t->n_mean) ||
        !numbers(rk_json_get(x, "std"), &t->std, &t->n_std) ||
        (t->n_mean > 1 && t->n_mean != channels) || (t->n_std > 1 && t->n_std != channels) ||
        !take_type(t, rk_json_get(tensors, t->name)))
      return false;
    t->blocked = info.rank == 4 && !is_picture(channels) && t->type != t->held;
    bool changes = false;
    for (uint32_t k = 0; k < t->n_mean; k++) changes |= t->mean[k] != 0;
    for (uint32_t k = 0; k < t->n_std; k++) changes |= t->std[k] != 1;
    if (!changes) t->n_mean = t->n_std = 0;
  }
  return true;
}

static int take_metadata(const char *function, rk_model *m) {
  size_t size;
  const char *text = itg_model_meta(m->model, &size);
  rk_json *meta = rk_json_parse(text, size);
  const char *inner = rk_json_text(rk_json_get(meta, "metadata"), "rknn");
  rk_json *ours = inner ? rk_json_parse(inner, strlen(inner)) : NULL;
  bool good = !inner || ours;
  const char *target = rk_json_text(meta, "target");
  m->platform = rk_platform_of(target ? target : rk_json_text(ours, "platform"));
  if (ours) {
    const rk_json *tensors = rk_json_get(ours, "tensors");
    const char *string = rk_json_text(ours, "custom_string");
    m->exported = true;
    m->custom_string = string ? strdup(string) : NULL;
    good = take_inputs(m, rk_json_get(ours, "inputs"), tensors);
    bool last = false;  // a model with axes as in TFLite has them everywhere
    for (uint32_t i = 0; i < m->n_inputs; i++) last |= m->inputs[i].channels_last;
    for (uint32_t i = 0; good && i < m->n_outputs; i++) {
      rk_tensor *t = &m->outputs[i];
      good = take_type(t, rk_json_get(tensors, t->name));
      itg_info info;
      itg_model_output(m->model, 0, t->index, &info);
      t->channels_last = info.rank == 4 && last;
      t->blocked = info.rank == 4 && t->type != t->held;
    }
  }
  rk_json_free(ours);
  rk_json_free(meta);
  if (good) return RKNN_SUCC;
  return rk_fail(RKNN_ERR_MODEL_INVALID, function,
                 "metadata 'rknn' of the package is damaged; export it again");
}

// The file of the key that export_encrypted_rknn_model makes if it is given none; NULL if absent.
static char *key_beside(const char *path) {
  const size_t size = path ? strlen(path) + sizeof ".key" : 0;
  char *name = path ? malloc(size) : NULL;
  if (!name) return NULL;
  snprintf(name, size, "%s.key", path);
  FILE *file = fopen(name, "rb");
  if (file) return fclose(file), name;
  free(name);
  return NULL;
}

// ---- models -------------------------------------------------------------------------------------
static int open_model(const char *function, rk_model *m, const void *model, uint32_t size,
                      uint32_t flag, const rknn_init_extend *extend) {
  itg_open_options options = {0};
  void *head = NULL;
  char *beside = NULL;
  size_t got = size;
  int code = RKNN_SUCC;
  const bool part = !size && extend && extend->real_model_size;
  if (!size) {
    m->path = strdup(model);
    const int64_t offset = part ? extend->real_model_offset : 0;
    code = offset < 0 ? rk_fail(RKNN_ERR_PARAM_INVALID, function, "real_model_offset is below 0")
                      : read_file(function, model, offset, part ? extend->real_model_size : HEAD,
                                  &head, &got);
    if (code) return code;
    if (part) m->copy = head;
  }
  code = refuse_other_files(function, size ? model : head, got);
  if (!code) {
    uint32_t flags;  // bit 0 of the fourth word: encrypted
    memcpy(&flags, (const uint8_t *)(size ? model : head) + 12, 4);
    if (flags & 1) {
      const char *file = getenv("INTAGLIO_KEY_FILE"), *text = getenv("INTAGLIO_KEY");
      if (!(file && *file) && !(text && *text)) file = beside = key_beside(m->path);
      options.key_from = file && *file ? itg_key_from_file : itg_key_from_env;
      options.key_context = file && *file ? (void *)file : (void *)"INTAGLIO_KEY";
    }
  }
  char *weights = NULL;
  if (!code && (size || part)) {
    const rk_context *owner =
        flag & RKNN_FLAG_SHARE_WEIGHT_MEM ? rk_find(extend->ctx, false) : NULL;
    options.weights = weights = folder_of(part ? m->path : owner ? owner->model->path : NULL);
  }
  if (!code && size && !(flag & RKNN_FLAG_MODEL_BUFFER_ZERO_COPY)) {  // the caller may free it
    m->copy = aligned_alloc(ALIGNMENT, ((size_t)size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (m->copy) memcpy(m->copy, model, size);
    else code = rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for a model of %u bytes", size);
  }
  const void *data = m->copy ? m->copy : size ? model : NULL;
  if (!code) code = open_bytes(function, m, data, got, &options);
  free(weights);
  free(beside);
  if (!part) free(head);
  return code;
}

int rk_open(const char *function, const void *model, uint32_t size, uint32_t flag,
            const rknn_init_extend *extend, rk_model **made) {
  rk_model *m = calloc(1, sizeof *m);
  if (!m) return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for a model");
  int code = open_model(function, m, model, size, flag, extend);
  if (!code) {
    m->n_plans = itg_model_plans(m->model);
    code = list_tensors(function, m);
  }
  if (!code) code = take_metadata(function, m);
  if (code) rk_close(m);
  else *made = m;
  return code;
}

void rk_close(rk_model *m) {
  rk_free_nodes(m);
  itg_model_close(m->model);
  for (uint32_t i = 0; m->inputs && i < m->n_inputs; i++) {
    free(m->inputs[i].mean);
    free(m->inputs[i].std);
  }
  free(m->inputs);
  free(m->outputs);
  free(m->custom_string);
  free(m->copy);
  free(m->path);
  free(m);
}
