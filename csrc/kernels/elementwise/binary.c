// Binary elementwise operations with broadcasting, compiled once per ISA from the formulas in
// binary.inc.
#include "chain.h"
#include "loop_nest.h"
#include "vmath.h"
#include "widen.h"

typedef struct rows {
  itg_pair_fn *fn[4];  // by enum itg_wide; NULL if infer refuses the type
  bool tests;          // the rows write bools
  bool bytes;          // the rows take the stored bytes
} rows;

// ---- formulas of more than one line -------------------------------------------------------------
static inline uint64_t pow_u64(uint64_t x, uint64_t n) {
  uint64_t y = 1;
  for (; n; n >>= 1, x *= x)
    if (n & 1) y *= x;
  return y;
}
static inline int64_t pow_i64(int64_t x,
                              int64_t n) {  // 1 / x^-n cut to a whole number where n is negative
  if (n < 0) return x == 1 ? 1 : x == -1 ? (n & 1 ? -1 : 1) : 0;
  return (int64_t)pow_u64((uint64_t)x, (uint64_t)n);
}
static inline int64_t mod_i64(int64_t x, int64_t y) {  // with the sign of y
  int64_t r = y == 0 || y == -1 ? 0 : x % y;
  return r && (r < 0) != (y < 0) ? r + y : r;
}
static inline double mod_f64(double x, double y) {
  double r = fmod(x, y);
  return r == 0 ? copysign(0, y) : (r < 0) != (y < 0) ? r + y : r;
}
static inline float mod_f32(float x, float y) {
  float r = fmodf(x, y);
  return r == 0 ? copysignf(0, y) : (r < 0) != (y < 0) ? r + y : r;
}

// ---- rows ---------------------------------------------------------------------------------------
#define VECTOR_LOOP(load_a, load_b, tail_a, tail_b, formula) \
  {                                                          \
    for (; i + VL <= n; i += VL) {                           \
      const vf a = load_a, b = load_b;                       \
      vstore(out + i, formula);                              \
    }                                                        \
    if (i < n) {                                             \
      const vf a = tail_a, b = tail_b;                       \
      vstoren(out + i, n - i, formula);                      \
    }                                                        \
  }
#define VECTOR_ROW(name, formula)                                                                  \
  static void name##_row_f32(const void *x_, const void *y_, void *out_, int64_t n,                \
                             enum itg_step step) {                                                 \
    const float *x = x_, *y = y_;                                                                  \
    float *out = out_;                                                                             \
    int64_t i = 0;                                                                                 \
    if (step == BOTH_MOVE) {                                                                       \
      VECTOR_LOOP(vload(x + i), vload(y + i), vloadn(x + i, n - i), vloadn(y + i, n - i), formula) \
    } else if (step == A_STAYS) {                                                                  \
      const vf one = vset(*x);                                                                     \
      VECTOR_LOOP(one, vload(y + i), one, vloadn(y + i, n - i), formula)                           \
    } else {                                                                                       \
      const vf one = vset(*y);                                                                     \
      VECTOR_LOOP(vload(x + i), one, vloadn(x + i, n - i), one, formula)                           \
    }                                                                                              \
  }
#define COMPARE_ROW(name, test)                                                                \
  static void name##_row_f32(const void *x_, const void *y_, void *out_, int64_t n,            \
                             enum itg_step step) {                                             \
    const float *x = x_, *y = y_;                                                              \
    uint8_t *out = out_;                                                                       \
    const vf x0 = vset(*x), y0 = vset(*y);                                                     \
    int64_t i = 0;                                                                             \
    for (; i + VL <= n; i += VL)                                                               \
      vstorem(out + i,                                                                         \
              test(step == A_STAYS ? x0 : vload(x + i), step == B_STAYS ? y0 : vload(y + i))); \
    if (i < n) {                                                                               \
      uint8_t tail[VL];                                                                        \
      vstorem(tail, test(step == A_STAYS ? x0 : vloadn(x + i, n - i),                          \
                         step == B_STAYS ? y0 : vloadn(y + i, n - i)));                        \
      memcpy(out + i, tail, (size_t)(n - i));                                                  \
    }                                                                                          \
  }
#define SCALAR_ROW(name, tag, type, out_type, formula)                                \
  static void name##_row_##tag(const void *x_, const void *y_, void *out_, int64_t n, \
                               enum itg_step step) {                                  \
    const type *x = x_, *y = y_;                                                      \
    out_type *out = out_;                                                             \
    for (int64_t i = 0; i < n; i++) {                                                 \
      const type a = x[step == A_STAYS ? 0 : i], b = y[step == B_STAYS ? 0 : i];      \
      (void)b;                                                                        \
      out[i] = (out_type)(formula);                                                   \
    }                                                                                 \
  }
