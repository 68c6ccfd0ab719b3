// fork(): the child runs, destroys or leaves the sessions of its parent, which goes on undisturbed.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

enum { N = 60000, SECONDS = 100 };

static float x[N], y[N];

static void check_run(itg_session *session, float shift) {
  for (int i = 0; i < N; i++) x[i] = (float)(i % 1000) - shift;
  memset(y, 0xff, sizeof y);
  CHECK(itg_bind_input(session, 0, x, sizeof x) == ITG_OK &&
        itg_bind_output(session, 0, y, sizeof y) == ITG_OK);
  CHECK(itg_run(session) == ITG_OK);
  for (int i = 0; i < N; i++) CHECK(y[i] == chain_at(x[i], i, N));
}

static pid_t fork_or_die(void) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) alarm(SECONDS);  // alarms are not inherited
  return child;
}

static void wait_for(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  if (status) fprintf(stderr, "the child ended with 0x%x\n", (unsigned)status);
  CHECK(!status);
}

static void leave(void) {
#if defined(__SANITIZE_ADDRESS__)  // its search for leaks would wait for the parent's threads
  _exit(0);
#endif
  exit(0);
}

// What a child may do with a session; the last one forks again.
static void child(itg_session *session, itg_model *model, int kind) {
  if (kind >= 2) check_run(session, 3);
  if (kind >= 3) check_run(session, 4);
  if (kind == 4) {
    const pid_t grandchild = fork_or_die();
    check_run(session, 5);
    if (!grandchild) leave();
    wait_for(grandchild);
  }
  if (kind != 0) itg_session_destroy(session);
  if (kind != 0) itg_model_close(model);
  leave();
}

static void test_idle_session(itg_model *model) {
  const itg_options options = {.threads = 4};
  for (int i = 0; i < 20; i++) {  // workers are caught awake, asleep and on their way
    itg_session *session = create_or_die(model, &options);
    if (i % 2) check_run(session, 1);
    if (i % 4 > 1) usleep(2000);
    const pid_t pid = fork_or_die();
    if (!pid) child(session, model, i % 5);
    check_run(session, 2);
    wait_for(pid);
    check_run(session, 6);
    itg_session_destroy(session);
  }
}

// Sessions that share threads: those of a child start its threads together, in one of the sessions.
enum { SHARING = 4 };

static void *run_own(void *session) {
  float *in = malloc(4 * N), *out = malloc(4 * N);
  const void *inputs[] = {in};
  void *outputs[] = {out};
  for (int i = 0; i < N; i++) in[i] = (float)(i % 1000) - 8;
  for (int k = 0; k < 5; k++) {
    memset(out, 0xff, 4 * N);
    CHECK(itg_run_with(session, inputs, outputs) == ITG_OK);
    for (int i = 0; i < N; i++) CHECK(out[i] == chain_at(in[i], i, N));
  }
  free(in);
  free(out);
  return NULL;
}

static void run_all(itg_session **sessions) {
  pthread_t threads[SHARING];
  for (int i = 0; i < SHARING; i++) CHECK(!pthread_create(&threads[i], NULL, run_own, sessions[i]));
  for (int i = 0; i < SHARING; i++) CHECK(!pthread_join(threads[i], NULL));
}

static void test_shared_pool(itg_model *model) {
  const itg_pool_options pool_options = {.threads = 3};
  itg_options options = {.external_io = 1};
  itg_error error;
  itg_session *sessions[SHARING];
  CHECK(itg_pool_create(&pool_options, &options.pool, &error) == ITG_OK);
  for (int i = 0; i < SHARING; i++) sessions[i] = create_or_die(model, &options);
  for (int i = 0; i < 10; i++) {
    if (i % 2) run_all(sessions);
    const pid_t pid = fork_or_die();
    if (!pid) {
      run_all(sessions);
      for (int k = 0; k < SHARING; k++) itg_session_destroy(sessions[k]);
      itg_pool_destroy(options.pool);
      itg_model_close(model);
      leave();
    }
    run_all(sessions);
    wait_for(pid);
  }
  for (int i = 0; i < SHARING; i++) itg_session_destroy(sessions[i]);
  itg_pool_destroy(options.pool);
}

static atomic_bool stop;
static atomic_uint runs;

static void *run_until_stopped(void *session) {
  while (!atomic_load(&stop)) {
    CHECK(itg_run(session) == ITG_OK);
    runs++;
  }
  return NULL;
}

// The child inherits a session whose run never ends there: its thread is the parent's.
static void test_running_session(itg_model *model) {
  const itg_options options = {.threads = 3};
  itg_session *session = create_or_die(model, &options);
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, run_until_stopped, session));
  for (int i = 0; i < 10; i++) {
    const unsigned before = runs;
    while (runs == before) usleep(100);
    const pid_t pid = fork_or_die();
    if (!pid) child(session, model, 2 + i % 3);
    wait_for(pid);
  }
  atomic_store(&stop, 1);
  CHECK(!pthread_join(thread, NULL));
  check_run(session, 7);
  itg_session_destroy(session);
}

int main(void) {
  size_t size;
  uint8_t *file = build_chain(N, 3, &size);
  itg_model *model = open_or_die(file, size);
  alarm(SECONDS);
  test_idle_session(model);
  test_shared_pool(model);
  test_running_session(model);
  itg_model_close(model);
  free(file);
  return 0;
}
