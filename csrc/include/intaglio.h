// Intaglio runtime: the only public header.
//
//   itg_model *model;  itg_session *session;  itg_error error;
//   if (itg_model_open_file("model.itg", 0, &model, &error)) return fail(error.words);
//   if (itg_session_create(model, NULL, &session, &error)) return fail(error.words);
//   itg_set_input(session, 0, pixels, pixels_size);
//   if (itg_run(session)) return fail(itg_session_error(session));
//   itg_view y;  itg_get_output(session, 0, &y);   // y.data, y.shape: valid until the next run
//   itg_session_destroy(session);
//   itg_model_close(model);
//
// A model is read-only: sessions on any threads share it and its weights. Use one session per
// thread. Nothing is allocated after itg_session_create. A NULL handle, result or input data is
// ITG_BAD_INPUT; functions that return no status then return 0, NULL or do nothing.
//
// A child of fork() may run, destroy or leave its parent's sessions: its first run starts threads
// of its own, which allocates. If another thread of the parent was inside itg_run, the states of
// that session are undefined in the child until itg_reset_states.
#pragma once
#include <stddef.h>
#include <stdint.h>

// ITG_VERSION_MAJOR, ITG_VERSION_MINOR, ITG_VERSION_PATCH, ITG_VERSION (text): CMake writes them
// beside the header that it installs, and into the folder include/ of its build.
#if defined(__has_include)
#if __has_include("intaglio_version.h")
#include "intaglio_version.h"
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ITG_API __attribute__((visibility("default")))
#else
#define ITG_API
#endif

#define ITG_MAX_RANK 8

enum itg_dtype {  // the codes of intaglio/dtypes.py; a test compares them
  ITG_F32 = 1,
  ITG_F64,
  ITG_F16,
  ITG_BF16,
  ITG_I8,
  ITG_I16,
  ITG_I32,
  ITG_I64,
  ITG_U8,
  ITG_U16,
  ITG_U32,
  ITG_U64,
  ITG_BOOL,
  ITG_I4,
  ITG_U4,
  ITG_F8E4M3FN,
  ITG_F8E4M3FNUZ,
  ITG_F8E5M2,
  ITG_F8E5M2FNUZ,
  ITG_F4E2M1FN,
  ITG_F8E8M0FNU,
  ITG_I2,
  ITG_U2,
  ITG_DTYPE_LAST = ITG_U2,
};

enum itg_isa {  // bits; a kernel runs where all the bits that it needs are there
  ITG_ISA_scalar = 0,
  ITG_ISA_avx2 = 1,    // AVX2, FMA, F16C
  ITG_ISA_avx512 = 2,  // F, BW, DQ, VL; comes with avx2
  ITG_ISA_avx512vnni = 4,
  ITG_ISA_avx512bf16 = 8,
  ITG_ISA_avx512vbmi = 16,
  ITG_ISA_neon = 256,
  ITG_ISA_dotprod = 512,
  ITG_ISA_i8mm = 1024,       // comes with dotprod
  ITG_ISA_neonfp16 = 2048,   // arithmetic of f16, from Armv8.2 on
  ITG_ISA_neonbf16 = 16384,  // products of bf16
  ITG_ISA_rvv = 4096,        // RVV 1.0, at any length of its registers
  ITG_ISA_rvvfp16 = 8192,    // Zvfh
  ITG_ISA_armv7 = 65536,     // 32-bit ARM with NEON and VFPv4: Cortex-A7 and newer
};

// The version of this library: "0.1.0". ITG_VERSION is that of the header.
ITG_API const char *itg_version(void);
// The enum itg_isa bits that this CPU has and this build has kernels for.
ITG_API uint32_t itg_cpu_isa(void);
// The name of the lowest bit: "avx2", ...
ITG_API const char *itg_isa_name(uint32_t bits);
// "f32", ...; "?" for an unknown code.
ITG_API const char *itg_dtype_name(uint8_t dtype);

// ---- errors -------------------------------------------------------------------------------------
typedef enum itg_status {
  ITG_OK = 0,
  ITG_BAD_FILE,     // the file is missing, truncated, corrupt or hostile
  ITG_BAD_INPUT,    // an index, a size, an alignment or a pointer that the caller gave is wrong
  ITG_UNSUPPORTED,  // the file needs another CPU or a newer runtime
  ITG_RUN_ERROR,    // the model cannot compute with this data
  ITG_NO_MEMORY,
  ITG_BUSY,       // another thread is running this session; itg_session_error does not tell of it
  ITG_BAD_KEY,    // a key or signature is missing, or does not fit the package
  ITG_NO_PLUGIN,  // an operator is in a plug-in that is not loaded, or that has changed
} itg_status;