#define BINARY(name, infer, vector, real, integer, natural) \
  VECTOR_ROW(name, vector)                                  \
  SCALAR_ROW(name, f64, double, double, real)               \
  SCALAR_ROW(name, i64, int64_t, int64_t, integer)          \
  SCALAR_ROW(name, u64, uint64_t, uint64_t, natural)
#define COMPARE(name, test, sign)                   \
  COMPARE_ROW(name, test)                           \
  SCALAR_ROW(name, f64, double, uint8_t, a sign b)  \
  SCALAR_ROW(name, i64, int64_t, uint8_t, a sign b) \
  SCALAR_ROW(name, u64, uint64_t, uint8_t, a sign b)
#define LOGIC(name, sign) SCALAR_ROW(name, u8, uint8_t, uint8_t, (a != 0) sign(b != 0))
#define BITS(name, integer, natural)               \
  SCALAR_ROW(name, i64, int64_t, int64_t, integer) \
  SCALAR_ROW(name, u64, uint64_t, uint64_t, natural)
#include "binary.inc"
#undef BINARY
#undef COMPARE
#undef LOGIC
#undef BITS

// Powers with common exponents, without powf.
static void power(const void *x, const void *y, void *out, int64_t n, enum itg_step step) {
  const float e = *(const float *)y;
  if (step != B_STAYS || !(e == 1 || e == 2 || e == 3 || e == -1)) {
    pow_row_f32(x, y, out, n, step);
    return;
  }
  const float one = 1;
  if (e == -1) div_row_f32(&one, x, out, n, A_STAYS);
  else if (e == 1) mul_row_f32(x, &one, out, n, B_STAYS);
  else if (e == 2) mul_row_f32(x, x, out, n, BOTH_MOVE);
  else {
    const float *v = x;
    float *o = out;
    for (int64_t i = 0; i < n; i++) o[i] = v[i] * v[i] * v[i];
  }
}

// ---- broadcasting -------------------------------------------------------------------------------
// Rows shorter than this are collected into blocks first: a call per row would cost more than the
// work.
enum { SHORT_ROW = 32 };

static itg_words apply(const itg_call *call, uint32_t part, uint32_t parts, rows rows) {
  const itg_tensor *in[2] = {call->in[0], call->in[1]}, *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const uint8_t dtype = in[0]->dtype;
  const enum itg_wide wide = itg_wide(dtype);
  const int64_t item = (int64_t)itg_item(dtype), out_item = (int64_t)itg_item(out->dtype);
  const bool is_wide = rows.bytes || item == (int64_t)itg_wide_item(wide),
             narrows = !is_wide && !rows.tests;
  const itg_nest nest = itg_nest_broadcast(in, 2, out);
  const int last = nest.rank - 1;
  const int64_t inner = nest.size[last];
  const char *data[2] = {in[0]->data, in[1]->data};
  char *to = out->data;
  int64_t i, end;
  itg_share(itg_count(out), 4096, part, parts, &i, &end);
  if (i == end) return NULL;

  itg_pair_fn *fn = rows.fn[wide];
  const bool blocks = inner < SHORT_ROW && last > 0;
  const bool dense[2] = {itg_same_shape(in[0], out), itg_same_shape(in[1], out)};
  bool repeats[2] = {true, true},
       ready[2] = {false, false};  // the same row again and again; already in its block
  for (int d = 0; d < last; d++)
    for (int k = 0; k < 2; k++) repeats[k] = repeats[k] && nest.step[k][d] == 0;
  uint64_t narrow_block[2][ITG_BLOCK];
  itg_place at = itg_nest_seek(&nest, i / inner);
  for (int64_t col = i % inner; i < end;) {
    itg_block wide_block[2], result;
    const void *from[2];
    enum itg_step step = BOTH_MOVE;
    int64_t n = end - i;
    if (blocks || !is_wide) n = n < ITG_BLOCK ? n : ITG_BLOCK;
    if (blocks) {  // whole rows, so that a row that repeats is collected once
      const int64_t most = col ? inner - col : ITG_BLOCK / inner * inner;
      n = n < most ? n : most;
      itg_place next = at;
      for (int k = 0; k < 2; k++) {
        from[k] = dense[k] ? data[k] + i * item : (const char *)narrow_block[k];
        if (dense[k] || ready[k]) continue;
        next = at;
        itg_nest_collect(&nest, &next, col, k, data[k], narrow_block[k], (size_t)item, n);
        ready[k] = repeats[k] && col == 0;
      }
      at = (dense[0] || repeats[0]) && (dense[1] || repeats[1]) ? at : next;
      col = (col + n) % inner;
    } else {
      n = n < inner - col ? n : inner - col;
      for (int k = 0; k < 2; k++)
        from[k] = data[k] + (at.offset[k] + col * nest.step[k][last]) * item;
      step = nest.step[0][last] == 0 ? A_STAYS : nest.step[1][last] == 0 ? B_STAYS : BOTH_MOVE;
      col += n;
      if (col == inner) {
        col = 0;
        itg_nest_next(&nest, &at);
      }
    }
    if (!is_wide) {
      for (int k = 0; k < 2; k++) {
        bool stays = step == (k ? B_STAYS : A_STAYS);
        itg_widen(&wide_block[k], from[k], dtype, stays ? 1 : n);
        from[k] = &wide_block[k];
      }
    }
    fn(from[0], from[1], narrows ? (void *)&result : to + i * out_item, n, step);
    if (narrows) itg_narrow(to + i * out_item, &result, dtype, n, false);
    i += n;
  }
  return NULL;
}

