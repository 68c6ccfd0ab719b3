// Zero-copy as the manual shows it, and contexts: memory of the caller, copies, runs in the
// background, several shapes.
//
//   zero_copy MODEL INPUT.bin OUTPUT.bin            outputs: float32 NCHW, NHWC; native; native
//   NHWC zero_copy MODEL INPUT.bin OUTPUT.bin shapes     outputs of all shapes as float32
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rknn_api.h"

#define CHECK(x)                                                \
  do {                                                          \
    if ((x) < 0) return printf("line %d fails\n", __LINE__), 1; \
  } while (0)

static uint8_t pixels[1 << 18];
static uint32_t pixels_len;
static FILE *to;

static int set_inputs(rknn_context ctx, rknn_query_cmd cmd, rknn_tensor_mem **mem) {
  rknn_tensor_attr attr = {.index = 0};
  CHECK(rknn_query(ctx, cmd, &attr, sizeof attr));
  attr.type = RKNN_TENSOR_UINT8;  // normalised and quantised inside
  attr.fmt = RKNN_TENSOR_NHWC;
  const uint32_t stride = attr.w_stride ? attr.w_stride : attr.dims[2];
  if (!*mem) *mem = rknn_create_mem(ctx, attr.size_with_stride);
  if (!*mem) return 1;
  const uint32_t row = attr.dims[2] * attr.dims[3], rows = attr.dims[0] * attr.dims[1];
  uint8_t *at = (*mem)->virt_addr;
  for (uint32_t h = 0; h < rows; h++) memcpy(at + h * stride * attr.dims[3], pixels + h * row, row);
  CHECK(rknn_mem_sync(ctx, *mem, RKNN_MEMORY_SYNC_TO_DEVICE));
  CHECK(rknn_set_io_mem(ctx, *mem, &attr));
  return 0;
}

// Runs and writes all outputs in this type and format; -1: as the query says.
static int run(rknn_context ctx, rknn_query_cmd cmd, int type, int fmt) {
  rknn_input_output_num io_num;
  CHECK(rknn_query(ctx, RKNN_QUERY_IN_OUT_NUM, &io_num, sizeof io_num));
  rknn_tensor_mem **mems = calloc(io_num.n_output, sizeof *mems);
  uint32_t sizes[16];
  for (uint32_t i = 0; i < io_num.n_output; i++) {
    rknn_tensor_attr attr = {.index = i};
    CHECK(rknn_query(ctx, cmd, &attr, sizeof attr));
    if (type >= 0) attr.type = (rknn_tensor_type)type;
    if (fmt >= 0) attr.fmt = (rknn_tensor_format)fmt;
    sizes[i] = type == RKNN_TENSOR_FLOAT32 ? attr.n_elems * (uint32_t)sizeof(float)
                                           : attr.size_with_stride;
    mems[i] = rknn_create_mem(ctx, sizes[i]);
    CHECK(rknn_set_io_mem(ctx, mems[i], &attr));
  }
  CHECK(rknn_run(ctx, NULL));
  for (uint32_t i = 0; i < io_num.n_output; i++) {
    CHECK(rknn_mem_sync(ctx, mems[i], RKNN_MEMORY_SYNC_FROM_DEVICE));
    fwrite(mems[i]->virt_addr, 1, sizes[i], to);
    CHECK(rknn_destroy_mem(ctx, mems[i]));
  }
  free(mems);
  return 0;
}

static int shapes(rknn_context ctx) {
  static rknn_input_range range;
  rknn_tensor_mem *mem = NULL;
  rknn_tensor_attr attr = {.index = 0};
  CHECK(rknn_query(ctx, RKNN_QUERY_INPUT_DYNAMIC_RANGE, &range, sizeof range));
  CHECK(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof attr));
  mem = rknn_create_mem(ctx, attr.size_with_stride);  // the largest
  printf("%s: %u shapes, %s, %u dims\n", range.name, range.shape_number,
         get_format_string(range.fmt), range.n_dims);
  for (uint32_t s = 0; s < range.shape_number; s++) {
    for (uint32_t i = 0; i < attr.n_dims; i++) attr.dims[i] = range.dyn_range[s][i];
    CHECK(s % 2 ? rknn_set_input_shape(ctx, &attr) : rknn_set_input_shapes(ctx, 1, &attr));
    if (set_inputs(ctx, RKNN_QUERY_CURRENT_INPUT_ATTR, &mem)) return 1;
    if (run(ctx, RKNN_QUERY_CURRENT_OUTPUT_ATTR, RKNN_TENSOR_FLOAT32, -1)) return 1;
  }
  attr.dims[1]++;
  if (rknn_set_input_shapes(ctx, 1, &attr) != RKNN_ERR_PARAM_INVALID) return 1;
  return rknn_destroy_mem(ctx, mem);
}