typedef struct itg_error {
  char words[256];  // one line
} itg_error;

// What a status means, for functions that give no words of their own: one line.
ITG_API const char *itg_status_words(itg_status status);

// ---- plug-ins: operators that the runtime does not have; intaglio_plugin.h shows how to write one
typedef struct itg_plugin itg_plugin;

// Loads the plug-in of a shared library and registers it. `path` must have a '/', so that no folder
// is searched. Only load libraries that you trust: their code runs in your process. A package names
// the plug-ins that it needs, but never a file. The library stays loaded. `plugin` may be NULL.
ITG_API itg_status itg_load_plugin(const char *path, const itg_plugin **plugin, itg_error *error);
// Registers a plug-in of your own program for all models that are opened from now on, on any
// thread. The plug-in and all that it points to must stay as they are until the process ends.
// Registering the same one again changes nothing; an operator that another plug-in has is refused.
ITG_API itg_status itg_register_plugin(const itg_plugin *plugin, itg_error *error);
// Hides the plug-in of this name from models that are opened from now on. Open ones keep it.
ITG_API itg_status itg_unregister_plugin(const char *name, itg_error *error);
// ITG_PLUGIN_ABI of this library.
ITG_API uint32_t itg_plugin_abi(void);

// ---- models -------------------------------------------------------------------------------------
typedef struct itg_model itg_model;

enum itg_open_flags {
  // Skip the checksum of the weights, so that opening does not read them.
  ITG_OPEN_TRUST_WEIGHTS = 1,
  // Read the file into memory instead of mapping it. It may then change or vanish at any time.
  ITG_OPEN_COPY = 2,
};

// Maps the file read-only. It must not change while the model is open: where a program shortens a
// mapped file, the next run that reads the lost part ends with SIGBUS. Replace a file by renaming
// a new one over it (as intaglio does), or open it with ITG_OPEN_COPY.
ITG_API itg_status itg_model_open_file(const char *path, uint32_t flags, itg_model **model,
                                       itg_error *error);
// If `data` is aligned to 64 bytes, the model uses it in place, and it must outlive the model; if
// not, the model copies it.
ITG_API itg_status itg_model_open(const void *data, size_t size, uint32_t flags, itg_model **model,
                                  itg_error *error);

// Writes the 32 bytes of a key to `key`. Any status but ITG_OK is the status of the opening. The
// words in `error` must not tell the key.
typedef itg_status (*itg_key_fn)(void *context, uint8_t key[32], itg_error *error);

typedef struct itg_open_options {  // zero means the default
  uint32_t flags;                  // enum itg_open_flags
  const uint8_t *key;              // 32 bytes, for an encrypted package; not kept
  itg_key_fn key_from;             // called if `key` is NULL and the package is encrypted
  void *key_context;
  const uint8_t *public_key;  // 32 bytes: refuse a package that this Ed25519 key did not sign
  const char *weights;        // path of the weight file, or of the folder with the weight files, if
                              // they do not lie beside the package
  const void *weights_data;   // or the bytes of the weight file, aligned to 64; not copied
  uint64_t weights_size;
} itg_open_options;

// As above, for a package that is encrypted or signed, or has its weights elsewhere. A package
// without weights names files beside it; each is mapped once in a process, whichever models use it.
// An encrypted package is decrypted into memory that core dumps
// leave out, after every byte was authenticated; itg_model_close wipes it. With a key, a package
// that is not encrypted is refused: somebody may have replaced it. With `public_key`, a file is
// read instead of mapped, so that nobody changes it afterwards. NULL options are the default ones.
ITG_API itg_status itg_model_open_file_with(const char *path, const itg_open_options *options,
                                            itg_model **model, itg_error *error);
ITG_API itg_status itg_model_open_with(const void *data, size_t size,
                                       const itg_open_options *options, itg_model **model,
                                       itg_error *error);
