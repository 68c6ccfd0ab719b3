// Matrix products of every type and layout, compared with sums in double.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rknn_matmul_api.h"

#define CHECK(x)                                                \
  do {                                                          \
    if ((x) < 0) return printf("line %d fails\n", __LINE__), 1; \
  } while (0)

enum { M = 5, K = 64, N = 64 };
static double a[M][K], b[K][N];

// Small whole numbers and quarters, which all types hold exactly.
static uint16_t half(double x) {
  const double m = fabs(x);
  if (m == 0) return 0;
  int e;
  const double f = frexp(m, &e);  // 0.5 to 1
  return (uint16_t)((x < 0 ? 0x8000 : 0) | (e + 14) << 10 | (int)((f * 2 - 1) * 1024));
}

static double from_half(uint16_t h) {
  const double m = ldexp(1024 + (h & 1023), (h >> 10 & 31) - 25);
  return h & 0x7fff ? (h & 0x8000 ? -m : m) : 0;
}

static void put(void *data, rknn_tensor_type type, size_t i, double x) {
  uint8_t *bytes = data;
  if (type == RKNN_TENSOR_FLOAT16) ((uint16_t *)data)[i] = half(x);
  else if (type == RKNN_TENSOR_INT8) ((int8_t *)data)[i] = (int8_t)x;
  else
    bytes[i / 2] =
        (uint8_t)((bytes[i / 2] & (i % 2 ? 0x0f : 0xf0)) | ((int)x & 15) << (i % 2 ? 4 : 0));
}

static double get(const void *data, rknn_tensor_type type, size_t i) {
  uint32_t bits = 0;
  float f;
  switch (type) {
    case RKNN_TENSOR_FLOAT32: return ((const float *)data)[i];
    case RKNN_TENSOR_FLOAT16: return from_half(((const uint16_t *)data)[i]);
    case RKNN_TENSOR_INT32: return ((const int32_t *)data)[i];
    case RKNN_TENSOR_INT16: return ((const int16_t *)data)[i];
    case RKNN_TENSOR_INT8: return ((const int8_t *)data)[i];
    default:
      bits = (uint32_t)((const uint16_t *)data)[i] << 16;
      memcpy(&f, &bits, 4);
      return f;
  }
}

static size_t place(const uint32_t *dims, uint32_t n_dims, int i, int j) {  // [columns/t, rows, t]
  return n_dims == 2 ? (size_t)i * dims[1] + (size_t)j
                     : ((size_t)j / dims[2] * dims[1] + (size_t)i) * dims[2] + (size_t)j % dims[2];
}

