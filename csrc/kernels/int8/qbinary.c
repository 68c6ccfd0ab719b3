// qlinear_add and qlinear_mul: two quantised tensors with broadcasting.
#include "loop_nest.h"
#include "qelements.h"

enum {
  TOGETHER = 4096,  // bytes of short rows that are computed together with a repeated operand
  FEW = 1024,       // bytes of the repeated operand that are kept as floats
};

typedef struct pair {
  itg_quant a, b, y;
  float left, right;    // add: factors of a and b; mul: left is the factor of the product
  bool adds, converts;  // converts: no result exceeds ITG_CONVERTS
} pair;

static pair pair_of(const itg_call *call, bool adds) {
  const itg_tensor *const *in = call->in;
  pair p = {itg_quant_of(in[1], in[2]),
            itg_quant_of(in[4], in[5]),
            itg_quant_of(in[6], in[7]),
            0,
            0,
            adds,
            false};
  if (adds) {
    p.left = p.a.scale / p.y.scale, p.right = p.b.scale / p.y.scale;
    p.converts = fabsf(p.left) * 255 + fabsf(p.right) * 255 < ITG_CONVERTS;
  } else {
    p.left = p.a.scale * p.b.scale / p.y.scale;
    p.converts = fabsf(p.left) * (255.f * 255.f) < ITG_CONVERTS;
  }
  return p;
}

static inline uint8_t one(const pair *p, uint8_t a, uint8_t b) {
  const float x = itg_minus_zero(&p->a, a), y = itg_minus_zero(&p->b, b);
  return itg_byte_of(&p->y, p->adds ? x * p->left + y * p->right : x * y * p->left);
}

#ifdef ITG_QELEMENTS
typedef struct vectors {
  qb_quant a, b;
  qb_end end;
  vf left, right;
} vectors;

INLINE vq both(const vectors *v, vq a, vq b, const bool adds) {
  vf x[4], y[4];
  qb_floats(a, &v->a, x);
  qb_floats(b, &v->b, y);
  FOR_UNROLLED (16, int i = 0; i < 4; i++)
    x[i] = adds ? vadd(vmul(x[i], v->left), vmul(y[i], v->right)) : vmul(vmul(x[i], y[i]), v->left);
  return qb_bytes(x, &v->end);
}

INLINE int64_t vectors_of(const pair *p, const uint8_t *a, int64_t step_a, const uint8_t *b,
                          int64_t step_b, int64_t n, uint8_t *y, const bool adds) {
  const vectors v = {qb_quant_of(&p->a), qb_quant_of(&p->b), qb_end_of(&p->y), vset(p->left),
                     vset(p->right)};
  const vq same_a = vq_set((int32_t)(*a * 0x01010101u)),
           same_b = vq_set((int32_t)(*b * 0x01010101u));
  int64_t i = 0;
  for (; i + QBYTES <= n; i += QBYTES)
    vq_store(y + i,
             both(&v, step_a ? vq_load(a + i) : same_a, step_b ? vq_load(b + i) : same_b, adds));
  if (i < n && n >= 8) {  // the rest, through padded copies
    uint8_t left[QBYTES] = {0}, right[QBYTES] = {0}, result[QBYTES];
    memcpy(left, a + i * step_a, (size_t)(step_a ? n - i : 1));
    memcpy(right, b + i * step_b, (size_t)(step_b ? n - i : 1));
    vq_store(result,
             both(&v, step_a ? vq_load(left) : same_a, step_b ? vq_load(right) : same_b, adds));
    memcpy(y + i, result, (size_t)(n - i));
    i = n;
  }
  return i;
}

// Converts n bytes of the repeated operand to addends or factors, in the order of qb_floats.
static void floats_of(const pair *p, int repeated, const uint8_t *x, int64_t n, float *to) {
  const qb_quant quant = qb_quant_of(repeated ? &p->b : &p->a);
  const vf factor = vset(!p->adds ? 1 : repeated ? p->right : p->left);
  for (int64_t i = 0; i < n; i += QBYTES) {
    vf y[4];
    qb_floats(vq_load(x + i), &quant, y);
    FOR_UNROLLED (16, int k = 0; k < 4; k++) vstore(to + i + k * QL, vmul(y[k], factor));
  }
}

// Computes n bytes from the other operand x and the floats of the repeated one.
INLINE void with_floats(const pair *p, int repeated, const uint8_t *x, const float *floats,
                        int64_t n, uint8_t *to, const bool adds) {
  const qb_quant quant = qb_quant_of(repeated ? &p->a : &p->b);
  const qb_end end = qb_end_of(&p->y);
  const vf factor = vset(adds && !repeated ? p->right : p->left);
  for (int64_t i = 0; i < n; i += QBYTES) {
    vf y[4];
    qb_floats(vq_load(x + i), &quant, y);
    FOR_UNROLLED (16, int k = 0; k < 4; k++) {
      const vf other = vload(floats + i + k * QL);
      y[k] = adds ? vadd(vmul(y[k], factor), other) : vmul(vmul(y[k], other), factor);
    }
    vq_store(to + i, qb_bytes(y, &end));
  }
}
#endif

