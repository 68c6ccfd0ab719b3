// Tensors in the caller's memory: element types, layouts, strides, and the copy between two of
// them.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rknn_api.h"

// A tensor of four axes, or of any other number: then all elements are one row, w.
typedef struct rk_view {
  void *data;
  rknn_tensor_type type;
  rknn_tensor_format fmt;
  int64_t n, c, h, w;
  int64_t h_stride, w_stride;  // at least h and w
  int64_t c2;                  // of NC1HWC2
} rk_view;

// What happens to values on the way, per channel: first (x - zp) * scale, then x * std + mean; of
// outputs x / scale + zp. NULL or 0: nothing.
typedef struct rk_change {
  float from_scale, to_scale;
  int32_t from_zp, to_zp;
  const float *mean, *std;  // one number per channel, or one
  uint32_t n_mean, n_std;
} rk_change;

size_t rk_type_size(rknn_tensor_type type);  // 0: no whole number of bytes, or unknown
uint64_t rk_view_bytes(const rk_view *view);
// Do both lie in memory in the same way, without anything between elements?
bool rk_same_bytes(const rk_view *a, const rk_view *b);
void rk_copy(const rk_view *from, const rk_view *to, const rk_change *change);

float rk_half_to_float(uint16_t half);
uint16_t rk_float_to_half(float value);
uint16_t rk_float_to_bf16(float value);
