// Deformable convolution (version 1) as a custom operator in C: a plug-in with kernels for plain C
// and for AVX2. deform_conv.py has the same operator in Python.
#include <math.h>
#include <string.h>

#include "intaglio_plugin.h"

typedef struct attributes {  // in the order of the fields below: 8 bytes each
  int64_t stride[2], pad[2];
} attributes;

// ---- shapes: a package may be hostile, so everything that the kernel relies on is checked ------
static itg_words infer(const itg_call *call, itg_tensor *out) {
  if (call->n_in < 3 || call->n_in > 4 || call->n_out != 1) return "takes 3 or 4 inputs";
  for (uint32_t i = 0; i < call->n_in; i++) {
    if (!call->in[i] && i < 3) return "takes an image, weights and offsets";
    if (call->in[i] && call->in[i]->dtype != ITG_F32) return "its inputs must be f32";
    if (call->in[i] && call->in[i]->rank != (i < 3 ? 4 : 1)) return "an input has the wrong rank";
  }
  const attributes *a = call->attrs;
  const int64_t *x = call->in[0]->shape, *w = call->in[1]->shape, *offset = call->in[2]->shape;
  const itg_tensor *bias = call->n_in > 3 ? call->in[3] : NULL;
  if (x[1] != w[1] || (bias && bias->shape[0] != w[0])) return "channels do not fit the weights";
  int64_t extent[2];
  for (int i = 0; i < 2; i++) {
    if (a->stride[i] < 1 || a->pad[i] < 0 || a->pad[i] > 1 << 20 || w[2 + i] < 1 ||
        w[2 + i] > 1 << 10)
      return "its stride, padding or kernel is not allowed";
    const int64_t room = x[2 + i] + 2 * a->pad[i] - w[2 + i];
    if (room < 0) return "the kernel is larger than the padded image";
    extent[i] = room / a->stride[i] + 1;
  }
  if (offset[0] != x[0] || offset[1] != 2 * w[2] * w[3] || offset[2] != extent[0] ||
      offset[3] != extent[1])
    return "the offsets do not fit the result";
  if ((double)(w[1] * w[2] * w[3]) * (double)extent[1] > 1e9) return "it is too large";  // scratch
  out->dtype = ITG_F32;
  out->rank = 4;
  out->shape[0] = x[0], out->shape[1] = w[0], out->shape[2] = extent[0], out->shape[3] = extent[1];
  return NULL;
}

static uint64_t macs(const itg_call *call) {
  itg_tensor out = {0};
  if (infer(call, &out)) return 0;
  const int64_t *w = call->in[1]->shape;
  return (uint64_t)(itg_count(&out) * w[1] * w[2] * w[3]);
}

// Each part has the sampled values of one row of the result: a line for each weight of a filter.
static uint64_t scratch(const itg_call *call, uint32_t parts) {
  const int64_t *w = call->in[1]->shape;
  return parts * sizeof(float) * (uint64_t)(w[1] * w[2] * w[3] * call->out[0]->shape[3]);
}

