// Models and sessions: queries, inputs and outputs, memory of the caller's choice, refusals.
#include <unistd.h>

#include "testing.h"

enum { N = 10 };

static void check_outputs(itg_session *session, const float *x) {
  itg_view view;
  CHECK(itg_get_output(session, 0, &view) == ITG_OK);
  CHECK(view.rank == 1 && view.shape[0] == N && view.dtype == ITG_F32 && view.bytes == 4 * N);
  for (int i = 0; i < N; i++) CHECK(((const float *)view.data)[i] == chain_at(x[i], i, N));
}

static void test_queries(const itg_model *model) {
  itg_info info;
  size_t size;
  itg_memory memory;
  CHECK(itg_model_plans(model) == 1 && itg_model_inputs(model, 0) == 1 &&
        itg_model_outputs(model, 0) == 1);
  CHECK(itg_model_inputs(model, 1) == 0 && itg_model_isa(model) == 0);
  CHECK(itg_model_input(model, 0, 0, &info) == ITG_OK && !strcmp(info.name, "x") &&
        info.bytes == 4 * N && !info.scale);
  CHECK(itg_model_output(model, 0, 0, &info) == ITG_OK && !strcmp(info.name, "y") &&
        info.shape[0] == N);
  CHECK(itg_model_input(model, 0, 1, &info) == ITG_BAD_INPUT &&
        itg_model_output(model, 1, 0, &info) == ITG_BAD_INPUT);
  CHECK(!memcmp(itg_model_meta(model, &size), "{}", 2) && size == 2);
  CHECK(itg_model_memory(model, NULL, &memory, NULL) == ITG_OK);
  CHECK(memory.weights == 4 * N && memory.arena == 8 * (N + 16) && memory.io == 128 &&
        memory.scratch == 0);
  CHECK(memory.session >= memory.arena + memory.io + memory.tables);
}

static void test_inputs_and_outputs(const itg_model *model) {
  itg_session *session = create_or_die(model, NULL);
  float x[N + 1], y[N];
  for (int i = 0; i < N; i++) x[i] = (float)(i - 4);
  CHECK(itg_set_input(session, 0, x, sizeof y) == ITG_OK && itg_run(session) == ITG_OK);
  check_outputs(session, x);
  CHECK(itg_bind_input(session, 0, x, sizeof y) == ITG_OK);  // in place from now on
  CHECK(itg_bind_output(session, 0, y, sizeof y) == ITG_OK);
  x[3] = -100;
  CHECK(itg_run(session) == ITG_OK && y[3] == 103);
  check_outputs(session, x);
  CHECK(itg_bind_output(session, 0, NULL, sizeof y) == ITG_OK &&
        itg_bind_input(session, 0, NULL, sizeof y) == ITG_OK);
  CHECK(itg_set_input(session, 0, x, sizeof y) == ITG_OK);
  y[3] = 7;
  CHECK(itg_run(session) == ITG_OK && y[3] == 7);
  check_outputs(session, x);

  CHECK(itg_set_input(session, 1, x, sizeof y) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "input 1 does not exist"));
  CHECK(itg_set_input(session, 0, x, 3) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "takes 40 bytes"));
  CHECK(itg_bind_output(session, 0, (char *)x + 1, sizeof y) == ITG_BAD_INPUT);
  CHECK(strstr(itg_session_error(session), "not aligned"));
  CHECK(itg_run(session) == ITG_OK && !*itg_session_error(session));
  itg_session_destroy(session);
}

static void test_all_bound_at_once(const itg_model *model) {
  const itg_options options = {.external_io = 1};
  itg_session *session = create_or_die(model, &options);
  float x[N + 1], y[N], z[N];
  for (int i = 0; i < N; i++) x[i] = (float)(i - 4), y[i] = z[i] = 0;
  CHECK(itg_model_inputs(model, 0) == 1);
  const void *inputs[] = {x};
  void *outputs[] = {y, z};
  CHECK(itg_model_outputs(model, 0) <= 2);
  CHECK(itg_run_with(session, inputs, outputs) == ITG_OK);
  check_outputs(session, x);
  x[3] = -100;
  CHECK(itg_run(session) == ITG_OK && y[3] == 103);  // they stay bound
  inputs[0] = NULL;
  CHECK(itg_run_with(session, inputs, outputs) == ITG_BAD_INPUT);
  CHECK(strstr(itg_session_error(session), "input 0 is not bound"));
  inputs[0] = (char *)x + 1;
  CHECK(itg_run_with(session, inputs, outputs) == ITG_BAD_INPUT);
  CHECK(strstr(itg_session_error(session), "not aligned"));
  inputs[0] = x;
  CHECK(itg_run_with(session, inputs, outputs) == ITG_OK && !*itg_session_error(session));
  itg_session_destroy(session);
}

