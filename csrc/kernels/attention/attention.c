// Fused attention (flash attention): the matrix of scores is never stored. Products are f32 or
// bf16. A block of query rows is multiplied with one block of keys after another, and the running
// maximum and sum of each row update its softmax (online softmax). Both products use the register
// tile (gemm/tile.h).
// Scores are in units of log2(e): the packed keys hold that factor together with the scale, so that
// exp becomes exp2.
#include "attention.h"

#include "gemm/tile.h"
#include "transpose_8x8.h"
#include "vmath.h"

#define LOG2E 1.44269504f
#define LOWEST -3e38f  // bound of a mask: the lowest f32 times log2(e) would be -inf

static inline float power1(float t) { return t < -126.f ? 0.f : exp2f(t); }

#include "attention_pack.h"

// ---- softmax of a row ---------------------------------------------------------------------------
typedef struct masking {  // a mask broadcast to the scores; steps are in elements
  const float *add;
  const uint8_t *open;
  int64_t batch, head, row, key;
} masking;

static masking masking_of(const itg_tensor *t) {
  masking m = {0};
  if (!t) return m;
  if (t->dtype == ITG_BOOL) m.open = t->data;
  else m.add = t->data;
  int64_t *const steps[4] = {&m.batch, &m.head, &m.row, &m.key};
  int64_t step = 1;
  for (int i = t->rank - 1; i >= 0; step *= t->shape[i], i--)
    if (t->shape[i] > 1) *steps[4 - t->rank + i] = step;
  return m;
}

// Masks the n scores of a row and returns the largest; *seen becomes the maximum of itself and the
// row's largest summand.
static float masked(float *s, int64_t n, const float *add, const uint8_t *open, float *seen) {
  vf top = vset(-INFINITY), most = top;
  for (int64_t i = 0; i < n; i += VL) {
    const int64_t w = n - i < VL ? n - i : VL;
    vf t = vload(s + i);
    if (w < VL) t = vselect(vfirst(w), t, vset(-INFINITY));
    if (add) {
      const vf m =
          w < VL ? vselect(vfirst(w), vloadn(add + i, w), vset(-INFINITY)) : vload(add + i);
      most = vmax(most, m);
      t = vadd(t, vmax(vset(LOWEST), vmul(m, vset(LOG2E))));
      t = vselect(veq(m, vset(-INFINITY)), m, t);
    } else if (open) {
      uint8_t bytes[VL] = {0};
      if (w < VL) memcpy(bytes, open + i, (size_t)w);
      t = vselect(vloadm(w < VL ? bytes : open + i), t, vset(-INFINITY));
    }
    if (add || open || w < VL) vstore(s + i, t);
    top = vmax(t, top);
  }
  const float here = add ? vhmax(most) : 0;
  if (seen && here > *seen) *seen = here;
  return vhmax(top);
}

#if defined(ISA_avx512bf16)  // in place: bf16 weights take half the memory of the scores
#define keep(s, i, w) vkeep_bf16((uint16_t *)(s) + (i), VL, w)
#else
#define keep(s, i, w) vstore((s) + (i), w)
#endif

// Converts scores to weights and returns their sum. Lanes from n to the end of the last vector
// become 0.
static float weights(float *s, int64_t n, float shift) {
  const vf by = vset(shift);
  vf a = vset(0.f), b = a;
  int64_t i = 0;
  for (; i + VL < n; i += 2 * VL) {
    const vf x = v_power(vsub(vload(s + i), by)), y = v_power(vsub(vload(s + i + VL), by));
    keep(s, i, x);
    keep(s, i + VL, y);
    a = vadd(a, x);
    b = vadd(b, y);
  }
  if (i < n) {
    const vf x = v_power(vsub(vload(s + i), by));
    keep(s, i, x);
    a = vadd(a, x);
  }
  return vsum(vadd(a, b));
}

static void bend(float *s, int64_t n, float cap) {  // scores come divided by the cap
  const vf by = vset(cap * LOG2E);
  for (int64_t i = 0; i < n; i += VL) vstore(s + i, vmul(v_tanh(vload(s + i)), by));
}

