// Helpers of infer functions. REFUSE returns one line of words, so that an infer function reads as
// the list of its op's rules.
#pragma once
#include "kernel.h"
#include "scalar.h"

#define REFUSE(condition, words) \
  do {                           \
    if (condition) return words; \
  } while (0)

// At least `required` inputs that are present, at most `most` of them, and exactly `outs` outputs.
#define TAKES(required, most, outs)              \
  REFUSE(!itg_arity(call, required, most, outs), \
         "takes " #required " to " #most " inputs and " #outs " outputs")

static inline bool itg_arity(const itg_call *call, uint32_t required, uint32_t most,
                             uint32_t outs) {
  if (call->n_in < required || call->n_in > most || call->n_out != outs) return false;
  for (uint32_t i = 0; i < required; i++)
    if (!call->in[i]) return false;
  return true;
}

static inline const itg_tensor *itg_input(const itg_call *call,
                                          uint32_t i) {  // NULL where it is absent
  return i < call->n_in ? call->in[i] : NULL;
}

static inline int itg_axis(int64_t axis,
                           int rank) {  // counted from the front; -1 where there is no such axis
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? -1 : (int)axis;
}

static inline void itg_set_type(itg_tensor *out, uint8_t dtype, int rank) {
  out->dtype = dtype;
  out->rank = (uint8_t)rank;
  for (int i = rank; i < ITG_MAX_RANK; i++) out->shape[i] = 0;
}

static inline bool itg_has_shape(const itg_tensor *t, int rank, const int64_t *shape) {
  if (t->rank != rank) return false;
  for (int i = 0; i < rank; i++)
    if (t->shape[i] != shape[i]) return false;
  return true;
}

// Whether every extent is valid and the size in bytes does not overflow. Empty axes count as 1, so
// that no partial product overflows either.
static inline bool itg_countable(const itg_tensor *t) {
  int64_t bytes = (int64_t)itg_item(t->dtype);
  for (int i = 0; i < t->rank; i++)
    if (t->shape[i] < 0 || __builtin_mul_overflow(bytes, t->shape[i] ? t->shape[i] : 1, &bytes))
      return false;
  return t->rank <= ITG_MAX_RANK && bytes > 0 && bytes <= INT64_MAX / 64;
}
#define FITS(out) REFUSE(!itg_countable(out), "the result is too large")

// Broadcasts the shapes of a and b to `out` (which may be a) by numpy's rules; false if that is
// impossible.
static inline bool itg_broadcast_shapes(const itg_tensor *a, const itg_tensor *b, itg_tensor *out) {
  int rank = a->rank > b->rank ? a->rank : b->rank;
  int64_t shape[ITG_MAX_RANK] = {0};
  for (int i = 0; i < rank; i++) {
    int64_t x = i < rank - a->rank ? 1 : a->shape[i - (rank - a->rank)];
    int64_t y = i < rank - b->rank ? 1 : b->shape[i - (rank - b->rank)];
    if (x != y && x != 1 && y != 1) return false;
    shape[i] = x == 1 ? y : x;
  }
  out->rank = (uint8_t)rank;
  for (int i = 0; i < ITG_MAX_RANK; i++) out->shape[i] = shape[i];
  return true;
}
