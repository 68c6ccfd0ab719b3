// RKNN's matrix products: C = A x B, A [M, K], B [K, N], without a model.
//
//   rknn_matmul_info info = {.M = 4, .K = 64, .N = 32, .type = RKNN_INT8_MM_INT8_TO_INT32};
//   rknn_matmul_io_attr io;
//   rknn_matmul_ctx ctx;
//   rknn_matmul_create(&ctx, &info, &io);
//   rknn_tensor_mem *a = rknn_create_mem(ctx, io.A.size), ...;
//   rknn_matmul_set_io_mem(ctx, a, &io.A);   // after the data of A and B are written
//   rknn_matmul_run(ctx);
//
// Native layouts are those of RK3588; the variable INTAGLIO_RKNN_PLATFORM names another chip.
#ifndef INTAGLIO_COMPAT_RKNN_MATMUL_API_H
#define INTAGLIO_COMPAT_RKNN_MATMUL_API_H

#include "rknn_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef rknn_context rknn_matmul_ctx;

typedef enum _rknn_matmul_quant_type {
  RKNN_QUANT_TYPE_PER_LAYER_SYM = 0,
  RKNN_QUANT_TYPE_PER_LAYER_ASYM = 1,
  RKNN_QUANT_TYPE_PER_CHANNEL_SYM = 2,
  RKNN_QUANT_TYPE_PER_CHANNEL_ASYM = 3,
  RKNN_QUANT_TYPE_PER_GROUP_SYM = 4,
  RKNN_QUANT_TYPE_PER_GROUP_ASYM = 5
} rknn_matmul_quant_type;

typedef enum _rknn_matmul_type {  // A, B, C
  RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32 = 1,
  RKNN_INT8_MM_INT8_TO_INT32 = 2,
  RKNN_INT8_MM_INT8_TO_INT8 = 3,
  RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16 = 4,
  RKNN_FLOAT16_MM_INT8_TO_FLOAT32 = 5,
  RKNN_FLOAT16_MM_INT8_TO_FLOAT16 = 6,
  RKNN_FLOAT16_MM_INT4_TO_FLOAT32 = 7,
  RKNN_FLOAT16_MM_INT4_TO_FLOAT16 = 8,
  RKNN_INT8_MM_INT8_TO_FLOAT32 = 9,
  RKNN_INT4_MM_INT4_TO_INT16 = 10,
  RKNN_INT8_MM_INT4_TO_INT32 = 11,
  RKNN_FLOAT16_MM_INT4_TO_BFLOAT16 = 12,
  RKNN_INT8_MM_INT4_TO_FLOAT16 = 15
} rknn_matmul_type;

static inline const char *get_matmul_type_string(rknn_matmul_type type) {
  switch (type) {
#define INTAGLIO_NAME(x) \
  case x: return #x;
    INTAGLIO_NAME(RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32)
    INTAGLIO_NAME(RKNN_INT8_MM_INT8_TO_INT32)
    INTAGLIO_NAME(RKNN_INT8_MM_INT8_TO_INT8)
    INTAGLIO_NAME(RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16)
    INTAGLIO_NAME(RKNN_FLOAT16_MM_INT8_TO_FLOAT32)
    INTAGLIO_NAME(RKNN_FLOAT16_MM_INT8_TO_FLOAT16)
    INTAGLIO_NAME(RKNN_FLOAT16_MM_INT4_TO_FLOAT32)
    INTAGLIO_NAME(RKNN_FLOAT16_MM_INT4_TO_FLOAT16)
    INTAGLIO_NAME(RKNN_INT8_MM_INT8_TO_FLOAT32)
    INTAGLIO_NAME(RKNN_INT4_MM_INT4_TO_INT16)
    INTAGLIO_NAME(RKNN_INT8_MM_INT4_TO_INT32)
    INTAGLIO_NAME(RKNN_FLOAT16_MM_INT4_TO_BFLOAT16)
    INTAGLIO_NAME(RKNN_INT8_MM_INT4_TO_FLOAT16)
#undef INTAGLIO_NAME
  }
  return "UNKNOW";
}

typedef enum _rknn_matmul_layout {
  RKNN_MM_LAYOUT_NORM = 0,    // row-major
  RKNN_MM_LAYOUT_NATIVE = 1,  // as the NPU reads it
  RKNN_MM_LAYOUT_TP_NORM = 2  // B as [N, K]
} rknn_matmul_layout;

// value = (stored - zp) * scale. Per layer one pair, per channel N, per group N * K / group_size:
// the groups of column 0 first.
typedef struct _rknn_quant_params {
  char name[RKNN_MAX_NAME_LEN];  // "A", "B" or "C"
  float *scale;
  int32_t scale_len;
  int32_t *zp;
  int32_t zp_len;
} rknn_quant_params;

typedef struct _rknn_matmul_tensor_attr {
  char name[RKNN_MAX_NAME_LEN];
  uint32_t n_dims;
  uint32_t dims[RKNN_MAX_DIMS];
  uint32_t size;  // bytes
  rknn_tensor_type type;
} rknn_matmul_tensor_attr;

typedef struct _rknn_matmul_io_attr {
  rknn_matmul_tensor_attr A;
  rknn_matmul_tensor_attr B;
  rknn_matmul_tensor_attr C;
} rknn_matmul_io_attr;

typedef struct _rknn_matmul_shape {
  int32_t M;
  int32_t K;
  int32_t N;
} rknn_matmul_shape;

typedef struct rknn_matmul_info_t {
  int32_t M;
  int32_t K;
  int32_t N;
  rknn_matmul_type type;
  int16_t B_layout;      // rknn_matmul_layout
  int16_t B_quant_type;  // rknn_matmul_quant_type
  int16_t AC_layout;
  int16_t AC_quant_type;
  int32_t iommu_domain_id;  // ignored
  int16_t group_size;       // of per-group quantisation
  int8_t reserved[34];
} rknn_matmul_info;

int rknn_matmul_create(rknn_matmul_ctx *ctx, rknn_matmul_info *info, rknn_matmul_io_attr *io_attr);
// Shapes may differ in M only.
int rknn_matmul_create_dynamic_shape(rknn_matmul_ctx *ctx, rknn_matmul_info *info, int shape_num,
                                     rknn_matmul_shape dynamic_shapes[],
                                     rknn_matmul_io_attr io_attrs[]);
// Reads B at once: call it again after its data change. A is read by rknn_matmul_run.
int rknn_matmul_set_io_mem(rknn_matmul_ctx ctx, rknn_tensor_mem *mem,
                           rknn_matmul_tensor_attr *attr);
int rknn_matmul_set_core_mask(rknn_matmul_ctx context, rknn_core_mask core_mask);
int rknn_matmul_set_quant_params(rknn_matmul_ctx context, rknn_quant_params *params);
// The parameters of the matrix that params->name names; `scale` (may be NULL) gets the first one.
int rknn_matmul_get_quant_params(rknn_matmul_ctx ctx, rknn_quant_params *params, float *scale);
int rknn_matmul_set_dynamic_shape(rknn_matmul_ctx ctx, rknn_matmul_shape *shape);
int rknn_matmul_run(rknn_matmul_ctx ctx);
int rknn_matmul_destroy(rknn_matmul_ctx ctx);
// B [K, N] to the layout of RKNN_MM_LAYOUT_NATIVE for info->type.
int rknn_B_normal_layout_to_native_layout(void *B_input, void *B_output, int K, int N,
                                          rknn_matmul_info *info);

#ifdef __cplusplus
}
#endif
#endif
