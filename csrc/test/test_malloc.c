// Nothing is allocated after a session is made: counts every allocation of the process while a
// model runs.
#include <stdatomic.h>

#include "testing.h"

static atomic_long allocations;

#if defined(__SANITIZE_ADDRESS__)
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));
static void allocated(const volatile void *p, size_t n) { allocations++; }
static void freed(const volatile void *p) { allocations++; }
static void watch(void) { CHECK(__sanitizer_install_malloc_and_free_hooks(allocated, freed) > 0); }
#else  // the program's own malloc takes precedence over the C library's, also for libintaglio.so
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
#define OURS __attribute__((visibility("default")))
static void *counted(void *p) {
  allocations++;
  return p;
}
OURS void *malloc(size_t n) { return counted(__libc_malloc(n)); }
OURS void *calloc(size_t n, size_t m) { return counted(__libc_calloc(n, m)); }
OURS void *realloc(void *p, size_t n) { return counted(__libc_realloc(p, n)); }
OURS void *memalign(size_t a, size_t n) { return counted(__libc_memalign(a, n)); }
OURS void *aligned_alloc(size_t a, size_t n) { return counted(__libc_memalign(a, n)); }
OURS int posix_memalign(void **p, size_t a, size_t n) {
  return !(*p = counted(__libc_memalign(a, n)));
}
OURS void free(void *p) { __libc_free(counted(p)); }
static void watch(void) {}
#endif

static void run(uint32_t threads, uint32_t profile, int64_t n) {
  size_t size;
  uint8_t *file = build_chain(n, 2, &size);
  itg_model *model = open_or_die(file, size);
  itg_options options = {.threads = threads, .profile = profile};
  long before = allocations;
  itg_session *session = create_or_die(model, &options);
  CHECK(allocations > before);  // the counter works: making a session does allocate
  float *x = calloc((size_t)n, 4), *y = calloc((size_t)n, 4);
  before = allocations;
  for (int i = 0; i < 20; i++) {
    itg_view view;
    CHECK(itg_set_input(session, 0, x, 4 * (size_t)n) == ITG_OK && itg_run(session) == ITG_OK);
    CHECK(itg_bind_input(session, 0, x, 4 * (size_t)n) == ITG_OK &&
          itg_bind_output(session, 0, y, 4 * (size_t)n) == ITG_OK);
    CHECK(itg_run(session) == ITG_OK && itg_get_output(session, 0, &view) == ITG_OK);
    CHECK(itg_set_input(session, 5, x, 0) == ITG_BAD_INPUT);
    CHECK(itg_bind_input(session, 0, NULL, 4 * (size_t)n) == ITG_OK);
  }
  if (allocations != before)
    fprintf(stderr, "%ld allocations with %u threads\n", allocations - before, threads);
  CHECK(allocations == before);
  itg_session_destroy(session);
  itg_model_close(model);
  free(x);
  free(y);
  free(file);
}

// A thousand shapes in a row, with buffers that the caller has.
static void resize(uint32_t threads) {
  enum { N = 50000 };
  size_t size;
  uint8_t *file = build_any_chain(N, 2, 1, &size);
  itg_model *model = open_or_die(file, size);
  const itg_options options = {.threads = threads, .external_io = 1};
  itg_session *session = create_or_die(model, &options);
  float *x = calloc(N, 4), *y = calloc(N, 4);
  const void *inputs[] = {x};
  void *outputs[] = {y};
  uint32_t random = 7;
  const long before = allocations;
  for (int i = 0; i < 1000; i++) {
    random = random * 1664525 + 1013904223;
    const int64_t shape[1][ITG_MAX_RANK] = {{1 + random % N}};
    CHECK(itg_set_shapes(session, shape) == ITG_OK);
    CHECK(itg_run_with(session, inputs, outputs) == ITG_OK && y[shape[0][0] - 1] == 1);
  }
  CHECK(allocations == before);
  itg_session_destroy(session);
  itg_model_close(model);
  free(x);
  free(y);
  free(file);
}

int main(void) {
  watch();
  resize(1);
  resize(3);
  run(1, 0, 10);
  run(1, 1, 10);
  run(2, 0, 100000);
  run(3, 1, 100000);
  return 0;
}
