// Element-wise operations and table look-ups of the TIU.
#include "cv18xx_sums.h"

enum { MUL, MAC, ADD, SUB, MAX, MIN, SHIFT, AND, OR, XOR, MOVE, GE, LOOKUP };

typedef struct {
  const itg_cv18xx_tiu *t;
  view a, b, y;
} work;

// An operand's element: 8 bits, or 16 with the high byte elsewhere.
static int32_t element(const uint8_t *p, int64_t high, uint32_t is_narrow, uint32_t is_signed) {
  if (is_narrow) return read_byte(p, is_signed);
  return is_signed ? (int16_t)(p[0] | p[high] << 8) : p[0] | p[high] << 8;
}

static int32_t constant(const itg_cv18xx_tiu *t) {
  if (t->opt_opd1_seg) return t->opt_opd1_sign ? (int8_t)t->opd1_addr : (uint8_t)t->opd1_addr;
  return t->opt_opd1_sign ? (int16_t)t->opd1_addr : (uint16_t)t->opd1_addr;
}

static int64_t computed(const itg_cv18xx_tiu *t, int64_t a, int64_t b, int64_t before) {
  switch (t->tsk_eu_typ) {
    case MUL: return a * b;
    case MAC: return before * (1LL << t->opt_left_shift) + a * b;
    case ADD: return a + b;
    case SUB: return a - b;
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    case AND: return a & b;
    case OR: return a | b;
    case XOR: return a ^ b;
    case GE: return a >= b;
    default: return a;
  }
}

static void one_row(const work *k, const uint8_t *a, const uint8_t *b, uint8_t *y) {
  const itg_cv18xx_tiu *t = k->t;
  int64_t high = t->res0_b_str, unary = t->tsk_eu_typ == MOVE;
  int32_t fixed = constant(t);
  if (unary && t->opt_opd0_seg && t->opt_res0_seg && !t->opt_chl_quan && !t->opt_relu_typ) {
    int64_t from_step = k->a.w_str, to_step = k->y.w_str;
    for (int64_t i = 0; i < k->y.w; i++) y[i * to_step] = a[i * from_step];
    return;
  }
  for (int64_t i = 0; i < k->y.w; i++) {
    uint8_t *to = y + i * k->y.w_str;
    int64_t left = element(a + i * k->a.w_str, t->opd0_b_str, t->opt_opd0_seg, t->opt_opd0_sign);
    int64_t right = fixed;
    if (!unary && !t->opt_opd1_const)
      right = element(b + i * k->b.w_str, t->opd1_b_str, t->opt_opd1_seg, t->opt_opd1_sign);
    int64_t before = t->tsk_eu_typ == MAC ? element(to, high, 0, t->opt_res0_sign) : 0;
    int64_t v = computed(t, left, right, before);
    if (t->tsk_eu_typ == SHIFT)
      v = right >= 0
              ? left * (1LL << (right & 31))
              : (t->opt_rshift_typ ? shift_up(left, (int)(-right & 31)) : left >> (-right & 31));
    else if (t->opt_chl_quan) v = requantize(v, t->quan_m, (int)t->opt_res_shift);
    else if (t->opt_res_shift && (t->tsk_eu_typ <= SUB))
      v = t->opt_rshift_typ ? shift_up(v, (int)t->opt_res_shift) : v >> t->opt_res_shift;
    if (t->opt_relu_typ && v < 0 && t->tsk_eu_typ != SUB) v = 0;
    if (t->opt_res0_seg) {
      *to =
          t->tsk_eu_typ >= AND && t->tsk_eu_typ <= MOVE ? (uint8_t)v : byte_of(v, t->opt_res0_sign);
      continue;
    }
    if (t->tsk_eu_typ != SHIFT)  // shifts drop the bits above
      v = t->opt_res0_sign ? within(v, -32768, 32767) : within(v, 0, 65535);
    to[0] = (uint8_t)v;
    to[high] = (uint8_t)(v >> 8);
  }
}

static int look_up(itg_cv18xx *m, const work *k) {
  view table = place(m, k->t->opd1_addr, 1, m->lanes, 1, 256);
  strides(&table, 0, 0, 0, 1);
  table.lane = 0;
  if (!inside(m, &table, 1)) return 0;
  for (int64_t n = 0; n < k->y.n; n++)
    for (int64_t c = 0; c < k->y.c; c++) {
      const uint8_t *own = channel(m, &table, 0, (k->y.lane + c) % m->lanes);
      for (int64_t h = 0; h < k->y.h; h++) {
        const uint8_t *from = channel(m, &k->a, n, c) + h * k->a.h_str;
        uint8_t *to = channel(m, &k->y, n, c) + h * k->y.h_str;
        for (int64_t w = 0; w < k->y.w; w++) to[w * k->y.w_str] = own[from[w * k->a.w_str]];
      }
    }
  return 1;
}

static int fits(itg_cv18xx *m, view v, uint32_t is_narrow, int64_t high) {
  if (!inside(m, &v, 1)) return 0;
  v.offset += is_narrow ? 0 : high;
  return inside(m, &v, 1);
}

int itg_cv18xx_eltwise(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  if (t->tsk_eu_typ > LOOKUP) return refuse(m, "the element-wise operation is not known");
  if (t->opd_typ) return itg_cv18xx_eltwise_bf16(m, t);
  if (t->opt_relu_typ > 1) return refuse(m, "only plain relu is supported");
  if (t->opt_opd0_const) return refuse(m, "a constant as first operand is not supported");
  work k = {.t = t, .a = operand0_view(m, t, 1), .b = operand1_view(m, t, 1)};
  k.y = result_view(m, t, 1);
  if (k.y.n * k.y.c * k.y.h * k.y.w > MOST_WORK / 64)
    return refuse(m, "it computes more than a real command can");
  k.a.n = k.y.n, k.a.c = k.y.c, k.a.h = k.y.h, k.a.w = k.y.w;
  if (t->tsk_eu_typ == LOOKUP) return inside(m, &k.a, 1) && inside(m, &k.y, 1) && look_up(m, &k);
  k.b.n = k.y.n, k.b.c = k.y.c, k.b.h = k.y.h, k.b.w = k.y.w;
  int binary = !t->opt_opd1_const && t->tsk_eu_typ != MOVE;
  uint32_t narrow = t->tsk_eu_typ == MAC ? 0 : t->opt_res0_seg;  // a MAC reads 16 bits
  if (!fits(m, k.a, t->opt_opd0_seg, t->opd0_b_str) || !fits(m, k.y, narrow, t->res0_b_str))
    return 0;
  if (binary && !fits(m, k.b, t->opt_opd1_seg, t->opd1_b_str)) return 0;
  for (int64_t n = 0; n < k.y.n; n++)
    for (int64_t c = 0; c < k.y.c; c++)
      for (int64_t h = 0; h < k.y.h; h++)
        one_row(&k, channel(m, &k.a, n, c) + h * k.a.h_str,
                binary ? channel(m, &k.b, n, c) + h * k.b.h_str : NULL,
                channel(m, &k.y, n, c) + h * k.y.h_str);
  return 1;
}
