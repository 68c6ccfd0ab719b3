// Softmax, layer norm, RMS norm and local response norm. f32 uses vectors, f64 scalar loops;
// smaller floats are converted to f32.
#include "infer.h"
#include "normalize.h"
#include "vmath.h"

enum { STRETCH = 1024 };  // elements that are summed in f32 before they are added in f64

// ---- sums of a row of f32 -----------------------------------------------------------------------
#define ROW_SUM(name, formula)                                    \
  static double name(const float *p, int64_t n, float centre) {   \
    const vf c = vset(centre);                                    \
    double total = 0;                                             \
    (void)c;                                                      \
    for (int64_t from = 0; from < n; from += STRETCH) {           \
      const int64_t to = n - from < STRETCH ? n : from + STRETCH; \
      vf a = vset(0.f), b = a;                                    \
      int64_t i = from;                                           \
      for (; i + 2 * VL <= to; i += 2 * VL) {                     \
        vf x = vload(p + i);                                      \
        a = formula(x, a);                                        \
        x = vload(p + i + VL);                                    \
        b = formula(x, b);                                        \
      }                                                           \
      float rest = 0;                                             \
      for (; i < to; i++) rest += name##_one(p[i], centre);       \
      total += (double)vsum(vadd(a, b)) + rest;                   \
    }                                                             \
    return total;                                                 \
  }
static inline float sum_one(float x, float c) { return x; }
static inline float square_sum_one(float x, float c) { return (x - c) * (x - c); }
#define PLAIN(x, acc) vadd(acc, x)
#define SQUARED(x, acc) vfma(vsub(x, c), vsub(x, c), acc)
ROW_SUM(sum, PLAIN)
ROW_SUM(square_sum, SQUARED)

// ---- softmax ------------------------------------------------------------------------------------
// Loads the last w elements of a row; other lanes are -inf, whose exponential is 0.
static inline vf tail(const float *x, int64_t w) {
  return vselect(vfirst(w), vloadn(x, w), vset(-INFINITY));
}

static void softmax_row(const float *x, float *y, int64_t n, bool logarithm) {
  if (n < VL) {  // all in one register
    const vf v = tail(x, n), shifted = vsub(v, vset(vhmax(v))), e = v_exp(shifted);
    const float sum = vsum(e);
    vstoren(y, n, logarithm ? vsub(shifted, vset(logf(sum))) : vmul(e, vset(1 / sum)));
    return;
  }
  const int64_t whole = n - n % VL;
  vf top = vset(-INFINITY);  // a NaN may be missed here: its exponential is NaN and so is the sum
  for (int64_t i = 0; i < whole; i += VL) top = vmax(vload(x + i), top);
  if (whole < n) top = vmax(tail(x + whole, n - whole), top);
  const vf shift = vset(vhmax(top));
  double total = 0;
  for (int64_t from = 0; from < n; from += STRETCH) {
    const int64_t to = n - from < STRETCH ? n : from + STRETCH;
    vf acc = vset(0.f);
    int64_t i = from;
    for (; i + VL <= to; i += VL) {
      vf e = v_exp(vsub(vload(x + i), shift));
      if (!logarithm) vstore(y + i, e);
      acc = vadd(acc, e);
    }
    if (i < to) {
      vf e = v_exp(vsub(tail(x + i, to - i), shift));
      if (!logarithm) vstoren(y + i, to - i, e);
      acc = vadd(acc, e);
    }
    total += vsum(acc);
  }
  const vf by = vset((float)(logarithm ? log(total) : 1 / total));
  if (logarithm) {
    for (int64_t i = 0; i < whole; i += VL) vstore(y + i, vsub(vsub(vload(x + i), shift), by));
    if (whole < n)
      vstoren(y + whole, n - whole, vsub(vsub(vloadn(x + whole, n - whole), shift), by));
  } else {
    for (int64_t i = 0; i < whole; i += VL) vstore(y + i, vmul(vload(y + i), by));
    if (whole < n) vstoren(y + whole, n - whole, vmul(vloadn(y + whole, n - whole), by));
  }
}

