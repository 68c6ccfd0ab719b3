// Runs a model on the files inputN.bin of a folder; compares with its outputN.bin, if there are any.
//
//   rknn_app model.rknn data
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intaglio.h"

static int fail(const char *words) {
  fprintf(stderr, "rknn_app: %s\n", words);
  return 2;
}

// The content of FOLDER/KINDnumber.bin if it has exactly `bytes` bytes; NULL otherwise.
static void *read_file(const char *folder, const char *kind, uint32_t number, uint64_t bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%" PRIu32 ".bin", folder, kind, number);
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  void *data = malloc(bytes + 1);
  const size_t got = data ? fread(data, 1, bytes + 1, file) : 0;
  fclose(file);
  if (data && got == bytes) return data;
  free(data);
  return NULL;
}

static double cosine(const float *a, const float *b, uint64_t count) {
  double ab = 0, aa = 0, bb = 0;
  for (uint64_t i = 0; i < count; i++) {
    ab += (double)a[i] * b[i];
    aa += (double)a[i] * a[i];
    bb += (double)b[i] * b[i];
  }
  return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : (double)(aa == bb);
}

int main(int argc, char **argv) {
  itg_model *model;
  itg_session *session;
  itg_error error;
  if (argc != 3) return fail("usage: rknn_app model.rknn data");
  if (itg_model_open_file(argv[1], 0, &model, &error)) return fail(error.words);
  if (itg_session_create(model, NULL, &session, &error)) return fail(error.words);

  for (uint32_t i = 0; i < itg_model_inputs(model, 0); i++) {
    itg_info info;
    itg_model_input(model, 0, i, &info);
    void *data = read_file(argv[2], "input", i, info.bytes);
    printf("input  %s: %s, %" PRIu64 " bytes%s\n", info.name, itg_dtype_name(info.dtype),
           info.bytes, data ? "" : " (zeros)");
    if (!data) data = calloc(1, info.bytes ? info.bytes : 1);
    if (!data || itg_set_input(session, i, data, info.bytes))
      return fail(itg_session_error(session));
    free(data);
  }
  if (itg_run(session)) return fail(itg_session_error(session));

  int differs = 0;
  for (uint32_t i = 0; i < itg_model_outputs(model, 0); i++) {
    itg_info info;
    itg_view view;
    itg_model_output(model, 0, i, &info);
    itg_get_output(session, i, &view);
    printf("output %s: %s, %" PRIu64 " bytes", info.name, itg_dtype_name(view.dtype), view.bytes);
    void *wanted = read_file(argv[2], "output", i, view.bytes);
    if (wanted && view.dtype == ITG_F32) {
      const double found = cosine(view.data, wanted, view.bytes / sizeof(float));
      printf(", cosine %.6f", found);
      differs |= found < 0.999;
    } else if (wanted) {
      printf(", %s", memcmp(view.data, wanted, view.bytes) ? "differs" : "equal");
    }
    putchar('\n');
    free(wanted);
  }
  itg_session_destroy(session);
  itg_model_close(model);
  return differs;
}
