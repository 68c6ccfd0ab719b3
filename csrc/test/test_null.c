// NULL in place of a handle, a result or data: a status with words, never a crash.
#include "testing.h"

enum { N = 10 };

static void test_opening(const uint8_t *file, size_t size) {
  itg_model *model = (void *)file;
  itg_error error;
  CHECK(itg_model_open_file(NULL, 0, &model, &error) == ITG_BAD_INPUT && !model);
  CHECK(!strcmp(error.words, "path is NULL"));
  CHECK(itg_model_open_file("model.itg", 0, NULL, &error) == ITG_BAD_INPUT);
  CHECK(!strcmp(error.words, "model is NULL"));
  CHECK(itg_model_open(NULL, size, 0, &model, &error) == ITG_BAD_INPUT);
  CHECK(!strcmp(error.words, "data is NULL"));
  CHECK(itg_model_open(NULL, 0, 0, &model, &error) == ITG_BAD_FILE);
  CHECK(itg_model_open(file, size, 0, NULL, &error) == ITG_BAD_INPUT);
  CHECK(itg_model_open(file, size - 64, 0, &model, NULL) == ITG_BAD_FILE);  // nobody wants words
  CHECK(itg_model_open_file_with(NULL, NULL, &model, &error) == ITG_BAD_INPUT && !model);
  CHECK(itg_model_open_file_with("model.itg", NULL, NULL, &error) == ITG_BAD_INPUT);
  CHECK(itg_model_open_with(NULL, size, NULL, &model, &error) == ITG_BAD_INPUT && !model);
  CHECK(itg_model_open_with(file, size, NULL, &model, NULL) == ITG_OK);
  itg_model_close(model);
  itg_wipe(NULL, 7);
}

static void test_no_model(void) {
  size_t size = 7;
  itg_info info;
  itg_state state;
  itg_memory memory;
  itg_error error;
  itg_session *session = (void *)&info;
  CHECK(!itg_model_isa(NULL) && !itg_model_plans(NULL) && !itg_model_weights(NULL));
  CHECK(!itg_model_meta(NULL, &size) && !size && !itg_model_meta(NULL, NULL));
  CHECK(!itg_model_inputs(NULL, 0) && !itg_model_outputs(NULL, 0) && !itg_model_states(NULL, 0));
  CHECK(itg_model_input(NULL, 0, 0, &info) == ITG_BAD_INPUT &&
        itg_model_output(NULL, 0, 0, &info) == ITG_BAD_INPUT &&
        itg_model_state(NULL, 0, 0, &state) == ITG_BAD_INPUT);
  CHECK(itg_model_memory(NULL, NULL, &memory, &error) == ITG_BAD_INPUT &&
        !strcmp(error.words, "model is NULL"));
  CHECK(itg_session_create(NULL, NULL, &session, &error) == ITG_BAD_INPUT && !session &&
        !strcmp(error.words, "model is NULL"));
  itg_model_close(NULL);
}

static void test_no_session(void) {
  float x[N] = {0};
  const void *inputs[] = {x};
  void *outputs[] = {x};
  itg_view view;
  itg_profile profile;
  itg_error error;
  itg_session *session = (void *)&view;
  const int64_t shapes[1][ITG_MAX_RANK] = {{N}};
  CHECK(itg_session_share(NULL, NULL, &session, &error) == ITG_BAD_INPUT && !session &&
        itg_session_share(NULL, NULL, NULL, NULL) == ITG_BAD_INPUT);
  CHECK(itg_set_shapes(NULL, shapes) == ITG_BAD_INPUT &&
        itg_set_shape(NULL, 0, shapes[0], 1) == ITG_BAD_INPUT && !itg_session_plan(NULL) &&
        itg_get_input(NULL, 0, &view) == ITG_BAD_INPUT &&
        itg_set_internal(NULL, NULL, 0) == ITG_BAD_INPUT);
  CHECK(itg_set_input(NULL, 0, x, sizeof x) == ITG_BAD_INPUT &&
        itg_bind_input(NULL, 0, x, sizeof x) == ITG_BAD_INPUT &&
        itg_bind_output(NULL, 0, x, sizeof x) == ITG_BAD_INPUT && itg_run(NULL) == ITG_BAD_INPUT &&
        itg_run_with(NULL, inputs, outputs) == ITG_BAD_INPUT &&
        itg_get_output(NULL, 0, &view) == ITG_BAD_INPUT &&
        itg_get_state(NULL, 0, &view) == ITG_BAD_INPUT &&
        itg_set_state(NULL, 0, x, sizeof x) == ITG_BAD_INPUT &&
        itg_get_profile(NULL, 0, &profile) == ITG_BAD_INPUT && !itg_session_steps(NULL));
  CHECK(strstr(itg_session_error(NULL), "session is NULL"));
  itg_reset_states(NULL);
  itg_reset_profile(NULL);
  itg_session_destroy(NULL);
}

