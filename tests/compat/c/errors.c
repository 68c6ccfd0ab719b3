// Wrong arguments: the documented code, a line on standard error, no crash.
//
//   errors MODEL VENDOR.rknn GARBAGE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rknn_api.h"

static int wrong;
#define IS(x, code)                                                           \
  do {                                                                        \
    const int found = (x);                                                    \
    if (found != (code)) printf("line %d: %d\n", __LINE__, found), wrong = 1; \
  } while (0)
#define NONE(x)                                                          \
  do {                                                                   \
    if ((x) != NULL) printf("line %d: not NULL\n", __LINE__), wrong = 1; \
  } while (0)
enum {
  PARAM = RKNN_ERR_PARAM_INVALID,
  CTX = RKNN_ERR_CTX_INVALID,
  MODEL = RKNN_ERR_MODEL_INVALID,
  INPUT = RKNN_ERR_INPUT_INVALID,
  OUTPUT = RKNN_ERR_OUTPUT_INVALID,
  DEVICE = RKNN_ERR_DEVICE_UNAVAILABLE
};

static void contexts(rknn_context none) {
  rknn_context other;
  rknn_input_output_num num;
  rknn_input in = {0};
  rknn_output out = {0};
  rknn_tensor_attr attr = {0};
  IS(rknn_destroy(none), CTX);
  IS(rknn_dup_context(&none, &other), CTX);
  IS(rknn_query(none, RKNN_QUERY_IN_OUT_NUM, &num, sizeof num), CTX);
  IS(rknn_inputs_set(none, 1, &in), CTX);
  IS(rknn_run(none, NULL), CTX);
  IS(rknn_wait(none, NULL), CTX);
  IS(rknn_outputs_get(none, 1, &out, NULL), CTX);
  IS(rknn_outputs_release(none, 1, &out), CTX);
  IS(rknn_set_core_mask(none, RKNN_NPU_CORE_AUTO), CTX);
  IS(rknn_set_batch_core_num(none, 1), CTX);
  IS(rknn_set_input_shape(none, &attr), CTX);
  IS(rknn_set_input_shapes(none, 1, &attr), CTX);
  IS(rknn_set_io_mem(none, NULL, &attr), CTX);
  IS(rknn_set_weight_mem(none, NULL), CTX);
  IS(rknn_set_internal_mem(none, NULL), CTX);
  NONE(rknn_create_mem(none, 64));
  NONE(rknn_create_mem2(none, 64, RKNN_FLAG_MEMORY_CACHEABLE));
}

static void models(char *model, char *vendor, char *garbage) {
  rknn_context ctx = 9;
  static char bytes[100] = "RKNN";
  rknn_init_extend extend;
  memset(&extend, 0, sizeof extend);
  IS(rknn_init(NULL, model, 0, 0, NULL), PARAM);
  IS(rknn_init(&ctx, NULL, 0, 0, NULL), PARAM);
  IS(rknn_init(&ctx, "./nothing.rknn", 0, 0, NULL), MODEL);
  IS(rknn_init(&ctx, ".", 0, 0, NULL), MODEL);
  IS(rknn_init(&ctx, vendor, 0, 0, NULL), MODEL);
  IS(rknn_init(&ctx, garbage, 0, 0, NULL), MODEL);
  IS(rknn_init(&ctx, bytes, sizeof bytes, 0, NULL), MODEL);
  IS(rknn_init(&ctx, bytes, 3, 0, NULL), MODEL);
  IS(rknn_init(&ctx, model, 0, RKNN_FLAG_FENCE_IN_OUTSIDE, NULL), DEVICE);
  IS(rknn_init(&ctx, model, 0, RKNN_FLAG_SHARE_WEIGHT_MEM, NULL), PARAM);
  IS(rknn_init(&ctx, model, 0, RKNN_FLAG_SHARE_WEIGHT_MEM, &extend), PARAM);
  extend.real_model_size = 64;
  IS(rknn_init(&ctx, model, 0, 0, &extend), MODEL);  // cut off
  extend.real_model_offset = -1;
  IS(rknn_init(&ctx, model, 0, 0, &extend), PARAM);
  if (ctx) puts("a failed rknn_init leaves a context"), wrong = 1;
  IS(rknn_init(&ctx, model, 0, RKNN_FLAG_COLLECT_MODEL_INFO_ONLY, NULL), 0);
  rknn_input_output_num num;
  IS(rknn_query(ctx, RKNN_QUERY_IN_OUT_NUM, &num, sizeof num), 0);
  IS(rknn_run(ctx, NULL), RKNN_ERR_FAIL);
  IS(rknn_destroy(ctx), 0);
  IS(rknn_init(&ctx, model, 0, RKNN_FLAG_MEM_ALLOC_OUTSIDE, NULL), 0);
  IS(rknn_run(ctx, NULL), PARAM);  // internal memory was not set
  IS(rknn_destroy(ctx), 0);
}