#define ROWS(name, tests) \
  (rows) { {name##_row_f32, name##_row_f64, name##_row_i64, name##_row_u64}, tests, false }
#define BINARY(name, ...) \
  ITG_FN(name, any) { return apply(call, part, parts, ROWS(name, false)); }
#define COMPARE(name, ...) \
  ITG_FN(name, any) { return apply(call, part, parts, ROWS(name, true)); }
#define LOGIC(name, ...)                                                                     \
  ITG_FN(name, any) {                                                                        \
    return apply(call, part, parts, (rows){{NULL, NULL, NULL, name##_row_u8}, false, true}); \
  }
#define BITS(name, ...)                                                               \
  ITG_FN(name, any) {                                                                 \
    return apply(call, part, parts,                                                   \
                 (rows){{NULL, NULL, name##_row_i64, name##_row_u64}, false, false}); \
  }
#define pow_row_f32 power
#include "binary.inc"

itg_pair_fn *itg_pair(int64_t op) {
#define PAIR(name) , name##_row_f32
  static itg_pair_fn *const table[] = {NULL ITG_PAIRS(PAIR)};
#undef PAIR
  return table[op];
}

// ---- where: copies bytes, so one kernel serves every element type -------------------------------
#define CHOOSE(type)                                                                      \
  static void choose_##type(const void *a_, const void *b_, const uint8_t *c, void *out_, \
                            int64_t n, int64_t sa, int64_t sb, int64_t sc) {              \
    const type *a = a_, *b = b_;                                                          \
    type *out = out_;                                                                     \
    if (sa && sb && sc) {                                                                 \
      for (int64_t i = 0; i < n; i++) {                                                   \
        const type x = a[i], y = b[i];                                                    \
        out[i] = c[i] ? x : y;                                                            \
      }                                                                                   \
    } else if (sa && sc) {                                                                \
      const type y = *b;                                                                  \
      for (int64_t i = 0; i < n; i++) {                                                   \
        const type x = a[i];                                                              \
        out[i] = c[i] ? x : y;                                                            \
      }                                                                                   \
    } else if (sb && sc) {                                                                \
      const type x = *a;                                                                  \
      for (int64_t i = 0; i < n; i++) {                                                   \
        const type y = b[i];                                                              \
        out[i] = c[i] ? x : y;                                                            \
      }                                                                                   \
    } else {                                                                              \
      for (int64_t i = 0; i < n; i++) out[i] = c[i * sc] ? a[i * sa] : b[i * sb];         \
    }                                                                                     \
  }
CHOOSE(uint8_t)
CHOOSE(uint16_t)
CHOOSE(uint32_t)
CHOOSE(uint64_t)

ITG_FN(where, any) {
  const itg_tensor *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_nest nest = itg_nest_broadcast(call->in, 3, out);
  const int last = nest.rank - 1;
  const int64_t item = (int64_t)itg_item(out->dtype), inner = nest.size[last];
  const int64_t sa = nest.step[0][last], sb = nest.step[1][last], sc = nest.step[2][last];
  int64_t i, end;
  itg_share(itg_count(out), 4096, part, parts, &i, &end);
  itg_place at = itg_nest_seek(&nest, i / inner);
  for (int64_t col = i % inner; i < end; col = 0) {
    int64_t n = inner - col < end - i ? inner - col : end - i;
    const char *a = (const char *)call->in[0]->data + (at.offset[0] + col * sa) * item;
    const char *b = (const char *)call->in[1]->data + (at.offset[1] + col * sb) * item;
    const uint8_t *c = (const uint8_t *)call->in[2]->data + at.offset[2] + col * sc;
    char *to = (char *)out->data + i * item;
    if (item == 4) choose_uint32_t(a, b, c, to, n, sa, sb, sc);
    else if (item == 8) choose_uint64_t(a, b, c, to, n, sa, sb, sc);
    else if (item == 2) choose_uint16_t(a, b, c, to, n, sa, sb, sc);
    else choose_uint8_t(a, b, c, to, n, sa, sb, sc);
    i += n;
    itg_nest_next(&nest, &at);
  }
  return NULL;
}