// Keys for itg_open_options.key_from: `context` is the path of a file, or the name of an
// environment variable. A key is written as 32 bytes (in a file only), 64 hexadecimal digits, or
// base64.
ITG_API itg_status itg_key_from_file(void *path, uint8_t key[32], itg_error *error);
ITG_API itg_status itg_key_from_env(void *name, uint8_t key[32], itg_error *error);
// A public key for itg_open_options.public_key, from a PEM file or in the forms above.
ITG_API itg_status itg_public_key_from_file(const char *path, uint8_t key[32], itg_error *error);
// Overwrites memory with zeros, such as a key; the compiler does not leave it out.
ITG_API void itg_wipe(void *data, size_t size);

// Destroy its sessions first. NULL is allowed.
ITG_API void itg_model_close(itg_model *model);

// The enum itg_isa bits of the CPU that the package was compiled for.
ITG_API uint32_t itg_model_isa(const itg_model *model);
// JSON text, not NUL-terminated.
ITG_API const char *itg_model_meta(const itg_model *model, size_t *size);
// The number of main plans: one per set of input shapes.
ITG_API uint32_t itg_model_plans(const itg_model *model);
// The number of inputs and outputs of a plan.
ITG_API uint32_t itg_model_inputs(const itg_model *model, uint32_t plan);
ITG_API uint32_t itg_model_outputs(const itg_model *model, uint32_t plan);

typedef struct itg_info {
  const char *name;
  uint8_t dtype, rank;
  uint8_t dynamic;              // bit i: axis i may be shorter at run time than shape[i]
  int64_t shape[ITG_MAX_RANK];  // 0 past the rank
  uint64_t bytes;               // size of a buffer for it
  const double *scale;          // quantisation: real = scale * (stored - zero); NULL: none
  const int64_t *zero;
  uint32_t n_scale;
  int32_t quant_axis;            // -1: one scale for the whole tensor
  int32_t symbol[ITG_MAX_RANK];  // of an input: the open dimension of each axis, or -1
} itg_info;

ITG_API itg_status itg_model_input(const itg_model *model, uint32_t plan, uint32_t index,
                                   itg_info *info);
ITG_API itg_status itg_model_output(const itg_model *model, uint32_t plan, uint32_t index,
                                    itg_info *info);

// An open dimension: inputs may have any extent from low to high that is a multiple of `multiple`.
typedef struct itg_symbol {
  const char *name;
  int64_t low, high, multiple;
} itg_symbol;

// The number of open dimensions of a plan.
ITG_API uint32_t itg_model_symbols(const itg_model *model, uint32_t plan);
ITG_API itg_status itg_model_symbol(const itg_model *model, uint32_t plan, uint32_t index,
                                    itg_symbol *symbol);

// A state of a streaming model: after each run the session copies output `output` to input `input`
// of the next run; the first run reads `initial` (NULL: zeros). If you bind your own buffer to one
// of the two, copy it from output to input yourself.
typedef struct itg_state {
  uint32_t input, output;
  const void *initial;
} itg_state;

// The number of states of a plan.
ITG_API uint32_t itg_model_states(const itg_model *model, uint32_t plan);
ITG_API itg_status itg_model_state(const itg_model *model, uint32_t plan, uint32_t index,
                                   itg_state *state);

// ---- sessions -----------------------------------------------------------------------------------
typedef struct itg_session itg_session;

// Threads that several sessions share. A step of one session uses them; a step that another session
// runs meanwhile is computed by its caller's thread alone. Results do not depend on that.
typedef struct itg_pool itg_pool;

typedef struct itg_pool_options {  // zero means the default
  uint32_t threads;                // computing threads, with the caller's; 0: 1
  const uint32_t *cpus;            // CPUs for the pool's own threads, in turn; NULL: any
  uint32_t n_cpus;
} itg_pool_options;

ITG_API itg_status itg_pool_create(const itg_pool_options *options, itg_pool **pool,
                                   itg_error *error);
// Destroy its sessions first. NULL is allowed.
ITG_API void itg_pool_destroy(itg_pool *pool);

#define ITG_ANY_PLAN 0xffffffffu
#define ITG_ALL_CORES 0xffffu

