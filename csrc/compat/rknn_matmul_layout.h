// Matrices of RKNN's products: their types and layouts, and the state of a product.
#pragma once
#include "rknn_internal.h"
#include "rknn_matmul_api.h"

#define F RKNN_TENSOR_FLOAT16
#define I8 RKNN_TENSOR_INT8
#define I4 RKNN_TENSOR_INT4
enum { MAX_SIDE = 1 << 20 };
enum { A, B, C };

typedef struct types {
  rknn_tensor_type of[3];
} types;

typedef struct quant {
  float *scale;
  int32_t *zp;
  int32_t n_scale, n_zp;
} quant;

typedef struct matmul {
  rk_context head;  // first: contexts of both kinds are in one list
  rknn_matmul_info info;
  types types;
  rknn_matmul_shape *shapes, now;
  int n_shapes;
  rknn_tensor_mem *mem[3];
  float *b_float;   // [K, N], as set_io_mem read it
  int8_t *b_whole;  // the same of integers
  quant quant[3];
} matmul;

typedef struct tiles {
  int32_t a, b_n, b_k, c, segment;  // elements; K of B is split into segments
} tiles;

bool rk_mm_types(rknn_matmul_type type, types *types);  // false: unknown
tiles rk_mm_tiles(const types *types);
size_t rk_mm_bytes(rknn_tensor_type type, size_t count);
size_t rk_mm_b_offset(const tiles *tiles, int32_t K, int32_t N, int32_t k, int32_t n);
// Where an element lies; `i` and `j` are its row and column.
size_t rk_mm_offset(const matmul *product, const tiles *tiles, int which, int32_t i, int32_t j);
void rk_mm_describe(const matmul *product, const rknn_matmul_shape *shape, rknn_matmul_io_attr *io);

static inline int8_t nibble(const uint8_t *data, size_t i) {  // the low half of a byte comes first
  const uint8_t four = i % 2 ? data[i / 2] >> 4 : data[i / 2] & 15;
  return (int8_t)(four >= 8 ? four - 16 : four);
}

static inline int8_t whole(const void *data, rknn_tensor_type type, size_t i) {
  return type == I4 ? nibble(data, i) : ((const int8_t *)data)[i];
}

static inline float half_at(const void *data, size_t i) {
  return rk_half_to_float(((const uint16_t *)data)[i]);
}