// Weights and internal tensors in our memory; two contexts share the internal tensors.
static int outside(char *model) {
  rknn_context a, b;
  rknn_mem_size size;
  rknn_tensor_mem *input = NULL, *weights, *internal, *of_b;
  CHECK(rknn_init(&a, model, 0, RKNN_FLAG_MEM_ALLOC_OUTSIDE, NULL));
  CHECK(rknn_query(a, RKNN_QUERY_MEM_SIZE, &size, sizeof size));
  CHECK(rknn_init(&b, model, 0, RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE, NULL));
  weights = rknn_create_mem(a, size.total_weight_size);
  internal = rknn_create_mem2(a, size.total_internal_size, RKNN_FLAG_MEMORY_CACHEABLE);
  of_b = rknn_create_mem_from_fd(b, internal->fd, internal->virt_addr, size.total_internal_size, 0);
  CHECK(rknn_set_weight_mem(a, weights));
  CHECK(rknn_set_internal_mem(a, internal));
  CHECK(rknn_set_internal_mem(b, of_b));
  const rknn_context both[] = {a, b};
  for (int i = 0; i < 2; i++) {
    input = NULL;
    if (set_inputs(both[i], RKNN_QUERY_NATIVE_INPUT_ATTR, &input)) return 1;
    if (run(both[i], RKNN_QUERY_OUTPUT_ATTR, RKNN_TENSOR_FLOAT32, RKNN_TENSOR_NCHW)) return 1;
    CHECK(rknn_destroy_mem(both[i], input));
    CHECK(rknn_destroy(both[i]));
  }
  CHECK(rknn_destroy_mem(0, weights));
  CHECK(rknn_destroy_mem(0, of_b));
  CHECK(rknn_destroy_mem(0, internal));
  return 0;
}

// A copy of a context outlives it, and runs without blocking.
static int copies(char *model) {
  rknn_context first, second;
  CHECK(rknn_init(&first, model, 0, RKNN_FLAG_PRIOR_LOW, NULL));
  CHECK(rknn_dup_context(&first, &second));
  CHECK(rknn_destroy(first));
  CHECK(rknn_set_core_mask(second, RKNN_NPU_CORE_0_1_2));
  CHECK(rknn_set_batch_core_num(second, 2));
  rknn_input in = {.buf = pixels, .size = pixels_len, .type = RKNN_TENSOR_UINT8};
  in.fmt = RKNN_TENSOR_NHWC;
  CHECK(rknn_inputs_set(second, 1, &in));
  rknn_run_extend extend = {.non_block = 1};
  CHECK(rknn_run(second, &extend));
  extend.timeout_ms = 60000;
  CHECK(rknn_wait(second, &extend));
  rknn_input_output_num io_num;
  CHECK(rknn_query(second, RKNN_QUERY_IN_OUT_NUM, &io_num, sizeof io_num));
  rknn_output_extend frame;
  for (uint32_t i = 0; i < io_num.n_output; i++) {
    rknn_output out = {.index = i, .want_float = 1};
    CHECK(rknn_outputs_get(second, 1, &out, &frame));
    fwrite(out.buf, 1, out.size, to);
    CHECK(rknn_outputs_release(second, 1, &out));
  }
  printf("frame %d of %d\n", (int)frame.frame_id, (int)extend.frame_id);
  return rknn_destroy(second);
}

// Outputs are those of the frame before, but of the first.
static int frames(char *model) {
  rknn_context ctx;
  CHECK(rknn_init(&ctx, model, 0, RKNN_FLAG_ASYNC_MASK, NULL));
  uint8_t *black = calloc(1, pixels_len);
  float first[2], kept = 0;
  for (int i = 0; i < 3; i++) {
    rknn_input in = {.buf = i ? black : pixels, .size = pixels_len, .type = RKNN_TENSOR_UINT8};
    in.fmt = RKNN_TENSOR_NHWC;
    CHECK(rknn_inputs_set(ctx, 1, &in));
    CHECK(rknn_run(ctx, NULL));
    rknn_output out = {.want_float = 1};
    rknn_output_extend extend;
    CHECK(rknn_outputs_get(ctx, 1, &out, &extend));
    memcpy(first, out.buf, sizeof(float));
    if (!i) kept = first[0];
    printf("frame %d %s\n", (int)extend.frame_id, first[0] == kept ? "of the picture" : "black");
    CHECK(rknn_outputs_release(ctx, 1, &out));
  }
  free(black);
  return rknn_destroy(ctx);
}

int main(int argc, char **argv) {
  if (argc < 4) return 1;
  FILE *from = fopen(argv[2], "rb");
  pixels_len = (uint32_t)fread(pixels, 1, sizeof pixels, from);
  fclose(from);
  to = fopen(argv[3], "wb");
  rknn_context ctx = 0;
  rknn_tensor_mem *input = NULL;
  CHECK(rknn_init(&ctx, argv[1], 0, 0, NULL));
  int wrong = 0;
  if (argc > 4) {
    wrong = shapes(ctx);
  } else {
    wrong |= set_inputs(ctx, RKNN_QUERY_NATIVE_INPUT_ATTR, &input);
    wrong |= run(ctx, RKNN_QUERY_OUTPUT_ATTR, RKNN_TENSOR_FLOAT32, RKNN_TENSOR_NCHW);
    wrong |= run(ctx, RKNN_QUERY_OUTPUT_ATTR, RKNN_TENSOR_FLOAT32, RKNN_TENSOR_NHWC);
    wrong |= run(ctx, RKNN_QUERY_NATIVE_OUTPUT_ATTR, -1, -1);
    wrong |= run(ctx, RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR, -1, -1);
    wrong |= rknn_destroy_mem(ctx, input);
  }
  wrong |= rknn_destroy(ctx);
  if (argc == 4) wrong |= outside(argv[1]) || copies(argv[1]) || frames(argv[1]);
  fclose(to);
  return wrong;
}
