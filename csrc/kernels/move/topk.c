// Top-k and unique. Elements of every type are compared through 64-bit keys that order as the
// elements do; NaN is the largest, and -0 equals 0.
#include "index.h"
#include "infer.h"

static uint64_t key(uint8_t dtype, const void *data, int64_t i) {
  const uint64_t top = UINT64_C(1) << 63;
  if (itg_is_float(dtype)) {
    double x = itg_load_f64(dtype, data, i);
    if (x != x) return UINT64_MAX;
    x += 0.0;  // makes -0 positive
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & top ? ~bits : bits | top;
  }
  return (uint64_t)itg_load_i64(dtype, data, i) ^ (dtype == ITG_U64 ? 0 : top);
}

// ---- topk ---------------------------------------------------------------------------------------
itg_words itg_infer_topk(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 2);
  const itg_attrs_topk *attrs = call->attrs;
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(attrs->axis, x->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  REFUSE(attrs->k < 0 || attrs->k > x->shape[axis],
         "k must lie between 0 and the extent of the axis");
  itg_copy_type(&out[0], x);
  out[0].shape[axis] = attrs->k;
  itg_copy_type(&out[1], &out[0]);
  out[1].dtype = ITG_I64;
  return NULL;
}

uint64_t itg_scratch_topk(const itg_call *call,
                          uint32_t parts) {  // the keys of one line for each part
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(((const itg_attrs_topk *)call->attrs)->axis, x->rank);
  return itg_empty(x) ? 0 : (uint64_t)x->shape[axis] * parts * sizeof(uint64_t);
}

static bool comes_after(const uint64_t *keys, int64_t a,
                        int64_t b) {  // of equals, the first comes first
  return keys[a] < keys[b] || (keys[a] == keys[b] && a > b);
}

// Restores the heap below `i`. The root is the element that comes last in the result. Elements are
// `step` apart.
static void sift_down(const uint64_t *keys, int64_t *heap, int64_t step, int64_t i, int64_t n) {
  const int64_t moving = heap[i * step];
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && comes_after(keys, heap[(child + 1) * step], heap[child * step])) child++;
    if (!comes_after(keys, heap[child * step], moving)) break;
    heap[i * step] = heap[child * step];
  }
  heap[i * step] = moving;
}

// The positions of the k largest of n keys, in order.
static void select_largest(const uint64_t *keys, int64_t n, int64_t *at, int64_t step, int64_t k) {
  for (int64_t i = 0; i < k; i++) at[i * step] = i;
  for (int64_t i = k / 2; i-- > 0;) sift_down(keys, at, step, i, k);
  for (int64_t i = k; i < n; i++) {
    if (!comes_after(keys, at[0], i)) continue;
    at[0] = i;
    sift_down(keys, at, step, 0, k);
  }
  for (int64_t last = k - 1; last > 0; last--) {
    const int64_t worst = at[0];
    at[0] = at[last * step];
    at[last * step] = worst;
    sift_down(keys, at, step, 0, last);
  }
}

ITG_FN(topk, any) {
  if (itg_empty(call->out[0])) return NULL;
  const itg_attrs_topk *attrs = call->attrs;
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(attrs->axis, x->rank);
  const int64_t n = x->shape[axis], k = attrs->k, inner = itg_count_range(x, axis + 1, x->rank);
  const int64_t item = (int64_t)itg_item(x->dtype);
  int64_t line, end;
  uint64_t *keys = (uint64_t *)call->scratch + part * n;
  itg_share(itg_count_range(x, 0, axis) * inner, 1, part, parts, &line, &end);
  for (; line < end; line++) {
    const int64_t from = line / inner * n * inner + line % inner,
                  to = line / inner * k * inner + line % inner;
    int64_t *at = (int64_t *)call->out[1]->data + to;
    if (x->dtype == ITG_F32)
      for (int64_t i = 0; i < n; i++) keys[i] = key(ITG_F32, x->data, from + i * inner);
    else
      for (int64_t i = 0; i < n; i++) keys[i] = key(x->dtype, x->data, from + i * inner);
    if (!attrs->largest)
      for (int64_t i = 0; i < n; i++) keys[i] = ~keys[i];
    select_largest(keys, n, at, inner, k);
    for (int64_t i = 0; i < k; i++)
      itg_move((char *)call->out[0]->data + (to + i * inner) * item,
               (const char *)x->data + (from + at[i * inner] * inner) * item, item);
  }
  return NULL;
}

