// The functions that Triton's server calls.
#include <stdarg.h>
#include <stdio.h>

#include "triton.h"

#define EXPORT __attribute__((visibility("default")))
#define TRY(call)                         \
  do {                                    \
    TRITONSERVER_Error *failed_ = (call); \
    if (failed_) return failed_;          \
  } while (0)

TRITONSERVER_Error *triton_error(TRITONSERVER_Error_Code code, const char *form, ...) {
  char words[600];
  va_list list;
  va_start(list, form);
  vsnprintf(words, sizeof words, form, list);
  va_end(list);
  return TRITONSERVER_ErrorNew(code, words);
}

bool triton_failed(TRITONSERVER_Error *error) {
  if (error) TRITONSERVER_ErrorDelete(error);
  return error != NULL;
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  uint32_t major, minor;
  TRY(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major == TRITONBACKEND_API_MAJOR && minor >= TRITONBACKEND_API_MINOR) return NULL;
  return triton_error(
      TRITONSERVER_ERROR_UNSUPPORTED,
      "intaglio: the server has backend API %u.%u; it must be %u.%u or a later %u.x", major, minor,
      TRITONBACKEND_API_MAJOR, TRITONBACKEND_API_MINOR, TRITONBACKEND_API_MAJOR);
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend) { return NULL; }

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *owner) {
  const char *location, *base;
  uint64_t version;
  size_t size;
  char path[4096];
  TRITONBACKEND_ArtifactType type;
  TRITONSERVER_Message *config;
  triton_model *model = NULL;
  TRY(TRITONBACKEND_ModelSetState(owner, NULL));
  TRY(TRITONBACKEND_ModelRepository(owner, &type, &location));
  TRY(TRITONBACKEND_ModelVersion(owner, &version));
  const int n =
      snprintf(path, sizeof path, "%s/%llu/model.itg", location, (unsigned long long)version);
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM || n >= (int)sizeof path)
    return triton_error(TRITONSERVER_ERROR_UNSUPPORTED,
                        "intaglio: the model is no folder of files");
  TRY(TRITONBACKEND_ModelConfig(owner, 1, &config));
  TRITONSERVER_Error *error = TRITONSERVER_MessageSerializeToJson(config, &base, &size);
  if (!error) error = triton_open(path, base, size, &model);
  triton_failed(TRITONSERVER_MessageDelete(config));
  if (error) return error;
  return TRITONBACKEND_ModelSetState(owner, model);
}

// Called after a failed initialisation, too: its state is NULL then.
EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *owner) {
  void *state = NULL;
  TRY(TRITONBACKEND_ModelState(owner, &state));
  triton_close(state);
  return NULL;
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance *owner) {
  TRITONBACKEND_Model *model;
  void *state = NULL;
  triton_instance *instance = NULL;
  TRY(TRITONBACKEND_ModelInstanceSetState(owner, NULL));
  TRY(TRITONBACKEND_ModelInstanceModel(owner, &model));
  TRY(TRITONBACKEND_ModelState(model, &state));
  if (!state) return triton_error(TRITONSERVER_ERROR_INTERNAL, "intaglio: the model is not loaded");
  TRY(triton_instance_create(state, &instance));
  return TRITONBACKEND_ModelInstanceSetState(owner, instance);
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *owner) {
  void *state = NULL;
  TRY(TRITONBACKEND_ModelInstanceState(owner, &state));
  triton_instance_destroy(state);
  return NULL;
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *owner,
                                                              TRITONBACKEND_Request **requests,
                                                              const uint32_t count) {
  void *state = NULL;
  TRY(TRITONBACKEND_ModelInstanceState(owner, &state));
  if (!state) return triton_error(TRITONSERVER_ERROR_INTERNAL, "intaglio: no instance");
  triton_execute(owner, state, requests, count);  // from here on the requests are ours
  return NULL;
}
