// A plug-in for tests, as a library of its own and linked into the fuzzer: an operator in place and
// in parts, one with several results, scratch memory and all kinds of attributes, and one whose
// result has an extent that data decides.
#include "sample_plugin.h"

#include <math.h>
#include <string.h>

// ---- soft_clip: limit * tanh(x / limit) --------------------------------------------------------
typedef struct soft_clip_attrs {
  double limit;
} soft_clip_attrs;

static itg_words infer_soft_clip(const itg_call *call, itg_tensor *out) {
  if (call->n_in != 1 || !call->in[0] || call->n_out != 1) return "takes one input";
  const soft_clip_attrs *a = call->attrs;
  if (!(a->limit > 0)) return "its limit must be above 0";
  itg_copy_type(out, call->in[0]);
  return NULL;
}

static itg_words soft_clip_f32(const itg_call *call, uint32_t part, uint32_t parts) {
  const float limit = (float)((const soft_clip_attrs *)call->attrs)->limit;
  const float *x = call->in[0]->data;
  float *y = call->out[0]->data;
  int64_t from, to;
  if (itg_empty(call->out[0])) return NULL;
  itg_share(itg_count(call->out[0]), 16, part, parts, &from, &to);
  for (int64_t i = from; i < to; i++) y[i] = tanhf(x[i] / limit) * limit;
  return NULL;
}

static itg_words soft_clip_i8(const itg_call *call, uint32_t part, uint32_t parts) {
  const double limit = ((const soft_clip_attrs *)call->attrs)->limit;
  const int8_t *x = call->in[0]->data;
  int8_t *y = call->out[0]->data;
  if (part || itg_empty(call->out[0])) return NULL;
  for (int64_t i = 0, n = itg_count(call->out[0]); i < n; i++)
    y[i] = (int8_t)(x[i] > limit ? (limit < 127 ? limit : 127) : x[i]);
  return NULL;
}

// ---- affine: rows of x times `by` (repeated) plus `plus`, and their sums or maxima --------------
typedef struct affine_attrs {
  int64_t plus, n_by;
  double by[4];
  int64_t mode;  // 0 sum, 1 max
} affine_attrs;

static itg_words infer_affine(const itg_call *call, itg_tensor *out) {
  if (call->n_in < 1 || call->n_in > 2 || !call->in[0] || call->n_out != 2)
    return "takes one or two inputs and makes two results";
  const itg_tensor *x = call->in[0], *y = call->n_in > 1 ? call->in[1] : NULL;
  const affine_attrs *a = call->attrs;
  if (x->dtype != ITG_F32 || x->rank != 2 || (y && (y->dtype != ITG_F32 || !itg_same_shape(x, y))))
    return "its inputs must be f32 matrices of one shape";
  if (a->n_by < 1 || a->n_by > 4 || a->mode < 0 || a->mode > 1) return "its attributes are wrong";
  itg_copy_type(&out[0], x);
  out[1].dtype = ITG_F32;
  out[1].rank = 1;
  out[1].shape[0] = x->shape[0];
  return NULL;
}

static uint64_t scratch_affine(const itg_call *call, uint32_t parts) {
  return parts * 4 * (uint64_t)call->in[0]->shape[1];
}

static uint64_t macs_affine(const itg_call *call) { return (uint64_t)itg_count(call->in[0]); }

static itg_words affine_f32(const itg_call *call, uint32_t part, uint32_t parts) {
  const affine_attrs *a = call->attrs;
  const int64_t width = call->in[0]->shape[1];
  const itg_tensor *other = call->n_in > 1 ? call->in[1] : NULL;
  float *row = (float *)call->scratch + part * width;
  int64_t from, to;
  if (itg_empty(call->out[0])) {
    if (!part && !itg_empty(call->out[1]))
      memset(call->out[1]->data, 0, 4 * (size_t)call->out[1]->shape[0]);
    return NULL;
  }
  itg_share(call->in[0]->shape[0], 1, part, parts, &from, &to);
  for (int64_t r = from; r < to; r++) {
    const float *x = (const float *)call->in[0]->data + r * width;
    const float *y = other ? (const float *)other->data + r * width : NULL;
    for (int64_t i = 0; i < width; i++) row[i] = x[i] + (y ? y[i] : 0);
    float all = a->mode ? -INFINITY : 0;
    for (int64_t i = 0; i < width; i++) {
      const float v = row[i] * (float)a->by[i % a->n_by] + (float)a->plus;
      ((float *)call->out[0]->data)[r * width + i] = v;
      all = a->mode ? (v > all ? v : all) : all + v;
    }
    ((float *)call->out[1]->data)[r] = all;
  }
  return NULL;
}

// ---- above: the elements of a vector above a threshold ------------------------------------------
typedef struct above_attrs {
  double threshold;
} above_attrs;

static itg_words infer_above(const itg_call *call, itg_tensor *out) {
  if (call->n_in != 1 || !call->in[0] || call->n_out != 1) return "takes one input";
  if (call->in[0]->dtype != ITG_F32 || call->in[0]->rank != 1) return "takes a vector of f32";
  itg_copy_type(out, call->in[0]);
  return NULL;
}

static itg_words above_f32(const itg_call *call, uint32_t part, uint32_t parts) {
  const double threshold = ((const above_attrs *)call->attrs)->threshold;
  const float *x = call->in[0]->data;
  float *y = call->out[0]->data;
  int64_t found = 0;
  for (int64_t i = 0; i < call->in[0]->shape[0]; i++) {
    if (isnan(x[i])) return "an element is not a number";
    if (x[i] > threshold) y[found++] = x[i];
  }
  call->out[0]->shape[0] = found;
  return NULL;
}

// ---- tables -------------------------------------------------------------------------------------
static const itg_op soft_clip = {.name = "sample.soft_clip",
                                 .fields = "limit:f1",
                                 .attrs_size = sizeof(soft_clip_attrs),
                                 .flags = ITG_INPLACE,
                                 .infer = infer_soft_clip,
                                 .defaults = "limit=1",
                                 .formats =
                                     "onnx=sample.ops::SoftClip tflite=SoftClip "
                                     "torch=sample::soft_clip"};
static const itg_op affine = {.name = "sample.affine",
                              .fields = "plus:i1 n_by:i1 by:f4 mode:e1(sum|max)",
                              .attrs_size = sizeof(affine_attrs),
                              .n_out = 2,
                              .infer = infer_affine,
                              .scratch = scratch_affine,
                              .macs = macs_affine,
                              .defaults = "plus=0 by=1 mode=sum"};
static const itg_op above = {.name = "sample.above",
                             .fields = "threshold:f1",
                             .attrs_size = sizeof(above_attrs),
                             .flags = ITG_EXTENT | ITG_CALLER,
                             .infer = infer_above};

static const itg_kernel kernels[] = {
    {.op = &soft_clip, .types = "f32", .run = soft_clip_f32},
    {.op = &soft_clip, .types = "i8", .run = soft_clip_i8},
    {.op = &affine, .types = "f32", .isa = "scalar", .run = affine_f32},
    {.op = &above, .types = "f32", .isa = "scalar", .run = above_f32},
};

#ifndef SAMPLE_ABI
#define SAMPLE_ABI ITG_PLUGIN_ABI
#endif
const itg_plugin itg_sample_plugin = {.abi = SAMPLE_ABI,
                                      .name = "sample",
                                      .version = "1.2",
                                      .kernels = kernels,
                                      .n_kernels = sizeof kernels / sizeof *kernels};
ITG_EXPORT_PLUGIN(itg_sample_plugin)