static void scaled(const float *from, float *to, int64_t n, float by) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) vstore(to + i, vmul(vload(from + i), vset(by)));
  for (; i < n; i++) to[i] = from[i] * by;
}

// ---- products without packing, for a few rows ---------------------------------------------------
static void few_scores(const float *q, const float *k, int64_t row, int64_t n, int64_t size,
                       float by, float *s) {
  for (int64_t j = 0; j < n; j++, k += row) {
    vf a = vset(0.f), b = a;
    int64_t i = 0;
    for (; i + 2 * VL <= size; i += 2 * VL) {
      a = vfma(vload(q + i), vload(k + i), a);
      b = vfma(vload(q + i + VL), vload(k + i + VL), b);
    }
    float rest = 0;
    for (; i < size; i++) rest += q[i] * k[i];
    s[j] = (vsum(vadd(a, b)) + rest) * by;
  }
}

static void few_sums(const float *s, const float *v, int64_t row, int64_t n, int64_t size,
                     bool more, float *out) {
  int64_t c = 0;
  for (; c + 4 * VL <= size; c += 4 * VL) {
    vf a[4];
    for (int u = 0; u < 4; u++) a[u] = more ? vload(out + c + u * VL) : vset(0.f);
    for (int64_t j = 0; j < n; j++)
      for (int u = 0; u < 4; u++) a[u] = vfma(vset(s[j]), vload(v + j * row + c + u * VL), a[u]);
    for (int u = 0; u < 4; u++) vstore(out + c + u * VL, a[u]);
  }
  for (; c < size; c += VL) {
    const int64_t w = size - c < VL ? size - c : VL;
    vf a = !more ? vset(0.f) : w < VL ? vloadn(out + c, w) : vload(out + c);
    for (int64_t j = 0; j < n; j++) {
      const float *from = v + j * row + c;
      a = vfma(vset(s[j]), w < VL ? vloadn(from, w) : vload(from), a);
    }
    if (w < VL) vstoren(out + c, w, a);
    else vstore(out + c, a);
  }
}

// ---- a block of rows ----------------------------------------------------------------------------
typedef struct block {  // keys and values of one head, and scratch memory
  const itg_attrs_attention *a;
  itg_attention plan;
  float by;  // factor of the keys, or of the scores of a few rows
  const float *k, *v;
  float *packed_keys, *packed_values, *scores, *queries, *sums, *top, *total, *seen, *line;
} block;

// The number of keys that the rows need: up to the last one that the mask opens to any of them.
static int64_t keys_of(const masking *m, const uint8_t *open, int64_t rows, int64_t keys) {
  if (!open || !m->key) return keys;
  int64_t needed = 0;
  for (int64_t r = 0; r < rows && needed < keys; r++) {
    int64_t last = keys;
    while (last > needed && !open[r * m->row + last - 1]) last--;
    needed = last;
    if (!m->row) break;
  }
  return needed;
}

static const float *line_of(const masking *m, const float *add, const uint8_t *open, int64_t n,
                            float *line) {
  const float value = add ? *add : *open ? 0.f : -INFINITY;
  for (int64_t i = 0; i < n; i++) line[i] = value;
  return line;
}

// Converts a mask that all rows share to initial sums of the first product; returns its
// largest summand.
static float start_of(const float *add, const uint8_t *open, int64_t n, float *line) {
  float seen = -INFINITY;
  for (int64_t i = 0; i < n; i++) {
    const float m = add ? add[i] : open[i] ? 0.f : -INFINITY, scaled = m * LOG2E;
    line[i] = m > -INFINITY && scaled < LOWEST ? LOWEST : scaled;
    seen = m > seen ? m : seen;
  }
  return seen;
}

