// The plug-in `sophgo`: runs the cvimodels and bmodels in packages on Sophgo's chips, by the
// libraries of the vendor, which are on the board: libcviruntime.so (CV180x, CV181x), libbmrt.so
// and libbmlib.so (BM1684X, BM1688). They are loaded when a file first runs; the prototypes below
// are those of the vendor's public documentation.
//
//   cc -std=c11 -O2 -shared -fPIC -I csrc/include csrc/plugins/sophgo.c -o libsophgo.so -ldl
//   -lpthread
//
// A file is loaded into the vendor's runtime once and stays there: packages come and go, but
// plug-ins are not told. Files are known by their address in memory; whenever a package is opened
// there, the bytes are compared with those that were loaded, by a hash.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intaglio_plugin.h"

enum {
  MAX_FILES = 16,
  MAX_OUTPUTS = 16,
  MAX_PORTS = 64,
  RANK = 4,
  ROW = 1 + RANK,
  MAX_BMRT_DIMS = 8
};

typedef struct attributes {  // in the order of FIELDS: 8 bytes each
  int64_t chip, macs, n_types, types[MAX_OUTPUTS * ROW];
} attributes;

#define CHIPS \
  "cv180x|cv181x|cv182x|cv183x|cv184x|cv186x|bm1684|bm1684x|bm1684x2|bm1688|bm1690|sg2260|sg2380"
#define FIELDS "chip:e1(" CHIPS ") macs:i1 n_types:i1 types:i80"

static _Thread_local char words[400];  // of the last error

static void chip_name(const itg_call *call, char to[16]) {
  const char *from = CHIPS;
  for (int64_t i = ((const attributes *)call->attrs)->chip; i > 0 && from; i--)
    if ((from = strchr(from, '|'))) from++;
  snprintf(to, 16, "%.*s", from ? (int)strcspn(from, "|") : 0, from ? from : "");
}

// ---- files
// ---------------------------------------------------------------------------------------
typedef struct file {
  const uint8_t *data;  // in the package; NULL: this place is free
  uint64_t size, hash, used;
  bool compared;     // since a package was last opened
  void *handle;      // of libcviruntime
  const char *net;   // its name in the runtime of libbmrt
  const void *info;  // about this net
} file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of all that follows: a chip runs one
static file files[MAX_FILES];                             // file at a time
static uint64_t clock_now;

static uint64_t hash_of(const uint8_t *data, uint64_t size) {
  uint64_t h = 1469598103934665603u, word;
  for (; size >= 8; data += 8, size -= 8) {
    memcpy(&word, data, 8);
    h = (h ^ word) * 1099511628211u;
    h ^= h >> 29;
  }
  for (; size; size--) h = (h ^ *data++) * 1099511628211u;
  return h;
}

static uint64_t bytes_of(const itg_tensor *t) {
  const uint64_t sizes[] = {[ITG_F32] = 4, [ITG_I8] = 1,  [ITG_U8] = 1,  [ITG_I16] = 2,
                            [ITG_U16] = 2, [ITG_I32] = 4, [ITG_F16] = 2, [ITG_BF16] = 2};
  return t->dtype < sizeof sizes / sizeof *sizes ? sizes[t->dtype] * (uint64_t)itg_count(t) : 0;
}

// A function of a library that is loaded on first use; NULL, with words, if it is missing.
static void *symbol(void **library, const char *file_name, const char *name) {
  if (!*library && !(*library = dlopen(file_name, RTLD_NOW | RTLD_GLOBAL))) {
    const char *why = dlerror();
    snprintf(
        words, sizeof words,
        "cannot load the vendor's library: %.200s; install it on the board, or name its folder "
        "in LD_LIBRARY_PATH",
        why ? why : file_name);
    return NULL;
  }
  void *found = dlsym(*library, name);
  if (!found)
    snprintf(words, sizeof words, "%s has no function %s; install a newer one", file_name, name);
  return found;
}

// A pointer to a function, from one to data: C has no cast for it.
#define LOAD(function, library, file_name, name)       \
  do {                                                 \
    void *found = symbol(&(library), file_name, name); \
    if (!found) return words;                          \
    memcpy(&(function), &found, sizeof found);         \
  } while (0)

static itg_words refused(const itg_call *call, const char *library, const char *what, long code) {
  char chip[16];
  chip_name(call, chip);
  snprintf(words, sizeof words,
           "%s %s (code %ld); the file is for %s: is this the chip, and is its driver loaded?",
           library, what, code, chip);
  return words;
}

