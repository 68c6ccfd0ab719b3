// The bytes that an instruction touches, and whether two sets of bytes overlap.
#include <string.h>

#include "program.h"

static void add_dim(itg_npu_region *r, uint64_t count, uint32_t stride) {
  if (count < 2 || !stride) return;
  int k = r->dims++;
  for (; k > 0 && r->dim[k - 1].stride < stride; k--) r->dim[k] = r->dim[k - 1];
  r->dim[k].count = (uint32_t)count;
  r->dim[k].stride = stride;
}

// Merges contiguous runs and computes the end of the region.
static void finish(itg_npu_region *r) {
  while (r->dims && r->dim[r->dims - 1].stride <= r->run) {
    r->dims--;
    r->run += (uint64_t)(r->dim[r->dims].count - 1) * r->dim[r->dims].stride;
  }
  r->end = r->at + r->run;
  for (int k = 0; k < r->dims; k++) r->end += (uint64_t)(r->dim[k].count - 1) * r->dim[k].stride;
}

int itg_npu_box_regions(const itg_npu_feature *f, bool write, itg_npu_region *to) {
  const uint64_t item = itg_item(f->dtype), blocks = itg_npu_blocks(f);
  const uint64_t last =
      ((uint64_t)f->first + f->channels - 1) % f->c2 + 1;  // lanes of the last block
  int n = 0;
  for (uint64_t block = 0; block < blocks;) {  // only the first and the last block may be partial
    const bool whole = (block || !f->first) && (block + 1 < blocks || last == f->c2);
    const uint64_t low = block ? 0 : f->first, high = block + 1 == blocks ? last : f->c2;
    uint64_t count = 1;
    if (whole) count = blocks - block - (last == f->c2 ? 0 : 1);
    itg_npu_region *r = &to[n++];
    *r = (itg_npu_region){.at = f->offset + block * f->plane + low * item,
                          .run = (high - low) * item,
                          .space = f->space,
                          .slot = f->slot,
                          .write = write};
    add_dim(r, count, f->plane);
    add_dim(r, f->height, f->row);
    add_dim(r, f->width, f->pixel);
    finish(r);
    block += count;
  }
  return n;
}

// Bytes of a table. Its entries have the type of dst; those of a curve of f16 are f32.
static uint64_t table_bytes(uint32_t entries, const itg_npu_feature *src,
                            const itg_npu_feature *dst) {
  return (uint64_t)entries * (src->dtype == ITG_F16 ? 4 : itg_item(dst->dtype));
}

static int line(uint64_t at, uint64_t bytes, itg_npu_region *to) {
  if (!bytes) return 0;
  *to = (itg_npu_region){.at = at, .end = at + bytes, .run = bytes, .space = ITG_NPU_SRAM};
  return 1;
}

int itg_npu_regions_of(const itg_npu_instruction *i, itg_npu_region *to) {
  if (i->head.op == ITG_NPU_BARRIER) return 0;
  int n = itg_npu_box_regions(&i->move.src, false, to);
  n += itg_npu_box_regions(&i->move.dst, true, to + n);
  switch (i->head.op) {
    case ITG_NPU_CONV:
    case ITG_NPU_DEPTHWISE:
      if (i->product.residual.channels)
        n += itg_npu_box_regions(&i->product.residual, false, to + n);
      n += line(i->product.weights, i->product.weight_bytes, to + n);
      n += line(i->product.params, itg_npu_param_bytes(&i->product), to + n);
      n += line(i->product.table, table_bytes(i->product.entries, &i->product.src, &i->product.dst),
                to + n);
      break;
    case ITG_NPU_ELTWISE:
      n += itg_npu_box_regions(&i->eltwise.other, false, to + n);
      n += line(i->eltwise.table, table_bytes(i->eltwise.entries, &i->eltwise.src, &i->eltwise.dst),
                to + n);
      break;
    case ITG_NPU_LUT:
      n += line(i->lut.table, table_bytes(i->lut.entries, &i->lut.src, &i->lut.dst), to + n);
      break;
    case ITG_NPU_MATMUL: n += itg_npu_box_regions(&i->matmul.other, false, to + n); break;
    default: break;
  }
  return n;
}