static void attend(const block *b, const float *q, const masking *m, int64_t at, int64_t rows,
                   float *out) {
  const itg_attrs_attention *a = b->a;
  const int64_t dv = a->value_size, out_row = a->heads * dv, stride = b->plan.stride;
  const bool few = a->rows <= ITG_FEW, blocks = b->plan.sums;
  const float *add = m->add ? m->add + at : NULL;
  const uint8_t *open = m->open ? m->open + at : NULL;
  const int64_t keys = keys_of(m, open, rows, a->keys);
  for (int64_t r = 0; r < rows; r++) b->top[r] = b->seen[r] = -INFINITY, b->total[r] = 0;
  float *sums = blocks ? b->sums : out;
  const int64_t sums_row = blocks ? dv : out_row;
  const itg_finish plain = {
      .lo = -__builtin_inff(), .hi = __builtin_inff(), .other = ITG_PAIR == 2};
  const bool shared = (add || open) && !m->row && m->key && !few && !a->softcap;
#if defined(ISA_avx512bf16)
  const int64_t q_row = a->size / 2;
  for (int64_t r = 0; r < rows && !few; r++)
    for (int64_t i = 0; i < a->size; i += VL) {
      const float *from = q + r * a->q_view[3] + i;
      const int64_t w = a->size - i;
      vkeep_bf16((uint16_t *)(b->queries + r * q_row) + i, w,
                 w < VL ? vloadn(from, w) : vload(from));
    }
  const float *product_q = b->queries;
#else
  const int64_t q_row = a->q_view[3];
  const float *product_q = q;
#endif
  for (int64_t k = 0; k < keys; k += b->plan.keys) {
    const int64_t n = keys - k < b->plan.keys ? keys - k : b->plan.keys;
    const int64_t whole =
        a->keys - k < b->plan.keys ? a->keys - k : b->plan.keys;  // keys that are packed together
    float start = -INFINITY;
    if (few) {
      for (int64_t r = 0; r < rows; r++)
        few_scores(q + r * a->q_view[3], b->k + k * a->k_view[3], a->k_view[3], n, a->size, b->by,
                   b->scores + r * stride);
    } else {
      const float *packed = b->packed_keys + k * a->size / ITG_PAIR;
      itg_product_task t = {product_q, q_row, a->size / ITG_PAIR, packed, n, 0, b->scores,
                            stride,    plain};
      if (shared)
        start = start_of(add ? add + k : NULL, open ? open + k : NULL, n, b->line),
        t.end.bias = b->line;
      itg_product(&t, 0, rows, 0, (n + ITG_PANEL - 1) / ITG_PANEL);
    }
    for (int64_t r = 0; r < rows; r++) {
      float *s = b->scores + r * stride;
      if (a->softcap) bend(s, n, (float)a->softcap);
      const float *row_add = add && !shared ? add + r * m->row + k * m->key : NULL;
      const uint8_t *row_open = open && !shared ? open + r * m->row + k * m->key : NULL;
      if ((add || open) && !m->key)
        row_add = line_of(m, row_add, row_open, n, b->line), row_open = NULL;
      const float here = masked(s, n, row_add, row_open, shared ? NULL : &b->seen[r]),
                  old = b->top[r];
      if (shared && start > b->seen[r]) b->seen[r] = start;
      const float top = here > old ? here : old, shift = top > -INFINITY ? top : 0.f;
      const float keep = k ? power1(old - shift) : 0.f;
      b->total[r] = b->total[r] * keep + weights(s, n, shift);
      b->top[r] = top;
      if (k && keep != 1) scaled(sums + r * sums_row, sums + r * sums_row, dv, keep);
    }
    if (few) {
      for (int64_t r = 0; r < rows; r++)
        few_sums(b->scores + r * stride, b->v + k * a->v_view[3], a->v_view[3], n, dv, k > 0,
                 sums + r * sums_row);
    } else {
      const int64_t deep = (n + ITG_PAIR - 1) / ITG_PAIR, all = (whole + ITG_PAIR - 1) / ITG_PAIR;
      const float *packed = b->packed_values + k * itg_whole(dv) / ITG_PAIR;
      itg_product_task t = {b->scores, stride, deep, packed, dv, 0, sums, sums_row, plain};
      if (k) t.end.residual = sums;
      for (int64_t p = 0; p * ITG_PANEL < dv && n < whole;
           p++) {  // fewer keys than a panel has: one panel at a time
        itg_product_task one = t;
        one.b += p * all * ITG_PANEL;
        one.n = dv - p * ITG_PANEL < ITG_PANEL ? dv - p * ITG_PANEL : ITG_PANEL;
        one.column = p * ITG_PANEL;
        itg_product(&one, 0, rows, 0, 1);
      }
      if (n == whole) itg_product(&t, 0, rows, 0, (dv + ITG_PANEL - 1) / ITG_PANEL);
    }
  }
  for (int64_t r = 0; r < rows; r++) {
    const bool masked_whole = (add && b->seen[r] == -INFINITY) || (open && b->top[r] == -INFINITY);
    if (!keys || masked_whole) memset(out + r * out_row, 0, (size_t)dv * sizeof *out);
    else scaled(sums + r * sums_row, out + r * out_row, dv, 1 / b->total[r]);
  }
}