static void memory(rknn_context ctx) {
  rknn_tensor_mem *mem = rknn_create_mem(ctx, 64);
  rknn_tensor_attr attr = {.index = 0};
  NONE(rknn_create_mem(ctx, 0));
  NONE(rknn_create_mem2(ctx, (uint64_t)1 << 40, 0));
  NONE(rknn_create_mem2(ctx, 64, 1 << 9));
  NONE(rknn_create_mem_from_fd(ctx, -1, mem->virt_addr, 64, 0));
  NONE(rknn_create_mem_from_fd(ctx, mem->fd, mem->virt_addr, 64, -4));
  NONE(rknn_create_mem_from_fd(ctx, mem->fd, mem->virt_addr, 6400, 0));
  NONE(rknn_create_mem_from_phys(ctx, 0x1000, NULL, 64));
  NONE(rknn_create_mem_from_mb_blk(ctx, mem, 0));
  rknn_tensor_mem *mapped = rknn_create_mem_from_fd(ctx, mem->fd, NULL, 32, 32),
                  *physical = rknn_create_mem_from_phys(ctx, 0x1000, mem->virt_addr, 64);
  strcpy((char *)mem->virt_addr + 32, "shared");
  if (!mapped || !physical || strcmp((char *)mapped->virt_addr + mapped->offset, "shared"))
    wrong = 1;
  IS(rknn_set_weight_mem(ctx, NULL), PARAM);
  IS(rknn_set_weight_mem(ctx, mem), PARAM);  // too small
  IS(rknn_set_internal_mem(ctx, mapped), PARAM);
  IS(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof attr), 0);
  IS(rknn_set_io_mem(ctx, NULL, &attr), PARAM);
  IS(rknn_set_io_mem(ctx, mem, NULL), PARAM);
  IS(rknn_set_io_mem(ctx, mem, &attr), INPUT);  // too small
  attr.type = RKNN_TENSOR_INT4;
  IS(rknn_set_io_mem(ctx, mem, &attr), INPUT);
  strcpy(attr.name, "nothing");
  IS(rknn_set_io_mem(ctx, mem, &attr), PARAM);
  IS(rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &attr, sizeof attr), 0);
  attr.type = RKNN_TENSOR_UINT8;
  IS(rknn_set_io_mem(ctx, mem, &attr), OUTPUT);
  IS(rknn_mem_sync(ctx, NULL, RKNN_MEMORY_SYNC_TO_DEVICE), PARAM);
  IS(rknn_mem_sync(ctx, mem, (rknn_mem_sync_mode)7), PARAM);
  IS(rknn_destroy_mem(ctx, mapped), 0);
  IS(rknn_destroy_mem(ctx, physical), 0);
  IS(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof attr), 0);
  rknn_tensor_mem *gone = rknn_create_mem(ctx, attr.size_with_stride);
  IS(rknn_set_io_mem(ctx, gone, &attr), 0);
  IS(rknn_destroy_mem(ctx, gone), 0);
  IS(rknn_run(ctx, NULL), INPUT);  // its memory is gone
  IS(rknn_destroy_mem(ctx, mem), 0);
  IS(rknn_destroy_mem(ctx, mem), PARAM);
  IS(rknn_destroy_mem(ctx, NULL), PARAM);
}