static void test_no_pool(void) {
  itg_pool *pool = (void *)&pool;
  itg_error error;
  CHECK(itg_pool_create(NULL, NULL, &error) == ITG_BAD_INPUT &&
        !strcmp(error.words, "pool is NULL"));
  CHECK(itg_pool_create(NULL, NULL, NULL) == ITG_BAD_INPUT);
  CHECK(itg_pool_create(NULL, &pool, NULL) == ITG_OK && pool);  // one thread: the caller's
  itg_pool_destroy(pool);
  const itg_pool_options no_list = {.threads = 2, .n_cpus = 3};
  CHECK(itg_pool_create(&no_list, &pool, &error) == ITG_OK);
  itg_pool_destroy(pool);
  const itg_pool_options many = {.threads = 100000};
  CHECK(itg_pool_create(&many, &pool, &error) == ITG_BAD_INPUT && !pool);
  const uint32_t missing[] = {1023};
  const itg_pool_options pinned = {.threads = 2, .cpus = missing, .n_cpus = 1};
  CHECK(itg_pool_create(&pinned, &pool, &error) != ITG_OK && !pool && strstr(error.words, "pin"));
  itg_pool_destroy(NULL);
}

static void test_no_results(const itg_model *model) {
  itg_error error;
  CHECK(itg_model_input(model, 0, 0, NULL) == ITG_BAD_INPUT &&
        itg_model_output(model, 0, 0, NULL) == ITG_BAD_INPUT &&
        itg_model_state(model, 0, 0, NULL) == ITG_BAD_INPUT);
  CHECK(itg_model_meta(model, NULL));
  CHECK(itg_model_memory(model, NULL, NULL, &error) == ITG_BAD_INPUT &&
        !strcmp(error.words, "memory is NULL"));
  CHECK(itg_session_create(model, NULL, NULL, &error) == ITG_BAD_INPUT &&
        !strcmp(error.words, "session is NULL"));
  itg_session *session = create_or_die(model, NULL);
  CHECK(itg_get_output(session, 0, NULL) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "view is NULL"));
  CHECK(itg_get_state(session, 0, NULL) == ITG_BAD_INPUT && *itg_session_error(session));
  CHECK(itg_get_profile(session, 0, NULL) == ITG_BAD_INPUT);
  itg_session_destroy(session);
}

static void test_no_data(const itg_model *model) {
  float x[N] = {-1}, y[N] = {0};
  const void *inputs[] = {x};
  void *outputs[] = {y};
  itg_view view;
  itg_session *session = create_or_die(model, NULL);
  CHECK(itg_set_input(session, 0, NULL, sizeof x) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "data is NULL"));
  CHECK(itg_run_with(session, inputs, NULL) == ITG_OK &&  // into the session's own buffer
        itg_get_output(session, 0, &view) == ITG_OK && *(const float *)view.data == 1);
  CHECK(itg_run_with(session, NULL, outputs) == ITG_OK && y[0] == 1);  // inputs stay bound
  itg_session_destroy(session);
  const itg_options options = {.external_io = 1};
  session = create_or_die(model, &options);
  CHECK(itg_run_with(session, inputs, NULL) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "output 0 is not bound"));
  CHECK(itg_run_with(session, NULL, outputs) == ITG_OK);
  itg_session_destroy(session);
}

int main(void) {
  size_t size;
  uint8_t *file = build_chain(N, 1, &size);
  itg_model *model = open_or_die(file, size);
  test_opening(file, size);
  test_no_model();
  test_no_session();
  test_no_pool();
  test_no_results(model);
  test_no_data(model);
  for (int status = ITG_OK; status <= ITG_NO_PLUGIN; status++)
    CHECK(!strstr(itg_status_words(status), "unknown"));
  CHECK(strstr(itg_status_words(ITG_NO_PLUGIN + 1), "unknown") &&
        strstr(itg_status_words((itg_status)-1), "unknown"));
  itg_model_close(model);
  free(file);
  return 0;
}