// One product; with `scaled`, B has a scale and a zero point for each column (0.5, 2), C one.
static int multiply(rknn_matmul_type type, int b_layout, int ac_layout, int scaled, int rows) {
  rknn_matmul_info info;
  memset(&info, 0, sizeof info);
  info.type = type;
  info.B_layout = (int16_t)b_layout;
  info.AC_layout = (int16_t)ac_layout;
  if (scaled) info.B_quant_type = RKNN_QUANT_TYPE_PER_CHANNEL_ASYM;
  rknn_matmul_shape shapes[2] = {{M, K, N}, {rows, K, N}};
  rknn_matmul_io_attr ios[2], *io = &ios[1];
  rknn_matmul_ctx ctx;
  CHECK(rknn_matmul_create_dynamic_shape(&ctx, &info, 2, shapes, ios));
  CHECK(rknn_matmul_set_core_mask(ctx, RKNN_NPU_CORE_0));
  CHECK(rknn_matmul_set_dynamic_shape(ctx, &shapes[1]));
  float scales[N], out_scale = 16;
  int32_t zps[N];
  for (int n = 0; n < N; n++) scales[n] = 0.5f, zps[n] = 2;
  if (scaled) {
    rknn_quant_params q = {.name = "B", .scale = scales, .scale_len = N, .zp = zps, .zp_len = N};
    CHECK(rknn_matmul_set_quant_params(ctx, &q));
    float first = 0;
    rknn_quant_params read = {.name = "B"};
    CHECK(rknn_matmul_get_quant_params(ctx, &read, &first));
    if (first != 0.5f || read.scale_len != N || read.zp[1] != 2) return 1;
  }
  const int narrow = io->C.type == RKNN_TENSOR_INT8;
  rknn_quant_params q = {.name = "C", .scale = &out_scale, .scale_len = 1};
  if (narrow) CHECK(rknn_matmul_set_quant_params(ctx, &q));

  rknn_tensor_mem *ma = rknn_create_mem(ctx, io->A.size), *mb = rknn_create_mem(ctx, io->B.size),
                  *mc = rknn_create_mem(ctx, io->C.size);
  for (int i = 0; i < rows; i++)
    for (int k = 0; k < K; k++)
      put(ma->virt_addr, io->A.type, place(io->A.dims, io->A.n_dims, i, k), a[i][k]);
  void *plain = b_layout == RKNN_MM_LAYOUT_NATIVE ? malloc(io->B.size) : mb->virt_addr;
  for (int k = 0; k < K; k++)
    for (int n = 0; n < N; n++)
      put(plain, io->B.type,
          b_layout == RKNN_MM_LAYOUT_TP_NORM ? (size_t)n * K + (size_t)k
                                             : (size_t)k * N + (size_t)n,
          b[k][n]);
  if (plain != mb->virt_addr) {
    CHECK(rknn_B_normal_layout_to_native_layout(plain, mb->virt_addr, K, N, &info));
    free(plain);
    if (io->B.n_dims != 4 || io->B.dims[0] * io->B.dims[2] != N) return 1;
  }
  CHECK(rknn_matmul_set_io_mem(ctx, ma, &io->A));
  CHECK(rknn_matmul_set_io_mem(ctx, mb, &io->B));
  CHECK(rknn_matmul_set_io_mem(ctx, mc, &io->C));
  CHECK(rknn_matmul_run(ctx));
  int wrong = 0;
  const int raw = io->C.type == RKNN_TENSOR_INT32 || io->C.type == RKNN_TENSOR_INT16;
  for (int i = 0; i < rows; i++)
    for (int n = 0; n < N; n++) {
      double sum = 0;
      for (int k = 0; k < K; k++) sum += a[i][k] * (b[k][n] - (scaled ? 2 : 0));
      if (scaled && !raw) sum *= 0.5;
      if (narrow) sum = rint(sum / 16) > 127 ? 127 : rint(sum / 16) < -128 ? -128 : rint(sum / 16);
      const double found = get(mc->virt_addr, io->C.type, place(io->C.dims, io->C.n_dims, i, n));
      // bfloat16 has 8 bits, float16 11
      const double allowed = io->C.type == RKNN_TENSOR_BFLOAT16  ? fabs(sum) / 256
                             : io->C.type == RKNN_TENSOR_FLOAT16 ? fabs(sum) / 2048
                                                                 : 0;
      wrong += !(fabs(found - sum) <= allowed);
    }
  if (wrong)
    printf("%s %d %d %d: %d wrong\n", get_matmul_type_string(type), b_layout, ac_layout, scaled,
           wrong);
  rknn_destroy_mem(ctx, ma);
  rknn_destroy_mem(ctx, mb);
  rknn_destroy_mem(ctx, mc);
  return rknn_matmul_destroy(ctx) < 0 || wrong;
}