#if defined(ISA_avx512bf16)
ITG_FN(attention_bf16, f32) {
#else
ITG_FN(attention, f32) {
#endif
  const itg_attrs_attention *a = call->attrs;
#if defined(ISA_avx512bf16)  // a few rows are not worth packing anything
  if (a->rows <= ITG_FEW) return itg_attention_f32_avx512(call, part, parts);
#endif
  const itg_attention plan = itg_attention_of(a);
  float *const out = call->out[0]->data;
  if (itg_empty(call->out[0])) return NULL;
  const masking m = masking_of(itg_input(call, 3));
  const double by = a->scale / (a->softcap ? a->softcap : 1) * (a->softcap ? 1 : (double)LOG2E);
  block b = {.a = a, .plan = plan, .by = (float)by};
  b.packed_keys = (float *)call->scratch + part * plan.total;
  b.packed_values = b.packed_keys + itg_whole(plan.packed_keys);
  b.scores = b.packed_values + itg_whole(plan.packed_values);
  b.queries = b.scores + plan.scores;
  b.sums = b.queries + plan.queries;
  b.top = b.sums + plan.sums;
  b.total = b.top + plan.rows;
  b.seen = b.total + plan.rows;
  b.line = b.top + itg_whole(3 * plan.rows);
  const int64_t group = a->heads / a->kv_heads, blocks = (a->rows + plan.rows - 1) / plan.rows;
  const int64_t each = group * blocks;  // blocks that share keys and values
  int64_t unit, end, packed = -1;
  itg_share(a->batch * a->kv_heads * each, 1, part, parts, &unit, &end);
  for (; unit < end; unit++) {
    const int64_t pair = unit / each, batch = pair / a->kv_heads, kv = pair % a->kv_heads;
    const int64_t head = kv * group + unit % each / blocks, i = unit % blocks;
    b.k =
        (const float *)call->in[1]->data + a->k_view[0] + batch * a->k_view[1] + kv * a->k_view[2];
    b.v =
        (const float *)call->in[2]->data + a->v_view[0] + batch * a->v_view[1] + kv * a->v_view[2];
    if (pair != packed && a->rows > ITG_FEW) {
      pack_keys(b.k, a->k_view[3], a->keys, a->size, b.by, b.packed_keys);
      for (int64_t k = 0; k < a->keys; k += plan.keys)
        pack_values(b.v + k * a->v_view[3], a->v_view[3],
                    a->keys - k < plan.keys ? a->keys - k : plan.keys, a->value_size,
                    b.packed_values + k * itg_whole(a->value_size) / ITG_PAIR);
      packed = pair;
    }
    const int64_t from = itg_split(a->rows, blocks, i),
                  rows = itg_split(a->rows, blocks, i + 1) - from;
    const float *q = (const float *)call->in[0]->data + a->q_view[0] + batch * a->q_view[1] +
                     head * a->q_view[2];
    attend(&b, q + from * a->q_view[3], &m, batch * m.batch + head * m.head + from * m.row, rows,
           out + ((batch * a->rows + from) * a->heads + head) * a->value_size);
  }
  return NULL;
}

#if defined(ISA_scalar)
ITG_FN(attention_bf16, f32) { return itg_attention_f32_scalar(call, part, parts); }
#endif
