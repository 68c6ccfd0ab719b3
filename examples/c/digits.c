// Classify one handwritten digit from C, without a heap: the session lives in a static buffer.
//
//   intaglio compile examples/digits/digits.onnx --dim batch=1 -o digits.itg
//   cc -std=c11 -O2 examples/c/digits.c -I csrc/include -L build -lintaglio -Wl,-rpath,build -o
//   digits
//   ./digits digits.itg
#include <inttypes.h>
#include <stdio.h>

#include "intaglio.h"

// The first test picture of examples/digits, 8 x 8 pixels of 0 to 16: a seven.
static const unsigned char pixels[64] = {
    0,  0, 2, 13, 16, 9, 0,  0,  0, 0, 12, 12, 7, 16, 3,  0,  0, 1, 14, 3, 0, 16,
    4,  0, 0, 0,  0,  4, 10, 16, 6, 0, 0,  0,  0, 13, 16, 16, 9, 0, 0,  0, 0, 5,
    13, 1, 0, 0,  0,  0, 0,  11, 9, 0, 0,  0,  0, 0,  1,  16, 4, 0, 0,  0,
};

static _Alignas(64) unsigned char memory[1 << 16];

static int fail(const char *words) {
  fprintf(stderr, "digits: %s\n", words);
  return 1;
}

int main(int argc, char **argv) {
  itg_model *model;
  itg_session *session;
  itg_error error;
  itg_options options = {.memory = memory, .memory_size = sizeof memory};
  itg_memory needs;
  float picture[64];

  if (argc != 2) return fail("usage: digits digits.itg");
  if (itg_model_open_file(argv[1], 0, &model, &error)) return fail(error.words);
  if (itg_model_memory(model, &options, &needs, &error)) return fail(error.words);
  printf("memory: %" PRIu64 " bytes of weights in the file, %" PRIu64 " bytes in our own buffer\n",
         needs.weights, needs.session);
  if (itg_session_create(model, &options, &session, &error)) return fail(error.words);

  for (int i = 0; i < 64; i++) picture[i] = pixels[i] / 16.f;
  if (itg_bind_input(session, 0, picture, sizeof picture)) return fail(itg_session_error(session));
  if (itg_run(session)) return fail(itg_session_error(session));

  itg_view scores;
  if (itg_get_output(session, 0, &scores)) return fail(itg_session_error(session));
  const float *score = scores.data;
  int best = 0;
  for (int i = 1; i < 10; i++)
    if (score[i] > score[best]) best = i;
  printf("it is a %d (score %.3f)\n", best, score[best]);

  itg_session_destroy(session);
  itg_model_close(model);
  return 0;
}