// Softmax of each of `columns` <= ITG_COLUMNS columns over n rows, which are `step` apart.
static void softmax_columns(const float *x, float *y, int64_t n, int64_t step, int64_t columns,
                            bool logarithm) {
  float top[ITG_COLUMNS + VL], total[ITG_COLUMNS + VL],
      lost[ITG_COLUMNS + VL];  // lost: what rounding took from total
#define EACH_COLUMN(c, w) \
  for (int64_t c = 0, w; c < columns && ((w = columns - c < VL ? columns - c : VL), 1); c += VL)
#define LOAD(p) (w == VL ? vload(p) : vloadn(p, w))
#define STORE(p, v)            \
  do {                         \
    if (w == VL) vstore(p, v); \
    else vstoren(p, w, v);     \
  } while (0)
  for (int64_t c = 0; c < columns; c += VL) {
    vstore(top + c, vset(-INFINITY));
    vstore(total + c, vset(0.f));
    vstore(lost + c, vset(0.f));
  }
  for (int64_t k = 0; k < n; k++)
    EACH_COLUMN(c, w) vstore(top + c, vmax(LOAD(x + k * step + c), vload(top + c)));
  for (int64_t k = 0; k < n; k++) {
    EACH_COLUMN(c, w) {
      const vf e = v_exp(vsub(LOAD(x + k * step + c), vload(top + c)));
      if (!logarithm) STORE(y + k * step + c, e);
      const vf old = vload(total + c), add = vsub(e, vload(lost + c)), sum = vadd(old, add);
      vstore(lost + c, vsub(vsub(sum, old), add));
      vstore(total + c, sum);
    }
  }
  for (int64_t c = 0; c < columns; c += VL)
    vstore(total + c, logarithm ? v_log(vload(total + c)) : vdiv(vset(1.f), vload(total + c)));
  for (int64_t k = 0; k < n; k++) {
    EACH_COLUMN(c, w) {
      const vf by = vload(total + c);
      if (logarithm)
        STORE(y + k * step + c, vsub(vsub(LOAD(x + k * step + c), vload(top + c)), by));
      else STORE(y + k * step + c, vmul(LOAD(y + k * step + c), by));
    }
  }
#undef EACH_COLUMN
#undef LOAD
#undef STORE
}

static void softmax_f64(const double *x, double *y, int64_t n, int64_t step, int64_t columns,
                        bool logarithm) {
  for (int64_t c = 0; c < columns; c++, x++, y++) {
    double top = -INFINITY, total = 0;
    for (int64_t k = 0; k < n; k++) top = x[k * step] > top ? x[k * step] : top;
    for (int64_t k = 0; k < n; k++) total += exp(x[k * step] - top);
    for (int64_t k = 0; k < n; k++)
      y[k * step] = logarithm ? x[k * step] - top - log(total) : exp(x[k * step] - top) / total;
  }
}