// ---- overlap of two regions ---------------------------------------------------------------------
static int64_t span(const itg_npu_region *r, int from) {  // bytes of dimensions `from` and up
  int64_t bytes = (int64_t)r->run;
  for (int k = from; k < r->dims; k++) bytes += (int64_t)(r->dim[k].count - 1) * r->dim[k].stride;
  return bytes;
}

enum { CANDIDATES = 8 };  // offsets that are compared; with more the regions count as overlapping

// Whether dimensions i and up of a overlap dimensions j and up of b, which starts `by` bytes after
// a.
static bool overlap(const itg_npu_region *a, int i, const itg_npu_region *b, int j, int64_t by) {
  const int64_t long_a = span(a, i), long_b = span(b, j);
  if (by >= long_a || -by >= long_b) return false;
  if (i == a->dims && j == b->dims) return true;
  const uint32_t stride_a = i < a->dims ? a->dim[i].stride : 0,
                 stride_b = j < b->dims ? b->dim[j].stride : 0;
  if (stride_b > stride_a) return overlap(b, j, a, i, -by);
  const bool both = stride_a == stride_b;
  const int64_t stride = stride_a, short_a = span(a, i + 1),
                short_b = both ? span(b, j + 1) : long_b;
  // k * stride is the offset of a part of a (minus that of a part of b if both have this stride);
  // only parts with k in [low, high] can overlap b
  int64_t low = by - short_a + 1, high = by + short_b - 1;
  low = low >= 0 ? (low + stride - 1) / stride : -(-low / stride);
  high = high >= 0 ? high / stride : -((-high + stride - 1) / stride);
  const int64_t least = both ? -(int64_t)(b->dim[j].count - 1) : 0,
                most = (int64_t)a->dim[i].count - 1;
  if (low < least) low = least;
  if (high > most) high = most;
  if (high - low >= CANDIDATES) return true;
  for (int64_t k = low; k <= high; k++)
    if (overlap(a, i + 1, b, both ? j + 1 : j, by - k * stride)) return true;
  return false;
}

bool itg_npu_touch(const itg_npu_region *a, const itg_npu_region *b) {
  if (a->at >= b->end || b->at >= a->end) return false;
  return overlap(a, 0, b, 0, (int64_t)(b->at - a->at));
}

// ---- sets of bytes: a bit for each --------------------------------------------------------------
bool itg_npu_mark(uint8_t *bits, uint64_t at, uint64_t count, bool set) {
  bool all = true;
  while (count) {
    const uint64_t skip = at % 8, some = 8 - skip < count ? 8 - skip : count;
    if (some == 8 && count >= 64) {  // whole words
      const uint64_t words = count / 64;
      if (set) memset(bits + at / 8, 0xff, words * 8);
      for (uint64_t w = 0; !set && w < words * 8; w++) all &= bits[at / 8 + w] == 0xff;
      at += words * 64, count -= words * 64;
      continue;
    }
    const uint8_t mask = (uint8_t)(((1u << some) - 1) << skip);
    if (set) bits[at / 8] |= mask;
    all &= (bits[at / 8] & mask) == mask;
    at += some, count -= some;
  }
  return all;
}

bool itg_npu_mark_region(uint8_t *bits, uint64_t at, const itg_npu_region *r, bool set) {
  uint64_t count[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  bool all = true;
  for (int k = 0; k < r->dims; k++) count[k] = r->dim[k].count, stride[k] = r->dim[k].stride;
  for (uint64_t i = 0; i < count[0]; i++)
    for (uint64_t j = 0; j < count[1]; j++)
      for (uint64_t k = 0; k < count[2]; k++)
        all &= itg_npu_mark(bits, at + i * stride[0] + j * stride[1] + k * stride[2], r->run, set);
  return all;
}
