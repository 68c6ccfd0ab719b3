// Parts of an NPU program that the checker and the simulator share.
#pragma once
#include "kernels/infer.h"
#include "isa.h"

enum {
  ITG_NPU_CORES = 16,
  ITG_NPU_REGIONS = 15,
  ITG_NPU_SLACK = 256,  // bytes past an SRAM that may be read
};

typedef union itg_npu_instruction {
  itg_npu_head head;
  itg_npu_move move;
  itg_npu_product product;
  itg_npu_pool pool;
  itg_npu_eltwise eltwise;
  itg_npu_lut lut;
  itg_npu_resize resize;
  itg_npu_matmul matmul;
} itg_npu_instruction;

static inline const itg_npu_port *itg_npu_ports(const itg_npu_program *p) {
  return (const void *)(p + 1);
}

static inline const itg_npu_instruction *itg_npu_first(const itg_npu_program *p) {
  return (const void *)(itg_npu_ports(p) + p->inputs + p->outputs);
}

static inline const itg_npu_instruction *itg_npu_next(const itg_npu_instruction *i) {
  return (const void *)((const uint8_t *)i + i->head.bytes);
}

static inline enum itg_npu_queue itg_npu_queue_of(uint8_t op) {
  return op == ITG_NPU_LOAD                             ? ITG_NPU_LOADS
         : op == ITG_NPU_STORE || op == ITG_NPU_BARRIER ? ITG_NPU_STORES
                                                        : ITG_NPU_COMPUTES;
}

static inline uint64_t itg_npu_blocks(const itg_npu_feature *f) {
  return ((uint64_t)f->first + f->channels - 1) / f->c2 + 1;
}

static inline int64_t itg_npu_div_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Sparse weights: `many` of every `of` along the inputs (or outputs) of an atom of out_atom times
// in_atom are stored, line by line, and after them the place of each in its group.
typedef struct itg_npu_form {
  int64_t many, of, bits;
  bool outputs;
} itg_npu_form;

static inline itg_npu_form itg_npu_form_of(const itg_npu_product *p) {
  static const itg_npu_form forms[] = {
      {1, 1, 0, false}, {2, 4, 2, false}, {2, 4, 2, true}, {4, 16, 4, false}};
  return forms[p->sparse];
}

// Scales, one or one for each channel, then biases.
static inline uint64_t itg_npu_param_bytes(const itg_npu_product *p) {
  return 4ull * ((p->one_scale ? 1 : p->dst.channels) + (uint64_t)p->dst.channels);
}

// Which of the stored weights, that are not sparse, belongs to an output, a tap and an input. Atoms
// at the end hold what is there: `rows` outputs and `wide` inputs.
static inline int64_t itg_npu_weight_at(const itg_npu_product *p, int64_t oc, int64_t tap,
                                        int64_t ic) {
  const int64_t taps = (int64_t)p->kernel[0] * p->kernel[1], oa = p->out_atom, o = oc / oa * oa;
  const int64_t rows = p->dst.channels - o < oa ? p->dst.channels - o : oa;
  if (p->head.op == ITG_NPU_DEPTHWISE) return o * taps + tap * rows + oc - o;
  const int64_t ins = p->src.channels, ia = p->in_atom, i = ic / ia * ia,
                wide = ins - i < ia ? ins - i : ia;
  return (o * taps + tap * rows) * ins + i * rows + (oc - o) * wide + ic - i;
}

static inline int64_t itg_npu_atom_bytes(const itg_npu_product *p) {
  const itg_npu_form f = itg_npu_form_of(p);
  const int64_t values = (int64_t)p->out_atom * p->in_atom / f.of * f.many;
  return values * (int64_t)itg_item(p->weight_type) + values * f.bits / 8;
}

// Bytes that an instruction reads or writes: `run` of them at `at` and at every combination of the
// strides from there.
typedef struct itg_npu_region {
  uint64_t at, end, run;
  uint8_t space, slot, write, dims;
  struct {
    uint32_t count, stride;  // the largest stride first
  } dim[3];
} itg_npu_region;

// The regions of an instruction that was found to be sound; how many there are.
int itg_npu_regions_of(const itg_npu_instruction *i, itg_npu_region *to);
bool itg_npu_touch(const itg_npu_region *a,
                   const itg_npu_region *b);  // of the same memory: do they share a byte?
int itg_npu_box_regions(const itg_npu_feature *f, bool write, itg_npu_region *to);  // at most 3

// Whether no instruction depends on another that it does not wait for, and nothing is read that was
// never written.
itg_words itg_npu_check_order(const itg_npu_program *p);
itg_words itg_npu_refuse(uint32_t number, const itg_npu_instruction *i, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// How a product is computed: packed weights and an input without borders, in the memory beside the
// modelled one.
typedef struct itg_npu_plan {
  bool fast;  // else element by element
  bool wide;  // of 16 bits: image and weights have 4 bytes for each, and inputs are no fours
  int64_t depth, groups;          // of each tap: inputs in fours; of the outputs: sixteens
  int64_t height, width;          // of the input with its borders
  uint64_t packed, image, total;  // bytes: weights, then the image, then parameters
} itg_npu_plan;
itg_npu_plan itg_npu_plan_of(const itg_npu_product *p);
itg_npu_plan itg_npu_plan_of_matmul(const itg_npu_matmul *p);
