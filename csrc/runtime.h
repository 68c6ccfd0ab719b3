// Models, sessions and the thread pool, as the files of the runtime share them.
#pragma once
#include <stdatomic.h>

#include "format.h"
#include "kernels/kernel.h"

#define ITG_MAX_OUTPUTS 16  // of a step that is not control flow
#define ITG_MAX_DEPTH 16    // of control flow inside of control flow
// Of a tensor or an arena: sums of a few of them cannot overflow, nor exceed the address space.
#define ITG_MAX_BYTES ((uint64_t)1 << (sizeof(void *) < 8 ? 30 : 46))
#define ITG_MAX_THREADS 256
#define ITG_MAX_CPUS 1024  // of Linux's cpu_set_t
#define ITG_MAX_WEIGHT_FILES 8

// A main plan's slots are consecutive: input i of plan p is slot family[p].inputs + i.
typedef struct itg_family {
  uint32_t inputs, outputs;  // first slots
  uint32_t depth;            // of the control flow inside
} itg_family;

// Constants: section CNST, or a weight file, whose blobs start at `first`.
typedef struct itg_constants {
  const uint8_t *data;
  uint64_t first, size;
} itg_constants;

typedef struct itg_weights itg_weights;  // an open weight file: weights.c

struct itg_model {
  const uint8_t *file;
  uint64_t size;
  void *owned;      // what close frees, or NULL
  uint64_t mapped;  // what close unmaps, or 0
  uint64_t secret;  // bytes of a decrypted package, which close wipes, or 0
  uint32_t isa;
  const itg_file_plan *plans;
  const itg_file_tensor *tens;
  const itg_file_quant *quants;
  const itg_file_step *steps;
  const uint32_t *args;
  const itg_file_state *states;
  const itg_file_symbol *symbols;
  const itg_file_axis *axes;
  const itg_file_patch *patches;
  const itg_file_term *terms;
  const itg_file_weights *weight_rows;
  const itg_file_plugin *plugins;
  const itg_file_pad *pads;  // NULL: inputs must not be padded
  uint32_t n_plans, n_tensors, n_quants, n_steps, n_args, n_states;
  uint32_t n_symbols, n_axes, n_patches, n_terms, n_weights, n_plugins, n_pads;
  itg_weights *weights[ITG_MAX_WEIGHT_FILES];
  const uint8_t *attrs, *consts, *code;
  const char *names, *origins, *meta;
  uint64_t attrs_size, consts_size, code_size, names_size, origins_size, meta_size;
  // made when it is opened
  itg_tensor *tensors;             // one per record: type, and data if constant
  const itg_tensor **arg_tensors;  // one per entry of ARGS
  const itg_kernel **kernels;      // one per step
  const itg_op **plugin_ops;       // one per row of PLUG
  itg_family *families;            // one per plan; sub-plans have the slots of their main plan
  uint32_t *mains;                 // plan numbers of the main plans
  uint32_t *input_slots,
      *output_slots;  // tensor whose size a slot has; ITG_NONE: nothing lies in that output slot
  uint8_t *input_carried,
      *output_carried;  // one per slot: does the session hand it from run to run?
  uint32_t n_mains, n_inputs, n_outputs;
};

enum itg_when {    // when the extents of a step become known
  ITG_AT_OPEN,     // they are fixed
  ITG_AT_RESIZE,   // they follow from the shapes of the inputs
  ITG_AT_RUN_TIME  // they follow from data
};

typedef struct itg_step {
  union {
    itg_call call;
    itg_prepared_call whole;
  };
  itg_run_fn run;
  itg_prepare_fn prepare;  // writes to whole.prepared; NULL: nothing
  const itg_op *op;
  const char *isa;  // of the kernel
  const itg_file_step *record;
  uint32_t parts;
  uint8_t dynamic;  // enum itg_when
  uint8_t control;
  uint8_t idle;  // a view in place: nothing to compute
  uint32_t plan;
  uint64_t ns, calls;
} itg_step;

typedef struct itg_steps {  // of one plan
  itg_step *first;
  uint32_t count;
} itg_steps;

typedef struct itg_slot {
  void *own;           // the session's memory for it, or NULL
  void *data;          // where it is now
  uint32_t first;      // tensor that lies in it; `next` of the session goes on
  uint64_t bytes;      // of a buffer for it, at the present shapes
  itg_buffer *buffer;  // in which `data` lies, or NULL
  uint8_t layout;      // enum itg_layout, of an input
  bool padded;         // the caller's is smaller: `cut`
  int64_t cut[ITG_MAX_RANK];
} itg_slot;

struct itg_session {
  const itg_model *model;
  const itg_file_plan *plan;  // the main plan that runs
  uint32_t plan_number;
  uint32_t first_plan, last_plan;  // plans that the session can run, with their sub-plans
  void *owned;
  itg_tensor *tensors;
  itg_tensor **args;           // one per entry of ARGS
  uint32_t *next;              // next tensor of the same slot
  itg_step *steps;             // of all plans that the session can run
  itg_steps *plans;            // from first_plan on
  itg_slot *inputs, *outputs;  // of the main plan that runs
  itg_slot *all_inputs, *all_outputs;
  uint32_t n_slots;  // of all inputs
  int64_t *symbols;  // present values, one per row of SYMB
  int64_t *wanted;   // those of shapes that are being matched
  uint8_t *settled;  // one per tensor: a resize gives it its shape
  bool unshaped;     // the last resize failed
  bool buffers;      // an input or output may lie in an itg_buffer
  bool padded;       // an input or output is
  uint32_t n_steps, n_states;
  const itg_file_state *states;
  uint8_t *arena, *scratch;  // NULL: not there yet
  uint8_t *own_arena;        // those that it was created with, or NULL
  uint64_t arena_size, scratch_size;
  uint32_t threads, profile;
  uint64_t max_steps, steps_left;
  itg_pool *pool;
  bool own_pool;
  itg_options options;  // that it was created with
  atomic_uint busy;     // 0, or 1 + itg_forks() of the process that runs it
  itg_error error;
};

