// Attributes of inputs and outputs: RKNN shows pictures as NHWC, whatever the model declares.
#include <string.h>

#include "rknn_internal.h"

rk_view rk_held_view(const rk_tensor *t, const int64_t *shape, uint32_t rank, void *data) {
  rk_view v = {.data = data, .type = t->held, .fmt = RKNN_TENSOR_UNDEFINED, .n = 1, .c = 1, .h = 1};
  v.w = 1;
  if (rank == 4) {
    const bool last = t->channels_last;
    v.fmt = last ? RKNN_TENSOR_NHWC : RKNN_TENSOR_NCHW;
    v.n = shape[0];
    v.c = shape[last ? 3 : 1];
    v.h = shape[last ? 1 : 2];
    v.w = shape[last ? 2 : 3];
  } else {
    for (uint32_t i = 0; i < rank; i++) v.w *= shape[i];
  }
  v.h_stride = v.h;
  v.w_stride = v.w;
  return v;
}

static uint32_t block(const rk_model *m, rknn_tensor_type type) {
  return rk_type_size(type) == 1 ? m->platform->c2_int8 : m->platform->c2_half;
}

void rk_fill_attr(const rk_model *m, const rk_tensor *t, bool input, const int64_t *shape,
                  uint32_t rank, rk_form form, rknn_tensor_attr *attr) {
  const uint32_t index = attr->index;
  const rk_view v = rk_held_view(t, shape, rank, NULL);
  memset(attr, 0, sizeof *attr);
  attr->index = index;
  memcpy(attr->name, t->name, sizeof attr->name);
  attr->type = t->type;
  attr->qnt_type = t->quantised ? RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC : RKNN_TENSOR_QNT_NONE;
  attr->zp = t->zp;
  attr->scale = t->quantised ? t->scale : 1.0f;
  attr->fmt = RKNN_TENSOR_UNDEFINED;
  attr->n_dims = rank;
  for (uint32_t i = 0; i < rank; i++) attr->dims[i] = (uint32_t)shape[i];
  if (rank == 4) {
    const bool nhwc = input || form == RK_NATIVE_NHWC || t->channels_last;
    const int64_t pictures[4] = {v.n, v.h, v.w, v.c}, planes[4] = {v.n, v.c, v.h, v.w};
    attr->fmt = nhwc ? RKNN_TENSOR_NHWC : RKNN_TENSOR_NCHW;
    for (int i = 0; i < 4; i++) attr->dims[i] = (uint32_t)(nhwc ? pictures[i] : planes[i]);
    if (form == RK_NATIVE && t->blocked) {
      const uint32_t c2 = block(m, t->type);
      const int64_t blocks[5] = {v.n, (v.c + c2 - 1) / c2, v.h, v.w, c2};
      attr->fmt = RKNN_TENSOR_NC1HWC2;
      attr->n_dims = 5;
      for (int i = 0; i < 5; i++) attr->dims[i] = (uint32_t)blocks[i];
    }
    attr->w_stride = (uint32_t)v.w;
    attr->h_stride = input ? (uint32_t)v.h : 0;
  }
  attr->n_elems = 1;
  for (uint32_t i = 0; i < attr->n_dims; i++) attr->n_elems *= attr->dims[i];
  attr->size = attr->size_with_stride = attr->n_elems * (uint32_t)rk_type_size(attr->type);
}