static itg_words other_size(const char *kind, uint32_t i, uint64_t has, uint64_t wants) {
  snprintf(words, sizeof words,
           "%s %u of the chip's file has %llu bytes, that of the package %llu; compile it again",
           kind, i, (unsigned long long)has, (unsigned long long)wants);
  return words;
}

// ---- CV180x and CV181x: libcviruntime
// --------------------------------------------------------------
#define CVI "libcviruntime.so"
static struct {
  void *library;
  int (*load)(const int8_t *data, uint32_t size, void **model);
  int (*ports)(void *model, void **inputs, int32_t *n_in, void **outputs, int32_t *n_out);
  int (*forward)(void *model, void *inputs, int32_t n_in, void *outputs, int32_t n_out);
  int (*cleanup)(void *model);
  void *(*by_name)(const char *name, void *tensors, int32_t count);
  void *(*data)(void *tensor);
  size_t (*size)(void *tensor);
} cvi;

static itg_words cvi_library(void) {
  LOAD(cvi.load, cvi.library, CVI, "CVI_NN_RegisterModelFromBuffer");
  LOAD(cvi.ports, cvi.library, CVI, "CVI_NN_GetInputOutputTensors");
  LOAD(cvi.forward, cvi.library, CVI, "CVI_NN_Forward");
  LOAD(cvi.cleanup, cvi.library, CVI, "CVI_NN_CleanupModel");
  LOAD(cvi.by_name, cvi.library, CVI, "CVI_NN_GetTensorByName");
  LOAD(cvi.data, cvi.library, CVI, "CVI_NN_TensorPtr");
  LOAD(cvi.size, cvi.library, CVI, "CVI_NN_TensorSize");
  return NULL;
}

static itg_words cvi_load(const itg_call *call, file *f) {
  itg_words wrong = cvi_library();
  if (wrong) return wrong;
  const int code = cvi.load((const int8_t *)f->data, (uint32_t)f->size, &f->handle);
  return code ? refused(call, CVI, "does not load the file", code) : NULL;
}

// Copies inputs to the vendor's tensors, or its tensors to the outputs.
static itg_words cvi_copy(void *tensors, int32_t count, const char *kind,
                          const itg_tensor *const *t, uint32_t n, bool in) {
  if (count < 0 || (uint32_t)count != n) return other_size(kind, n, (uint64_t)count, n);
  for (uint32_t i = 0; i < n; i++) {
    char name[24];
    snprintf(name, sizeof name, "%s%u", kind, i);
    void *tensor = cvi.by_name(name, tensors, count);
    const uint64_t wants = bytes_of(t[i]);
    const uint64_t has = tensor ? cvi.size(tensor) : 0;
    if (has != wants || !cvi.data(tensor)) return other_size(kind, i, has, wants);
    if (in) memcpy(cvi.data(tensor), t[i]->data, wants);
    else memcpy(t[i]->data, cvi.data(tensor), wants);
  }
  return NULL;
}

static itg_words cvi_run(const itg_call *call, file *f) {
  void *inputs = NULL, *outputs = NULL;
  int32_t n_in = 0, n_out = 0;
  int code = cvi.ports(f->handle, &inputs, &n_in, &outputs, &n_out);
  if (code) return refused(call, CVI, "gives no tensors", code);
  itg_words wrong = cvi_copy(inputs, n_in, "in", call->in + 1, call->n_in - 1, true);
  if (wrong) return wrong;
  if ((code = cvi.forward(f->handle, inputs, n_in, outputs, n_out)))
    return refused(call, CVI, "cannot run the file", code);
  return cvi_copy(outputs, n_out, "out", (const itg_tensor *const *)call->out, call->n_out, false);
}

// ---- BM1684X and BM1688: libbmrt, libbmlib
// -----------------------------------------------------------
#define BMRT "libbmrt.so"
#define BMLIB "libbmlib.so"
typedef struct bm_shape {
  int rank, extents[MAX_BMRT_DIMS];
} bm_shape;
typedef struct bm_net {  // the start of the vendor's struct
  const char *name;
  bool dynamic;
  int n_in;
  const char **in_names;
  int *in_types;
  float *in_scales;
  int n_out;
  const char **out_names;
  int *out_types;
  float *out_scales;
  int n_stages;
  void *stages;
  size_t *in_bytes, *out_bytes;
} bm_net;
static struct {
  void *library, *driver, *device, *runtime;
  int loaded;  // files, in the one runtime: two on one device disturb each other
  int (*request)(void **device, int number);
  void (*release)(void *device);
  void *(*create)(void *device);
  void (*destroy)(void *runtime);
  bool (*load)(void *runtime, const void *data, size_t size);
  int (*count)(void *runtime);
  void (*names)(void *runtime, const char ***names);
  const bm_net *(*net)(void *runtime, const char *name);
  bool (*launch)(void *runtime, const char *net, void *const inputs[], const bm_shape shapes[],
                 int n_in, void *outputs[], bm_shape out_shapes[], int n_out, bool own_memory);
} bm;

