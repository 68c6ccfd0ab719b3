// Stands in for Triton's server: loads a model with the backend and gives it requests.
//
//   triton_host FOLDER CONFIG ROWS...      FOLDER/1/model.itg, the JSON text of its configuration
//
// ROWS: rows of a request `x` of three floats, all with its number; with `s` its bytes lie in three
// pieces, with `u` at an odd address, with `w` it has a wrong shape, with `g` its client is gone,
// with `n` it asks for no output, with `t` for one that the model does not have.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../csrc/triton/triton_api.h"

enum { MOST = 64, FLOATS = 64 };

struct TRITONSERVER_Error {
  char words[600];
};
struct TRITONSERVER_Message {
  const char *text;
};
struct TRITONBACKEND_Model {
  const char *folder, *config;
  void *state;
};
struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model *model;
  void *state;
};
struct TRITONBACKEND_Input {
  int64_t shape[2];
  uint8_t *data;
  uint64_t bytes;
  uint32_t pieces;
};
struct TRITONBACKEND_Output {
  float *data;
  int64_t shape[2];
};
struct TRITONBACKEND_Request {
  TRITONBACKEND_Input input;
  const char *flags;
  int released, reported;
};
struct TRITONBACKEND_Response {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Output output;
};

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model);
TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *x);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *x);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *x,
                                                       TRITONBACKEND_Request **requests,
                                                       const uint32_t count);
TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend);

static TRITONBACKEND_Request made[MOST];
static int errors;  // that nobody has deleted

TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *words) {
  TRITONSERVER_Error *e = calloc(1, sizeof *e);
  snprintf(e->words, sizeof e->words, "%d %s", code, words);
  errors++;
  return e;
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error) {
  errors--;
  free(error);
}
TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *m, const char **base,
                                                        size_t *size) {
  *base = m->text;
  *size = strlen(m->text);
  return NULL;
}
TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *m) { return free(m), NULL; }
TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor) {
  *major = 1;
  *minor = 19;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *m, uint64_t *version) {
  *version = 1;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *m,
                                                  TRITONBACKEND_ArtifactType *type,
                                                  const char **location) {
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = m->folder;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *m, uint32_t version,
                                              TRITONSERVER_Message **config) {
  *config = calloc(1, sizeof **config);
  (*config)->text = m->config;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *m, void **state) {
  *state = m->state;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *m, void *state) {
  m->state = state;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *x,
                                                     TRITONBACKEND_Model **model) {
  *model = x->model;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance *x, void **state) {
  *state = x->state;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance *x,
                                                        void *state) {
  x->state = state;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *x, TRITONBACKEND_Request *r, bool success, uint64_t start,
    uint64_t compute_start, uint64_t compute_end, uint64_t end) {
  r->reported++;
  if (start > compute_start || compute_start > compute_end || compute_end > end || r->released)
    printf("wrong statistics\n");
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance *x,
                                                                     uint64_t batch, uint64_t start,
                                                                     uint64_t compute_start,
                                                                     uint64_t compute_end,
                                                                     uint64_t end) {
  printf("run of %d rows\n", (int)batch);
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_RequestInput(TRITONBACKEND_Request *r, const char *name,
                                               TRITONBACKEND_Input **input) {
  *input = &r->input;
  return strcmp(name, "x") ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, name) : NULL;
}
TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *r, uint32_t *count) {
  *count = !strchr(r->flags, 'n');
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *r, uint32_t index,
                                                    const char **name) {
  *name = strchr(r->flags, 't') ? "nothing" : "y";
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *r, uint32_t flags) {
  r->released++;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *i, const char **name,
                                                  TRITONSERVER_DataType *type,
                                                  const int64_t **shape, uint32_t *rank,
                                                  uint64_t *bytes, uint32_t *buffers) {
  *type = TRITONSERVER_TYPE_FP32;
  *shape = i->shape;
  *rank = 2;
  *bytes = i->bytes;
  *buffers = i->pieces;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *i, uint32_t index,
                                              const void **buffer, uint64_t *bytes,
                                              TRITONSERVER_MemoryType *memory, int64_t *id) {
  const uint64_t piece = i->pieces == 1 ? i->bytes : 5;  // not a multiple of an element
  *buffer = i->data + index * piece;
  *bytes = index + 1 < i->pieces ? piece : i->bytes - index * piece;
  *memory = TRITONSERVER_MEMORY_CPU;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **response,
                                              TRITONBACKEND_Request *r) {
  if (strchr(r->flags, 'g')) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNKNOWN, "gone");
  *response = calloc(1, sizeof **response);
  (*response)->request = r;
  return NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response,
                                                 TRITONBACKEND_Output **output, const char *name,
                                                 TRITONSERVER_DataType type, const int64_t *shape,
                                                 uint32_t rank) {
  *output = &response->output;
  memcpy((*output)->shape, shape, sizeof(*output)->shape);
  return rank != 2 || strcmp(name, "y") ? TRITONSERVER_ErrorNew(0, "wrong output") : NULL;
}
TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *o, void **buffer,
                                               uint64_t bytes, TRITONSERVER_MemoryType *memory,
                                               int64_t *id) {
  *buffer = o->data = calloc(1, bytes);
  return bytes != (uint64_t)(o->shape[0] * o->shape[1]) * sizeof(float)
             ? TRITONSERVER_ErrorNew(0, "wrong size")
             : NULL;
}
TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags,
                                               TRITONSERVER_Error *error) {
  const TRITONBACKEND_Output *o = &response->output;
  printf("request %d:", (int)(response->request - made));
  if (error) printf(" error %s", error->words);
  else if (!o->data) printf(" no output");
  for (int64_t i = 0; !error && o->data && i < o->shape[0]; i++) printf(" %g", o->data[i * 3 + 2]);
  printf("\n");
  free(o->data);
  free(response);
  return NULL;
}

