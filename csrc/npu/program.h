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

// Products and sums that stay at 2^64 - 1, which is more than any memory has.
static inline uint64_t itg_npu_times(uint64_t a, uint64_t b) {
  return __builtin_mul_overflow(a, b, &a) ? UINT64_MAX : a;
}
static inline uint64_t itg_npu_plus(uint64_t a, uint64_t b) {
  return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static inline int64_t itg_npu_div_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Form of sparse weights: of every `of` weights along the inputs (or outputs) of an atom, `many`
// are stored, line by line. After them follows the index of each in its group, with `bits` bits. An
// atom has out_atom times in_atom weights. In a `block` form a group is 4 outputs and 4 inputs, of
// which 2 rows and 2 columns are stored, with one byte for these after the values.
typedef struct itg_npu_form {
  int64_t many, of, bits;
  bool outputs, block;
} itg_npu_form;

static inline itg_npu_form itg_npu_form_of(const itg_npu_product *p) {
  static const itg_npu_form forms[] = {{1, 1, 0, false, false},
                                       {2, 4, 2, false, false},
                                       {2, 4, 2, true, false},
                                       {4, 16, 2, false, true}};
  return forms[p->sparse];
}

// Where value `k` of an atom lies in it: its output and its input.
static inline void itg_npu_sparse_place(const itg_npu_form *f, const uint8_t *places, int64_t k,
                                        int64_t oa, int64_t ia, int64_t *oc, int64_t *ic) {
  if (f->block) {
    const int64_t block = k / 4, wide = ia / 4, at = places[block];
    *oc = block / wide * 4 + (at >> k % 4 / 2 * 2 & 3);
    *ic = block % wide * 4 + (at >> (4 + k % 2 * 2) & 3);
    return;
  }
  const int64_t place = places[k * f->bits / 8] >> k * f->bits % 8 & ((1 << f->bits) - 1);
  const int64_t at = k / f->many * f->of + place, side = f->outputs ? oa : ia;
  *oc = f->outputs ? at % side : at / side;
  *ic = f->outputs ? at / side : at % side;
}

// Bytes of the parameters: one scale, or one per channel, then one bias per channel.
static inline uint64_t itg_npu_param_bytes(const itg_npu_product *p) {
  return 4ull * ((p->one_scale ? 1 : p->dst.channels) + (uint64_t)p->dst.channels);
}

// Index of the dense weight of output `oc`, tap `tap` and input `ic`. Atoms at the end are not
// padded: they have `rows` outputs and `wide` inputs.
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

// Bytes that an instruction reads or writes: runs of `run` bytes, at `at` plus every combination of
// multiples of the strides.
typedef struct itg_npu_region {
  uint64_t at, end, run;
  uint8_t space, slot, write, dims;
  struct {
    uint32_t count, stride;  // the largest stride first
  } dim[3];
} itg_npu_region;

// Stores the regions of an instruction that passed its checks; returns their number.
int itg_npu_regions_of(const itg_npu_instruction *i, itg_npu_region *to);
// Whether two regions of the same memory share a byte.
bool itg_npu_touch(const itg_npu_region *a, const itg_npu_region *b);
// Stores the regions of a feature, at most 3; returns their number.
int itg_npu_box_regions(const itg_npu_feature *f, bool write, itg_npu_region *to);
// Sets `count` bits, or returns whether all of them are set.
bool itg_npu_mark(uint8_t *bits, uint64_t at, uint64_t count, bool set);
// The same for the bits of a region that begins at bit `at`.
bool itg_npu_mark_region(uint8_t *bits, uint64_t at, const itg_npu_region *r, bool set);

// Refuses a program if an instruction depends on another that it does not wait for, or reads bytes
// that were never written.
itg_words itg_npu_check_order(const itg_npu_program *p);
itg_words itg_npu_refuse(uint32_t number, const itg_npu_instruction *i, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The number of cores that share a program's work with this core_mask (itg_options): those of the
// mask, at most as many as the program is for. Core c of the program runs on core c % n of them.
uint32_t itg_npu_cores_of(const itg_npu_program *p, uint32_t core_mask);

// How the simulator computes a product: with packed weights and a padded copy of the input, both in
// scratch memory outside the modelled memories.
typedef struct itg_npu_plan {
  bool fast;  // false: element by element (reference.h), without scratch
  bool wide;  // operands of 16 bits: weights and inputs are f32 in scratch, and depth counts inputs
  int64_t depth, groups;          // groups of four inputs, groups of 16 outputs
  int64_t height, width;          // of the padded input
  uint64_t packed, image, total;  // bytes of the weights, then of the image, then of all scratch
} itg_npu_plan;
itg_npu_plan itg_npu_plan_of(const itg_npu_product *p);
itg_npu_plan itg_npu_plan_of_matmul(const itg_npu_matmul *p);
