// Reductions over any set of axes. Rows are reduced in vectors over short stretches, and stretches
// are added in f64: sums are at least as accurate as pairwise summation.
#include "vec.h"
#include "widen.h"

enum kind { SUM, MEAN, PROD, MAX, MIN };
enum {
  ACCS = VL == 1 ? 16 : 4,   // accumulators
  STRETCH = ACCS * VL * 16,  // elements of a stretch: 16 additions in a row, then f64
  ROWS = 16,
};

// Results of one block of outputs: f64 for floats, u64 for sums and products of integers.
typedef union totals {
  double real[ITG_BLOCK];
  int64_t integer[ITG_BLOCK];
  uint64_t natural[ITG_BLOCK];
} totals;

// ---- stretches ----------------------------------------------------------------------------------
// row_fn reduces n contiguous elements to one. columns_fn reduces `rows` rows of n elements, `step`
// apart, to one row. n and rows >= 1.
typedef void row_fn(const void *x, int64_t n, void *out);
typedef void columns_fn(const void *x, int64_t rows, int64_t step, int64_t n, void *out);

#define FOLD_F32(name, start, formula)                                                         \
  static inline vf name##_v(vf a, vf b) { return formula; }                                    \
  static void name##_row_f32(const void *x_, int64_t n, void *out) {                           \
    const float *x = x_;                                                                       \
    if (n < 8) {                                                                               \
      float y = start;                                                                         \
      for (int64_t i = 0; i < n; i++) y = name##_s(y, x[i]);                                   \
      *(float *)out = y;                                                                       \
      return;                                                                                  \
    }                                                                                          \
    vf acc[ACCS];                                                                              \
    for (int k = 0; k < ACCS; k++) acc[k] = vset(start);                                       \
    int64_t i = 0;                                                                             \
    for (; i + ACCS * VL <= n; i += ACCS * VL)                                                 \
      for (int k = 0; k < ACCS; k++) acc[k] = name##_v(acc[k], vload(x + i + k * VL));         \
    for (; i + VL <= n; i += VL) acc[0] = name##_v(acc[0], vload(x + i));                      \
    for (int k = 1; k < ACCS; k++) acc[0] = name##_v(acc[0], acc[k]);                          \
    float lane[VL], y = start;                                                                 \
    vstore(lane, acc[0]);                                                                      \
    for (int k = 0; k < VL; k++) y = name##_s(y, lane[k]);                                     \
    for (; i < n; i++) y = name##_s(y, x[i]);                                                  \
    *(float *)out = y;                                                                         \
  }                                                                                            \
  static void name##_columns_f32(const void *x_, int64_t rows, int64_t step, int64_t n,        \
                                 void *out_) {                                                 \
    const float *x = x_;                                                                       \
    float *out = out_;                                                                         \
    int64_t i = 0;                                                                             \
    for (; i + VL <= n; i += VL) {                                                             \
      vf acc = vload(x + i);                                                                   \
      for (int64_t r = 1; r < rows; r++) acc = name##_v(acc, vload(x + i + r * step));         \
      vstore(out + i, acc);                                                                    \
    }                                                                                          \
    if (i < n) {                                                                               \
      vf acc = vloadn(x + i, n - i);                                                           \
      for (int64_t r = 1; r < rows; r++) acc = name##_v(acc, vloadn(x + i + r * step, n - i)); \
      vstoren(out + i, n - i, acc);                                                            \
    }                                                                                          \
  }
#define FOLD(name, tag, type, start, formula)                                             \
  static void name##_row_##tag(const void *x_, int64_t n, void *out) {                    \
    const type *x = x_;                                                                   \
    type a = (type)(start);                                                               \
    for (int64_t i = 0; i < n; i++) {                                                     \
      const type b = x[i];                                                                \
      a = formula;                                                                        \
    }                                                                                     \
    *(type *)out = a;                                                                     \
  }                                                                                       \
  static void name##_columns_##tag(const void *x_, int64_t rows, int64_t step, int64_t n, \
                                   void *out_) {                                          \
    type *out = out_;                                                                     \
    memcpy(out, x_, (size_t)n * sizeof *out);                                             \
    for (int64_t r = 1; r < rows; r++) {                                                  \
      const type *x = (const type *)x_ + r * step;                                        \
      for (int64_t i = 0; i < n; i++) {                                                   \
        const type a = out[i], b = x[i];                                                  \
        out[i] = formula;                                                                 \
      }                                                                                   \
    }                                                                                     \
  }
#define SCALAR(name, formula) \
  static inline float name##_s(float a, float b) { return formula; }