static itg_words bm_library(void) {
  LOAD(bm.request, bm.driver, BMLIB, "bm_dev_request");
  LOAD(bm.release, bm.driver, BMLIB, "bm_dev_free");
  LOAD(bm.create, bm.library, BMRT, "bmrt_create");
  LOAD(bm.destroy, bm.library, BMRT, "bmrt_destroy");
  LOAD(bm.load, bm.library, BMRT, "bmrt_load_bmodel_data");
  LOAD(bm.count, bm.library, BMRT, "bmrt_get_network_number");
  LOAD(bm.names, bm.library, BMRT, "bmrt_get_network_names");
  LOAD(bm.net, bm.library, BMRT, "bmrt_get_network_info");
  LOAD(bm.launch, bm.library, BMRT, "bmrt_launch_data");
  return NULL;
}

// The runtime cannot unload a single file: with many of them, it is made anew.
static itg_words bm_runtime(const itg_call *call) {
  if (bm.runtime && bm.loaded < MAX_FILES) return NULL;
  if (bm.runtime) {
    bm.destroy(bm.runtime);
    for (int i = 0; i < MAX_FILES; i++)
      if (files[i].info) files[i] = (file){0};
  }
  bm.loaded = 0;
  const int code = bm.device ? 0 : bm.request(&bm.device, 0);
  if (code) return refused(call, BMLIB, "has no device 0", code);
  bm.runtime = bm.create(bm.device);
  return bm.runtime ? NULL : refused(call, BMRT, "makes no runtime", 0);
}

static itg_words bm_load(const itg_call *call, file *f) {
  itg_words wrong = bm_library();
  if (!wrong) wrong = bm_runtime(call);
  if (wrong) return wrong;
  for (int i = 0; i < MAX_FILES; i++)  // the same file at another address
    if (files[i].info && files[i].size == f->size && files[i].hash == f->hash) {
      f->net = files[i].net, f->info = files[i].info;
      return NULL;
    }
  const int before = bm.count(bm.runtime);
  const char **names = NULL;
  bm.loaded++;
  if (bm.load(bm.runtime, f->data, f->size) && bm.count(bm.runtime) == before + 1)
    bm.names(bm.runtime, &names);
  f->net = names ? names[before] : NULL;
  f->info = f->net ? bm.net(bm.runtime, f->net) : NULL;
  free((void *)names);
  return f->info ? NULL : refused(call, BMRT, "does not load the file", 0);
}

static itg_words bm_run(const itg_call *call, file *f) {
  const bm_net *net = f->info;
  const uint32_t n_in = call->n_in - 1;
  void *inputs[MAX_PORTS], *outputs[MAX_OUTPUTS];
  bm_shape in_shapes[MAX_PORTS] = {{0}}, out_shapes[MAX_OUTPUTS] = {{0}};
  if (net->n_in != (int)n_in) return other_size("in", n_in, (uint64_t)net->n_in, n_in);
  if (net->n_out != (int)call->n_out)
    return other_size("out", 0, (uint64_t)net->n_out, call->n_out);
  for (uint32_t i = 0; i < n_in; i++) {
    const itg_tensor *t = call->in[1 + i];
    if (net->in_bytes[i] != bytes_of(t)) return other_size("in", i, net->in_bytes[i], bytes_of(t));
    inputs[i] = t->data;
    in_shapes[i].rank = t->rank;
    for (int k = 0; k < t->rank; k++) in_shapes[i].extents[k] = (int)t->shape[k];
  }
  for (uint32_t i = 0; i < call->n_out; i++) {
    const uint64_t wants = bytes_of(call->out[i]);
    if (net->out_bytes[i] != wants) return other_size("out", i, net->out_bytes[i], wants);
    outputs[i] = call->out[i]->data;
  }
  const bool ran = bm.launch(bm.runtime, f->net, inputs, in_shapes, (int)n_in, outputs, out_shapes,
                             (int)call->n_out, true);
  return ran ? NULL : refused(call, BMRT, "cannot run the file", 0);
}

