// The general API as the manual shows it: init from memory, queries, inputs_set, run, outputs_get.
//
//   general MODEL INPUT.bin OUTPUT.bin     INPUT: uint8, NHWC; OUTPUT: all outputs as float32
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rknn_api.h"

static void dump_tensor_attr(const rknn_tensor_attr *attr) {
  printf("index=%u, name=%s, n_dims=%u, dims=[", attr->index, attr->name, attr->n_dims);
  for (uint32_t i = 0; i < attr->n_dims; i++) printf("%s%u", i ? ", " : "", attr->dims[i]);
  printf(
      "], n_elems=%u, size=%u, fmt=%s, type=%s, qnt_type=%s, zp=%d, scale=%.9g, w_stride=%u, "
      "size_with_stride=%u\n",
      attr->n_elems, attr->size, get_format_string(attr->fmt), get_type_string(attr->type),
      get_qnt_type_string(attr->qnt_type), attr->zp, attr->scale, attr->w_stride,
      attr->size_with_stride);
}

static unsigned char *load_file(const char *name, uint32_t *size) {
  FILE *fp = fopen(name, "rb");
  if (!fp) return NULL;
  fseek(fp, 0, SEEK_END);
  *size = (uint32_t)ftell(fp);
  rewind(fp);
  unsigned char *data = malloc(*size);
  if (data && fread(data, 1, *size, fp) != *size) {
    free(data);
    data = NULL;
  }
  fclose(fp);
  return data;
}

int main(int argc, char **argv) {
  if (argc != 4) return 1;
  uint32_t model_len = 0, pixels_len = 0;
  unsigned char *model = load_file(argv[1], &model_len), *pixels = load_file(argv[2], &pixels_len);
  rknn_context ctx = 0;
  int ret = rknn_init(&ctx, model, model_len, RKNN_FLAG_COLLECT_PERF_MASK, NULL);
  free(model);  // the context has its own copy
  if (ret < 0) {
    printf("rknn_init fail! ret=%d\n", ret);
    free(pixels);
    return 1;
  }
  rknn_sdk_version version;
  ret |= rknn_query(ctx, RKNN_QUERY_SDK_VERSION, &version, sizeof version);
  printf("sdk version: %s driver version: %s\n", version.api_version, version.drv_version);
  rknn_custom_string string;
  ret |= rknn_query(ctx, RKNN_QUERY_CUSTOM_STRING, &string, sizeof string);
  printf("custom string: %s\n", string.string);
  rknn_mem_size sizes;
  ret |= rknn_query(ctx, RKNN_QUERY_MEM_SIZE, &sizes, sizeof sizes);
  printf("total weight size: %s, total internal size: %s\n", sizes.total_weight_size ? "some" : "0",
         sizes.total_internal_size ? "some" : "0");

  rknn_input_output_num io_num;
  ret |= rknn_query(ctx, RKNN_QUERY_IN_OUT_NUM, &io_num, sizeof io_num);
  printf("model input num: %u, output num: %u\n", io_num.n_input, io_num.n_output);
  const rknn_query_cmd commands[] = {
      RKNN_QUERY_INPUT_ATTR,
      RKNN_QUERY_NATIVE_NC1HWC2_INPUT_ATTR,
      RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR,
      RKNN_QUERY_CURRENT_INPUT_ATTR,
      RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR,
      RKNN_QUERY_OUTPUT_ATTR,
      RKNN_QUERY_NATIVE_NC1HWC2_OUTPUT_ATTR,
      RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR,
      RKNN_QUERY_CURRENT_OUTPUT_ATTR,
      RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR,
  };
  for (int k = 0; k < 10; k++)
    for (uint32_t i = 0; i < (k < 5 ? io_num.n_input : io_num.n_output); i++) {
      rknn_tensor_attr attr;
      memset(&attr, 0, sizeof attr);
      attr.index = i;
      ret |= rknn_query(ctx, commands[k], &attr, sizeof attr);
      printf("query %d: ", (int)commands[k]);
      dump_tensor_attr(&attr);
    }

  rknn_input inputs[1];
  memset(inputs, 0, sizeof inputs);
  inputs[0].index = 0;
  inputs[0].type = RKNN_TENSOR_UINT8;
  inputs[0].fmt = RKNN_TENSOR_NHWC;
  inputs[0].size = pixels_len;
  inputs[0].buf = pixels;
  ret |= rknn_inputs_set(ctx, 1, inputs);
  ret |= rknn_set_core_mask(ctx, RKNN_NPU_CORE_0);  // inputs that were set stay
  ret |= rknn_run(ctx, NULL);
  rknn_perf_run perf_run;
  ret |= rknn_query(ctx, RKNN_QUERY_PERF_RUN, &perf_run, sizeof perf_run);
  rknn_perf_detail detail;
  ret |= rknn_query(ctx, RKNN_QUERY_PERF_DETAIL, &detail, sizeof detail);
  printf("run duration %s, perf detail %s\n", perf_run.run_duration >= 0 ? "known" : "wrong",
         detail.data_len == strlen(detail.perf_data) && strstr(detail.perf_data, "OpType")
             ? "known"
             : "wrong");

  rknn_output *outputs = calloc(io_num.n_output, sizeof *outputs);
  for (uint32_t i = 0; i < io_num.n_output; i++)
    outputs[i] = (rknn_output){.index = i, .want_float = 1};
  ret |= rknn_outputs_get(ctx, io_num.n_output, outputs, NULL);
  FILE *fp = fopen(argv[3], "wb");
  for (uint32_t i = 0; !ret && i < io_num.n_output; i++)
    fwrite(outputs[i].buf, 1, outputs[i].size, fp);
  ret |= rknn_outputs_release(ctx, io_num.n_output, outputs);

  // the same in the type of the attribute, in buffers of our own, and the float from it
  for (uint32_t i = 0; !ret && i < io_num.n_output; i++) {
    rknn_tensor_attr attr = {.index = i};
    ret |= rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &attr, sizeof attr);
    rknn_output one = {.index = i, .is_prealloc = 1, .buf = malloc(attr.size), .size = attr.size};
    ret |= rknn_outputs_get(ctx, 1, &one, NULL);
    fwrite(one.buf, 1, one.size, fp);
    ret |= rknn_outputs_release(ctx, 1, &one);
    free(one.buf);
  }
  fclose(fp);
  free(outputs);
  free(pixels);
  ret |= rknn_destroy(ctx);
  return ret != 0;
}
