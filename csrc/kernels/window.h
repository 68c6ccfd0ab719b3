// Sliding windows over one to three spatial axes.
#pragma once
#include "infer.h"

// out[i] = number of windows along axis i; pad is (begin..., end...).
static inline itg_words itg_window_shape(int n, const int64_t *extent, const int64_t *kernel,
                                         const int64_t *stride, const int64_t *pad,
                                         const int64_t *dilation, int64_t *out) {
  const int64_t most = INT64_C(1) << 30;  // products of two stay far from overflow
  for (int i = 0; i < n; i++) {
    REFUSE(stride[i] < 1 || dilation[i] < 1 || stride[i] > most || dilation[i] > most,
           "stride or dilation is not sane");
    REFUSE(pad[i] < 0 || pad[n + i] < 0 || pad[i] > most || pad[n + i] > most, "pad is not sane");
    REFUSE(kernel[i] < 1 || kernel[i] > most || extent[i] > most * most,
           "the window or its tensor is not sane");
    const int64_t room = extent[i] + pad[i] + pad[n + i] - dilation[i] * (kernel[i] - 1) - 1;
    REFUSE(room < 0, "the window does not fit into the padded tensor");
    out[i] = room / stride[i] + 1;
  }
  return NULL;
}

// ---- the same as one record: conv, depthwise, conv_transpose, pool ------------------------------
enum { ITG_AXES = 3 };

typedef struct itg_window {  // always three axes: those that an image lacks have extent 1
  int64_t in[ITG_AXES], out[ITG_AXES], kernel[ITG_AXES], stride[ITG_AXES], dilation[ITG_AXES],
      before[ITG_AXES];
} itg_window;

// Sets all of `w` except `out`; `pad` is (begin.., end..), `first` the index of the first spatial
// axis.
static inline itg_words itg_window_of(const itg_tensor *x, int first, int axes,
                                      const int64_t *kernel, const int64_t *stride,
                                      const int64_t *dilation, const int64_t *pad, itg_window *w) {
  const int64_t most = 1 << 24;  // no image in memory is so large that products with this overflow
  int64_t taps = 1;
  REFUSE(axes < 1 || axes > ITG_AXES, "takes images of one to three spatial axes");
  for (int i = 0; i < ITG_AXES; i++) {
    w->in[i] = w->out[i] = w->kernel[i] = w->stride[i] = w->dilation[i] = 1;
    w->before[i] = 0;
  }
  for (int i = 0; i < axes; i++) {
    int to = ITG_AXES - axes + i;
    REFUSE(kernel[i] < 1 || stride[i] < 1 || dilation[i] < 1,
           "kernel, stride and dilation must be at least 1");
    REFUSE(kernel[i] > most || stride[i] > most || dilation[i] > most,
           "kernel, stride or dilation is absurdly large");
    REFUSE(pad[i] < 0 || pad[axes + i] < 0, "pad is negative");
    REFUSE(pad[i] > most || pad[axes + i] > most, "pad is absurdly large");
    REFUSE(x->shape[first + i] > most * most, "the image is absurdly large");
    taps *= kernel[i];
    REFUSE(taps > 1 << 24, "the kernel is absurdly large");
    w->in[to] = x->shape[first + i];
    w->kernel[to] = kernel[i];
    w->stride[to] = stride[i];
    w->dilation[to] = dilation[i];
    w->before[to] = pad[i];
  }
  return NULL;
}

// Computes the number of windows: sets w->out and the spatial extents of `y`.
static inline itg_words itg_slide(itg_window *w, int first, int axes, const int64_t *pad,
                                  itg_tensor *y) {
  for (int i = 0; i < axes; i++) {
    int to = ITG_AXES - axes + i;
    int64_t span = w->in[to] + pad[i] + pad[axes + i] - (w->kernel[to] - 1) * w->dilation[to] - 1;
    REFUSE(span < 0, "the window does not fit into the padded image");
    y->shape[first + i] = w->out[to] = span / w->stride[to] + 1;
  }
  FITS(y);
  return NULL;
}

static inline int64_t itg_taps(const itg_window *w) {
  return w->kernel[0] * w->kernel[1] * w->kernel[2];
}
static inline int64_t itg_places(const int64_t *n) { return n[0] * n[1] * n[2]; }

// The taps [begin, end) along axis d that lie inside the image if tap 0 is at `from`.
static inline void itg_taps_inside(const itg_window *w, int d, int64_t from, int64_t *begin,
                                   int64_t *end) {
  const int64_t room = w->in[d] - from;
  *begin = 0;
  *end = w->kernel[d];
  if (from < 0) *begin = (-from + w->dilation[d] - 1) / w->dilation[d];
  if (room <= (w->kernel[d] - 1) * w->dilation[d])
    *end = room <= 0 ? 0 : (room + w->dilation[d] - 1) / w->dilation[d];
}
