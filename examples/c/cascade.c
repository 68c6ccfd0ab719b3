// A cascade: a small model on the device, and a large one on a server that is asked if it is
// unsure.
//
//   cascade small.itg input.bin 10.0.0.2 8000 large 0.3 [times]
#include <intaglio.h>
#include <intaglio_client.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *words) { return fprintf(stderr, "cascade: %s\n", words), 1; }

int main(int argc, char **argv) {
  if (argc < 7) return fail("give small.itg input.bin host port model margin [times]");
  itg_error error;
  itg_model *model;
  itg_session *session;
  itg_remote *server;
  itg_cascade *cascade;
  if (itg_model_open_file(argv[1], 0, &model, &error)) return fail(error.words);
  if (itg_session_create(model, NULL, &session, &error)) return fail(error.words);
  const itg_remote_options where = {
      .host = argv[3], .port = (uint16_t)atoi(argv[4]), .model = argv[5], .timeout_ms = 500};
  if (itg_remote_create(&where, &server, &error)) return fail(error.words);
  const itg_cascade_options options = {.margin = (float)atof(argv[6])};
  if (itg_cascade_create(model, session, server, &options, &cascade, &error))
    return fail(error.words);

  static char input[16 << 20];
  FILE *file = fopen(argv[2], "rb");
  if (!file) return fail("the input cannot be read");
  const size_t size = fread(input, 1, sizeof input, file);
  fclose(file);

  for (int n = argc > 7 ? atoi(argv[7]) : 1; n > 0; n--) {
    itg_answer answer;
    if (itg_set_input(session, 0, input, size)) return fail(itg_session_error(session));
    if (itg_cascade_run(cascade, &answer)) return fail(itg_cascade_error(cascade));
    const float *scores = answer.output.data;
    size_t best = 0;
    for (size_t i = 1; i < answer.output.bytes / sizeof *scores; i++)
      if (scores[i] > scores[best]) best = i;
    printf("class %zu from the %s, margin %.3f %s\n", best,
           answer.from_server ? "server" : "device", answer.margin, itg_remote_error(server));
  }
  itg_cascade_destroy(cascade);
  itg_remote_destroy(server);
  itg_session_destroy(session);
  itg_model_close(model);
  return 0;
}