static itg_words softmax(const itg_call *call, uint32_t part, uint32_t parts, bool logarithm) {
  const itg_tensor *x = call->in[0];
  if (itg_empty(x)) return NULL;
  const int axis = itg_axis(((const itg_attrs_softmax *)call->attrs)->axis, x->rank);
  const int64_t n = x->shape[axis], inner = itg_count_range(x, axis + 1, x->rank),
                item = (int64_t)itg_item(x->dtype);
  const int64_t strips = (inner + ITG_COLUMNS - 1) / ITG_COLUMNS;
  const char *from = x->data;
  char *to = call->out[0]->data;
  float *copy = itg_copy(call, part, n * (inner < ITG_COLUMNS ? inner : ITG_COLUMNS));
  int64_t unit, end;
  itg_share(itg_count_range(x, 0, axis) * strips, 1, part, parts, &unit, &end);
  for (; unit < end; unit++) {
    const int64_t c = unit % strips * ITG_COLUMNS,
                  columns = inner - c < ITG_COLUMNS ? inner - c : ITG_COLUMNS;
    const int64_t at = (unit / strips * n * inner + c) * item;
    if (x->dtype == ITG_F64) {
      softmax_f64((const double *)(from + at), (double *)(to + at), n, inner, columns, logarithm);
    } else if (x->dtype == ITG_F32) {
      if (inner == 1) softmax_row((const float *)(from + at), (float *)(to + at), n, logarithm);
      else
        softmax_columns((const float *)(from + at), (float *)(to + at), n, inner, columns,
                        logarithm);
    } else if (inner == 1) {
      itg_widen(copy, from + at, x->dtype, n);
      softmax_row(copy, copy, n, logarithm);
      itg_narrow(to + at, copy, x->dtype, n, false);
    } else {
      for (int64_t k = 0; k < n; k++)
        itg_widen(copy + k * columns, from + at + k * inner * item, x->dtype, columns);
      softmax_columns(copy, copy, n, columns, columns, logarithm);
      for (int64_t k = 0; k < n; k++)
        itg_narrow(to + at + k * inner * item, copy + k * columns, x->dtype, columns, false);
    }
  }
  return NULL;
}
ITG_FN(softmax, any) { return softmax(call, part, parts, false); }
ITG_FN(log_softmax, any) { return softmax(call, part, parts, true); }

// ---- layer norm and RMS norm --------------------------------------------------------------------
static void norm_row(const float *x, const float *scale, const float *bias, float *y, int64_t n,
                     double epsilon, bool centred) {
  const float mean = centred ? (float)(sum(x, n, 0) / (double)n) : 0.f;
  const vf c = vset(mean),
           by = vset((float)(1 / sqrt(square_sum(x, n, mean) / (double)n + epsilon)));
  int64_t i = 0;
  for (; i + VL <= n; i += VL) {
    vf v = vmul(vsub(vload(x + i), c), by);
    if (scale) v = vmul(v, vload(scale + i));
    if (bias) v = vadd(v, vload(bias + i));
    vstore(y + i, v);
  }
  if (i < n) {
    vf v = vmul(vsub(vloadn(x + i, n - i), c), by);
    if (scale) v = vmul(v, vloadn(scale + i, n - i));
    if (bias) v = vadd(v, vloadn(bias + i, n - i));
    vstoren(y + i, n - i, v);
  }
}

static void norm_f64(const double *x, const double *scale, const double *bias, double *y, int64_t n,
                     double epsilon, bool centred) {
  double mean = 0, squares = 0;
  if (centred) {
    for (int64_t i = 0; i < n; i++) mean += x[i];
    mean /= (double)n;
  }
  for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
  const double by = 1 / sqrt(squares / (double)n + epsilon);
  for (int64_t i = 0; i < n; i++)
    y[i] = (x[i] - mean) * by * (scale ? scale[i] : 1) + (bias ? bias[i] : 0);
}

static itg_words norm(const itg_call *call, uint32_t part, uint32_t parts, bool centred) {
  const itg_attrs_layer_norm *a = call->attrs;  // rms_norm has the same
  const itg_tensor *x = call->in[0], *params[2] = {itg_input(call, 1), itg_input(call, 2)};
  if (itg_empty(x)) return NULL;
  const int axis = itg_axis(a->axis, x->rank);
  const int64_t n = itg_count_range(x, axis, x->rank), item = (int64_t)itg_item(x->dtype);
  const void *p[2] = {params[0] ? params[0]->data : NULL, params[1] ? params[1]->data : NULL};
  float *copy = itg_copy(call, part, 3 * n);
  int64_t row, end;
  itg_share(itg_count_range(x, 0, axis), 1, part, parts, &row, &end);
  if (copy && row < end) {
    for (int k = 0; k < 2; k++) {
      if (!p[k]) continue;
      itg_widen(copy + (k + 1) * n, p[k], x->dtype, n);
      p[k] = copy + (k + 1) * n;
    }
  }
  for (; row < end; row++) {
    const char *from = (const char *)x->data + row * n * item;
    char *to = (char *)call->out[0]->data + row * n * item;
    if (x->dtype == ITG_F64) {
      norm_f64((const double *)from, p[0], p[1], (double *)to, n, a->epsilon, centred);
    } else if (x->dtype == ITG_F32) {
      norm_row((const float *)from, p[0], p[1], (float *)to, n, a->epsilon, centred);
    } else {
      itg_widen(copy, from, x->dtype, n);
      norm_row(copy, p[0], p[1], copy, n, a->epsilon, centred);
      itg_narrow(to, copy, x->dtype, n, false);
    }
  }
  return NULL;
}
ITG_FN(layer_norm, any) { return norm(call, part, parts, true); }
ITG_FN(rms_norm, any) { return norm(call, part, parts, false); }

