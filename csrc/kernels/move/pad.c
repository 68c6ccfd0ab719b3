// Pad: constant, reflect, edge or wrap.
#include "infer.h"

enum { CONSTANT, REFLECT, EDGE, WRAP };

itg_words itg_infer_pad(const itg_call *call, itg_tensor *out) {
  const itg_attrs_pad *a = call->attrs;
  TAKES(1, 1, 1);
  REFUSE(a->mode < CONSTANT || a->mode > WRAP, "the mode is unknown");
  itg_copy_type(out, call->in[0]);
  for (int i = 0; i < out->rank; i++) {
    REFUSE(a->before[i] < 0 || a->after[i] < 0, "pads must not be negative");
    REFUSE(a->mode != CONSTANT && !out->shape[i] && (a->before[i] || a->after[i]),
           "an empty axis has nothing to continue");
    REFUSE(__builtin_add_overflow(out->shape[i], a->before[i], &out->shape[i]) ||
               __builtin_add_overflow(out->shape[i], a->after[i], &out->shape[i]),
           "the result is too large");
  }
  FITS(out);
  return NULL;
}

static int64_t modulo(int64_t x, int64_t y) { return (x % y + y) % y; }

// The element that index i in [-before, extent + after) of an axis takes; -1 for the padding value.
static int64_t source(int64_t i, int64_t extent, int64_t mode) {
  if (i >= 0 && i < extent) return i;
  if (mode == EDGE) return i < 0 ? 0 : extent - 1;
  if (mode == WRAP) return modulo(i, extent);
  if (mode == CONSTANT) return -1;
  int64_t at = modulo(i + extent - 1, extent > 1 ? 2 * extent - 2 : 1) - (extent - 1);
  return at < 0 ? -at : at;
}

static void fill(char *to, const char *value, int64_t item,
                 int64_t n) {  // by doubling the part already written
  const int64_t bytes = n * item;
  if (n < 1) return;
  memcpy(to, value, (size_t)item);
  for (int64_t done = item; done < bytes; done *= 2)
    memcpy(to + done, to, (size_t)(done < bytes - done ? done : bytes - done));
}

ITG_FN(pad, any) {
  const itg_tensor *x = call->in[0], *out = call->out[0];
  const itg_attrs_pad *a = call->attrs;
  if (itg_empty(out)) return NULL;
  const int64_t item = (int64_t)itg_item(x->dtype);
  int axis =
      x->rank -
      1;  // the last axis that is padded; a row runs over it, in units of what lies behind it
  while (axis > 0 && !a->before[axis] && !a->after[axis]) axis--;
  if (axis < 0) return memcpy(out->data, x->data, (size_t)item), NULL;
  const int64_t unit = itg_count_range(x, axis + 1, x->rank) * item, extent = x->shape[axis],
                width = out->shape[axis];
  const int64_t before = a->before[axis];
  uint64_t value = 0;
  itg_store_f64(x->dtype, &value, 0, a->value);
  int64_t row, end;
  itg_share(itg_count_range(out, 0, axis), 1, part, parts, &row, &end);
  for (; row < end; row++) {
    char *to = (char *)out->data + row * width * unit;
    int64_t rest = row, from = 0, stride = 1;
    for (int i = axis - 1; i >= 0; i--) {
      int64_t at = source(rest % out->shape[i] - a->before[i], x->shape[i], a->mode);
      from = at < 0 || from < 0 ? -1 : from + at * stride;
      stride *= x->shape[i];
      rest /= out->shape[i];
    }
    if (from < 0) {
      fill(to, (const char *)&value, item, width * unit / item);
      continue;
    }
    const char *in = (const char *)x->data + from * extent * unit;
    if (extent) memcpy(to + before * unit, in, (size_t)(extent * unit));
    if (a->mode == CONSTANT) {
      fill(to, (const char *)&value, item, before * unit / item);
      fill(to + (before + extent) * unit, (const char *)&value, item,
           (width - before - extent) * unit / item);
      continue;
    }
    for (int64_t i = 0; i < width; i++) {
      if (i == before) i += extent;
      if (i < width)
        memcpy(to + i * unit, in + source(i - before, extent, a->mode) * unit, (size_t)unit);
    }
  }
  return NULL;
}
