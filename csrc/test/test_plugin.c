// Plug-ins: registering and hiding them, refusals in words, packages that need them, and threads
// that register while others open.
#include <pthread.h>

#include "sample_plugin.h"
#include "testing.h"

enum { N = 10 };

// y = soft_clip(x), limit 2, by operator `op` of plug-in `plugin`.
static uint8_t *build_clip(const char *op, const char *plugin, const char *fields, uint32_t abi,
                           size_t *size) {
  builder *b = calloc(1, sizeof *b);
  b->n_names = 1;
  const double limit = 2;
  memcpy(b->attrs, &limit, b->n_attrs = sizeof limit);
  const uint32_t x = add_tensor(b, "x", ITG_INPUT, 0, 0, N);
  const uint32_t y = add_tensor(b, "y", ITG_OUTPUT, 0, 0, N);
  b->plan.n_inputs = b->plan.n_outputs = b->plan.outputs = 1;
  add_args(b, 2, x, y);
  add_step(b, op, 1, x, 0, y);
  b->steps[0].attrs_size = sizeof limit;
  b->plugins[b->n_plugins++] = (itg_file_plugin){.op = b->steps[0].op,
                                                 .plugin = add_name(b, plugin),
                                                 .version = add_name(b, "1.1"),
                                                 .fields = add_name(b, fields),
                                                 .abi = abi};
  uint8_t *file = build(b, size);
  free(b);
  return file;
}

static void refused(const char *op, const char *plugin, const char *fields, uint32_t abi,
                    itg_status status, const char *words) {
  size_t size;
  itg_model *model;
  itg_error error;
  uint8_t *file = build_clip(op, plugin, fields, abi, &size);
  CHECK(itg_model_open(file, size, 0, &model, &error) == status && !model);
  if (!strstr(error.words, words)) fprintf(stderr, "%s\n", error.words);
  CHECK(strstr(error.words, words));
  free(file);
}

static void test_missing(void) {
  const uint32_t abi = itg_plugin_abi();
  refused("sample.soft_clip", "sample", "limit:f1", abi, ITG_NO_PLUGIN,
          "needs op 'sample.soft_clip' of plug-in 'sample' 1.1, which is not loaded");
  refused("python.acme.clip", "python.acme.clip", "", abi, ITG_NO_PLUGIN,
          "needs the custom op 'acme.clip', a Python class that is not registered");
  refused("sample.soft_clip", "sample", "limit:f1", abi + 1, ITG_NO_PLUGIN,
          "compiled with plug-in 'sample' of ABI 2, this runtime has 1");
}

static void test_refusals(void) {
  itg_error error;
  itg_plugin wrong = itg_sample_plugin;
  CHECK(itg_register_plugin(NULL, &error) == ITG_BAD_INPUT && itg_load_plugin(NULL, NULL, &error) &&
        itg_unregister_plugin(NULL, &error) == ITG_BAD_INPUT);
  wrong.abi++;
  CHECK(itg_register_plugin(&wrong, &error) == ITG_NO_PLUGIN &&
        strstr(error.words, "plug-in has ABI 2, this runtime has 1; build it again"));
  wrong = itg_sample_plugin;
  wrong.name = "two words";
  CHECK(itg_register_plugin(&wrong, &error) == ITG_BAD_INPUT);
  wrong = itg_sample_plugin;
  wrong.n_kernels = 0;
  CHECK(itg_register_plugin(&wrong, &error) == ITG_BAD_INPUT);
  const char *const fields[] = {"limit",    "limit:f",  "limit:f0",    ":f1",        "limit:x1",
                                "limit:f2", "limit:e1", "limit:f1(a)", "a:f1  b:f1", "limit:f1,"};
  const char *const names[] = {"soft_clip", "cpu.soft_clip", ".clip", "a.", "a b.clip", NULL, ""};
  for (size_t i = 0; i < sizeof fields / sizeof *fields + sizeof names / sizeof *names; i++) {
    itg_op op = *itg_sample_plugin.kernels[0].op;
    if (i < sizeof fields / sizeof *fields) op.fields = fields[i];
    else op.name = names[i - sizeof fields / sizeof *fields];
    const itg_kernel kernel = {.op = &op, .types = "f32", .run = itg_sample_plugin.kernels[0].run};
    const itg_plugin plugin = {
        .abi = ITG_PLUGIN_ABI, .name = "other", .kernels = &kernel, .n_kernels = 1};
    CHECK(itg_register_plugin(&plugin, &error) == ITG_BAD_INPUT && *error.words);
  }
  CHECK(itg_load_plugin("plugin.so", NULL, &error) == ITG_BAD_INPUT &&
        strstr(error.words, "write ./plugin.so"));
  CHECK(itg_load_plugin("./no-such-file.so", NULL, &error) == ITG_NO_PLUGIN);
}

