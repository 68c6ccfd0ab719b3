// Checks that several NPU instructions share: features, addresses, rounding, windows. Included by
// check.c.
#pragma once
#include "program.h"

typedef struct checker {
  const itg_npu_program *program;
  const itg_npu_instruction *at;
  uint32_t number;
  uint64_t inputs[256], outputs[16];  // bytes of each
} checker;

#define SAY(...) itg_npu_refuse(c->number, c->at, __VA_ARGS__)
#define NEED(condition, ...)                   \
  do {                                         \
    if (!(condition)) return SAY(__VA_ARGS__); \
  } while (0)
#define TRY(check)              \
  do {                          \
    itg_words wrong_ = (check); \
    if (wrong_) return wrong_;  \
  } while (0)

static bool is_real(uint8_t dtype) { return dtype == ITG_F16; }
static bool is_whole(uint8_t dtype) {
  return dtype == ITG_I8 || dtype == ITG_U8 || dtype == ITG_I16;
}

static void range_of(uint8_t dtype, int64_t *low, int64_t *high) {
  *low = dtype == ITG_I8 ? -128 : dtype == ITG_I16 ? -32768 : 0;
  *high = dtype == ITG_I8 ? 127 : dtype == ITG_I16 ? 32767 : 255;
}

// ---- features -----------------------------------------------------------------------------------
#define IN(space) (1u << (space))

static uint64_t memory_bytes(const checker *c, const itg_npu_feature *f) {
  switch (f->space) {
    case ITG_NPU_SRAM: return c->program->sram;
    case ITG_NPU_WEIGHTS: return c->program->weights;
    case ITG_NPU_INTERNAL: return c->program->internal;
    case ITG_NPU_INPUT: return f->slot < c->program->inputs ? c->inputs[f->slot] : 0;
    default: return f->slot < c->program->outputs ? c->outputs[f->slot] : 0;
  }
}

// Whether no two elements share bytes. In increasing order, each stride must be at least the bytes
// that the smaller strides span.
static bool is_disjoint(const itg_npu_feature *f) {
  uint64_t count[3] = {itg_npu_blocks(f), f->height, f->width},
           stride[3] = {f->plane, f->row, f->pixel};
  uint64_t reach = (count[0] > 1 ? f->c2 : f->channels) * itg_item(f->dtype);
  for (int left = 3; left > 0; left--) {
    int least = -1;
    for (int k = 0; k < 3; k++)
      if (count[k] && (least < 0 || stride[k] < stride[least])) least = k;
    if (count[least] > 1) {
      if (stride[least] < reach) return false;
      reach += (count[least] - 1) * stride[least];
    }
    count[least] = 0;
  }
  return true;
}

static itg_words check_feature(const checker *c, const itg_npu_feature *f, const char *what,
                               uint32_t spaces) {
  const uint64_t item = itg_item(f->dtype);
  NEED(item, "%s has element type %u, which does not exist", what, f->dtype);
  NEED(f->space <= ITG_NPU_OUTPUT && spaces >> f->space & 1,
       "%s lies in memory %u, which it cannot reach", what, f->space);
  NEED(f->channels && f->height && f->width && f->c2 && f->first < f->c2,
       "%s is empty, or begins at no lane", what);
  NEED(f->offset % item == 0 && f->plane % item == 0 && f->row % item == 0 && f->pixel % item == 0,
       "%s is not aligned to its elements", what);
  const uint64_t blocks = itg_npu_blocks(f),
                 last = ((uint64_t)f->first + f->channels - 1) % f->c2 + 1;
  const uint64_t corner =
      itg_npu_plus(itg_npu_plus(f->offset, itg_npu_times(f->height - 1, f->row)),
                   itg_npu_times(f->width - 1, f->pixel));
  uint64_t end =
      itg_npu_plus(itg_npu_plus(corner, itg_npu_times(blocks - 1, f->plane)), last * item);
  if (blocks > 1) {  // the last block but one is full, so it may end later than the last
    const uint64_t before =
        itg_npu_plus(itg_npu_plus(corner, itg_npu_times(blocks - 2, f->plane)), f->c2 * item);
    if (before > end) end = before;
  }
  NEED(end <= memory_bytes(c, f), "%s lies outside of its memory, which has %llu bytes", what,
       (unsigned long long)memory_bytes(c, f));
  const uint64_t align = c->program->align;
  NEED(f->space != ITG_NPU_SRAM || f->offset % align == 0 || f->offset % (f->c2 * item) == 0,
       "%s lies at %llu, which is no multiple of %llu, nor of a block of channels", what,
       (unsigned long long)f->offset, (unsigned long long)align);
  return NULL;
}

static itg_words check_place(const checker *c, uint64_t at, uint64_t bytes, uint32_t align,
                             const char *what) {
  NEED(at % align == 0, "its %s lie at %llu, which is no multiple of %u", what,
       (unsigned long long)at, align);
  NEED(bytes <= c->program->sram && at <= c->program->sram - bytes, "its %s lie outside of SRAM",
       what);
  return NULL;
}

static itg_words check_line(const checker *c, uint64_t at, uint64_t bytes, const char *what) {
  return check_place(c, at, bytes, c->program->align, what);
}

