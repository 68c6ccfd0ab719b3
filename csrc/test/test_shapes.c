// Shapes that change from run to run, in many threads: eight sessions of one model that share its
// weights and a thread pool, and one session that the threads take in turn.
//
//   test_shapes [PACKAGE ...]   packages with open dimensions; without any, one made by hand
#include <pthread.h>

#include "testing.h"

enum { THREADS = 8, SHAPES = 3, MAX_IO = 16 };

typedef int64_t rows[MAX_IO][ITG_MAX_RANK];

typedef struct request {  // of one shape, with its answer
  rows shapes;
  void *inputs[MAX_IO], *outputs[MAX_IO];
  uint64_t output_bytes[MAX_IO];
} request;

typedef struct race {
  itg_session *first;   // of which every thread makes its own
  itg_session *shared;  // by all threads, one at a time
  pthread_mutex_t turn;
  uint32_t n_outputs, rounds;
  request requests[SHAPES];
} race;

static uint32_t next(uint32_t *random) {
  *random = *random * 1664525 + 1013904223;
  return *random >> 8;
}

// The shapes of all inputs if every open dimension lies this far within its range.
static void choose_shapes(const itg_model *model, double share, rows shapes) {
  int64_t extents[MAX_IO];
  CHECK(itg_model_symbols(model, 0) && itg_model_symbols(model, 0) <= MAX_IO);
  for (uint32_t k = 0; k < itg_model_symbols(model, 0); k++) {
    itg_symbol s;
    CHECK(itg_model_symbol(model, 0, k, &s) == ITG_OK);
    const int64_t steps = (int64_t)(share * (double)((s.high - s.low) / s.multiple));
    extents[k] = s.low + steps * s.multiple;
  }
  memset(shapes, 0, sizeof(rows));
  for (uint32_t i = 0; i < itg_model_inputs(model, 0); i++) {
    itg_info info;
    CHECK(itg_model_input(model, 0, i, &info) == ITG_OK);
    for (int a = 0; a < info.rank; a++)
      shapes[i][a] = info.symbol[a] < 0 ? info.shape[a] : extents[info.symbol[a]];
  }
}

// Inputs of these shapes, and buffers for the outputs, each in an allocation of its size.
static void make_buffers(itg_session *session, uint32_t n_inputs, uint32_t n_outputs, uint32_t seed,
                         request *r) {
  itg_view view;
  CHECK(itg_set_shapes(session, r->shapes) == ITG_OK);
  for (uint32_t i = 0; i < n_inputs; i++) {
    CHECK(itg_get_input(session, i, &view) == ITG_OK);
    r->inputs[i] = calloc(1, view.bytes);
    for (uint64_t k = 0; k < view.bytes / 4; k++) {
      const uint32_t random = next(&seed);
      if (view.dtype == ITG_F32) ((float *)r->inputs[i])[k] = (float)(random % 2000) / 500 - 2;
      else ((uint8_t *)r->inputs[i])[4 * k] = random & 1;  // a small index
    }
  }
  for (uint32_t i = 0; i < n_outputs; i++) {
    CHECK(itg_get_output(session, i, &view) == ITG_OK);
    r->outputs[i] = malloc(r->output_bytes[i] = view.bytes);
  }
}

static void free_buffers(request *r) {
  for (uint32_t i = 0; i < MAX_IO; i++) {
    free(r->inputs[i]);
    free(r->outputs[i]);
  }
}

static void check_request(itg_session *session, const race *r, const request *q) {
  void *outputs[MAX_IO] = {0};
  for (uint32_t i = 0; i < r->n_outputs; i++) outputs[i] = malloc(q->output_bytes[i]);
  CHECK(itg_set_shapes(session, q->shapes) == ITG_OK);
  CHECK(itg_run_with(session, (const void *const *)q->inputs, outputs) == ITG_OK);
  for (uint32_t i = 0; i < r->n_outputs; i++) {
    itg_view view;
    CHECK(itg_get_output(session, i, &view) == ITG_OK && view.bytes == q->output_bytes[i]);
    CHECK(!memcmp(outputs[i], q->outputs[i], view.bytes));
    free(outputs[i]);
  }
}