static void test_sessions_share_a_model(const itg_model *model) {
  itg_session *sessions[3];
  float x[3][N];
  for (int k = 0; k < 3; k++) {
    sessions[k] = create_or_die(model, NULL);
    for (int i = 0; i < N; i++) x[k][i] = (float)(k * i - 3);
    CHECK(itg_set_input(sessions[k], 0, x[k], sizeof x[k]) == ITG_OK);
  }
  for (int k = 0; k < 3; k++) CHECK(itg_run(sessions[k]) == ITG_OK);
  for (int k = 0; k < 3; k++) check_outputs(sessions[k], x[k]);
  for (int k = 0; k < 3; k++) itg_session_destroy(sessions[k]);
}

static void test_memory_of_the_caller(const itg_model *model) {
  itg_memory need;
  itg_error error;
  itg_options options = {.external_io = 1};
  CHECK(itg_model_memory(model, &options, &need, &error) == ITG_OK && need.io == 0);
  options.memory = aligned_alloc(64, need.session);
  options.memory_size = need.session;
  memset(options.memory, 0xa5, need.session);  // a session does not rely on zeros for its tables
  void *weights = aligned_alloc(64, 64);
  memcpy(weights, itg_model_weights(model), need.weights);
  options.weights = weights;
  itg_session *session = create_or_die(model, &options);
  float x[N] = {1, -2, 3}, y[N];
  CHECK(itg_run(session) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "input 0 is not bound"));
  CHECK(itg_set_input(session, 0, x, sizeof x) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "external_io"));
  CHECK(itg_bind_input(session, 0, x, sizeof x) == ITG_OK);
  CHECK(itg_run(session) == ITG_BAD_INPUT &&
        strstr(itg_session_error(session), "output 0 is not bound"));
  CHECK(itg_bind_output(session, 0, y, sizeof y) == ITG_OK && itg_run(session) == ITG_OK &&
        y[1] == 3);
  check_outputs(session, x);
  itg_session_destroy(session);
  options.memory_size--;
  CHECK(itg_session_create(model, &options, &session, &error) == ITG_BAD_INPUT &&
        strstr(error.words, "must be aligned"));
  free(options.memory);
  free(weights);
}

// Sessions that never run at the same time share memory for intermediate tensors.
static void test_shared_internal_memory(const itg_model *model) {
  itg_memory m, without;
  itg_error error;
  itg_options options = {.internal_later = 1};
  CHECK(itg_model_memory(model, NULL, &m, &error) == ITG_OK && m.internal >= m.arena + m.scratch);
  CHECK(itg_model_memory(model, &options, &without, &error) == ITG_OK &&
        without.session <= m.session - m.internal && without.internal == m.internal);
  uint8_t *blocks = aligned_alloc(64, 2 * m.internal);
  options = (itg_options){.internal = blocks, .internal_size = m.internal};
  itg_session *sessions[3] = {create_or_die(model, &options), create_or_die(model, &options), NULL};
  options.internal_size--;
  CHECK(itg_session_create(model, &options, &sessions[2], &error) == ITG_BAD_INPUT &&
        strstr(error.words, "internal memory must be aligned"));
  options = (itg_options){.internal_later = 1};
  sessions[2] = create_or_die(model, &options);
  float x[N];
  for (int i = 0; i < N; i++) x[i] = (float)(i - 3);
  CHECK(itg_set_input(sessions[2], 0, x, sizeof x) == ITG_OK);
  CHECK(itg_run(sessions[2]) == ITG_BAD_INPUT &&
        strstr(itg_session_error(sessions[2]), "itg_set_internal"));
  CHECK(itg_set_internal(sessions[2], blocks, m.internal - 1) == ITG_BAD_INPUT &&
        strstr(itg_session_error(sessions[2]), "must be aligned"));
  CHECK(itg_set_internal(sessions[2], blocks + 8, m.internal) == ITG_BAD_INPUT);
  for (int round = 0; round < 4; round++)
    for (int k = 0; k < 3; k++) {
      memset(blocks, 0xff, 2 * m.internal);  // nothing in it outlives a run
      if (k == 2 || round == 1)
        CHECK(itg_set_internal(sessions[k], blocks + round % 2 * m.internal, m.internal) == ITG_OK);
      if (k != 2 && round == 3) CHECK(itg_set_internal(sessions[k], NULL, 0) == ITG_OK);
      CHECK(itg_set_input(sessions[k], 0, x, sizeof x) == ITG_OK && itg_run(sessions[k]) == ITG_OK);
      check_outputs(sessions[k], x);
    }
  CHECK(itg_set_internal(sessions[2], NULL, 0) == ITG_OK && itg_run(sessions[2]) == ITG_BAD_INPUT);
  itg_session *shared;  // memory of its own, later
  CHECK(itg_session_share(sessions[2], NULL, &shared, &error) == ITG_OK &&
        itg_run(shared) == ITG_BAD_INPUT);
  itg_session_destroy(shared);
  for (int k = 0; k < 3; k++) itg_session_destroy(sessions[k]);
  free(blocks);
}