static int told(TRITONSERVER_Error *error) {
  if (error) printf("error %s\n", error->words), TRITONSERVER_ErrorDelete(error);
  return error != NULL;
}

int main(int argc, char **argv) {
  TRITONBACKEND_Model model = {argv[1], argv[2], NULL};
  TRITONBACKEND_ModelInstance instance = {&model, NULL};
  TRITONBACKEND_Request *requests[MOST];
  static uint8_t bytes[MOST][FLOATS * sizeof(float) + 1];
  int failed = told(TRITONBACKEND_Initialize(NULL)) || told(TRITONBACKEND_ModelInitialize(&model));
  failed = failed || told(TRITONBACKEND_ModelInstanceInitialize(&instance));
  const uint32_t count = (uint32_t)argc - 3;
  for (uint32_t n = 0; n < count && !failed; n++) {
    TRITONBACKEND_Request *r = requests[n] = &made[n];
    r->flags = argv[n + 3];
    TRITONBACKEND_Input *i = &r->input;
    i->shape[0] = atoi(r->flags);
    i->shape[1] = strchr(r->flags, 'w') ? 4 : 3;
    i->bytes = (uint64_t)(i->shape[0] * i->shape[1]) * sizeof(float);
    i->pieces = strchr(r->flags, 's') ? 3 : 1;
    i->data = bytes[n] + (strchr(r->flags, 'u') != NULL);
    for (int64_t at = 0; at < i->shape[0] * i->shape[1] && at < FLOATS; at++)
      memcpy(i->data + at * 4, &(float){(float)n}, sizeof(float));
  }
  if (!failed) told(TRITONBACKEND_ModelInstanceExecute(&instance, requests, count));
  for (uint32_t n = 0; n < count && !failed; n++)
    if (made[n].released != 1 || made[n].reported != 1) printf("request %d is not ended\n", (int)n);
  told(TRITONBACKEND_ModelInstanceFinalize(&instance));
  told(TRITONBACKEND_ModelFinalize(&model));
  if (errors) printf("%d errors are not deleted\n", errors);
  return 0;
}