static void run_clip(void) {
  size_t size;
  uint8_t *file = build_clip("sample.soft_clip", "sample", "limit:f1", itg_plugin_abi(), &size);
  itg_model *model = open_or_die(file, size);
  itg_session *session = create_or_die(model, NULL);
  float x[N];
  itg_view y;
  for (int i = 0; i < N; i++) x[i] = (float)(i - 5);
  CHECK(!itg_set_input(session, 0, x, sizeof x) && !itg_run(session));
  CHECK(!itg_get_output(session, 0, &y));
  for (int i = 0; i < N; i++) CHECK(((const float *)y.data)[i] == tanhf(x[i] / 2) * 2);
  itg_session_destroy(session);
  itg_model_close(model);
  free(file);
}

static void test_registered(void) {
  itg_error error;
  const uint32_t abi = itg_plugin_abi();
  CHECK(!itg_register_plugin(&itg_sample_plugin, &error));
  CHECK(!itg_register_plugin(&itg_sample_plugin, &error));  // again: nothing changes
  itg_plugin other = itg_sample_plugin;
  CHECK(itg_register_plugin(&other, &error) == ITG_BAD_INPUT &&
        strstr(error.words, "plug-in 'sample' 1.2 is registered already"));
  other.name = "other";
  CHECK(itg_register_plugin(&other, &error) == ITG_BAD_INPUT &&
        strstr(error.words, "another plug-in has an op of this name"));
  run_clip();
  refused("sample.soft_clip", "other", "limit:f1", abi, ITG_NO_PLUGIN, "plug-in 'other' 1.1");
  refused("sample.soft_clip", "sample", "limit:f1 low:f1", abi, ITG_NO_PLUGIN,
          "has other attributes than in 1.1");
}

// A model keeps the operators that it was opened with.
static void test_hidden(void) {
  itg_error error;
  size_t size;
  uint8_t *file = build_clip("sample.soft_clip", "sample", "limit:f1", itg_plugin_abi(), &size);
  itg_model *model = open_or_die(file, size);
  CHECK(!itg_unregister_plugin("sample", &error));
  CHECK(itg_unregister_plugin("sample", &error) == ITG_BAD_INPUT);
  itg_session *session = create_or_die(model, NULL);
  const float x[N] = {0};
  CHECK(!itg_set_input(session, 0, x, sizeof x) && !itg_run(session));
  itg_session_destroy(session);
  itg_model_close(model);
  free(file);
  test_missing();
  CHECK(!itg_register_plugin(&itg_sample_plugin, &error));
}

static void *open_often(void *unused) {
  for (int i = 0; i < 50; i++) run_clip();
  return NULL;
}

static void *register_often(void *given) {
  const itg_plugin *plugins = given;
  itg_error error;
  for (int i = 0; i < 50; i++) {
    CHECK(!itg_register_plugin(&plugins[i % 2], &error));
    CHECK(!itg_unregister_plugin(plugins[i % 2].name, &error));
  }
  return NULL;
}

static void test_threads(void) {
  static itg_op ops[2];
  static itg_kernel kernels[2];
  static itg_plugin plugins[2];
  pthread_t threads[3];
  for (int i = 0; i < 2; i++) {
    ops[i] = *itg_sample_plugin.kernels[0].op;
    ops[i].name = i ? "b.clip" : "a.clip";
    kernels[i] = itg_sample_plugin.kernels[0];
    kernels[i].op = &ops[i];
    plugins[i] = (itg_plugin){
        .abi = ITG_PLUGIN_ABI, .name = i ? "b" : "a", .kernels = &kernels[i], .n_kernels = 1};
  }
  CHECK(!pthread_create(&threads[0], NULL, register_often, plugins));
  for (int i = 1; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, open_often, NULL));
  for (int i = 0; i < 3; i++) CHECK(!pthread_join(threads[i], NULL));
}

int main(void) {
  test_missing();
  test_refusals();
  test_registered();
  test_hidden();
  test_threads();
  return 0;
}