static bool same_box(const itg_npu_feature *a, const itg_npu_feature *b) {
  return a->offset == b->offset && a->plane == b->plane && a->row == b->row &&
         a->pixel == b->pixel && a->channels == b->channels && a->height == b->height &&
         a->width == b->width && a->c2 == b->c2 && a->first == b->first && a->space == b->space &&
         a->slot == b->slot && itg_item(a->dtype) == itg_item(b->dtype);
}

static bool same_extents(const itg_npu_feature *a, const itg_npu_feature *b) {
  return a->channels == b->channels && a->height == b->height && a->width == b->width;
}

// Refuses an instruction that writes bytes which it also reads. Only `first` and `second` may have
// exactly the place of the result.
static itg_words check_overlap(const checker *c, const itg_npu_feature *first,
                               const itg_npu_feature *second) {
  itg_npu_region all[ITG_NPU_REGIONS], box[3];
  const itg_npu_feature *dst = &c->at->move.dst, *in_place[2] = {first, second};
  const int n = itg_npu_regions_of(c->at, all);
  for (int k = 0; k < n; k++)
    for (int w = 0; w < n; w++) {
      if (!all[w].write || all[k].write || all[k].space != all[w].space ||
          !itg_npu_touch(&all[k], &all[w]))
        continue;
      bool allowed = false;
      for (int p = 0; p < 2; p++) {
        if (!in_place[p] || !same_box(in_place[p], dst)) continue;
        const int parts = itg_npu_box_regions(dst, false, box);
        for (int b = 0; b < parts; b++)
          allowed |= box[b].at == all[k].at && box[b].end == all[k].end;
      }
      NEED(allowed, "it writes to bytes that it reads");
    }
  return NULL;
}

// ---- operands, results, rounding, windows -------------------------------------------------------
static itg_words check_result(const checker *c) {
  const itg_npu_feature *dst = &c->at->move.dst;
  TRY(check_feature(c, dst, "dst", IN(ITG_NPU_SRAM)));
  NEED(is_disjoint(dst), "elements of dst lie on each other");
  return NULL;
}

static itg_words check_operand(const checker *c, const itg_npu_feature *f, const char *what,
                               bool repeats) {
  TRY(check_feature(c, f, what, IN(ITG_NPU_SRAM)));
  NEED(is_whole(f->dtype) || is_real(f->dtype), "%s is %s; i8, u8, i16 and f16 are known", what,
       itg_dtype_name(f->dtype));
  NEED(repeats || is_disjoint(f), "elements of %s lie on each other", what);
  return NULL;
}

static itg_words check_zero(const checker *c, uint8_t dtype, int32_t zero, const char *what) {
  int64_t low = 0, high = 0;  // of floats
  if (!is_real(dtype)) range_of(dtype, &low, &high);
  NEED(zero >= low && zero <= high, "%s %d is no number of %s", what, zero, itg_dtype_name(dtype));
  return NULL;
}

// Checks rounding: the bounds must fit the type of the result, or with a table the range of
// indices.
static itg_words check_round(const checker *c, int32_t zero, int32_t low, int32_t high,
                             uint32_t table, uint32_t entries, int32_t base) {
  const uint8_t dtype = c->at->move.dst.dtype;
  int64_t least = -MOST, most = MOST;
  const bool sums = dtype == ITG_I32 && !entries && is_whole(c->at->move.src.dtype) &&
                    (c->at->head.op == ITG_NPU_CONV || c->at->head.op == ITG_NPU_MATMUL);
  NEED(is_whole(dtype) || is_real(dtype) || dtype == ITG_F32 || sums,
       "dst is %s; i8, u8, i16, f16, f32 and i32 of sums are known", itg_dtype_name(dtype));
  if (!entries && !is_whole(dtype)) return NULL;  // not rounded to whole numbers at all
  if (entries && is_real(c->at->move.src.dtype)) {
    NEED(is_real(dtype), "a table of f16 makes %s; it makes f16", itg_dtype_name(dtype));
    NEED(entries == ITG_NPU_CURVE, "its table of f16 has %u entries, not %u", entries,
         ITG_NPU_CURVE);
    return check_line(c, table, 4ull * entries, "table");
  }
  if (!entries) range_of(dtype, &least, &most);
  NEED(low >= least && low <= high && high <= most && zero >= -MOST && zero <= MOST,
       "it rounds to %d .. %d about %d, which %s does not hold", low, high, zero,
       itg_dtype_name(dtype));
  if (!entries) return NULL;
  NEED(base >= -MOST && base <= MOST, "its table begins at %d", base);
  return check_line(c, table, (uint64_t)entries * itg_item(dtype), "table");
}

static itg_words check_window(const checker *c, const uint16_t *kernel, const uint16_t *stride,
                              const uint16_t *dilation, const int32_t *pad) {
  for (int k = 0; k < 2; k++) {
    NEED(kernel[k] && stride[k] && dilation[k], "its window has kernel %u, stride %u, dilation %u",
         kernel[k], stride[k], dilation[k]);
    NEED(pad[k] >= -(1 << 24) && pad[k] <= 1 << 24, "its window begins %d before the input",
         pad[k]);
  }
  const itg_npu_feature *dst = &c->at->move.dst;  // so that places stay far inside of 64 bits
  NEED(dst->height < 1u << 31 && dst->width < 1u << 31, "dst is too large");
  return NULL;
}