typedef struct itg_options {  // zero means the default
  uint32_t plan;              // which main plan to run; ITG_ANY_PLAN: itg_set_shapes chooses
  uint32_t threads;           // computing threads, with the caller's; 0: 1
  uint32_t profile;           // 1: measure every step
  uint32_t external_io;       // 1: no buffers for inputs and outputs; bind all before the first run
  uint64_t max_steps;         // stops a run (of a loop) with more steps; 0: 10^9
  void *memory;               // NULL: allocate; else itg_memory.session zeroed bytes, aligned to 64
  uint64_t memory_size;
  const void *weights;  // NULL: those in the file; else a copy of them, aligned to 64
  itg_pool *pool;       // NULL: threads of its own; else `threads` of these at most (0: all)
  void *internal;  // NULL: part of `memory`; else itg_memory.internal bytes, aligned to 64, for
                   // intermediate tensors: sessions that never run at the same time may share it
  uint64_t internal_size;
  uint32_t internal_later;  // 1: no memory for intermediate tensors until itg_set_internal
  uint32_t core_mask;  // bit i: NPU programs run on core i; 0: on as many as they were compiled
                       // for, ITG_ALL_CORES: on all of the chip. Results do not depend on it
} itg_options;

typedef struct itg_memory {
  uint64_t weights;   // constants in the file
  uint64_t arena;     // intermediate tensors
  uint64_t scratch;   // the largest of all steps
  uint64_t io;        // inputs and outputs
  uint64_t tables;    // the session's own records
  uint64_t session;   // taken by itg_session_create: all but the weights, with padding
  uint64_t internal;  // arena and scratch, for itg_options.internal; then not part of `session`
} itg_memory;

ITG_API itg_status itg_model_memory(const itg_model *model, const itg_options *options,
                                    itg_memory *memory, itg_error *error);
// The constants, itg_memory.weights bytes: to copy them into other memory (itg_options.weights).
// NULL if they lie in a weight file.
ITG_API const void *itg_model_weights(const itg_model *model);

ITG_API itg_status itg_session_create(const itg_model *model, const itg_options *options,
                                      itg_session **session, itg_error *error);
// Another session of the same model and weights, with memory and states of its own. NULL options
// are those of `session`, with memory that is allocated.
ITG_API itg_status itg_session_share(const itg_session *session, const itg_options *options,
                                     itg_session **shared, itg_error *error);
// The intermediate tensors of the next runs lie in `memory`: itg_memory.internal bytes, aligned to
// 64. Sessions that never run at the same time may share it, so that many sessions need as much as
// those that run. Outputs of the last run that lie there are lost. NULL: go back to the memory that
// the session was created with.
ITG_API itg_status itg_set_internal(itg_session *session, void *memory, size_t bytes);
// NULL is allowed.
ITG_API void itg_session_destroy(itg_session *session);
// The error of the last call on this session; "" if it had none. Never NULL.
ITG_API const char *itg_session_error(const itg_session *session);

// Shapes of the inputs for the next runs, one row of extents for each input, 0 past its rank (rows
// of states do not matter). They must lie within the ranges of the open dimensions; a session of
// ITG_ANY_PLAN takes the first plan that fits. Until they are set, shapes are the largest. Set them
// before inputs are set or bound: buffers have the sizes of itg_get_input and itg_get_output.
ITG_API itg_status itg_set_shapes(itg_session *session, const int64_t (*shapes)[ITG_MAX_RANK]);
// As itg_set_shapes. If the package has a list of shapes that allows it (where padding does not
// change results), inputs between two of them run in the next larger plan: itg_set_input takes them
// as they are and adds zeros, and itg_get_output gives the part of the output that belongs to them.
// Such inputs and outputs cannot be bound. Shapes that do not fit are refused.
ITG_API itg_status itg_set_padded_shapes(itg_session *session,
                                         const int64_t (*shapes)[ITG_MAX_RANK]);
// The shape of one input. Open dimensions of other inputs that it shares follow.
ITG_API itg_status itg_set_shape(itg_session *session, uint32_t index, const int64_t *shape,
                                 uint32_t rank);
// The number of the main plan that runs.
ITG_API uint32_t itg_session_plan(const itg_session *session);

// Copies `data`.
ITG_API itg_status itg_set_input(itg_session *session, uint32_t index, const void *data,
                                 size_t bytes);
// The next runs read or write `data` in place. It must be aligned to the element size. NULL: go
// back to the session's own buffer.
ITG_API itg_status itg_bind_input(itg_session *session, uint32_t index, const void *data,
                                  size_t bytes);
