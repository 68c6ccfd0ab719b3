// Plug-ins: operators that Intaglio does not have, in a shared library or in your own program.
//
//   static const itg_op soft_clip = {.name = "acme.soft_clip",
//                                    .fields = "limit:f1",
//                                    .attrs_size = sizeof(soft_clip_attrs),
//                                    .infer = infer,
//                                    .formats = "onnx=acme.ops::SoftClip"};
//   static const itg_kernel kernels[] = {{.op = &soft_clip, .types = "f32", .run = run}};
//   static const itg_plugin plugin = {.abi = ITG_PLUGIN_ABI,
//                                     .name = "acme",
//                                     .version = "1.0",
//                                     .kernels = kernels,
//                                     .n_kernels = 1};
//   ITG_EXPORT_PLUGIN(plugin)
//
// Build it with any C11 compiler: cc -shared -fPIC -O3 -I DIR acme.c -o libacme.so. It needs no
// library of Intaglio. itg_load_plugin loads it; docs/custom-operators.md explains the rest.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "intaglio.h"

#ifdef __cplusplus
extern "C" {
#endif

// Grows when a struct below or the meaning of a field changes: a plug-in of another ABI is refused.
#define ITG_PLUGIN_ABI 1

typedef const char *itg_words;  // NULL: no error; else one line that says what is wrong

// One tensor, dense and row-major. `shape` is the true extent, which at run time may be below the
// planned one. `data` is aligned to the element size, that of constants to 64 bytes.
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
  const void *attrs;  // the op's attribute struct, 8-byte aligned, of the size that the op declares
  void *scratch;      // 64-byte aligned, as large as the op's scratch function asked for
  int64_t round;      // of an op flagged ITG_ROUNDS; of an NPU program: core_mask
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
// Multiply-accumulates of a call, as infer sees it.
typedef uint64_t (*itg_macs_fn)(const itg_call *call);

enum itg_op_flags {
  ITG_INPLACE = 1,  // output 0 may lie on any input of equal dtype and shape: element i is read
                    // before it is written
  ITG_VIEW =
      2,  // output 0 has the bytes of input 0: nothing to compute when both lie on the same memory
  ITG_EXTENT =
      4,  // the run function lowers out[i]->shape to the true extent (nonzero, unique, ...)
  ITG_CONTROL = 8,         // run by the session: if, loop, scan; not for plug-ins
  ITG_INPLACE_FIRST = 16,  // output 0 may lie on input 0, but on no other input
  ITG_VALUES =
      32,  // infer reads values of inputs (reshape_to, range, ...): it is asked again on every run
  ITG_ROUNDS = 64,  // runs once for every index of output 0's first axis; all shares of a round end
                    // before the next
  ITG_ANY_ISA = 128,  // no weights are packed for it, and every kernel gives the same bits: the
                      // CPU's best kernel runs it, for whichever ISA the package is packed
  ITG_CALLER = 256,   // runs in one part, on the thread that called itg_run
  ITG_TEXT = 512,     // attributes are text of any length: an int64_t with its length, then its
                      // bytes; `fields` and `attrs_size` are then empty and 0
};

typedef struct itg_op {
  const char *name;  // as in the package file and in Python: "add", "cpu.conv"; of a plug-in with
                     // its own prefix: "acme.soft_clip"
  const char *
      fields;  // the attribute struct in words: "stride:i2 pad:i4 alpha:f1 mode:e1(nearest|linear)"
  size_t attrs_size;
  uint32_t flags;
  uint32_t n_out;  // outputs, if the op is a plug-in's; 0: one
  itg_infer_fn infer;
  itg_scratch_fn scratch;  // NULL: none
  // The rest is for the compiler; NULL: nothing.
  itg_macs_fn macs;      // decides how many threads are worth while
  const char *defaults;  // of attributes that a model may leave out: "stride=1,1 mode=nearest"
  const char *formats;   // its names in model files: "onnx=acme.ops::SoftClip tflite=SoftClip
                         // torch=acme::soft_clip"
} itg_op;

typedef struct itg_kernel {
  const itg_op *op;
  const char *types;  // dtype of in[0] that it is for, or "any"
  const char *isa;    // its name in reports; NULL: plain C
  const char *tile;   // how it wants its weights packed; "" where nothing is packed
  uint32_t needs;     // enum itg_isa bits
  itg_run_fn run;     // NULL: not in this build, but a compiler for other machines knows of it
} itg_kernel;

struct itg_plugin {
  uint32_t abi;  // ITG_PLUGIN_ABI; the first field in every version
  uint32_t n_kernels;
  const char *name, *version;  // "acme", "1.0"
  const itg_kernel *kernels;   // the best that a CPU can run is the last
};

// The one symbol that a shared library exports.
ITG_API const itg_plugin *itg_plugin_main(void);
#define ITG_EXPORT_PLUGIN(plugin) \
  const itg_plugin *itg_plugin_main(void) { return &(plugin); }

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

#ifdef __cplusplus
}
#endif