// check.c: everything that a file claims, checked once
bool itg_has_string(const char *data, uint64_t size, uint32_t at);
itg_status itg_check_model(itg_model *model, itg_error *error);
// plugin.c
itg_status itg_check_plugins(itg_model *model, itg_error *error);
const itg_op *itg_needed_op(const itg_model *model, uint32_t name);  // of a row of PLUG, or NULL
// control.c
itg_status itg_check_control(const itg_model *model, uint32_t plan, const itg_file_step *step,
                             itg_error *error);
itg_status itg_run_control(itg_session *session, itg_step *step);
// model.c
const itg_file_state *itg_states_of(const itg_model *model, uint32_t main, uint32_t *count);
// weights.c
itg_status itg_open_weights(itg_model *model, const char *path, const itg_open_options *options,
                            itg_error *error);
void itg_close_weights(itg_model *model);
// Section CNST (file 0), or weight file `file` - 1.
itg_constants itg_constants_of(const itg_model *model, uint32_t file);
// shapes.c
itg_status itg_check_shapes(const itg_model *model, itg_error *error);
bool itg_patches_of(const itg_model *model, uint32_t step, uint32_t *first, uint32_t *count);
uint32_t itg_parts_for(const itg_model *model, const itg_file_step *step, itg_tensor *const *args,
                       uint32_t threads);
void itg_choose_plan(itg_session *session, uint32_t main);
void itg_set_slot_sizes(itg_session *session);
itg_status itg_take_plan(itg_session *session, uint32_t main);  // at its present shapes
// bind.c
void itg_place(itg_session *session, itg_slot *slot, void *data);
void itg_point(itg_session *session, itg_slot *slot);  // lets its tensors lie where it lies
void itg_carry_states(itg_session *session);
itg_status itg_bind_all(itg_session *session, const void *const *inputs, void *const *outputs);
// Is an output of a model with plug-ins written by one step, and read by nothing afterwards? A
// caller that knows the kernel may then take its result from elsewhere, as Python does.
ITG_API uint32_t itg_output_unread(const itg_session *session, uint32_t index);
// padding.c
itg_status itg_check_padding(const itg_model *model, itg_error *error);
void itg_pad_input(const itg_slot *slot, const itg_tensor *tensor, const void *data);
void itg_cut_outputs(itg_session *session);
void itg_end_padding(itg_session *session);
// layout.c
void itg_layout_shape(const itg_slot *slot, int64_t *shape);  // from that of the model
// buffer.c
bool itg_buffer_writable(const itg_buffer *buffer);
itg_status itg_check_buffers(itg_session *session);
// Begins or ends access by the CPU to the dma-bufs that are bound.
itg_status itg_sync_buffers(itg_session *session, bool end, itg_error *error);
// run.c
itg_status itg_run_plan(itg_session *session, uint32_t plan);
bool itg_as_planned(const itg_file_tensor *planned, const int64_t *shape);
bool itg_begin(itg_session *session);  // false: another thread runs it
void itg_end(itg_session *session);
itg_words itg_infer_step(itg_session *session, const itg_step *step);
void itg_prepare_step(const itg_step *step);  // at its present shapes
itg_status itg_step_fails(itg_session *session, const itg_step *step, itg_words words);
// threads.c
itg_pool *itg_pool_start(const itg_pool_options *options, bool shared);
uint32_t itg_pool_threads(const itg_pool *pool);
void itg_pool_after_fork(itg_pool *pool);  // starts the workers that a forked child lacks
unsigned itg_forks(void);                  // how many forks lie between the first process and this
itg_words itg_pool_run(itg_pool *pool, itg_run_fn run, const itg_call *call, uint32_t parts);
// cpu.c
uint32_t itg_missing_isa(
    uint32_t bits);  // of the bits that a package needs, those without kernels here
// crc.c
uint32_t itg_crc32(uint32_t crc, const void *data, size_t size);

itg_status itg_fail(itg_error *error, itg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define BAD(...) return itg_fail(e, ITG_BAD_FILE, __VA_ARGS__)  // where `e` is the caller's error

static inline uint64_t itg_bytes(const itg_tensor *t) {
  return (uint64_t)itg_count(t) * itg_item(t->dtype);
}
static inline const char *itg_name(const itg_model *m, uint32_t at) { return m->names + at; }
static inline const char *itg_origin(const itg_model *m, const itg_file_step *s) {
  return s->origin == ITG_NONE || !m->origins ? "" : m->origins + s->origin;
}
static inline uint64_t itg_align(uint64_t n) { return (n + ITG_ALIGN - 1) / ITG_ALIGN * ITG_ALIGN; }
static inline bool itg_same_place(const itg_file_tensor *a, const itg_file_tensor *b) {
  return a->memory == b->memory && a->slot == b->slot && a->offset == b->offset;
}