// ---- unique: outputs are the distinct slices, where each is first, which one every slice is, how
// often ----
itg_words itg_infer_unique(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 4);
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(((const itg_attrs_unique *)call->attrs)->axis, x->rank);
  REFUSE(axis < 0, "axis is not an axis of the data");
  itg_copy_type(&out[0], x);
  for (int i = 1; i < 4; i++) {
    itg_set_type(&out[i], ITG_I64, 1);
    out[i].shape[0] = x->shape[axis];
  }
  return NULL;
}

uint64_t itg_scratch_unique(const itg_call *call, uint32_t parts) {
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(((const itg_attrs_unique *)call->attrs)->axis, x->rank);
  return (uint64_t)x->shape[axis] * 4 * sizeof(int64_t);
}

typedef struct slices {
  const itg_tensor *x;
  int64_t n, outer, inner;
} slices;

static int compare(const slices *s, int64_t a, int64_t b) {
  for (int64_t o = 0; o < s->outer; o++)
    for (int64_t i = 0; i < s->inner; i++) {
      const uint64_t p = key(s->x->dtype, s->x->data, (o * s->n + a) * s->inner + i);
      const uint64_t q = key(s->x->dtype, s->x->data, (o * s->n + b) * s->inner + i);
      if (p != q) return p < q ? -1 : 1;
    }
  return 0;
}

// Stable merge sort of slice numbers, bottom up; returns the one of the two buffers that holds the
// result.
static int64_t *sort(const slices *s, int64_t *from, int64_t *to) {
  for (int64_t i = 0; i < s->n; i++) from[i] = i;
  for (int64_t run = 1; run < s->n; run *= 2) {
    for (int64_t start = 0; start < s->n; start += 2 * run) {
      const int64_t middle = start + run < s->n ? start + run : s->n;
      const int64_t end = start + 2 * run < s->n ? start + 2 * run : s->n;
      for (int64_t a = start, b = middle, i = start; i < end; i++)
        to[i] =
            b == end || (a < middle && compare(s, from[a], from[b]) <= 0) ? from[a++] : from[b++];
    }
    int64_t *sorted = to;
    to = from;
    from = sorted;
  }
  return from;
}

ITG_FN(unique, any) {
  if (part) return NULL;
  const itg_attrs_unique *attrs = call->attrs;
  const itg_tensor *x = call->in[0];
  const int axis = itg_axis(attrs->axis, x->rank);
  const int64_t n = x->shape[axis];
  const int64_t outer = itg_empty(x) ? 0 : itg_count_range(x, 0, axis);
  const slices s = {x, n, outer, itg_count_range(x, axis + 1, x->rank)};
  int64_t *buffer = call->scratch, *first = buffer + 2 * n, *count = buffer + 3 * n;
  int64_t *where = call->out[1]->data, *inverse = call->out[2]->data, *counts = call->out[3]->data;
  const int64_t *order = sort(&s, buffer, buffer + n);
  int64_t groups = 0;
  for (int64_t i = 0; i < n; i++) {
    if (i == 0 || compare(&s, order[i - 1], order[i])) {
      first[groups] = order[i];
      count[groups++] = 0;
    }
    count[groups - 1]++;
    inverse[order[i]] = groups - 1;
  }
  int64_t *rank = buffer;  // of each group in the result
  if (attrs->sorted) {
    for (int64_t g = 0; g < groups; g++) rank[g] = g;
  } else {
    for (int64_t i = 0, next = 0; i < n; i++)
      if (first[inverse[i]] == i) rank[inverse[i]] = next++;
  }
  for (int64_t g = 0; g < groups; g++) {
    where[rank[g]] = first[g];
    counts[rank[g]] = count[g];
  }
  for (int64_t i = 0; i < n; i++) inverse[i] = rank[inverse[i]];
  const int64_t bytes = s.inner * (int64_t)itg_item(x->dtype);
  char *out = call->out[0]->data;
  for (int64_t o = 0; o < s.outer; o++)
    for (int64_t g = 0; g < groups; g++, out += bytes)
      itg_move(out, (const char *)x->data + (o * n + where[g]) * bytes, bytes);
  call->out[0]->shape[axis] = call->out[1]->shape[0] = call->out[3]->shape[0] = groups;
  return NULL;
}
