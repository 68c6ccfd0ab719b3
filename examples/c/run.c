// Runs a package from C: zeros in, the largest entry of every output out.
//
//   cc -O2 examples/c/run.c -I csrc/include -L build -lintaglio -Wl,-rpath,build -o run
//   ./run model.itg
//
// A plug-in that the package needs comes after it: ./run model.itg ./libacme.so
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "intaglio.h"

static int fail(const char *words) {
  fprintf(stderr, "run: %s\n", words);
  return 2;
}

int main(int argc, char **argv) {
  itg_model *model;
  itg_session *session;
  itg_error error;
  if (argc != 2 && argc != 3) return fail("usage: run model.itg [plug-in]");
  if (argc == 3 && itg_load_plugin(argv[2], NULL, &error)) return fail(error.words);
  if (itg_model_open_file(argv[1], 0, &model, &error)) return fail(error.words);
  if (itg_session_create(model, NULL, &session, &error)) return fail(error.words);

  for (uint32_t i = 0; i < itg_model_inputs(model, 0); i++) {
    itg_info info;
    itg_model_input(model, 0, i, &info);
    printf("input  %s: %s, %" PRIu64 " bytes\n", info.name, itg_dtype_name(info.dtype), info.bytes);
    void *zeros = calloc(1, info.bytes ? info.bytes : 1);
    if (!zeros || itg_set_input(session, i, zeros, info.bytes))
      return fail(itg_session_error(session));
    free(zeros);
  }
  if (itg_run(session)) return fail(itg_session_error(session));

  for (uint32_t i = 0; i < itg_model_outputs(model, 0); i++) {
    itg_info info;
    itg_view view;
    itg_model_output(model, 0, i, &info);
    itg_get_output(session, i, &view);
    printf("output %s: %s, %" PRIu64 " bytes", info.name, itg_dtype_name(view.dtype), view.bytes);
    if (view.dtype == ITG_F32 && view.bytes) {
      const float *y = view.data;
      size_t best = 0;
      for (size_t k = 1; k < view.bytes / sizeof *y; k++)
        if (y[k] > y[best]) best = k;
      printf(", largest is %g at %zu", y[best], best);
    }
    putchar('\n');
  }
  itg_session_destroy(session);
  itg_model_close(model);
  return 0;
}
