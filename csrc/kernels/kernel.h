// The interface of kernels, and the small helpers that they share.
//
// A kernel is C11, reentrant, keeps no state, allocates nothing and does no I/O. It reads shapes
// from its tensors and options from its attribute struct. kernels.inc lists the operations, their
// attributes and the functions that implement them; registry.c turns that into tables.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attributes.h"
#include "intaglio.h"

typedef const char *itg_words;  // NULL: no error; else one line that says what is wrong

// One tensor. `shape` is the true extent, which at run time may be below the planned one. `data` is
// aligned to the element size, that of constants to 64 bytes.
typedef struct itg_tensor {
  void *data;
  int64_t shape[ITG_MAX_RANK];
  uint64_t capacity;  // bytes that may be used at `data`
  uint8_t dtype;      // enum itg_dtype
  uint8_t rank;
} itg_tensor;

// One step as its kernel sees it. Absent optional inputs are NULL.
typedef struct itg_call {
  const itg_tensor *const *in;
  itg_tensor *const *out;
  uint32_t n_in, n_out;
  const void
      *attrs;  // the op's struct itg_attrs_<op>, 8-byte aligned, of the size that the op declares
  void *scratch;  // 64-byte aligned, as large as the op's scratch function asked for
  int64_t round;  // of an op flagged ITG_ROUNDS
} itg_call;

// Output types from input types, attributes and (for shape-like inputs) values: fills dtype, rank
// and shape of out[0..n_out). It must refuse whatever the run function could not compute safely:
// files are hostile. Bind calls it once per step and compares with the file; there, `data` of an
// input is NULL unless the input is a constant, and an op that is flagged ITG_VALUES answers with
// its bound. Steps with run-time extents call it on every run.
typedef itg_words (*itg_infer_fn)(const itg_call *call, itg_tensor *out);
// Bytes of scratch that the call needs when its work is split into `parts`.
typedef uint64_t (*itg_scratch_fn)(const itg_call *call, uint32_t parts);
// Computes share `part` of `parts` of the output. Every share runs exactly once, in any order, at
// the same time. An op that is not worth splitting does everything in part 0. Refusals are for
// values met at run time.
typedef itg_words (*itg_run_fn)(const itg_call *call, uint32_t part, uint32_t parts);

enum itg_op_flags {
  ITG_INPLACE = 1,  // output 0 may lie on any input of equal dtype and shape: element i is read
                    // before it is written
  ITG_VIEW =
      2,  // output 0 has the bytes of input 0: nothing to compute when both lie on the same memory
  ITG_EXTENT =
      4,  // the run function lowers out[i]->shape to the true extent (nonzero, unique, ...)
  ITG_CONTROL = 8,         // run by the session: if, loop, scan
  ITG_INPLACE_FIRST = 16,  // output 0 may lie on input 0, but on no other input
  ITG_VALUES =
      32,  // infer reads values of inputs (reshape_to, range, ...): it is asked again on every run
  ITG_ROUNDS = 64,  // runs once for every index of output 0's first axis; all shares of a round end
                    // before the next
  ITG_ANY_ISA = 128,  // no weights are packed for it, and every kernel gives the same bits: the
                      // CPU's best kernel runs it, for whichever ISA the package is packed
};

typedef struct itg_op {
  const char *name;  // as in the package file and in Python: "add", "cpu.conv"
  const char *
      fields;  // the attribute struct in words: "stride:i2 pad:i4 alpha:f1 mode:e1(nearest|linear)"
  size_t attrs_size;
  uint32_t flags;
  itg_infer_fn infer;
  itg_scratch_fn scratch;  // NULL: none
} itg_op;

typedef struct itg_kernel {
  const itg_op *op;
  const char *types;  // dtype of in[0] that it is for, or "any"
  const char *isa;
  const char *tile;  // how it wants its weights packed; "" where nothing is packed
  uint32_t needs;    // enum itg_isa bits
  itg_run_fn run;    // NULL: not in this build, but a compiler for other machines knows of it
} itg_kernel;

