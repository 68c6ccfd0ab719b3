// Runs a package a number of times with all inputs zero and nothing else: the instructions of two
// counts differ by those of the inferences between them (benchmarks/boards.py).
//
//   bench_repeat model.itg runs
#include <stdio.h>
#include <stdlib.h>

#include "intaglio.h"

static int fail(const char *words) {
  fprintf(stderr, "bench_repeat: %s\n", words);
  return 2;
}

int main(int argc, char **argv) {
  itg_model *model;
  itg_session *session;
  itg_error error;
  if (argc != 3) return fail("usage: bench_repeat model.itg runs");
  const itg_options options = {.threads = 1};
  if (itg_model_open_file(argv[1], 0, &model, &error)) return fail(error.words);
  if (itg_session_create(model, &options, &session, &error)) return fail(error.words);
  for (long i = strtol(argv[2], NULL, 10); i > 0; i--)
    if (itg_run(session)) return fail(itg_session_error(session));
  itg_session_destroy(session);
  itg_model_close(model);
  return 0;
}