// ---- kernels: the same source for every instruction set ----------------------------------------
// The samples of tap (ky, kx) for one row of the result, of all channels.
static inline __attribute__((always_inline)) void sample(const itg_call *call, int64_t n,
                                                         int64_t row, float *columns) {
  const attributes *a = call->attrs;
  const int64_t *shape = call->in[0]->shape, *w = call->in[1]->shape;
  const int64_t channels = shape[1], height = shape[2], width = shape[3];
  const int64_t rows = call->out[0]->shape[2], ow = call->out[0]->shape[3], taps = w[2] * w[3];
  const float *x = (const float *)call->in[0]->data + n * channels * height * width;
  const float *offset = (const float *)call->in[2]->data + n * 2 * taps * rows * ow;
  for (int64_t tap = 0; tap < taps; tap++) {
    const float *down = offset + (2 * tap * rows + row) * ow, *right = down + rows * ow;
    for (int64_t i = 0; i < ow; i++) {
      const float y = down[i] + (float)(row * a->stride[0] - a->pad[0] + tap / w[3]);
      const float z = right[i] + (float)(i * a->stride[1] - a->pad[1] + tap % w[3]);
      float *to = columns + tap * ow + i;
      if (!(y > -1 && y < (float)height && z > -1 && z < (float)width)) {  // NaN too
        for (int64_t c = 0; c < channels; c++) to[c * taps * ow] = 0;
        continue;
      }
      const int64_t top = (int64_t)floorf(y), left = (int64_t)floorf(z);
      const float fy = y - (float)top, fz = z - (float)left;
      const bool in[4] = {top >= 0 && left >= 0, top >= 0 && left + 1 < width,
                          top + 1 < height && left >= 0, top + 1 < height && left + 1 < width};
      const float by[4] = {(1 - fy) * (1 - fz), (1 - fy) * fz, fy * (1 - fz), fy * fz};
      const int64_t at = top * width + left, step[4] = {0, 1, width, width + 1};
      for (int64_t c = 0; c < channels; c++) {
        float sum = 0;
        for (int k = 0; k < 4; k++)
          if (in[k]) sum += x[c * height * width + at + step[k]] * by[k];
        to[c * taps * ow] = sum;
      }
    }
  }
}

// Part `part` of `parts` of all rows of the result.
static inline __attribute__((always_inline)) itg_words run(const itg_call *call, uint32_t part,
                                                           uint32_t parts) {
  const itg_tensor *out = call->out[0], *bias = call->n_in > 3 ? call->in[3] : NULL;
  if (itg_empty(out)) return NULL;
  const int64_t filters = out->shape[1], rows = out->shape[2], ow = out->shape[3];
  const int64_t *w = call->in[1]->shape, depth = w[1] * w[2] * w[3];
  float *columns = (float *)call->scratch + part * depth * ow;
  int64_t from, to;
  itg_share(out->shape[0] * rows, 1, part, parts, &from, &to);
  for (int64_t line = from; line < to; line++) {
    const int64_t n = line / rows, row = line % rows;
    sample(call, n, row, columns);
    for (int64_t f = 0; f < filters; f++) {
      const float *weights = (const float *)call->in[1]->data + f * depth;
      float *y = (float *)out->data + ((n * filters + f) * rows + row) * ow;
      for (int64_t i = 0; i < ow; i++) y[i] = bias ? ((const float *)bias->data)[f] : 0;
      for (int64_t k = 0; k < depth; k++)
        for (int64_t i = 0; i < ow; i++) y[i] += weights[k] * columns[k * ow + i];
    }
  }
  return NULL;
}

static itg_words run_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  return run(call, part, parts);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static itg_words run_avx2(const itg_call *call, uint32_t part,
                                                          uint32_t parts) {
  return run(call, part, parts);
}
#endif

// ---- the tables --------------------------------------------------------------------------------
static const itg_op deform_conv = {.name = "example.deform_conv",
                                   .fields = "stride:i2 pad:i2",
                                   .attrs_size = sizeof(attributes),
                                   .infer = infer,
                                   .scratch = scratch,
                                   .macs = macs,
                                   .defaults = "stride=1,1 pad=0,0",
                                   .formats = "onnx=example.ops::DeformConv"};

static const itg_kernel kernels[] = {
    // the best is the last
    {.op = &deform_conv, .types = "f32", .isa = "scalar", .run = run_scalar},
#if defined(__x86_64__)
    {.op = &deform_conv, .types = "f32", .isa = "avx2", .needs = ITG_ISA_avx2, .run = run_avx2},
#endif
};

static const itg_plugin plugin = {.abi = ITG_PLUGIN_ABI,
                                  .name = "example",
                                  .version = "1.0",
                                  .kernels = kernels,
                                  .n_kernels = sizeof kernels / sizeof *kernels};
ITG_EXPORT_PLUGIN(plugin)