ITG_API const itg_kernel *itg_kernels(size_t *count);
const itg_op *itg_find_op(const char *name);
const itg_kernel *itg_find_kernel(const itg_op *op, const char *dtype,
                                  uint32_t isa);  // the best that `isa` can run

// ---- attribute structs: every field is 8 bytes wide, so C and Python agree without padding rules
// ----
#define INTS(name, n) int64_t name[n];
#define INT(name) int64_t name;
#define FLOATS(name, n) double name[n];
#define FLOAT(name) double name;
#define ENUM(name, words) int64_t name;  // index into the words, in their order
#define ENUMS(name, n, words) int64_t name[n];
// ENUM(dtype, ITG_DTYPE_WORDS): an element type by name; the index is its enum itg_dtype
#define ITG_DTYPE_WORDS                                                                     \
  "-|f32|f64|f16|bf16|i8|i16|i32|i64|u8|u16|u32|u64|bool|i4|u4|f8e4m3fn|f8e4m3fnuz|f8e5m2|" \
  "f8e5m2fnuz|f4e2m1fn|"                                                                    \
  "f8e8m0fnu|i2|u2"
#define OP(name, flags, infer, scratch, fields) \
  typedef struct itg_attrs_##name {             \
    fields char end[0];                         \
  } itg_attrs_##name;
#define CPU_OP OP
#define NPU_OP OP
#include "kernels.inc"
#undef INTS
#undef INT
#undef FLOATS
#undef FLOAT
#undef ENUM
#undef ENUMS

#define OP(name, flags, infer, scratch, fields)                \
  itg_words itg_infer_##infer(const itg_call *, itg_tensor *); \
  uint64_t itg_scratch_##scratch(const itg_call *, uint32_t);
#define CPU_OP OP
#define NPU_OP OP
#define KERNEL_LINE(op, types, isa, tile) \
  itg_words itg_##op##_##types##_##isa(const itg_call *, uint32_t, uint32_t);
#include "kernels.inc"

// ---- names: a source that is compiled once per ISA defines ITG_FN(add, f32) -> itg_add_f32_avx2
// ----
#ifndef ISA
#define ISA scalar
#endif
#define ITG_PASTE(op, types, isa) itg_##op##_##types##_##isa
#define ITG_NAME(op, types, isa) ITG_PASTE(op, types, isa)
#define ITG_FN(op, types) \
  itg_words ITG_NAME(op, types, ISA)(const itg_call *call, uint32_t part, uint32_t parts)

// ---- helpers ------------------------------------------------------------------------------------
static inline int64_t itg_count(
    const itg_tensor *t) {  // elements; bind has checked that this cannot overflow
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static inline bool itg_empty(
    const itg_tensor *t) {  // return early: an empty tensor may have huge other axes
  for (int i = 0; i < t->rank; i++)
    if (t->shape[i] == 0) return true;
  return false;
}

static inline int64_t itg_count_range(const itg_tensor *t, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; i++) n *= t->shape[i];
  return n;
}

static const uint8_t itg_item_sizes[] = {0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4,
                                         8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static inline size_t itg_item(uint8_t dtype) {
  return dtype <= ITG_DTYPE_LAST ? itg_item_sizes[dtype] : 0;
}

static inline bool itg_same_shape(const itg_tensor *a, const itg_tensor *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->shape[i] != b->shape[i]) return false;
  return true;
}

static inline void itg_copy_type(itg_tensor *to, const itg_tensor *from) {
  to->dtype = from->dtype;
  to->rank = from->rank;
  for (int i = 0; i < ITG_MAX_RANK; i++) to->shape[i] = i < from->rank ? from->shape[i] : 0;
}

// The half-open share [*from, *to) of n items that `part` of `parts` does, in multiples of `grain`.
static inline void itg_share(int64_t n, int64_t grain, uint32_t part, uint32_t parts, int64_t *from,
                             int64_t *to) {
  int64_t units = (n + grain - 1) / grain;
  int64_t a = units * part / parts * grain, b = units * (part + 1) / parts * grain;
  *from = a < n ? a : n;
  *to = b < n ? b : n;
}
