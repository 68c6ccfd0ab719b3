// Sizes and offsets of the structs, as programs that were compiled for a board have them.
#include <stddef.h>

#include "rknn_api.h"
#include "rknn_custom_op.h"
#include "rknn_matmul_api.h"

#ifdef __cplusplus
#define _Static_assert static_assert
#endif
#define SIZE(type, bytes) _Static_assert(sizeof(type) == bytes, #type)
#define OFFSET(member, bytes) _Static_assert(offsetof(rknn_tensor_attr, member) == bytes, #member)

SIZE(rknn_context, 8);
SIZE(rknn_input_output_num, 8);
SIZE(rknn_tensor_attr, 376);
OFFSET(name, 72);
OFFSET(n_elems, 328);
OFFSET(fmt, 336);
OFFSET(fl, 348);
OFFSET(zp, 352);
OFFSET(scale, 356);
OFFSET(pass_through, 368);
OFFSET(h_stride, 372);
SIZE(rknn_input_range, 33040);
SIZE(rknn_perf_detail, 16);
SIZE(rknn_perf_run, 8);
SIZE(rknn_sdk_version, 512);
SIZE(rknn_mem_size, 64);
SIZE(rknn_custom_string, 1024);
SIZE(rknn_tensor_mem, 40);
SIZE(rknn_input, 32);
SIZE(rknn_output, 24);
SIZE(rknn_init_extend, 136);
SIZE(rknn_run_extend, 24);
SIZE(rknn_output_extend, 8);
SIZE(rknn_quant_params, 288);
SIZE(rknn_matmul_tensor_attr, 332);
SIZE(rknn_matmul_io_attr, 996);
SIZE(rknn_matmul_info, 64);
SIZE(rknn_matmul_shape, 12);
SIZE(rknn_custom_op, 832);
SIZE(rknn_custom_op_context, 48);
SIZE(rknn_custom_op_tensor, 416);
SIZE(rknn_custom_op_attr, 272);
_Static_assert(RKNN_QUERY_CMD_MAX == 18, "rknn_query_cmd");
_Static_assert(RKNN_TENSOR_TYPE_MAX == 12, "rknn_tensor_type");
_Static_assert(RKNN_NPU_CORE_0_1_2 == 7, "rknn_core_mask");
_Static_assert(RKNN_MEMORY_SYNC_BIDIRECTIONAL == 3, "rknn_mem_sync_mode");