// ---- the operator
// ------------------------------------------------------------------------------------
static bool is_cvimodel(const file *f) { return f->size >= 8 && !memcmp(f->data, "CviModel", 8); }

// Before the vendor's libraries end, which do not expect to be in use then.
static void at_exit(void) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_FILES; i++)
    if (files[i].handle) cvi.cleanup(files[i].handle);
  memset(files, 0, sizeof files);
  if (bm.runtime) bm.destroy(bm.runtime);
  if (bm.device) bm.release(bm.device);
  bm.runtime = bm.device = NULL;
  pthread_mutex_unlock(&lock);
}

static void unload(file *f) {
  if (f->handle) cvi.cleanup(f->handle);
  *f = (file){0};
}

// The place of the file at `data`, or the one that was not used for the longest time.
static file *place_of(const uint8_t *data) {
  file *oldest = &files[0];
  for (int i = 0; i < MAX_FILES; i++) {
    if (files[i].data == data) return &files[i];
    if (files[i].used < oldest->used) oldest = &files[i];
  }
  return oldest;
}

static itg_words loaded(const itg_call *call, file **found) {
  const uint8_t *data = call->in[0]->data;
  const uint64_t size = (uint64_t)call->in[0]->shape[0];
  file *f = *found = place_of(data);
  if (f->data == data && f->size == size) {
    f->compared = f->compared || f->hash == hash_of(data, size);
    if (f->compared) return NULL;
  }
  unload(f);
  *f = (file){.data = data, .size = size, .hash = hash_of(data, size), .compared = true};
  itg_words wrong = is_cvimodel(f) ? cvi_load(call, f) : bm_load(call, f);
  static bool asked;
  if (!wrong && !asked) asked = !atexit(at_exit);
  if (wrong) *f = (file){0};
  return wrong;
}

static itg_words run(const itg_call *call, uint32_t part, uint32_t parts) {
  (void)parts;
  if (part) return NULL;
  pthread_mutex_lock(&lock);
  file *f;
  itg_words wrong = loaded(call, &f);
  if (!wrong) {
    f->used = ++clock_now;
    wrong = is_cvimodel(f) ? cvi_run(call, f) : bm_run(call, f);
  }
  pthread_mutex_unlock(&lock);
  return wrong;
}

static itg_words infer(const itg_call *call, itg_tensor *out) {
  const attributes *a = call->attrs;
  if (call->n_in < 1 || call->n_in > MAX_PORTS) return "it has no file, or too many inputs";
  for (uint32_t i = 0; i < call->n_in; i++)
    if (!call->in[i]) return "an input is absent";
  const itg_tensor *data = call->in[0];
  if (data->dtype != ITG_U8 || data->rank != 1 || data->shape[0] < 8 || !data->data ||
      data->shape[0] > UINT32_MAX)
    return "its file is not a constant of bytes";
  if (call->n_out > MAX_OUTPUTS || a->n_types != (int64_t)call->n_out * ROW)
    return "types has not five numbers for each result";
  for (uint32_t i = 0; i < call->n_out; i++) {
    const int64_t *row = a->types + i * ROW;
    if (row[0] < 1 || row[0] > ITG_DTYPE_LAST) return "a result has an unknown element type";
    out[i].dtype = (uint8_t)row[0];
    out[i].rank = RANK;
    for (int k = 0; k < RANK; k++) {
      if (row[1 + k] < 1 || row[1 + k] > INT32_MAX) return "a result has an impossible extent";
      out[i].shape[k] = row[1 + k];
    }
  }
  pthread_mutex_lock(&lock);
  file *f = place_of(data->data);  // another package may have been there before
  if (f->data == data->data) f->compared = false;
  pthread_mutex_unlock(&lock);
  return NULL;
}

static uint64_t macs(const itg_call *call) {
  return (uint64_t)((const attributes *)call->attrs)->macs;
}

static const itg_op sophgo_run = {.name = "sophgo.run",
                                  .fields = FIELDS,
                                  .attrs_size = sizeof(attributes),
                                  .flags = ITG_CALLER,
                                  .infer = infer,
                                  .macs = macs};
static const itg_kernel kernels[] = {{.op = &sophgo_run, .types = "any", .run = run}};
static const itg_plugin plugin = {
    .abi = ITG_PLUGIN_ABI, .name = "sophgo", .version = "1", .kernels = kernels, .n_kernels = 1};
ITG_EXPORT_PLUGIN(plugin)