// B in groups of 32 with a scale each.
static int groups(rknn_matmul_type type) {
  rknn_matmul_info info = {.M = 1, .K = K, .N = N, .type = type};
  info.B_quant_type = RKNN_QUANT_TYPE_PER_GROUP_SYM;
  info.group_size = 32;
  rknn_matmul_io_attr io;
  rknn_matmul_ctx ctx;
  float scales[N * 2];
  for (int i = 0; i < N * 2; i++) scales[i] = i % 2 ? 2.0f : 0.5f;  // of the groups of one column
  CHECK(rknn_matmul_create(&ctx, &info, &io));
  rknn_quant_params q = {.name = "B", .scale = scales, .scale_len = N * 2};
  CHECK(rknn_matmul_set_quant_params(ctx, &q));
  rknn_tensor_mem *ma = rknn_create_mem(ctx, io.A.size), *mb = rknn_create_mem(ctx, io.B.size),
                  *mc = rknn_create_mem(ctx, io.C.size);
  double sums[N] = {0};
  for (int k = 0; k < K; k++) {
    put(ma->virt_addr, io.A.type, (size_t)k, a[0][k]);
    for (int n = 0; n < N; n++) {
      put(mb->virt_addr, io.B.type, (size_t)(k * N + n), b[k][n]);
      sums[n] += a[0][k] * b[k][n] * (k < 32 ? 0.5 : 2);
    }
  }
  CHECK(rknn_matmul_set_io_mem(ctx, ma, &io.A));
  CHECK(rknn_matmul_set_io_mem(ctx, mb, &io.B));
  CHECK(rknn_matmul_set_io_mem(ctx, mc, &io.C));
  CHECK(rknn_matmul_run(ctx));
  int wrong = 0;
  for (int n = 0; n < N; n++) wrong += ((float *)mc->virt_addr)[n] != (float)sums[n];
  rknn_destroy_mem(ctx, ma);
  rknn_destroy_mem(ctx, mb);
  rknn_destroy_mem(ctx, mc);
  return rknn_matmul_destroy(ctx) < 0 || wrong;
}

static int refusals(void) {
  rknn_matmul_info info = {.M = 4, .K = 33, .N = 32, .type = RKNN_INT8_MM_INT8_TO_INT32};
  rknn_matmul_io_attr io;
  rknn_matmul_ctx ctx = 1;
  const int p = RKNN_ERR_PARAM_INVALID;
  if (rknn_matmul_create(&ctx, &info, &io) != p || ctx) return 1;  // K is no multiple of 32
  info.K = 32;
  if (rknn_matmul_create(&ctx, NULL, &io) != p || rknn_matmul_create(NULL, &info, &io) != p)
    return 2;
  info.type = (rknn_matmul_type)13;
  if (rknn_matmul_create(&ctx, &info, &io) != p) return 3;
  if (rknn_B_normal_layout_to_native_layout(&io, &io, 32, 32, &info) != p) return 3;
  info.type = RKNN_INT8_MM_INT8_TO_INT32;
  CHECK(rknn_matmul_create(&ctx, &info, &io));
  rknn_tensor_mem *small = rknn_create_mem(ctx, 8);
  if (rknn_matmul_run(ctx) != p || rknn_matmul_set_io_mem(ctx, small, &io.A) != p) return 4;
  if (rknn_matmul_set_io_mem(ctx, NULL, &io.A) != p) return 5;
  rknn_matmul_shape other = {9, 32, 32};
  if (rknn_matmul_set_dynamic_shape(ctx, &other) != p) return 6;
  if (rknn_matmul_set_core_mask(ctx, RKNN_NPU_CORE_UNDEFINED) != p) return 7;
  rknn_quant_params params = {.name = "D"};
  if (rknn_matmul_set_quant_params(ctx, &params) != p) return 8;
  if (rknn_matmul_get_quant_params(ctx, &params, NULL) != p) return 9;
  rknn_destroy_mem(ctx, small);
  CHECK(rknn_matmul_destroy(ctx));
  return rknn_matmul_run(ctx) == RKNN_ERR_CTX_INVALID &&
                 rknn_matmul_destroy(ctx) == RKNN_ERR_CTX_INVALID
             ? 0
             : 10;
}

int main(void) {
  static const int types[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15};
  int wrong = 0;
  for (int i = 0; i < M; i++)
    for (int k = 0; k < K; k++) a[i][k] = (i * 7 + k * 5) % 15 - 7;
  for (int k = 0; k < K; k++)
    for (int n = 0; n < N; n++) b[k][n] = (k * 3 + n * 11) % 13 - 6;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    for (int b_layout = 0; b_layout < 3; b_layout++)
      for (int ac = 0; ac < 2; ac++)
        wrong |= multiply((rknn_matmul_type)types[i], b_layout, ac,
                          types[i] != 1 && types[i] != 4 && (i + (size_t)ac) % 2, 3);
  wrong |= groups(RKNN_FLOAT16_MM_INT4_TO_FLOAT32) | groups(RKNN_INT8_MM_INT8_TO_FLOAT32);
  const int refused = refusals();
  printf("products %s, refusals %d\n", wrong ? "wrong" : "right", refused);
  return wrong || refused;
}
