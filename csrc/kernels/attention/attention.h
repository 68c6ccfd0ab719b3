// Block sizes of attention, which its run and scratch functions share.
#pragma once
#include "infer.h"

enum {
  ITG_KEYS = 512,         // keys of a block: only their scores are kept
  ITG_SCORES = 12 << 10,  // floats of scores at a time
  ITG_ROWS = 126,         // most rows of a block
  ITG_FEW = 3,            // rows up to which packing keys and values does not pay
};

typedef struct itg_attention {  // block sizes, and floats of each array in a thread's scratch
  int64_t keys, stride;         // keys of a block; floats from one row of scores to the next
  int64_t rows;                 // most rows of a block
  int64_t packed_keys, packed_values, scores, queries, sums, states, total;
} itg_attention;

static inline int64_t itg_whole(int64_t n) { return (n + 15) / 16 * 16; }
static inline int64_t itg_least(int64_t a, int64_t b) { return a < b ? a : b; }

// Fewer keys allow more rows in a block. `total` has room for the most rows, so that an attention
// with fewer rows or keys never needs more: sessions reserve it for their largest shapes.
static inline itg_attention itg_attention_of(const itg_attrs_attention *a) {
  itg_attention s = {.keys = itg_least(a->keys, ITG_KEYS)};
  const bool few = a->rows <= ITG_FEW;
  const int64_t most = itg_least(a->rows, ITG_ROWS);
  s.stride = itg_whole(s.keys);
  s.rows = itg_least(ITG_SCORES / (s.stride ? s.stride : 1) / 7 * 7, ITG_ROWS);
  if (s.rows < 7) s.rows = 7;
  if (s.rows > a->rows) s.rows = a->rows;
  s.packed_keys = few ? 0 : itg_whole(a->keys) * a->size;
  s.packed_values = few ? 0 : a->keys * itg_whole(a->value_size);
  s.scores = s.rows * s.stride;
  s.queries = few ? 0 : s.rows * itg_whole(a->size);  // as bf16 where products are
  s.sums = s.keys < a->keys ? itg_whole(s.rows * a->value_size) : 0;
  s.states =
      itg_whole(3 * s.rows) + s.stride;  // top, total and mask of each row; a line of the mask
  s.total = itg_whole(s.packed_keys) + itg_whole(s.packed_values) +
            itg_least(most * s.stride, ITG_SCORES + 7 * s.stride) +
            (few ? 0 : most * itg_whole(a->size)) +
            (s.keys < a->keys ? itg_whole(most * a->value_size) : 0) + itg_whole(3 * most) +
            s.stride;
  return s;
}
