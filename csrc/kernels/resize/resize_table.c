// The tables of an interpolation, computed at run time. src/intaglio/ops/resize.py has the same
// arithmetic in numpy: positions in f32, weights in f64.
#include <math.h>

#include "infer.h"

enum { NEAREST, LINEAR, CUBIC };
enum { HALF_PIXEL, SYMMETRIC, PYTORCH, ALIGN_CORNERS, ASYMMETRIC, TF_NEAREST };
enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };
static const int64_t taps_of[] = {1, 2, 4};

itg_words itg_infer_resize_table(const itg_call *call, itg_tensor *out) {
  const itg_attrs_resize_table *a = call->attrs;
  TAKES(1, 1, 2);
  const int axis = itg_axis(a->axis, call->in[0]->rank);
  REFUSE(axis < 0, "there is no such axis");
  REFUSE(a->extent < 0 || a->extent > INT32_MAX || call->in[0]->shape[axis] > INT32_MAX,
         "the extent is not allowed");
  REFUSE(a->extent && !call->in[0]->shape[axis], "an empty axis cannot be enlarged");
  REFUSE(!(a->scale >= 0) || a->mode < 0 || a->mode > CUBIC || a->nearest_mode < 0 ||
             a->nearest_mode > CEIL || a->coordinate_transformation_mode < 0 ||
             a->coordinate_transformation_mode > TF_NEAREST,
         "a mode or the scale is not allowed");
  for (int i = 0; i < 2; i++) {
    itg_set_type(&out[i], i ? ITG_F32 : ITG_I32, 2);
    out[i].shape[0] = a->extent;
    out[i].shape[1] = taps_of[a->mode];
    FITS(&out[i]);
  }
  return NULL;
}

typedef struct axis {
  const itg_attrs_resize_table *attrs;
  int64_t extent;  // of the input
  float scale, width;
} axis;

// Where in the input output element i lies.
static float position(const axis *t, int64_t i) {
  const float y = (float)i, extent = (float)t->extent, out = (float)t->attrs->extent;
  const float centre = (y + 0.5f) / t->scale;
  switch (t->attrs->coordinate_transformation_mode) {
    case HALF_PIXEL: return centre - 0.5f;
    case SYMMETRIC: return extent / 2.0f * (1.0f - out / t->width) + centre - 0.5f;
    case PYTORCH: return t->width > 1 ? centre - 0.5f : 0;
    case ALIGN_CORNERS: return t->width == 1 ? 0 : y * (float)(t->extent - 1) / (t->width - 1.0f);
    case TF_NEAREST: return centre;
    default: return y / t->scale;
  }
}

static float nearest(const axis *t, float x) {
  switch (t->attrs->nearest_mode) {
    case PREFER_FLOOR: return ceilf(x - 0.5f);
    case PREFER_CEIL: return floorf(x + 0.5f);
    case FLOOR: return floorf(x);
    default: return ceilf(x);
  }
}

static double weight_at(const axis *t, double distance) {
  const double d = fabs(distance), a = t->attrs->cubic_coeff_a;
  if (t->attrs->mode == LINEAR) return d < 1 ? 1 - d : 0;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;
}

static int32_t inside(const axis *t, double index) {
  const double last = (double)(t->extent - 1);
  return (int32_t)(index < 0 ? 0 : index > last ? last : index);
}

itg_words itg_resize_table_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_attrs_resize_table *a = call->attrs;
  const itg_tensor *x = call->in[0];
  axis t = {a, x->shape[itg_axis(a->axis, x->rank)], 0, 0};
  if (part || !a->extent) return NULL;
  t.scale = (float)(a->scale > 0 ? a->scale : (double)a->extent / (double)t.extent);
  t.width = (float)t.extent * t.scale;
  if (fabsf(t.width - (float)a->extent) < 1e-3f) t.width = (float)a->extent;
  const int64_t taps = taps_of[a->mode];
  int32_t *index = call->out[0]->data;
  float *weight = call->out[1]->data;
  for (int64_t i = 0; i < a->extent; i++, index += taps, weight += taps) {
    const float x0 = position(&t, i);
    if (a->mode == NEAREST) {
      *index = inside(&t, nearest(&t, x0));
      *weight = 1;
      continue;
    }
    double at[4], w[4], sum = 0;
    for (int64_t k = 0; k < taps; k++) {
      at[k] = (double)floorf(x0) + (double)(k + 1 - taps / 2);
      w[k] = weight_at(&t, at[k] - (double)x0);
      if (a->exclude_outside && (at[k] < 0 || at[k] >= (double)t.extent)) w[k] = 0;
      sum += w[k];
    }
    for (int64_t k = 0; k < taps; k++) {
      index[k] = inside(&t, at[k]);
      weight[k] = (float)(a->exclude_outside ? w[k] / sum : w[k]);
    }
  }
  return NULL;
}
