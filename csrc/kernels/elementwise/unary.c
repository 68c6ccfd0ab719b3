// Unary elementwise operations, compiled once per ISA from the formulas in unary.inc.
#include "chain.h"
#include "vmath.h"
#include "widen.h"

typedef struct rows {
  itg_unary_fn *fn[4];
} rows;  // by enum itg_wide; NULL if infer refuses the type

static inline uint64_t to_u64(double v) {
  return v >= 0x1p64 ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
}

static inline int64_t clip_i64(int64_t x, double lo, double hi) {
  int64_t a = itg_f64_to_i64(ceil(lo)), b = itg_f64_to_i64(floor(hi));
  x = x < a ? a : x;
  return x > b ? b : x;
}
static inline uint64_t clip_u64(uint64_t x, double lo, double hi) {
  uint64_t a = to_u64(ceil(lo)), b = to_u64(floor(hi));
  x = x < a ? a : x;
  return x > b ? b : x;
}
static inline int64_t shrink_i64(int64_t x, double bias, double lambd) {  // by whole steps
  uint64_t step = (uint64_t)itg_f64_to_i64(bias);
  int64_t edge = itg_f64_to_i64(lambd), low = edge == INT64_MIN ? INT64_MAX : -edge;
  return x < low ? (int64_t)((uint64_t)x + step) : x > edge ? (int64_t)((uint64_t)x - step) : 0;
}

// The dense row loop of one type; f32 runs on vectors.
#define VECTOR_ROW(name, n_args, formula)                                                  \
  static void name##_row_f32(const void *in_, void *out_, int64_t n, const double *args) { \
    const float *in = in_;                                                                 \
    float *out = out_;                                                                     \
    const vf va = vset(n_args > 0 ? (float)args[0] : 0.f),                                 \
             vb = vset(n_args > 1 ? (float)args[1] : 0.f);                                 \
    (void)va, (void)vb;                                                                    \
    int64_t i = 0;                                                                         \
    for (; i + VL <= n; i += VL) {                                                         \
      vf x = vload(in + i);                                                                \
      vstore(out + i, formula);                                                            \
    }                                                                                      \
    if (i < n) {                                                                           \
      vf x = vloadn(in + i, n - i);                                                        \
      vstoren(out + i, n - i, formula);                                                    \
    }                                                                                      \
  }
#define SCALAR_ROW(name, type, tag, n_args, formula)                                         \
  static void name##_row_##tag(const void *in_, void *out_, int64_t n, const double *args) { \
    const type *in = in_;                                                                    \
    type *out = out_;                                                                        \
    const double a = n_args > 0 ? args[0] : 0, b = n_args > 1 ? args[1] : 0;                 \
    (void)a, (void)b;                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                        \
      const type x = in[i];                                                                  \
      out[i] = formula;                                                                      \
    }                                                                                        \
  }
#define UNARY(name, fields, n_args, vector, real) \
  VECTOR_ROW(name, n_args, vector)                \
  SCALAR_ROW(name, double, f64, n_args, real)
#define UNARY_INT(name, fields, n_args, vector, real, integer, natural) \
  UNARY(name, fields, n_args, vector, real)                             \
  SCALAR_ROW(name, int64_t, i64, n_args, integer)                       \
  SCALAR_ROW(name, uint64_t, u64, n_args, natural)
#include "unary.inc"
UNARY(gelu, , 0, v_gelu(x), .5 * x * erfc(-x * M_SQRT1_2))
UNARY(gelu_tanh, , 0, v_gelu_tanh(x),
      x / (1 + exp(-1.5957691216057308 * x * (1 + .044715 * x * x))))
UNARY_INT(clip, , 2, vmin(vb, vmax(va, x)), x<a ? (a < b ? a : b) : x> b ? b : x, clip_i64(x, a, b),
          clip_u64(x, a, b))
#undef UNARY
#undef UNARY_INT

