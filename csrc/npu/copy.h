// load, store, copy and resize: elements are moved without arithmetic.
#pragma once
#include "reference.h"

// Copies n elements of `item` bytes with the given strides.
static inline void copy_steps(uint8_t *to, int64_t to_step, const uint8_t *from, int64_t from_step,
                              int64_t n, int64_t item) {
  if (from_step == item && to_step == item) {
    memcpy(to, from, (size_t)(n * item));
  } else if (item == 1) {
    for (int64_t i = 0; i < n; i++) to[i * to_step] = from[i * from_step];
  } else {
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, (size_t)item);
  }
}

// Copies `lanes` channels from channel c on, which are contiguous in both features.
static void copy_lanes(const box *src, const box *dst, int64_t c, int64_t lanes) {
  const int64_t run = lanes * src->item;
  for (int64_t y = 0; y < dst->height; y++) {
    uint8_t *to = element(dst, c, y, 0);
    const uint8_t *from = element(src, c, y, 0);
    if (src->pixel == run && dst->pixel == run) {
      memcpy(to, from, (size_t)(run * dst->width));
    } else if (run == 16) {
      for (int64_t x = 0; x < dst->width; x++)
        memcpy(to + x * dst->pixel, from + x * src->pixel, 16);
    } else {
      for (int64_t x = 0; x < dst->width; x++)
        memcpy(to + x * dst->pixel, from + x * src->pixel, (size_t)run);
    }
  }
}

static void move(const machine *m, const itg_npu_move *p) {
  const box src = box_of(m, &p->head, &p->src), dst = box_of(m, &p->head, &p->dst);
  for (int64_t c = 0; c < dst.channels;) {  // runs of channels that lie in one block of both
    const int64_t here = src.c2 - (src.first + c) % src.c2,
                  there = dst.c2 - (dst.first + c) % dst.c2;
    int64_t lanes = here < there ? here : there;
    if (lanes > dst.channels - c) lanes = dst.channels - c;
    if (lanes == 1) {
      for (int64_t y = 0; y < dst.height; y++)
        copy_steps(element(&dst, c, y, 0), dst.pixel, element(&src, c, y, 0), src.pixel, dst.width,
                   src.item);
    } else {
      copy_lanes(&src, &dst, c, lanes);
    }
    c += lanes;
  }
}

static void resize(const machine *m, const itg_npu_resize *p) {
  const box src = box_of(m, &p->head, &p->src), dst = box_of(m, &p->head, &p->dst);
  for (int64_t c = 0; c < dst.channels;) {
    const int64_t here = src.c2 - (src.first + c) % src.c2,
                  there = dst.c2 - (dst.first + c) % dst.c2;
    int64_t lanes = here < there ? here : there;
    if (lanes > dst.channels - c) lanes = dst.channels - c;
    for (int64_t y = 0; y < dst.height; y++) {
      const uint8_t *from = element(&src, c, (y + p->phase[0]) / p->factor[0], 0);
      uint8_t *to = element(&dst, c, y, 0);
      for (int64_t x = 0; x < dst.width; x++, to += dst.pixel)
        memcpy(to, from + (x + p->phase[1]) / p->factor[1] * src.pixel, (size_t)(lanes * dst.item));
    }
    c += lanes;
  }
}