SCALAR(sum, a + b)
SCALAR(prod, a *b)
SCALAR(max, a != a || a > b ? a : b)
SCALAR(min, a != a || a < b ? a : b)
FOLD_F32(sum, 0.f, vadd(a, b))
FOLD_F32(prod, 1.f, vmul(a, b))
FOLD_F32(max, -INFINITY, vselect(visnan(a), a, vmax(a, b)))
FOLD_F32(min, INFINITY, vselect(visnan(a), a, vmin(a, b)))
FOLD(sum, f64, double, 0, a + b)
FOLD(prod, f64, double, 1, a *b)
FOLD(max, f64, double, -INFINITY, a != a || a > b ? a : b)
FOLD(min, f64, double, INFINITY, a != a || a < b ? a : b)
FOLD(sum, u64, uint64_t, 0, a + b)
FOLD(prod, u64, uint64_t, 1, a *b)
FOLD(max, u64, uint64_t, 0, a > b ? a : b)
FOLD(min, u64, uint64_t, UINT64_MAX, a < b ? a : b)
FOLD(max, i64, int64_t, INT64_MIN, a > b ? a : b)
FOLD(min, i64, int64_t, INT64_MAX, a < b ? a : b)

// By enum kind, then by enum itg_wide. Sums and products of signed integers wrap like those of
// unsigned ones.
static row_fn *const row_fns[][4] = {
    {sum_row_f32, sum_row_f64, sum_row_u64, sum_row_u64},
    {sum_row_f32, sum_row_f64, sum_row_u64, sum_row_u64},
    {prod_row_f32, prod_row_f64, prod_row_u64, prod_row_u64},
    {max_row_f32, max_row_f64, max_row_i64, max_row_u64},
    {min_row_f32, min_row_f64, min_row_i64, min_row_u64},
};
static columns_fn *const columns_fns[][4] = {
    {sum_columns_f32, sum_columns_f64, sum_columns_u64, sum_columns_u64},
    {sum_columns_f32, sum_columns_f64, sum_columns_u64, sum_columns_u64},
    {prod_columns_f32, prod_columns_f64, prod_columns_u64, prod_columns_u64},
    {max_columns_f32, max_columns_f64, max_columns_i64, max_columns_u64},
    {min_columns_f32, min_columns_f64, min_columns_i64, min_columns_u64},
};

// ---- totals -------------------------------------------------------------------------------------
static void start(totals *t, enum kind kind, uint8_t dtype, int64_t n) {
  const enum itg_wide wide = itg_wide(dtype);
  if (wide <= ITG_WIDE_F64) {
    const double v = kind == PROD ? 1 : kind == MAX ? -INFINITY : kind == MIN ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++) t->real[i] = v;
    return;
  }
  int64_t lo = 0, hi = dtype == ITG_BOOL ? 1 : -1;  // -1: the largest u64
  if (dtype == ITG_I64) lo = INT64_MIN, hi = INT64_MAX;
  else if (dtype != ITG_U64 && dtype != ITG_BOOL) itg_limits(dtype, &lo, &hi);
  const int64_t v = kind == PROD ? 1 : kind == MAX ? lo : kind == MIN ? hi : 0;
  for (int64_t i = 0; i < n; i++) t->integer[i] = v;
}

static void add(totals *t, const itg_block *x, enum kind kind, enum itg_wide wide, int64_t n) {
#define ADD(field, type, value)                              \
  for (int64_t i = 0; i < n; i++) {                          \
    const type a = t->field[i], b = value;                   \
    t->field[i] = kind == MAX    ? (a != a || a > b ? a : b) \
                  : kind == MIN  ? (a != a || a < b ? a : b) \
                  : kind == PROD ? a * b                     \
                                 : a + b;                    \
  }
  if (wide == ITG_WIDE_F32) ADD(real, double, x->f32[i])
  else if (wide == ITG_WIDE_F64) ADD(real, double, x->f64[i])
  else if (wide == ITG_WIDE_I64 && kind >= MAX) ADD(integer, int64_t, x->i64[i])
  else ADD(natural, uint64_t, x->u64[i])
#undef ADD
}

static void finish(const totals *t, void *to, enum kind kind, uint8_t dtype, int64_t count,
                   int64_t n) {
  const enum itg_wide wide = itg_wide(dtype);
  itg_block y;
  const int64_t whole = count ? count : 1;
  for (int64_t i = 0; i < n; i++) {
    if (wide == ITG_WIDE_F32)
      y.f32[i] = (float)(kind == MEAN ? t->real[i] / (double)count : t->real[i]);
    else if (wide == ITG_WIDE_F64)
      y.f64[i] = kind == MEAN ? t->real[i] / (double)count : t->real[i];
    else if (kind != MEAN) y.u64[i] = t->natural[i];
    else if (wide == ITG_WIDE_I64) y.i64[i] = t->integer[i] / whole;
    else y.u64[i] = t->natural[i] / (uint64_t)whole;
  }
  itg_narrow(to, &y, dtype, n, false);
}

// ---- loops --------------------------------------------------------------------------------------
typedef struct loops {
  int rank;
  int64_t size[ITG_MAX_RANK], step[ITG_MAX_RANK];
} loops;

