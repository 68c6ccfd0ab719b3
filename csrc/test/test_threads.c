// The thread pool: the same results for every number of threads, sleeping workers, many sessions at
// the same time, one session in two threads.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "testing.h"

static void check_run(itg_session *session, float *x, float *y, int64_t n, float shift) {
  for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 1000) - shift;
  CHECK(itg_bind_input(session, 0, x, 4 * (size_t)n) == ITG_OK &&
        itg_bind_output(session, 0, y, 4 * (size_t)n) == ITG_OK);
  memset(y, 0xff, 4 * (size_t)n);
  CHECK(itg_run(session) == ITG_OK);
  for (int64_t i = 0; i < n; i++) CHECK(y[i] == chain_at(x[i], i, n));
}

static void test_counts_of_threads(void) {
  const int64_t sizes[] = {1, 17, 5000, 200001};
  for (int k = 0; k < 4; k++) {
    size_t size;
    uint8_t *file = build_chain(sizes[k], 3, &size);
    itg_model *model = open_or_die(file, size);
    float *x = malloc(4 * (size_t)sizes[k]), *y = malloc(4 * (size_t)sizes[k]);
    for (uint32_t threads = 1; threads < 6; threads++) {
      itg_options options = {.threads = threads};
      itg_session *session = create_or_die(model, &options);
      for (int i = 0; i < 10; i++) {
        check_run(session, x, y, sizes[k], (float)i);
        if (i == 5) usleep(2000);  // long enough that the workers go to sleep
      }
      itg_session_destroy(session);
    }
    itg_model_close(model);
    free(x);
    free(y);
    free(file);
  }
}

typedef struct job {
  const itg_model *model;
  float shift;
} job;

static void *work(void *arg) {
  const job *j = arg;
  enum { N = 20000 };
  itg_options options = {.threads = 2};
  itg_session *session = create_or_die(j->model, &options);
  float *x = malloc(4 * N), *y = malloc(4 * N);
  for (int i = 0; i < 30; i++) check_run(session, x, y, N, j->shift + (float)i);
  itg_session_destroy(session);
  free(x);
  free(y);
  return NULL;
}

static void test_sessions_at_the_same_time(void) {
  size_t size;
  uint8_t *file = build_chain(20000, 3, &size);
  itg_model *model = open_or_die(file, size);
  pthread_t threads[4];
  job jobs[4];
  for (int i = 0; i < 4; i++) {
    jobs[i] = (job){model, (float)(100 * i)};
    CHECK(!pthread_create(&threads[i], NULL, work, &jobs[i]));
  }
  for (int i = 0; i < 4; i++) CHECK(!pthread_join(threads[i], NULL));
  itg_model_close(model);
  free(file);
}

typedef struct rivals {
  itg_session *session;
  atomic_uint runs, busy;
} rivals;

// Runs until both threads have been refused once.
static void *run_against_the_other(void *arg) {
  rivals *r = arg;
  for (unsigned refused = 0; atomic_load(&r->busy) < 2;) {
    const itg_status status = itg_run(r->session);
    CHECK(status == ITG_OK || status == ITG_BUSY);
    if (status == ITG_OK) atomic_fetch_add(&r->runs, 1);
    else if (!refused++) atomic_fetch_add(&r->busy, 1);
  }
  return NULL;
}

static void test_a_busy_session_refuses_another_run(void) {
  enum { N = 100000 };
  size_t size;
  uint8_t *file = build_chain(N, 20, &size);
  itg_model *model = open_or_die(file, size);
  for (uint32_t threads = 1; threads < 3; threads++) {
    itg_options options = {.threads = threads};
    rivals r = {.session = create_or_die(model, &options)};
    float *x = malloc(4 * N), *y = malloc(4 * N);
    check_run(r.session, x, y, N, 5);
    pthread_t other;
    CHECK(!pthread_create(&other, NULL, run_against_the_other, &r));
    run_against_the_other(&r);
    CHECK(!pthread_join(other, NULL));
    CHECK(r.runs >= 2 && r.busy == 2);
    check_run(r.session, x, y, N, 6);
    itg_session_destroy(r.session);
    free(x);
    free(y);
  }
  itg_model_close(model);
  free(file);
}

static void print_cost_of_a_step(void) {
  size_t size;
  uint8_t *file = build_chain(8, 100, &size);
  itg_model *model = open_or_die(file, size);
  itg_session *session = create_or_die(model, NULL);
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < 1000; i++) CHECK(itg_run(session) == ITG_OK);
  clock_gettime(CLOCK_MONOTONIC, &b);
  printf("a step on 8 floats takes %.0f ns\n",
         ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 202e3);
  itg_session_destroy(session);
  itg_model_close(model);
  free(file);
}

int main(void) {
  test_counts_of_threads();
  test_sessions_at_the_same_time();
  test_a_busy_session_refuses_another_run();
  print_cost_of_a_step();
  return 0;
}