static void test_profile(const itg_model *model) {
  itg_options options = {.profile = 1};
  itg_session *session = create_or_die(model, &options);
  itg_profile p;
  for (int i = 0; i < 3; i++) CHECK(itg_run(session) == ITG_OK);
  CHECK(itg_session_steps(session) == 4);
  CHECK(itg_get_profile(session, 0, &p) == ITG_OK && !strcmp(p.op, "abs") && p.calls == 3 &&
        p.ns > 0 && p.parts == 1);
  CHECK(itg_get_profile(session, 4, &p) == ITG_BAD_INPUT);
  itg_reset_profile(session);
  CHECK(itg_get_profile(session, 0, &p) == ITG_OK && p.calls == 0 && p.ns == 0);
  itg_session_destroy(session);
}

static void test_files(const uint8_t *file, size_t size) {
  char path[] = "/tmp/intaglio_test_XXXXXX";
  int fd = mkstemp(path);
  itg_model *model;
  itg_error error;
  CHECK(fd >= 0 && write(fd, file, size) == (ssize_t)size);
  CHECK(itg_model_open_file(path, 0, &model, &error) == ITG_OK);
  test_inputs_and_outputs(model);
  test_all_bound_at_once(model);
  itg_model_close(model);
  itg_model *copy;
  CHECK(itg_model_open_file(path, ITG_OPEN_COPY, &copy, &error) == ITG_OK);
  CHECK(!ftruncate(fd, (off_t)size - 64));
  CHECK(itg_model_open_file(path, 0, &model, &error) == ITG_BAD_FILE &&
        strstr(error.words, "truncated") && !model);
  CHECK(!ftruncate(fd, 0));
  CHECK(itg_model_open_file(path, 0, &model, &error) == ITG_BAD_FILE);
  test_inputs_and_outputs(copy);  // it does not need the file any more
  itg_model_close(copy);
  close(fd);
  unlink(path);
  CHECK(itg_model_open_file(path, 0, &model, &error) == ITG_BAD_FILE &&
        strstr(error.words, "cannot open"));
}

static void test_damage(const uint8_t *file, size_t size) {
  uint8_t *copy = aligned_alloc(64, size);
  itg_model *model;
  itg_error error;
  for (size_t i = 0; i < size; i++) {  // one flipped bit anywhere is noticed, or lies in padding
    memcpy(copy, file, size);
    copy[i] ^= 1u << i % 8;
    if (itg_model_open(copy, size, 0, &model, &error) == ITG_OK) {
      const itg_file_header *h = (const void *)file;
      const itg_file_section *s = (const void *)(file + sizeof *h);
      for (uint32_t k = 0; k < h->sections; k++)
        CHECK(i < s[k].offset || i >= s[k].offset + s[k].size);
      CHECK(i >= sizeof *h + h->sections * sizeof *s);
      itg_model_close(model);
    }
  }
  for (size_t n = 0; n < size; n += 7)
    CHECK(itg_model_open(file, n, 0, &model, &error) == ITG_BAD_FILE);
  memcpy(copy, file, size);
  itg_file_header *h = (void *)copy;
  h->isa = itg_cpu_isa() & ITG_ISA_rvv ? ITG_ISA_neon : ITG_ISA_rvv;  // another machine's
  seal(copy);
  CHECK(itg_model_open(copy, size, 0, &model, &error) == ITG_UNSUPPORTED &&
        strstr(error.words, itg_isa_name(h->isa)));
  h->version = ITG_FILE_VERSION << 24;
  CHECK(itg_model_open(copy, size, 0, &model, &error) == ITG_UNSUPPORTED &&
        strstr(error.words, "big-endian"));
  free(copy);
}

int main(void) {
  size_t size;
  uint8_t *file = build_chain(N, 1, &size);
  itg_model *model = open_or_die(file, size);
  test_queries(model);
  test_inputs_and_outputs(model);
  test_all_bound_at_once(model);
  test_sessions_share_a_model(model);
  test_memory_of_the_caller(model);
  test_shared_internal_memory(model);
  test_profile(model);
  itg_model_close(model);
  uint8_t *shifted = malloc(size + 1);  // not aligned: copied once, so it may go away
  memcpy(shifted + 1, file, size);
  model = open_or_die(shifted + 1, size);
  free(shifted);
  test_inputs_and_outputs(model);
  test_all_bound_at_once(model);
  itg_model_close(model);
  test_files(file, size);
  test_damage(file, size);
  itg_model_close(NULL);
  itg_session_destroy(NULL);
  CHECK(!strcmp(itg_dtype_name(ITG_U2), "u2") && !strcmp(itg_dtype_name(200), "?"));
  free(file);
  return 0;
}