ITG_API itg_status itg_bind_output(itg_session *session, uint32_t index, void *data, size_t bytes);
ITG_API itg_status itg_run(itg_session *session);
// Binds all inputs and outputs and runs, in one call. Each buffer has the size that itg_info gives.
// A list that is NULL leaves its inputs or outputs bound as they are.
ITG_API itg_status itg_run_with(itg_session *session, const void *const *inputs,
                                void *const *outputs);

// Memory of a file descriptor: a memfd, a file, or a dma-buf of a camera, a decoder or a GPU. It is
// mapped, so that sessions use it in place.
typedef struct itg_buffer itg_buffer;

enum itg_buffer_flags {  // what sessions may do with it; 0: both
  ITG_BUFFER_READ = 1,
  ITG_BUFFER_WRITE = 2,
};

// Maps `size` bytes of `fd`, from `offset` on. The descriptor may be closed afterwards. If another
// program shortens the file, a run ends with SIGBUS (seal a memfd with F_SEAL_SHRINK).
ITG_API itg_status itg_buffer_from_fd(int fd, uint64_t offset, uint64_t size, uint32_t flags,
                                      itg_buffer **buffer, itg_error *error);
// Bind other memory to all inputs and outputs that use it first. NULL is allowed.
ITG_API void itg_buffer_destroy(itg_buffer *buffer);
// Where it is mapped. `size` may be NULL.
ITG_API void *itg_buffer_data(const itg_buffer *buffer, uint64_t *size);
// 1: the descriptor is a dma-buf. Each run then begins and ends its access with DMA_BUF_IOCTL_SYNC.
ITG_API uint32_t itg_buffer_is_dma(const itg_buffer *buffer);
// The next runs read or write the buffer in place, as with itg_bind_input and itg_bind_output. It
// may be larger than the input or output. NULL: go back to the session's own memory.
ITG_API itg_status itg_bind_input_buffer(itg_session *session, uint32_t index, itg_buffer *buffer);
ITG_API itg_status itg_bind_output_buffer(itg_session *session, uint32_t index, itg_buffer *buffer);

// The order of the axes of pictures.
enum itg_layout {
  ITG_AS_DECLARED,  // as the shape in itg_info
  ITG_NHWC,         // the model declares NCHW
  ITG_NCHW,         // the model declares NHWC
};

// The layout in which the first steps read an input: ITG_AS_DECLARED, or the one to which they
// transpose it.
ITG_API itg_status itg_input_layout(itg_session *session, uint32_t index, uint32_t *layout);
// The next runs take an input in the layout that itg_input_layout tells, such as a camera's NHWC
// where the model declares NCHW, and no longer transpose it. Other layouts are refused. Sizes, and
// the shapes of itg_set_shapes, stay as declared; itg_get_input tells the shape in this layout.
ITG_API itg_status itg_set_input_layout(itg_session *session, uint32_t index, uint32_t layout);

typedef struct itg_view {
  const void *data;
  uint8_t dtype, rank;
  int64_t shape[ITG_MAX_RANK];  // the true extents; 0 past the rank
  uint64_t bytes;
} itg_view;

ITG_API itg_status itg_get_output(itg_session *session, uint32_t index, itg_view *view);
// Where the next run reads an input, and its shape.
ITG_API itg_status itg_get_input(itg_session *session, uint32_t index, itg_view *view);

// Reads a state (the view is valid until the next run), sets it, or resets all to their initial
// values.
ITG_API itg_status itg_get_state(itg_session *session, uint32_t index, itg_view *view);
ITG_API itg_status itg_set_state(itg_session *session, uint32_t index, const void *data,
                                 size_t bytes);
ITG_API void itg_reset_states(itg_session *session);

// ---- profile: times of each step, summed over all runs since the session was created ------------
typedef struct itg_profile {
  const char *op, *origin, *kernel_isa;
  uint32_t plan;   // number of the step's plan, sub-plans included
  uint32_t parts;  // shares that its work is split into
  uint64_t macs, calls, ns;
} itg_profile;

ITG_API uint32_t itg_session_steps(const itg_session *session);
ITG_API itg_status itg_get_profile(const itg_session *session, uint32_t step, itg_profile *profile);
ITG_API void itg_reset_profile(itg_session *session);

#ifdef __cplusplus
}
#endif
