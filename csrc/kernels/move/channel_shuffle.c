// cpu.deal: channel_shuffle of channel-last tensors. It reads one tensor, or one per group (a
// concat before the shuffle), and writes all output channels or a slice of them.
#include "infer.h"

itg_words itg_infer_deal(const itg_call *call, itg_tensor *out) {
  const itg_attrs_deal *a = call->attrs;
  REFUSE(call->n_in < 1 || call->n_out != 1 || !call->in[0],
         "takes one input or more and one output");
  itg_copy_type(out, call->in[0]);
  REFUSE(out->rank < 1, "takes tensors with channels");
  REFUSE(a->groups < 1 || (call->n_in > 1 && call->n_in != a->groups),
         "takes one tensor, or one per group");
  for (uint32_t i = 1; i < call->n_in; i++)
    REFUSE(!call->in[i] || call->in[i]->dtype != out->dtype || !itg_same_shape(call->in[i], out),
           "the inputs differ");
  int64_t channels = out->shape[out->rank - 1];
  REFUSE(call->n_in == 1 && channels % a->groups, "the groups do not divide the channels");
  if (call->n_in > 1)
    REFUSE(__builtin_mul_overflow(channels, a->groups, &channels), "the result is too large");
  REFUSE(a->start < 0 || a->stop > channels || a->start > a->stop,
         "the channels to keep are not among those dealt");
  out->shape[out->rank - 1] = a->stop - a->start;
  FITS(out);
  return NULL;
}

// Interleaves two groups of n channels, 16 bytes of each at a time; the last 16 may repeat some.
typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
#ifdef __clang__
#define SHUFFLE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define SHUFFLE(x, y, ...) __builtin_shuffle(x, y, (bytes){__VA_ARGS__})
#endif

INLINE void pair(const char *a, const char *b, char *out, int64_t at, const int64_t ITEM) {
  const bytes x = *(const bytes *)(a + at), y = *(const bytes *)(b + at);
  bytes low, high;
  if (ITEM == 1) {
    low = SHUFFLE(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high = SHUFFLE(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  } else {
    low = SHUFFLE(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    high = SHUFFLE(x, y, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  *(bytes *)(out + 2 * at) = low;
  *(bytes *)(out + 2 * at + 16) = high;
}

INLINE void pairs(const char *a, const char *b, char *out, int64_t n, const int64_t ITEM) {
  const int64_t all = n * ITEM;
  if (all < 16) {
    for (int64_t i = 0; i < all; i += ITEM) {
      __builtin_memcpy(out + 2 * i, a + i, (size_t)ITEM);
      __builtin_memcpy(out + 2 * i + ITEM, b + i, (size_t)ITEM);
    }
    return;
  }
  for (int64_t at = 0; at + 16 <= all; at += 16) pair(a, b, out, at, ITEM);
  if (all % 16) pair(a, b, out, all - 16, ITEM);
}

typedef struct deal {
  const itg_call *call;
  int64_t groups, start, stop;
  int64_t pitch,
      group;  // bytes from pixel to pixel, and from group to group where there is one tensor
} deal;

INLINE const char *group_of(const deal *d, int64_t g, int64_t pixel) {
  const itg_tensor *const *in = d->call->in;
  const char *from = d->call->n_in > 1 ? in[g]->data : (const char *)in[0]->data + g * d->group;
  return from + pixel * d->pitch;
}

INLINE void run(const deal *d, int64_t from, int64_t to, const int64_t ITEM) {
  const int64_t wide = (d->stop - d->start) * ITEM;
  char *out = (char *)d->call->out[0]->data + from * wide;
  const bool two = (ITEM == 1 || ITEM == 4) && d->groups == 2 && d->start % 2 == 0 &&
                   (d->stop - d->start) % 2 == 0;
  for (int64_t p = from; p < to; p++, out += wide) {
    if (two) {
      const int64_t first = d->start / 2 * ITEM;
      pairs(group_of(d, 0, p) + first, group_of(d, 1, p) + first, out, (d->stop - d->start) / 2,
            ITEM);
      continue;
    }
    for (int64_t g = 0; g < d->groups;
         g++) {  // channel i of group g becomes channel i * groups + g
      const char *in = group_of(d, g, p);
      const int64_t skip = (d->start - g + d->groups - 1) / d->groups, i = d->start > g ? skip : 0;
      for (int64_t j = i * d->groups + g; j < d->stop; j += d->groups)
        __builtin_memcpy(out + (j - d->start) * ITEM, in + (j / d->groups) * ITEM, (size_t)ITEM);
    }
  }
}

ITG_FN(deal, any) {
  const itg_attrs_deal *a = call->attrs;
  const itg_tensor *x = call->in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int64_t item = (int64_t)itg_item(x->dtype), channels = x->shape[x->rank - 1];
  const deal d = {call, a->groups, a->start, a->stop, channels * item, channels / a->groups * item};
  int64_t from, to;
  itg_share(itg_count(out) / (a->stop - a->start), 1, part, parts, &from, &to);
  if (item == 1) run(&d, from, to, 1);
  else if (item == 2) run(&d, from, to, 2);
  else if (item == 4) run(&d, from, to, 4);
  else run(&d, from, to, 8);
  return NULL;
}
