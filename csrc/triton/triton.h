// The state of a model and of its instances in Triton's server.
#pragma once
#include <intaglio.h>
#include <stddef.h>

#include "triton_api.h"

enum { TRITON_TENSORS = 64, TRITON_PLANS = 64 };

typedef struct triton_tensor {
  itg_info info;  // of the first plan
  TRITONSERVER_DataType type;
  uint64_t row;      // bytes of a row, where the model has batches; else those of the largest shape
  uint32_t element;  // bytes
} triton_tensor;

typedef struct triton_plan {
  uint32_t number, batch;
} triton_plan;

typedef struct triton_model {
  itg_model *model;
  uint32_t inputs, outputs, threads;
  uint32_t max_batch;  // rows; 0: every request runs alone
  uint32_t plans;      // with batches: their number, smallest first
  bool open;           // shapes differ from request to request
  bool varying;        // extents of outputs are known after the run only
  triton_plan plan[TRITON_PLANS];
  triton_tensor input[TRITON_TENSORS], output[TRITON_TENSORS];
} triton_model;

typedef struct triton_instance {
  triton_model *model;
  itg_session *session[TRITON_PLANS];  // one for each plan
  uint32_t sessions;
  void *internal;               // that the sessions share
  uint8_t *in[TRITON_TENSORS];  // rows of several requests, one after the other
  uint8_t *out[TRITON_TENSORS];
} triton_instance;

TRITONSERVER_Error *triton_error(TRITONSERVER_Error_Code code, const char *form, ...)
    __attribute__((format(printf, 2, 3)));
// Whether it failed; the error is dropped.
bool triton_failed(TRITONSERVER_Error *error);

// Opens `<location>/<version>/model.itg` and compares it with its configuration, a JSON text.
TRITONSERVER_Error *triton_open(const char *path, const char *config, size_t size,
                                triton_model **model);
void triton_close(triton_model *model);
TRITONSERVER_Error *triton_instance_create(triton_model *model, triton_instance **instance);
void triton_instance_destroy(triton_instance *instance);
// Answers and releases every request.
void triton_execute(TRITONBACKEND_ModelInstance *owner, triton_instance *instance,
                    TRITONBACKEND_Request **requests, uint32_t count);
