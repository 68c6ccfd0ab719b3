// Types, shapes and refusals of attention.
#include "attention.h"

#define SANE(n) ((n) >= 0 && (n) <= INT64_C(1) << 32)

// Whether every row of the view lies inside the tensor, and rows of a head do not overlap. Packed
// rows are then no larger than the tensor.
static bool reaches(const itg_tensor *t, const int64_t view[4], int64_t batch, int64_t heads,
                    int64_t rows, int64_t size) {
  const int64_t counts[3] = {batch, heads, rows};
  int64_t last = view[0];
  for (int i = 0; i < 4; i++)
    if (!SANE(view[i])) return false;
  if (!batch || !heads || !rows || !size) return true;  // nothing is read
  if (rows > 1 && view[3] < size) return false;
  for (int i = 0; i < 3; i++) {
    int64_t far;
    if (__builtin_mul_overflow(counts[i] - 1, view[i + 1], &far) ||
        __builtin_add_overflow(last, far, &last))
      return false;
  }
  return !__builtin_add_overflow(last, size, &last) && last <= itg_count(t);
}

itg_words itg_infer_attention(const itg_call *call, itg_tensor *out) {
  const itg_attrs_attention *a = call->attrs;
  TAKES(3, 4, 1);
  const itg_tensor *mask = itg_input(call, 3);
  for (int i = 0; i < 3; i++) REFUSE(call->in[i]->dtype != ITG_F32, "takes f32");
  REFUSE(!SANE(a->batch) || !SANE(a->heads) || !SANE(a->rows) || !SANE(a->keys) || !SANE(a->size) ||
             !SANE(a->value_size),
         "an extent is negative or not sane");
  REFUSE(a->kv_heads < 1 || a->heads % a->kv_heads,
         "the query's heads must be a multiple of the key's");
  REFUSE(!(a->softcap >= 0), "softcap must not be negative");
  itg_set_type(out, ITG_F32, 4);
  out->shape[0] = a->batch;
  out->shape[1] = a->rows;
  out->shape[2] = a->heads;
  out->shape[3] = a->value_size;
  FITS(out);
  itg_tensor scores = {
      .dtype = ITG_F32, .rank = 4, .shape = {a->batch, a->heads, a->rows, a->keys}};
  itg_tensor packed = {.dtype = ITG_F32, .rank = 3, .shape = {a->keys, a->size, a->value_size}};
  REFUSE(!itg_countable(&scores) || !itg_countable(&packed), "the scores cannot be counted");
  REFUSE(!reaches(call->in[0], a->q_view, a->batch, a->heads, a->rows, a->size) ||
             !reaches(call->in[1], a->k_view, a->batch, a->kv_heads, a->keys, a->size) ||
             !reaches(call->in[2], a->v_view, a->batch, a->kv_heads, a->keys, a->value_size),
         "a view reaches beyond its tensor, or its rows overlap");
  if (mask) {
    itg_tensor both;
    REFUSE(mask->dtype != ITG_BOOL && mask->dtype != ITG_F32, "the mask must be bool or f32");
    REFUSE(!itg_broadcast_shapes(mask, &scores, &both) || !itg_same_shape(&both, &scores),
           "the mask does not broadcast to the scores");
  }
  return NULL;
}

itg_words itg_infer_attention_bf16(const itg_call *call, itg_tensor *out) {
  const itg_attrs_attention *a = call->attrs;  // both ops have the same fields
  itg_words words = itg_infer_attention(call, out);
  REFUSE(!words && a->size % 2, "bf16 products take pairs, of which heads must be made");
  return words;
}

uint64_t itg_scratch_attention(const itg_call *call, uint32_t parts) {
  return (uint64_t)itg_attention_of(call->attrs).total * sizeof(float) * parts;
}
