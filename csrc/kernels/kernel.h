// The kernels of the runtime, and the small helpers that they share. intaglio_plugin.h has their
// interface, which is that of plug-ins too.
//
// A kernel is C11, reentrant, keeps no state, allocates nothing and does no I/O. It reads shapes
// from its tensors and options from its attribute struct. kernels.inc lists the operations, their
// attributes and the functions that implement them; registry.c turns that into tables.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attributes.h"
#include "intaglio_plugin.h"

ITG_API const itg_kernel *itg_kernels(size_t *count);
const itg_op *itg_find_op(const char *name);  // of the runtime itself
const itg_kernel *itg_find_kernel(const itg_op *op, const char *dtype,
                                  uint32_t isa);  // the best that `isa` can run
// Writes what a kernel derives from the shapes and attributes of a call to `to`, and returns its
// bytes; NULL: returns these bytes alone. `infer` has checked the call. Sessions do this once for
// shapes that stay as they are, so that runs need not.
typedef uint64_t (*itg_prepare_fn)(const itg_call *call, void *to);
// Every call of an op that prepares is the first member of this one. Plug-ins, which have itg_call
// in their ABI, do without.
typedef struct itg_prepared_call {
  itg_call call;
  const void *prepared;
} itg_prepared_call;
static inline const void *itg_prepared(const itg_call *call) {
  return ((const itg_prepared_call *)call)->prepared;
}
itg_prepare_fn itg_prepare_of(const itg_op *op);  // NULL: none
const itg_kernel *itg_find_plugin_kernel(const itg_op *op, const char *dtype, uint32_t isa);

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
#define PREPARES(op) uint64_t itg_prepare_##op(const itg_call *, void *);
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
