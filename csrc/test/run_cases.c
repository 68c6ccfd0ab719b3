// Runs packages on the inputs that follow them on standard input and writes their outputs to
// standard output, so that a machine which is emulated is compared with numpy on this one
// (tests/emulated.py). Every item is a 64-bit size and its bytes: a package, then each of its
// inputs; back come the outputs, or one item of words after a size of -1.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intaglio.h"

static void *item(uint64_t *size) {
  if (fread(size, sizeof *size, 1, stdin) != 1) exit(0);
  void *data = aligned_alloc(64, (*size + 64) / 64 * 64);
  if (!data || fread(data, 1, *size, stdin) != *size) exit(2);
  return data;
}

static void answer(const void *data, uint64_t size) {
  fwrite(&size, sizeof size, 1, stdout);
  fwrite(data, 1, size, stdout);
}

static void refuse(const char *words) {
  const uint64_t mark = UINT64_MAX;
  fwrite(&mark, sizeof mark, 1, stdout);
  answer(words, strlen(words));
}

static int failed(const char *words) {
  fprintf(stderr, "%s\n", words);
  return 2;
}

int main(void) {
  for (uint64_t size;;) {
    void *const bytes = item(&size);
    itg_error error;
    itg_model *model;
    itg_session *session;
    const itg_options options = {.threads = 1};
    if (itg_model_open(bytes, size, 0, &model, &error)) return failed(error.words);
    if (itg_session_create(model, &options, &session, &error)) return failed(error.words);
    for (uint32_t i = 0; i < itg_model_inputs(model, 0); i++) {
      void *const data = item(&size);
      if (itg_set_input(session, i, data, size)) return failed(itg_session_error(session));
      free(data);
    }
    if (itg_run(session)) refuse(itg_session_error(session));
    else
      for (uint32_t i = 0; i < itg_model_outputs(model, 0); i++) {
        itg_view view;
        itg_get_output(session, i, &view);
        answer(view.data, view.bytes);
      }
    fflush(stdout);
    itg_session_destroy(session);
    itg_model_close(model);
    free(bytes);
  }
}
