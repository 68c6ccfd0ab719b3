// A Softmax of the user's, as the manual has it; built as a program, and as a plug-in library that
// the program loads.
//
//   custom_op MODEL INPUT.bin OUTPUT.bin [./librkcst_softmax.so]
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rknn_custom_op.h"

#define CHECK(x)                                                \
  do {                                                          \
    if ((x) < 0) return printf("line %d fails\n", __LINE__), 1; \
  } while (0)

static int init(rknn_custom_op_context *op_ctx, rknn_custom_op_tensor *inputs, uint32_t n_inputs,
                rknn_custom_op_tensor *outputs, uint32_t n_outputs) {
  printf("init: %u inputs, %u outputs, %u bytes\n", n_inputs, n_outputs, outputs[0].attr.size);
  op_ctx->priv_data = malloc(inputs[0].attr.n_elems * sizeof(float));
  return op_ctx->priv_data ? 0 : -1;
}

static int prepare(rknn_custom_op_context *op_ctx, rknn_custom_op_tensor *inputs, uint32_t n_inputs,
                   rknn_custom_op_tensor *outputs, uint32_t n_outputs) {
  (void)inputs, (void)n_inputs, (void)outputs, (void)n_outputs;
  return op_ctx->priv_data ? 0 : -1;
}

static int compute(rknn_custom_op_context *op_ctx, rknn_custom_op_tensor *inputs, uint32_t n_inputs,
                   rknn_custom_op_tensor *outputs, uint32_t n_outputs) {
  const float *in_data = (float *)((char *)inputs[0].mem.virt_addr + inputs[0].mem.offset);
  float *out_data = (float *)((char *)outputs[0].mem.virt_addr + outputs[0].mem.offset);
  rknn_custom_op_attr name, attr, none;
  rknn_custom_op_get_op_attr(op_ctx, "name", &name);
  rknn_custom_op_get_op_attr(op_ctx, "axis", &attr);
  rknn_custom_op_get_op_attr(op_ctx, "nothing", &none);
  if (attr.n_elems != 1 || attr.dtype != RKNN_TENSOR_INT64 || none.n_elems) return -1;
  int axis = (int)((int64_t *)attr.data)[0];
  if (name.dtype == RKNN_TENSOR_UINT8 && name.n_elems)
    printf("op name = %s, axis = %d, %u to %u\n", (char *)name.data, axis, n_inputs, n_outputs);
  float *tmp = op_ctx->priv_data;
  while (axis < 0) axis += (int)inputs[0].attr.n_dims;
  uint32_t outside = 1, inside = 1;
  for (int i = 0; i < axis; i++) outside *= inputs[0].attr.dims[i];
  for (uint32_t i = (uint32_t)axis; i < inputs[0].attr.n_dims; i++)
    inside *= inputs[0].attr.dims[i];
  for (uint32_t y = 0; y < outside; y++) {
    const float *src = in_data + y * inside;
    float *dst = out_data + y * inside, most = -FLT_MAX, sum = 0;
    for (uint32_t i = 0; i < inside; i++) most = fmaxf(most, src[i]);
    for (uint32_t i = 0; i < inside; i++) sum += tmp[i] = expf(src[i] - most);
    for (uint32_t i = 0; i < inside; i++) dst[i] = tmp[i] / sum;
  }
  return 0;
}

static int destroy(rknn_custom_op_context *op_ctx) {
  puts("destroy");
  free(op_ctx->priv_data);
  return 0;
}

RKNN_CUSTOM_OP_EXPORT rknn_custom_op *get_rknn_custom_op(void);
rknn_custom_op *get_rknn_custom_op(void) {
  static rknn_custom_op op = {.version = 1,
                              .target = RKNN_TARGET_TYPE_CPU,
                              .op_type = "cstSoftmax",
                              .init = init,
                              .prepare = prepare,
                              .compute = compute,
                              .destroy = destroy};
  return &op;
}

int main(int argc, char **argv) {
  if (argc < 4) return 1;
  static uint8_t pixels[1 << 18];
  FILE *from = fopen(argv[2], "rb");
  const uint32_t size = (uint32_t)fread(pixels, 1, sizeof pixels, from);
  fclose(from);
  rknn_context ctx = 0;
  CHECK(rknn_init(&ctx, argv[1], 0, 0, NULL));
  rknn_input in = {.buf = pixels, .size = size, .type = RKNN_TENSOR_UINT8};
  in.fmt = RKNN_TENSOR_NHWC;
  CHECK(rknn_inputs_set(ctx, 1, &in));
  if (rknn_run(ctx, NULL) != RKNN_ERR_FAIL) return 1;  // nothing is registered yet
  rknn_custom_op *op = get_rknn_custom_op(), wrong = *op;
  void *library = NULL;
  if (argc > 4) {
    get_custom_op_func get = NULL;
    library = dlopen(argv[4], RTLD_NOW);
    if (library) *(void **)&get = dlsym(library, "get_rknn_custom_op");
    if (!get) return printf("%s\n", dlerror()), 1;
    op = get();
  }
  wrong.target = RKNN_TARGET_TYPE_GPU;
  if (rknn_register_custom_ops(ctx, &wrong, 1) != RKNN_ERR_DEVICE_UNAVAILABLE) return 1;
  wrong.compute = NULL;
  if (rknn_register_custom_ops(ctx, &wrong, 1) != RKNN_ERR_PARAM_INVALID) return 1;
  if (rknn_register_custom_ops(ctx, NULL, 1) != RKNN_ERR_PARAM_INVALID) return 1;
  CHECK(rknn_register_custom_ops(ctx, op, 1));
  if (rknn_register_custom_ops(ctx, op, 1) != RKNN_ERR_PARAM_INVALID) return 1;  // twice
  CHECK(rknn_run(ctx, NULL));
  rknn_output out = {.want_float = 1};
  CHECK(rknn_outputs_get(ctx, 1, &out, NULL));
  FILE *to = fopen(argv[3], "wb");
  fwrite(out.buf, 1, out.size, to);
  fclose(to);
  CHECK(rknn_outputs_release(ctx, 1, &out));
  CHECK(rknn_destroy(ctx));
  if (library) dlclose(library);
  return 0;
}