int main(int argc, char **argv) {
  if (argc != 4) return 1;
  rknn_context ctx;
  models(argv[1], argv[2], argv[3]);
  IS(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);
  contexts(0);
  contexts(12345);
  rknn_tensor_attr attr = {.index = 7};
  rknn_perf_detail detail;
  static char small[4];
  IS(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, NULL, sizeof attr), PARAM);
  IS(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, small, sizeof small), PARAM);
  IS(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof attr), PARAM);
  IS(rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &attr, sizeof attr), PARAM);
  IS(rknn_query(ctx, RKNN_QUERY_CMD_MAX, &attr, sizeof attr), PARAM);
  IS(rknn_query(ctx, RKNN_QUERY_DEVICE_MEM_INFO, &attr, sizeof attr), DEVICE);
  IS(rknn_query(ctx, RKNN_QUERY_PERF_DETAIL, &detail, sizeof detail), 0);
  IS(strstr(detail.perf_data, "RKNN_FLAG_COLLECT_PERF_MASK") != NULL, 1);
  attr.index = 0;
  IS(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof attr), 0);
  rknn_input in = {.buf = small, .size = sizeof small, .type = RKNN_TENSOR_UINT8};
  rknn_output out = {.want_float = 1};
  IS(rknn_outputs_get(ctx, 1, &out, NULL), RKNN_ERR_FAIL);  // nothing ran
  IS(rknn_inputs_set(ctx, 0, &in), PARAM);
  IS(rknn_inputs_set(ctx, 1, NULL), PARAM);
  IS(rknn_inputs_set(ctx, 9, &in), PARAM);
  IS(rknn_inputs_set(ctx, 1, &in), INPUT);  // too small
  in.type = RKNN_TENSOR_INT4;
  IS(rknn_inputs_set(ctx, 1, &in), PARAM);
  in.index = 3;
  IS(rknn_inputs_set(ctx, 1, &in), INPUT);
  in = (rknn_input){.size = attr.size, .type = RKNN_TENSOR_UINT8};
  IS(rknn_inputs_set(ctx, 1, &in), INPUT);
  IS(rknn_set_core_mask(ctx, (rknn_core_mask)5), PARAM);
  IS(rknn_set_core_mask(ctx, RKNN_NPU_CORE_UNDEFINED), PARAM);
  IS(rknn_set_batch_core_num(ctx, 4), PARAM);
  IS(rknn_set_input_shape(ctx, NULL), PARAM);
  IS(rknn_set_input_shapes(ctx, 2, &attr), PARAM);
  attr.fmt = RKNN_TENSOR_NC1HWC2;
  IS(rknn_set_input_shapes(ctx, 1, &attr), PARAM);
  IS(rknn_dup_context(&ctx, NULL), PARAM);
  IS(rknn_run(ctx, NULL), 0);  // inputs are zeros
  IS(rknn_outputs_get(ctx, 1, NULL, NULL), PARAM);
  out.index = 9;
  IS(rknn_outputs_get(ctx, 1, &out, NULL), OUTPUT);
  out = (rknn_output){.want_float = 1, .is_prealloc = 1, .buf = small, .size = sizeof small};
  IS(rknn_outputs_get(ctx, 1, &out, NULL), OUTPUT);
  IS(rknn_outputs_release(ctx, 1, NULL), PARAM);
  memory(ctx);
  IS(rknn_destroy(ctx), 0);
  IS(rknn_destroy(ctx), CTX);
  return wrong;
}
