// The records of an NPU program, version 2. src/intaglio/npu/own/isa.py declares the same for
// Python, a test compares the two, and docs/npu-isa.md explains them. Numbers are little-endian;
// every record is a multiple of 8 bytes.
#pragma once
// clang-format off: docs and tests show these records as they stand here
#include <stdint.h>

#define ITG_NPU_VERSION 2

typedef struct itg_npu_program {
  char magic[4];          // "NPU1"
  uint32_t version;       // of the instruction set: 2
  uint32_t cores;
  uint32_t inputs;        // ports of inputs, then those of outputs, follow this record
  uint32_t outputs;
  uint32_t instructions;  // that follow the ports, of all cores, in an order in which they could run one by one
  uint64_t sram;          // bytes of each core's own memory
  uint64_t internal;      // bytes outside of the cores, which all of them share
  uint64_t weights;       // bytes of the constants
  uint64_t near;          // the first bytes of `internal` that lie in the chip's shared SRAM
  uint32_t align;         // of every address in SRAM
  uint32_t chip_cores;    // of the chip; 0: not known
  char chip[16];          // its name
} itg_npu_program;

typedef struct itg_npu_port {
  uint8_t dtype;  // enum itg_dtype
  uint8_t rank;
  uint8_t reserved[6];
  int64_t shape[8];
} itg_npu_port;

typedef struct itg_npu_head {
  uint8_t op;        // enum itg_npu_op
  uint8_t core;
  uint16_t bytes;    // of the whole instruction
  uint32_t layer;    // of the network, for reports
  uint32_t wait[3];  // instructions of each queue of this core that have ended before this one begins
  uint32_t barrier;  // barriers that all cores have passed before this one begins
} itg_npu_head;

typedef struct itg_npu_feature {
  _Alignas(8) uint64_t offset;  // of the block that holds channel 0, row 0, column 0
  uint32_t plane;    // bytes from one block of c2 channels to the next
  uint32_t row;
  uint32_t pixel;
  uint32_t channels;
  uint32_t height;
  uint32_t width;
  uint16_t c2;       // channels that lie side by side
  uint16_t first;    // lane of channel 0 in its block
  uint8_t space;     // enum itg_npu_space
  uint8_t slot;      // which input or output
  uint8_t dtype;     // enum itg_dtype
  uint8_t reserved;
} itg_npu_feature;

typedef struct itg_npu_move {
  itg_npu_head head;
  itg_npu_feature src;
  itg_npu_feature dst;
} itg_npu_move;

typedef struct itg_npu_product {
  itg_npu_head head;
  itg_npu_feature src;
  itg_npu_feature dst;
  itg_npu_feature residual;  // 0 channels: none
  uint16_t kernel[2];
  uint16_t stride[2];
  uint16_t dilation[2];
  int32_t pad[2];         // rows above and columns before src that count as zero
  uint32_t weights;       // in SRAM
  uint32_t weight_bytes;
  uint32_t params;        // in SRAM: f32 scales and i32 (of floats f32) biases of all output channels
  uint16_t in_atom;       // how the weights are packed
  uint16_t out_atom;
  int32_t x_zero;
  int32_t r_zero;
  float r_factor;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  float least;            // bounds of results of floats
  float most;
  uint32_t table;         // in SRAM
  uint32_t entries;       // 0: none
  int32_t base;
  uint32_t sparse;        // 0 dense, 1: 2 of 4 input channels, 2: 2 of 4 outputs, 3: 16:4
  uint32_t weight_type;   // enum itg_dtype
  uint32_t one_scale;     // 1: all channels share a scale, which is stored once
} itg_npu_product;

typedef struct itg_npu_pool {
  itg_npu_head head;
  itg_npu_feature src;
  itg_npu_feature dst;
  uint16_t kernel[2];
  uint16_t stride[2];
  uint16_t dilation[2];
  int32_t pad[2];
  uint32_t kind;       // enum itg_npu_pools
  uint32_t count_pad;  // 1: padding counts in a mean
  float x_scale;
  float y_scale;
  int32_t x_zero;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  float least;  // bounds of results of floats
  float most;
} itg_npu_pool;

typedef struct itg_npu_eltwise {
  itg_npu_head head;
  itg_npu_feature src;
  itg_npu_feature dst;
  itg_npu_feature other;
  uint32_t kind;  // enum itg_npu_pairs
  int32_t a_zero;
  int32_t b_zero;
  float a_factor;
  float b_factor;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  float least;  // bounds of results of floats
  float most;
  uint32_t table;
  uint32_t entries;
  int32_t base;
} itg_npu_eltwise;

typedef struct itg_npu_lut {
  itg_npu_head head;
  itg_npu_feature src;
  itg_npu_feature dst;
  uint32_t table;
  uint32_t entries;
  int32_t base;
} itg_npu_lut;

typedef struct itg_npu_resize {
  itg_npu_head head;
  itg_npu_feature src;
  itg_npu_feature dst;
  uint16_t factor[2];
  uint16_t phase[2];  // of row 0 and column 0 of dst
} itg_npu_resize;

typedef struct itg_npu_matmul {
  itg_npu_head head;
  itg_npu_feature src;
  itg_npu_feature dst;
  itg_npu_feature other;
  uint32_t turned;  // 1: other holds channels of the result as rows
  int32_t a_zero;
  int32_t b_zero;
  float factor;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  float least;  // bounds of results of floats
  float most;
} itg_npu_matmul;

typedef struct itg_npu_barrier {
  itg_npu_head head;
} itg_npu_barrier;

enum itg_npu_op {
  ITG_NPU_LOAD = 1,
  ITG_NPU_STORE,
  ITG_NPU_COPY,
  ITG_NPU_CONV,
  ITG_NPU_DEPTHWISE,
  ITG_NPU_POOL,
  ITG_NPU_ELTWISE,
  ITG_NPU_LUT,
  ITG_NPU_RESIZE,
  ITG_NPU_MATMUL,
  ITG_NPU_BARRIER,
};
enum itg_npu_queue { ITG_NPU_LOADS, ITG_NPU_COMPUTES, ITG_NPU_STORES, ITG_NPU_QUEUES };
enum itg_npu_space { ITG_NPU_SRAM, ITG_NPU_WEIGHTS, ITG_NPU_INTERNAL, ITG_NPU_INPUT, ITG_NPU_OUTPUT };
enum itg_npu_pools { ITG_NPU_MAX, ITG_NPU_AVG };
enum itg_npu_pairs { ITG_NPU_ADD, ITG_NPU_MUL };

enum { ITG_NPU_CURVE = 1985 };  // entries of a table of f16

_Static_assert(sizeof(itg_npu_program) == 80, "program");
_Static_assert(sizeof(itg_npu_port) == 72, "port");
_Static_assert(sizeof(itg_npu_head) == 24, "head");
_Static_assert(sizeof(itg_npu_feature) == 40, "feature");
_Static_assert(sizeof(itg_npu_move) == 104, "move");
_Static_assert(sizeof(itg_npu_product) == 240, "product");
_Static_assert(sizeof(itg_npu_pool) == 168, "pool");
_Static_assert(sizeof(itg_npu_eltwise) == 200, "eltwise");
_Static_assert(sizeof(itg_npu_lut) == 120, "lut");
_Static_assert(sizeof(itg_npu_resize) == 112, "resize");
_Static_assert(sizeof(itg_npu_matmul) == 184, "matmul");
_Static_assert(sizeof(itg_npu_barrier) == 24, "barrier");
