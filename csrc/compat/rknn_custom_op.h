// Custom operators of RKNN's C API, on the CPU.
//
//   rknn_custom_op op = {.version = 1, .target = RKNN_TARGET_TYPE_CPU, .op_type = "cstSoftmax",
//                        .compute = compute};
//   rknn_register_custom_ops(ctx, &op, 1);   // after rknn_init, before rknn_run
//
// Tensors are dense: NCHW, or as the model declares them. Floats are float32.
#ifndef INTAGLIO_COMPAT_RKNN_CUSTOM_OP_H
#define INTAGLIO_COMPAT_RKNN_CUSTOM_OP_H

#include "rknn_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RKNN_WARNING_SKIP_CUSTOM_OP_COMPUTE -14  // of prepare: leave compute out
#define RKNN_CUSTOM_OP_MAX_STR_LEN 64
#define RKNN_CUSTOM_OP_MAX_VALUE_LEN 32
#define RKNN_CUSTOM_OP_EXPORT __attribute__((visibility("default")))

#ifdef __arm__
typedef uint32_t rknn_custom_op_interal_context;
#else
typedef uint64_t rknn_custom_op_interal_context;
#endif

typedef enum _rknn_target_type {
  RKNN_TARGET_TYPE_CPU = 1,
  RKNN_TARGET_TYPE_GPU = 2,  // refused
  RKNN_TARGET_TYPE_MAX
} rknn_target_type;

typedef struct _rknn_gpu_op_context {
  void *cl_context;
  void *cl_command_queue;
  void *cl_kernel;
} rknn_gpu_op_context;

typedef struct _rknn_custom_op_context {
  rknn_target_type target;
  rknn_custom_op_interal_context internal_ctx;
  rknn_gpu_op_context gpu_ctx;
  void *priv_data;  // the operator's own
} rknn_custom_op_context;

typedef struct _rknn_custom_op_tensor {
  rknn_tensor_attr attr;
  rknn_tensor_mem mem;  // the data lie at virt_addr + offset
} rknn_custom_op_tensor;

typedef struct _rknn_custom_op_attr {
  char name[RKNN_MAX_NAME_LEN];
  rknn_tensor_type dtype;  // INT64, FLOAT32, or UINT8 for text
  uint32_t n_elems;        // 0: the node has no such attribute
  void *data;
} rknn_custom_op_attr;

typedef struct _rknn_custom_op {
  uint32_t version;
  rknn_target_type target;
  char op_type[RKNN_MAX_NAME_LEN];  // as in the ONNX file
  char cl_kernel_name[RKNN_MAX_NAME_LEN];
  char *cl_kernel_source;
  uint64_t cl_source_size;
  char cl_build_options[RKNN_MAX_NAME_LEN];
  // Called for every node of op_type: init when it is registered, prepare and compute on every
  // run, destroy by rknn_destroy. Only compute is required; compute_native is not called.
  int (*init)(rknn_custom_op_context *op_ctx, rknn_custom_op_tensor *inputs, uint32_t n_inputs,
              rknn_custom_op_tensor *outputs, uint32_t n_outputs);
  int (*prepare)(rknn_custom_op_context *op_ctx, rknn_custom_op_tensor *inputs, uint32_t n_inputs,
                 rknn_custom_op_tensor *outputs, uint32_t n_outputs);
  int (*compute)(rknn_custom_op_context *op_ctx, rknn_custom_op_tensor *inputs, uint32_t n_inputs,
                 rknn_custom_op_tensor *outputs, uint32_t n_outputs);
  int (*compute_native)(rknn_custom_op_context *op_ctx, rknn_custom_op_tensor *inputs,
                        uint32_t n_inputs, rknn_custom_op_tensor *outputs, uint32_t n_outputs);
  int (*destroy)(rknn_custom_op_context *op_ctx);
} rknn_custom_op;

// get_rknn_custom_op, the one function of a plug-in library librkcst_*.so.
typedef rknn_custom_op *(*get_custom_op_func)();

int rknn_register_custom_ops(rknn_context ctx, rknn_custom_op *op, uint32_t custom_op_num);
// An attribute of the node, "name" for its name; valid as long as the context.
void rknn_custom_op_get_op_attr(rknn_custom_op_context *op_ctx, const char *attr_name,
                                rknn_custom_op_attr *op_attr);

#ifdef __cplusplus
}
#endif
#endif
