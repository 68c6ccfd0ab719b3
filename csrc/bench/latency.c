// How long a run takes from C, the least of many: benchmarks/overhead.py asks.
//
//   bench_latency model.itg threads milliseconds      prints nanoseconds
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "intaglio.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int fail(const char *words) {
  fprintf(stderr, "bench_latency: %s\n", words);
  return 2;
}

int main(int argc, char **argv) {
  itg_model *model;
  itg_session *session;
  itg_error error;
  if (argc != 4) return fail("usage: bench_latency model.itg threads milliseconds");
  const itg_options options = {.threads = (uint32_t)strtoul(argv[2], NULL, 10)};
  if (itg_model_open_file(argv[1], 0, &model, &error)) return fail(error.words);
  if (itg_session_create(model, &options, &session, &error)) return fail(error.words);
  double best = 1e18, end = now() + strtod(argv[3], NULL) * 1e6, start, after;
  do {
    start = now();
    if (itg_run(session)) return fail(itg_session_error(session));
    after = now();
    if (after - start < best) best = after - start;
  } while (after < end);
  printf("%.0f\n", best);
  itg_session_destroy(session);
  itg_model_close(model);
  return 0;
}