// Applies one row function to this thread's share of the tensor. Types that are not wide go through
// widened blocks.
static itg_words apply(const itg_call *call, uint32_t part, uint32_t parts, const double *args,
                       rows rows) {
  const itg_tensor *in = call->in[0];
  char *to = call->out[0]->data;
  const char *from = in->data;
  const enum itg_wide wide = itg_wide(in->dtype);
  const int64_t item = (int64_t)itg_item(in->dtype);
  itg_unary_fn *fn = rows.fn[wide];
  int64_t i, end;
  itg_share(itg_count(in), 4096, part, parts, &i, &end);
  if (item == (int64_t)itg_wide_item(wide)) {
    fn(from + i * item, to + i * item, end - i, args);
    return NULL;
  }
  for (; i < end; i += ITG_BLOCK) {
    itg_block block;
    int64_t n = end - i < ITG_BLOCK ? end - i : ITG_BLOCK;
    itg_widen(&block, from + i * item, in->dtype, n);
    fn(&block, &block, n, args);
    itg_narrow(to + i * item, &block, in->dtype, n, false);
  }
  return NULL;
}

#define UNARY(name, ...)                                                                    \
  ITG_FN(name, any) {                                                                       \
    return apply(call, part, parts, call->attrs, (rows){{name##_row_f32, name##_row_f64}}); \
  }
#define UNARY_INT(name, ...)                                                                \
  ITG_FN(name, any) {                                                                       \
    return apply(call, part, parts, call->attrs,                                            \
                 (rows){{name##_row_f32, name##_row_f64, name##_row_i64, name##_row_u64}}); \
  }
#include "unary.inc"
#undef UNARY
#undef UNARY_INT
ITG_FN(gelu, any) {
  const itg_attrs_gelu *a = call->attrs;
  return apply(call, part, parts, NULL,
               a->approximate ? (rows){{gelu_tanh_row_f32, gelu_tanh_row_f64}}
                              : (rows){{gelu_row_f32, gelu_row_f64}});
}

// Clips bytes to bounds within their range. If lo > hi, the result is hi.
static void clip_bytes(const itg_call *call, uint32_t part, uint32_t parts, int lo, int hi) {
  const uint8_t flip = call->in[0]->dtype == ITG_I8 ? 0x80 : 0, low = (uint8_t)(lo + flip),
                high = (uint8_t)(hi + flip);
  const uint8_t *from = call->in[0]->data;
  uint8_t *to = call->out[0]->data;
  int64_t i, end;
  itg_share(itg_count(call->in[0]), 4096, part, parts, &i, &end);
#pragma GCC ivdep  // in place, an element is read before it is written
  for (; i < end; i++) {
    const uint8_t x = from[i] ^ flip, above = x > low ? x : low;
    to[i] = (above < high ? above : high) ^ flip;
  }
}

ITG_FN(clip, any) {
  const itg_attrs_clip *a = call->attrs;
  double args[2] = {a->lo, a->hi};
  if (!itg_is_float(call->in[0]->dtype) &&
      itg_item(call->in[0]->dtype) < 8) {  // bounds that the type can hold
    int64_t lo, hi;
    itg_limits(call->in[0]->dtype, &lo, &hi);
    for (int i = 0; i < 2; i++) args[i] = fmin(fmax(args[i], (double)lo), (double)hi);
    if (call->in[0]->dtype == ITG_I8 || call->in[0]->dtype == ITG_U8) {
      clip_bytes(call, part, parts, (int)ceil(args[0]), (int)floor(args[1]));
      return NULL;
    }
  }
  return apply(call, part, parts, args,
               (rows){{clip_row_f32, clip_row_f64, clip_row_i64, clip_row_u64}});
}

#define ACT(name)                                                     \
  static void name##_act(float *row, int64_t n, const double *args) { \
    name##_row_f32(row, row, n, args);                                \
  }
#define NONE(name)
ITG_ACTIVATIONS(ACT, NONE)
#undef ACT
#undef NONE
#define NONE(name) , NULL
itg_act_fn itg_act(int64_t act) {
#define ACT(name) , name##_act
  static const itg_act_fn table[] = {NULL ITG_ACTIVATIONS(ACT, NONE)};
#undef ACT
  return act > 0 && act < ITG_ACT_COUNT ? table[act] : NULL;
}
void itg_slopes(float *row, const float *slope, int64_t n) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) {
    const vf x = vload(row + i);
    vstore(row + i, vselect(vlt(x, vset(0.f)), vmul(x, vload(slope + i)), x));
  }
  if (i == n) return;
  const vf x = vloadn(row + i, n - i);
  vstoren(row + i, n - i, vselect(vlt(x, vset(0.f)), vmul(x, vloadn(slope + i, n - i)), x));
}
itg_unary_fn *itg_unary(int64_t act) {
#define ROW(name) , name##_row_f32
  static itg_unary_fn *const table[] = {NULL ITG_ACTIVATIONS(ROW, NONE)};
#undef ROW
  return table[act];
}

// ---- bool and bit operations: whole bytes, no arithmetic ----------------------------------------
static void is_nan_row(const float *in, uint8_t *out, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = in[i] != in[i];
}
static void is_inf_row(const float *in, uint8_t *out, int64_t n, bool negative, bool positive) {
  for (int64_t i = 0; i < n; i++)
    out[i] = (uint8_t)((positive & (in[i] == INFINITY)) | (negative & (in[i] == -INFINITY)));
}

// Blocks of the input as f32; f64 values become f32 with NaN and inf kept, and no finite value
// turned into inf.
static void load_class(float *block, const itg_tensor *t, int64_t i, int64_t n) {
  if (t->dtype != ITG_F64) {
    itg_widen(block, (const char *)t->data + i * (int64_t)itg_item(t->dtype), t->dtype, n);
    return;
  }
  const double *x = (const double *)t->data + i;
  for (int64_t k = 0; k < n; k++) block[k] = isfinite(x[k]) ? 0.f : (float)x[k];
}

ITG_FN(is_nan, any) {
  int64_t i, end;
  itg_share(itg_count(call->in[0]), 4096, part, parts, &i, &end);
  for (; i < end; i += ITG_BLOCK) {
    float block[ITG_BLOCK];
    int64_t n = end - i < ITG_BLOCK ? end - i : ITG_BLOCK;
    load_class(block, call->in[0], i, n);
    is_nan_row(block, (uint8_t *)call->out[0]->data + i, n);
  }
  return NULL;
}

ITG_FN(is_inf, any) {
  const itg_attrs_is_inf *a = call->attrs;
  int64_t i, end;
  itg_share(itg_count(call->in[0]), 4096, part, parts, &i, &end);
  for (; i < end; i += ITG_BLOCK) {
    float block[ITG_BLOCK];
    int64_t n = end - i < ITG_BLOCK ? end - i : ITG_BLOCK;
    load_class(block, call->in[0], i, n);
    is_inf_row(block, (uint8_t *)call->out[0]->data + i, n, a->negative != 0, a->positive != 0);
  }
  return NULL;
}

ITG_FN(logical_not, any) {
  const uint8_t *in = call->in[0]->data;
  uint8_t *out = call->out[0]->data;
  int64_t i, end;
  itg_share(itg_count(call->in[0]), 4096, part, parts, &i, &end);
  for (; i < end; i++) out[i] = in[i] == 0;
  return NULL;
}

static void not_u64(const void *in_, void *out_, int64_t n, const double *args) {
  const uint64_t *in = in_;
  uint64_t *out = out_;
  for (int64_t i = 0; i < n; i++) out[i] = ~in[i];
}
ITG_FN(bitwise_not, any) {
  return apply(call, part, parts, call->attrs, (rows){{NULL, NULL, not_u64, not_u64}});
}