typedef struct runner {
  race *race;
  uint32_t number;
} runner;

static void *run_shapes(void *arg) {
  const runner *me = arg;
  race *r = me->race;
  itg_session *own;
  itg_error error;
  CHECK(itg_session_share(r->first, NULL, &own, &error) == ITG_OK);
  for (uint32_t i = 0; i < r->rounds; i++) {
    check_request(own, r, &r->requests[i * (me->number + 1) % SHAPES]);
    pthread_mutex_lock(&r->turn);
    check_request(r->shared, r, &r->requests[(i + me->number) % SHAPES]);
    pthread_mutex_unlock(&r->turn);
  }
  itg_session_destroy(own);
  return NULL;
}

static void test_race(const itg_model *model, uint32_t pool_threads, uint32_t rounds) {
  const itg_pool_options pool_options = {.threads = pool_threads};
  itg_options options = {.external_io = 1};
  race r = {.n_outputs = itg_model_outputs(model, 0), .rounds = rounds};
  itg_error error;
  itg_session *alone = create_or_die(model, &options);
  for (int k = 0; k < SHAPES; k++) {
    choose_shapes(model, k / (double)(SHAPES - 1), r.requests[k].shapes);
    make_buffers(alone, itg_model_inputs(model, 0), r.n_outputs, 11 + (uint32_t)k, &r.requests[k]);
    const request *q = &r.requests[k];
    CHECK(itg_run_with(alone, (const void *const *)q->inputs, q->outputs) == ITG_OK);
  }
  CHECK(itg_pool_create(&pool_options, &options.pool, &error) == ITG_OK);
  r.first = create_or_die(model, &options);
  r.shared = create_or_die(model, &options);
  pthread_mutex_init(&r.turn, NULL);
  pthread_t threads[THREADS];
  runner runners[THREADS];
  for (uint32_t i = 0; i < THREADS; i++) {
    runners[i] = (runner){&r, i};
    CHECK(!pthread_create(&threads[i], NULL, run_shapes, &runners[i]));
  }
  for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
  pthread_mutex_destroy(&r.turn);
  itg_session_destroy(r.first);
  itg_session_destroy(r.shared);
  itg_session_destroy(alone);
  itg_pool_destroy(options.pool);
  for (int k = 0; k < SHAPES; k++) free_buffers(&r.requests[k]);
}

// One session and one shape after the other. The answers are those of a session that has only seen
// that shape.
static void test_random_shapes(const itg_model *model, int count) {
  const itg_options options = {.threads = 2, .external_io = 1};
  const race r = {.n_outputs = itg_model_outputs(model, 0)};
  itg_session *session = create_or_die(model, &options);
  uint32_t random = 5;
  for (int i = 0; i < count; i++) {
    request q = {0};
    const double share = next(&random) / (double)(1 << 24);
    choose_shapes(model, share, q.shapes);
    itg_session *fresh = create_or_die(model, &(itg_options){.external_io = 1});
    make_buffers(fresh, itg_model_inputs(model, 0), r.n_outputs, random, &q);
    CHECK(itg_run_with(fresh, (const void *const *)q.inputs, q.outputs) == ITG_OK);
    check_request(session, &r, &q);
    itg_session_destroy(fresh);
    free_buffers(&q);
  }
  itg_session_destroy(session);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    itg_model *model;
    itg_error error;
    if (itg_model_open_file(argv[i], 0, &model, &error)) fprintf(stderr, "%s\n", error.words);
    CHECK(model);
    test_race(model, 3, SHAPES);  // a sanitizer makes them slow
    test_random_shapes(model, 10);
    itg_model_close(model);
  }
  if (argc > 1) return 0;
  size_t size;
  uint8_t *file = build_any_chain(20000, 3, 1, &size);
  itg_model *model = open_or_die(file, size);
  test_race(model, 1, 30);
  test_race(model, 3, 30);
  test_random_shapes(model, 1000);
  itg_model_close(model);
  free(file);
  return 0;
}