// ---- local response norm ------------------------------------------------------------------------
static void lrn_row(const float *x, float *total, int64_t n,
                    const itg_attrs_lrn *a) {  // total: squares in, result out
  const vf factor = vset((float)(a->alpha / (double)a->size));
  const vf bias = vset((float)a->bias), power = vset((float)-a->beta);
  for (int64_t i = 0; i < n; i += VL) {
    const int64_t w = n - i < VL ? n - i : VL;
    const vf base = vadd(bias, vmul(factor, w == VL ? vload(total + i) : vloadn(total + i, w)));
    const vf y = vmul(w == VL ? vload(x + i) : vloadn(x + i, w), v_exp(vmul(power, v_log(base))));
    if (w == VL) vstore(total + i, y);
    else vstoren(total + i, w, y);
  }
}

static const void *load(itg_block *block, const void *from, uint8_t dtype, int64_t n) {
  if (!itg_needs_copy(dtype)) return from;
  itg_widen(block, from, dtype, n);
  return block;
}

ITG_FN(lrn, any) {
  const itg_attrs_lrn *a = call->attrs;
  const itg_tensor *x = call->in[0];
  if (itg_empty(x)) return NULL;
  const int64_t channels = x->shape[1], inner = itg_count_range(x, 2, x->rank),
                item = (int64_t)itg_item(x->dtype);
  const int64_t strips = (inner + ITG_BLOCK - 1) / ITG_BLOCK, before = (a->size - 1) / 2,
                after = a->size / 2;
  int64_t unit, end;
  itg_share(x->shape[0] * channels * strips, 1, part, parts, &unit, &end);
  for (; unit < end; unit++) {
    const int64_t at = unit % strips * ITG_BLOCK,
                  n = inner - at < ITG_BLOCK ? inner - at : ITG_BLOCK;
    const int64_t c = unit / strips % channels, image = unit / strips / channels * channels;
    const int64_t first = c > before ? c - before : 0,
                  last = after < channels - c ? c + after : channels - 1;
    const char *from = (const char *)x->data + at * item;
    itg_block block, total;
    memset(&total, 0, sizeof total);
    for (int64_t k = first; k <= last; k++) {
      const void *row = load(&block, from + (image + k) * inner * item, x->dtype, n);
      if (x->dtype == ITG_F64)
        for (int64_t i = 0; i < n; i++) total.f64[i] += ((double *)row)[i] * ((double *)row)[i];
      else
        for (int64_t i = 0; i < n; i++) total.f32[i] += ((float *)row)[i] * ((float *)row)[i];
    }
    const int64_t here = ((image + c) * inner + at) * item;
    const void *row = load(&block, (const char *)x->data + here, x->dtype, n);
    if (x->dtype == ITG_F64)
      for (int64_t i = 0; i < n; i++)
        total.f64[i] =
            ((double *)row)[i] / pow(a->bias + a->alpha / (double)a->size * total.f64[i], a->beta);
    else lrn_row(row, total.f32, n, a);
    itg_narrow((char *)call->out[0]->data + here, &total, x->dtype, n, false);
  }
  return NULL;
}