static int64_t turns(const loops *l) {
  int64_t n = 1;
  for (int i = 0; i < l->rank; i++) n *= l->size[i];
  return n;
}
static int64_t offset(const loops *l, int64_t turn) {
  int64_t at = 0;
  for (int i = l->rank - 1; i > 0; i--) {
    at += turn % l->size[i] * l->step[i];
    turn /= l->size[i];
  }
  return l->rank ? at + turn * l->step[0] : 0;
}
static void push(loops *l, int64_t size, int64_t step) {
  if (size == 1) return;
  int last = l->rank - 1;
  if (last >= 0 && l->step[last] == size * step) {
    l->size[last] *= size;
    l->step[last] = step;
  } else {
    l->size[l->rank] = size;
    l->step[l->rank++] = step;
  }
}

// n <= ITG_BLOCK elements from `from` on: in place if their type is wide, else widened into
// `block`.
static const void *load(itg_block *block, const itg_tensor *x, int64_t from, int64_t n) {
  const int64_t item = (int64_t)itg_item(x->dtype);
  const char *at = (const char *)x->data + from * item;
  if (item == (int64_t)itg_wide_item(itg_wide(x->dtype))) return at;
  itg_widen(block, at, x->dtype, n);
  return block;
}

static itg_words reduce(const itg_call *call, uint32_t part, uint32_t parts, enum kind kind) {
  const itg_attrs_reduce_sum *a = call->attrs;  // all reductions have the same attributes
  const itg_tensor *x = call->in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const uint8_t dtype = x->dtype;
  const enum itg_wide wide = itg_wide(dtype);
  const bool is_wide = itg_item(dtype) == itg_wide_item(wide);
  const int64_t item = (int64_t)itg_item(dtype), total = itg_count(out);
  row_fn *const row = row_fns[kind][wide];
  columns_fn *const columns = columns_fns[kind][wide];

  loops kept = {0}, gone = {0};
  int64_t stride = 1, count = 1, steps[ITG_MAX_RANK];
  uint32_t axes = 0;
  for (int64_t k = 0; k < a->n_axes; k++) axes |= 1u << a->axes[k];
  for (int i = x->rank - 1; i >= 0; i--) {
    steps[i] = stride;
    stride *= x->shape[i];
  }
  for (int i = 0; i < x->rank; i++) {
    if (axes >> i & 1) count *= x->shape[i];
    push(axes >> i & 1 ? &gone : &kept, x->shape[i], steps[i]);
  }
  int64_t i, end;
  char *to = out->data;
  itg_share(total, 64, part, parts, &i, &end);
  totals sum;
  itg_block block, partial;

  if (kept.rank == 0 ||
      kept.step[kept.rank - 1] != 1) {  // the innermost axis is reduced: one output per row
    int64_t run = 1;
    if (gone.rank && gone.step[gone.rank - 1] == 1) run = gone.size[--gone.rank];
    const int64_t outer = turns(&gone),
                  most = is_wide ? (wide == ITG_WIDE_F32 ? STRETCH : ITG_BLOCK) : ITG_BLOCK;
    while (i < end) {
      const int64_t n = end - i < ITG_BLOCK ? end - i : ITG_BLOCK;
      start(&sum, kind, dtype, n);
      for (int64_t k = 0; k < n; k++) {
        const int64_t base = offset(&kept, i + k);
        totals one;
        one.natural[0] = sum.natural[k];
        for (int64_t o = 0; o < outer; o++) {
          const int64_t at = base + offset(&gone, o);
          for (int64_t r = 0; r < run; r += most) {
            const int64_t m = run - r < most ? run - r : most;
            row(load(&block, x, at + r, m), m, &partial);
            add(&one, &partial, kind, wide, 1);
          }
        }
        sum.natural[k] = one.natural[0];
      }
      finish(&sum, to + i * item, kind, dtype, count, n);
      i += n;
    }
    return NULL;
  }

  const int64_t inner =
      kept.size[--kept.rank];  // the innermost axis is kept: rows are added to rows
  int64_t rows = 1, step = 0;
  if (gone.rank) {
    rows = gone.size[--gone.rank];
    step = gone.step[gone.rank];
  }
  const int64_t outer = turns(&gone), most = is_wide ? ROWS : 1;
  while (i < end) {
    const int64_t col = i % inner, base = offset(&kept, i / inner) + col;
    int64_t n = inner - col < end - i ? inner - col : end - i;
    n = n < ITG_BLOCK ? n : ITG_BLOCK;
    start(&sum, kind, dtype, n);
    for (int64_t o = 0; o < outer; o++) {
      const int64_t at = base + offset(&gone, o);
      for (int64_t r = 0; r < rows; r += most) {
        columns(load(&block, x, at + r * step, n), rows - r < most ? rows - r : most, step, n,
                &partial);
        add(&sum, &partial, kind, wide, n);
      }
    }
    finish(&sum, to + i * item, kind, dtype, count, n);
    i += n;
  }
  return NULL;
}

ITG_FN(reduce_sum, any) { return reduce(call, part, parts, SUM); }
ITG_FN(reduce_mean, any) { return reduce(call, part, parts, MEAN); }
ITG_FN(reduce_prod, any) { return reduce(call, part, parts, PROD); }
ITG_FN(reduce_max, any) { return reduce(call, part, parts, MAX); }
ITG_FN(reduce_min, any) { return reduce(call, part, parts, MIN); }
