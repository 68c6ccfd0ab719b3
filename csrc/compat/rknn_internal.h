// Contexts, models and memory, as the files of librknnrt share them.
#pragma once
#include <pthread.h>
#include <stdbool.h>

#include "intaglio.h"
#include "rknn_api.h"
#include "rknn_custom_op.h"
#include "rknn_json.h"
#include "rknn_view.h"

#define RK_API __attribute__((visibility("default")))
#define RK_MAX_CORES 3

// A chip, as far as layouts depend on it.
typedef struct rk_platform {
  const char *name;
  uint32_t cores;
  uint32_t c2_int8, c2_half;  // channels in a block of NC1HWC2
} rk_platform;

// An input or output as RKNN's API shows it.
typedef struct rk_tensor {
  uint32_t index;  // of the runtime: states are left out here
  char name[RKNN_MAX_NAME_LEN];
  rknn_tensor_type type;  // of queries
  rknn_tensor_type held;  // of the runtime's buffer
  bool quantised;
  float scale;
  int32_t zp;
  bool channels_last;  // the model's axes, if there are four
  bool blocked;        // the NPU reads NC1HWC2
  float *mean, *std;
  uint32_t n_mean, n_std;
} rk_tensor;

// A step of the model that a custom operator computes.
typedef struct rk_node {
  char op_type[RKNN_MAX_NAME_LEN];
  char name[RKNN_MAX_NAME_LEN];
  char *text;           // its attributes, JSON
  rk_json *attributes;  // the same, read
  uint32_t n_in, n_out;
  struct {
    uint8_t dtype, rank;
    int64_t shape[ITG_MAX_RANK];
  } tensors[2 * RKNN_MAX_DIMS];  // inputs, then outputs
  struct rk_node *next;
} rk_node;

typedef struct rk_model {
  uint32_t users;  // contexts
  itg_model *model;
  void *copy;  // of the caller's bytes, or NULL
  char *path;  // or NULL
  const rk_platform *platform;
  bool exported;  // by RKNN.export_rknn
  char *custom_string;
  rk_tensor *inputs, *outputs;
  uint32_t n_inputs, n_outputs, n_plans, n_itg_inputs;
  rk_node *nodes;
} rk_model;

// What rknn_set_io_mem was given.
typedef struct rk_binding {
  rknn_tensor_mem *mem;  // NULL: nothing
  rk_view view;
  rk_change change;
  bool direct;  // the runtime uses it in place
} rk_binding;

typedef struct rk_value {  // of an attribute that get_op_attr gave out
  rknn_custom_op_attr attr;
  struct rk_value *next;
} rk_value;

typedef struct rk_instance {  // a custom operator for one node
  rknn_custom_op_context context;
  rk_node *node;
  rk_value *values;
  uint64_t stamp;  // run in which it computed last
} rk_instance;

typedef struct rk_registered {
  rknn_custom_op op;
  rk_instance *instances;
  uint32_t count;
  struct rk_registered *next;
} rk_registered;

typedef struct rk_context {
  struct rk_context *next;  // of all that live
  bool is_matmul;
  uint32_t flag;
  rk_model *model;
  itg_session *session;
  itg_options options;
  bool shaped;  // a shape was set
  int64_t shapes[RKNN_MAX_DIMS * 4][ITG_MAX_RANK];
  rk_binding *inputs, *outputs;
  itg_view *previous;  // outputs of the frame before, copied, with RKNN_FLAG_ASYNC_MASK
  rk_registered *ops;
  uint64_t frame;
  int64_t microseconds;  // of the last run
  char *perf;
  uint64_t run_stamp;  // counts runs
  // a run that does not block
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t worker;
  bool working, done;
  int result;
} rk_context;

// rknn_context.c
int rk_fail(int code, const char *function, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int rk_failed(itg_status status, const char *function, const char *words);
int rk_log_level(void);
rk_context *rk_find(rknn_context context, bool matmul);  // NULL: no such context
void rk_add(rk_context *context);
bool rk_remove(rk_context *context);                        // from the list; false: it is not there
int rk_rebuild(rk_context *context, const char *function);  // the session, with its options
const rk_platform *rk_platform_of(const char *name);        // rk3588 if it is unknown

// rknn_model.c
int rk_open(const char *function, const void *model, uint32_t size, uint32_t flag,
            const rknn_init_extend *extend, rk_model **made);
void rk_close(rk_model *model);
rknn_tensor_type rk_type_of(uint8_t dtype);  // RKNN_TENSOR_TYPE_MAX: RKNN has no such type

// rknn_attr.c
typedef enum rk_form { RK_PLAIN, RK_NATIVE, RK_NATIVE_NHWC } rk_form;
// An input or output of a shape in the model's own axes.
void rk_fill_attr(const rk_model *model, const rk_tensor *tensor, bool input, const int64_t *shape,
                  uint32_t rank, rk_form form, rknn_tensor_attr *attr);
rk_view rk_held_view(const rk_tensor *tensor, const int64_t *shape, uint32_t rank, void *data);

// rknn_run.c
int rk_wait(rk_context *context, const char *function, int32_t timeout_ms);
// rknn_custom.c
extern _Thread_local rk_context *rk_running;
void rk_begin_open(rk_model *model);  // nodes that the runtime meets are added to the model
void rk_end_open(void);
bool rk_stand_in(const char *words);  // registers the operator that an error names
void rk_free_nodes(rk_model *model);
void rk_free_ops(rk_context *context);
void rk_name_nodes(rk_context *context);  // by the places of their steps in the model file
// rknn_memory.c
bool rk_mem_lives(const rknn_tensor_mem *mem);
void *rk_mem_data(const rknn_tensor_mem *mem);