static void row(const pair *p, const uint8_t *a, int64_t step_a, const uint8_t *b, int64_t step_b,
                int64_t n, uint8_t *y) {
  int64_t i = 0;
#ifdef ITG_QELEMENTS
  if (p->converts && step_a <= 1 && step_b <= 1)
    i = p->adds ? vectors_of(p, a, step_a, b, step_b, n, y, true)
                : vectors_of(p, a, step_a, b, step_b, n, y, false);
#endif
  for (; i < n; i++) y[i] = one(p, a[i * step_a], b[i * step_b]);
}

#ifdef ITG_QELEMENTS
// Computes n bytes from x and a repeated operand, which is given as bytes and as floats.
static void with_repeated(const pair *p, int repeated, const uint8_t *x, const uint8_t *block,
                          const float *floats, int64_t n, uint8_t *to) {
  const int64_t whole = n / QBYTES * QBYTES;
  if (p->adds) with_floats(p, repeated, x, floats, whole, to, true);
  else with_floats(p, repeated, x, floats, whole, to, false);
  x += whole, block += whole;
  if (whole < n) row(p, repeated ? x : block, 1, repeated ? block : x, 1, n - whole, to + whole);
}
#endif

// Short contiguous rows of which one operand repeats (broadcasting). Its row is copied `rows`
// times, so that many rows are computed together; it is kept as floats if the copies fill whole
// vectors.
typedef struct together {
  int repeated;  // the operand that repeats, or -1
  int64_t rows;
  bool floats;
} together;

static together repeats(int operand, int64_t n, bool converts) {
#ifdef ITG_QELEMENTS
  int64_t rows = 1;
  while (rows * n % QBYTES) rows *= 2;  // at most QBYTES of them
  if (converts && rows * n <= FEW) return (together){operand, FEW / (rows * n) * rows, true};
#else
  (void)converts;
#endif
  return (together){operand, TOGETHER / n, false};
}

static together together_of(const itg_nest *nest, bool converts) {
  const int last = nest->rank - 1;
  const int64_t n = nest->size[last];
  if (last < 1 || n > TOGETHER / 4 || nest->step[0][last] != 1 || nest->step[1][last] != 1)
    return (together){-1, 1, false};
  for (int k = 0; k < 2; k++)
    if (nest->step[k][last - 1] == 0 && nest->step[!k][last - 1] == n)
      return repeats(k, n, converts);
  return (together){-1, 1, false};
}

static itg_words run(const itg_call *call, uint32_t part, uint32_t parts, bool adds) {
  const itg_tensor *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_tensor *const two[2] = {call->in[0], call->in[3]};
  const itg_nest nest = itg_nest_broadcast(two, 2, out);
  const pair p = pair_of(call, adds);
  const uint8_t *a = two[0]->data, *b = two[1]->data;
  uint8_t *y = out->data, block[TOGETHER];
  const int last = nest.rank - 1;
  const int64_t n = nest.size[last], *step_a = nest.step[0], *step_b = nest.step[1];
  int64_t i, end;
  if (last == 0) {
    itg_share(n, 4096, part, parts, &i, &end);
    if (i < end)
      row(&p, a + i * step_a[0], step_a[0], b + i * step_b[0], step_b[0], end - i, y + i);
    return NULL;
  }
  const together t = together_of(&nest, p.converts);
#ifdef ITG_QELEMENTS
  float floats[FEW];
#endif
  itg_share(itg_count(out) / n, 1, part, parts, &i, &end);
  itg_place at = itg_nest_seek(&nest, i);
  const uint8_t *laid = NULL;  // the row that `block` holds, `times` times
  int64_t times = 0;
  while (i < end) {
    int64_t rows = 1;
    const uint8_t *left = a + at.offset[0], *right = b + at.offset[1];
    if (t.repeated >= 0) {  // at most the rows that remain in the second innermost loop
      rows = nest.size[last - 1] - at.turn[last - 1];
      rows = rows < t.rows ? rows : t.rows;
      rows = rows < end - i ? rows : end - i;
      const uint8_t *again = t.repeated ? right : left;
      const bool fresh = again != laid;
      if (fresh) laid = again, times = 0;
#ifdef ITG_QELEMENTS
      if (t.floats) {
        for (; times < t.rows; times++) memcpy(block + times * n, again, (size_t)n);
        if (fresh) floats_of(&p, t.repeated, block, times * n, floats);
        with_repeated(&p, t.repeated, t.repeated ? left : right, block, floats, rows * n,
                      y + i * n);
        i += rows;
        at = itg_nest_seek(&nest, i);
        continue;
      }
#endif
      for (; times < rows; times++) memcpy(block + times * n, again, (size_t)n);
      if (t.repeated) right = block;
      else left = block;
    }
    row(&p, left, step_a[last], right, step_b[last], rows * n, y + i * n);
    i += rows;
    if (rows > 1) at = itg_nest_seek(&nest, i);
    else itg_nest_next(&nest, &at);
  }
  return NULL;
}

ITG_FN(qlinear_add, any) { return run(call, part, parts, true); }
ITG_FN(qlinear_mul, any) { return run(call, part, parts, false); }
