// The tables of operations and kernels, made from kernels.inc.
#include <float.h>
#include <string.h>

#include "built.h"
#include "kernels/elementwise/chain.h"

#define itg_scratch_none NULL
#define INTS(name, n) #name ":i" #n " "
#define INT(name) #name ":i1 "
#define FLOATS(name, n) #name ":f" #n " "
#define FLOAT(name) #name ":f1 "
#define ENUM(name, words) #name ":e1(" words ") "
#define ENUMS(name, n, words) #name ":e" #n "(" words ") "

enum {
#define OP(name, flags, infer, scratch, fields) op_##name,
#define CPU_OP OP
#define NPU_OP OP
#include "kernels/kernels.inc"
};

#define OP_ROW(called, flag_bits, inferred, takes, attributes, words) \
  {.name = called,                                                    \
   .fields = "" words,                                                \
   .attrs_size = offsetof(itg_attrs_##attributes, end),               \
   .flags = flag_bits,                                                \
   .infer = itg_infer_##inferred,                                     \
   .scratch = itg_scratch_##takes},
static const itg_op ops[] = {
#define OP(name, flags, infer, scratch, fields) OP_ROW(#name, flags, infer, scratch, name, fields)
#define CPU_OP(name, flags, infer, scratch, fields) \
  OP_ROW("cpu." #name, flags, infer, scratch, name, fields)
#define NPU_OP(name, flags, infer, scratch, fields) \
  OP_ROW("npu." #name, flags, infer, scratch, name, fields)
#include "kernels/kernels.inc"
};

static const itg_prepare_fn prepares[sizeof ops / sizeof *ops] = {
#define PREPARES(op) [op_##op] = itg_prepare_##op,
#include "kernels/kernels.inc"
};

static const itg_kernel kernels[] = {
#define KERNEL_LINE(op, types, isa, tile) \
  {&ops[op_##op], #types, #isa, tile, ITG_ISA_##isa, ITG_BUILT(isa, itg_##op##_##types##_##isa)},
#include "kernels/kernels.inc"
};

_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16,  // 16: with arithmetic of f16
               "floats must be computed as floats: -msse2 -mfpmath=sse");

#ifndef ITG_VERSION  // a build without CMake
#define ITG_VERSION "unknown"
#endif
const char *itg_version(void) { return ITG_VERSION; }

const char *itg_status_words(itg_status status) {  // in the order of enum itg_status
  static const char *const words[] = {
      "no error",
      "the package file is missing, truncated, corrupt or hostile",
      "an index, a size, an alignment or a pointer that the caller gave is wrong",
      "the package needs another CPU or a newer runtime",
      "the model cannot compute with this data",
      "there is not enough memory",
      "another thread is running this session; use one session per thread",
      "a key or signature is missing, or does not fit the package",
      "an operator of the package is in a plug-in that is not loaded, or that has changed"};
  const size_t known = sizeof words / sizeof *words;
  return (size_t)status < known ? words[status] : "unknown status";
}

const char *itg_dtype_name(uint8_t dtype) {  // in the order of enum itg_dtype
  static const char *const names[] = {
      "?",        "f32",        "f64",    "f16",        "bf16",     "i8",        "i16", "i32",
      "i64",      "u8",         "u16",    "u32",        "u64",      "bool",      "i4",  "u4",
      "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1fn", "f8e8m0fnu", "i2",  "u2"};
  return names[dtype <= ITG_DTYPE_LAST ? dtype : 0];
}

const itg_kernel *itg_kernels(size_t *count) {
  *count = sizeof kernels / sizeof *kernels;
  return kernels;
}

const itg_op *itg_find_op(const char *name) {
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(ops[i].name, name)) return &ops[i];
  return NULL;
}

itg_prepare_fn itg_prepare_of(const itg_op *op) {
  const uintptr_t first = (uintptr_t)ops, at = (uintptr_t)op;  // one of a plug-in lies elsewhere
  return at >= first && at < first + sizeof ops ? prepares[op - ops] : NULL;
}

// itg_prepare_of by the name of an op, for Python's runs of single kernels; 0: it has none.
ITG_API uint64_t itg_prepare(const char *name, const itg_call *call, void *to) {
  const itg_op *op = itg_find_op(name);
  const itg_prepare_fn prepare = op ? itg_prepare_of(op) : NULL;
  return prepare ? prepare(call, to) : 0;
}

const itg_kernel *itg_find_kernel(const itg_op *op, const char *dtype, uint32_t isa) {
  for (size_t i = sizeof kernels / sizeof *kernels; i-- > 0;) {
    const itg_kernel *k = &kernels[i];
    if (k->run && k->op == op && !(k->needs & ~isa) &&
        (!strcmp(k->types, dtype) || !strcmp(k->types, "any")))
      return k;
  }
  return itg_find_plugin_kernel(op, dtype, isa);
}
