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

// Elements of a row as numbers.
CLONES static void read_row(const uint8_t *p, int64_t step, int64_t high, int is_narrow,
                            int is_signed, int64_t count, int64_t *restrict to) {
  if (is_narrow && step == 1 && is_signed)
    for (int64_t i = 0; i < count; i++) to[i] = (int8_t)p[i];
  else if (is_narrow && step == 1)
    for (int64_t i = 0; i < count; i++) to[i] = p[i];
  else if (step == 1 && is_signed)
    for (int64_t i = 0; i < count; i++) to[i] = (int16_t)(p[i] | p[high + i] << 8);
  else
    for (int64_t i = 0; i < count; i++)
      to[i] = element(p + i * step, high, (uint32_t)is_narrow, (uint32_t)is_signed);
}

// a = op(a, b): an operation without its rounding. Numbers have at most 17 bits.
CLONES static void operate(const itg_cv18xx_tiu *t, int64_t count, int64_t *restrict a,
                           const int64_t *restrict b, const int64_t *restrict before) {
  int left = (int)t->opt_left_shift;
  switch (t->tsk_eu_typ) {
    case MUL:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] * b[i];
      break;
    case MAC:
      for (int64_t i = 0; i < count; i++) a[i] = before[i] * (1LL << left) + a[i] * b[i];
      break;
    case ADD:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] + b[i];
      break;
    case SUB:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] - b[i];
      break;
    case MAX:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
      break;
    case MIN:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] < b[i] ? a[i] : b[i];
      break;
    case SHIFT:
      for (int64_t i = 0; i < count; i++)
        a[i] = b[i] >= 0           ? a[i] * (1LL << (b[i] & 31))
               : t->opt_rshift_typ ? shift_up(a[i], (int)(-b[i] & 31))
                                   : a[i] >> (-b[i] & 31);
      break;
    case AND:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] & b[i];
      break;
    case OR:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] | b[i];
      break;
    case XOR:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] ^ b[i];
      break;
    case GE:
      for (int64_t i = 0; i < count; i++) a[i] = a[i] >= b[i];
      break;
    default: break;
  }
}

// Rounds numbers and brings them into the range of the result.
CLONES static void round_row(const itg_cv18xx_tiu *t, int64_t count, int64_t *restrict v) {
  int shift = (int)t->opt_res_shift;
  if (t->tsk_eu_typ != SHIFT && t->opt_chl_quan)
    for (int64_t i = 0; i < count; i++) v[i] = requantize(v[i], t->quan_m, shift);
  else if (shift && t->tsk_eu_typ <= SUB) {
    int64_t half = t->opt_rshift_typ ? 1LL << (shift - 1) : 0;
    for (int64_t i = 0; i < count; i++) v[i] = (v[i] + half) >> shift;
  }
  if (t->opt_relu_typ && t->tsk_eu_typ != SUB)
    for (int64_t i = 0; i < count; i++) v[i] = v[i] < 0 ? 0 : v[i];
  int bits_alone = t->opt_res0_seg ? t->tsk_eu_typ >= AND && t->tsk_eu_typ <= MOVE
                                   : t->tsk_eu_typ == SHIFT;  // drops the bits above
  if (bits_alone) return;
  int64_t bits = t->opt_res0_seg ? 8 : 16;
  int64_t low = t->opt_res0_sign ? -(1LL << (bits - 1)) : 0;
  int64_t most = low + (1LL << bits) - 1;
  for (int64_t i = 0; i < count; i++) v[i] = v[i] < low ? low : v[i] > most ? most : v[i];
}

CLONES static void write_row(const int64_t *restrict v, int64_t count, int64_t step, int64_t high,
                             int is_narrow, uint8_t *to) {
  if (step == 1)
    for (int64_t i = 0; i < count; i++) to[i] = (uint8_t)v[i];
  else
    for (int64_t i = 0; i < count; i++) to[i * step] = (uint8_t)v[i];
  for (int64_t i = 0; !is_narrow && i < count; i++) to[i * step + high] = (uint8_t)(v[i] >> 8);
}

static void one_row(const work *k, const uint8_t *a, const uint8_t *b, uint8_t *y) {
  const itg_cv18xx_tiu *t = k->t;
  int64_t high = t->res0_b_str, unary = t->tsk_eu_typ == MOVE;
  int64_t from_step = k->a.w_str, b_step = k->b.w_str, to_step = k->y.w_str;
  if (unary && t->opt_opd0_seg && t->opt_res0_seg && !t->opt_chl_quan && !t->opt_relu_typ) {
    for (int64_t i = 0; i < k->y.w; i++) y[i * to_step] = a[i * from_step];
    return;
  }
  int64_t left[LONGEST], right[LONGEST], before[LONGEST];
  for (int i = 0; i < LONGEST; i++) right[i] = constant(t);
  for (int64_t i = 0; i < k->y.w; i += LONGEST) {
    int64_t count = k->y.w - i < LONGEST ? k->y.w - i : LONGEST;
    read_row(a + i * from_step, from_step, t->opd0_b_str, (int)t->opt_opd0_seg,
             (int)t->opt_opd0_sign, count, left);
    if (!unary && !t->opt_opd1_const)
      read_row(b + i * b_step, b_step, t->opd1_b_str, (int)t->opt_opd1_seg, (int)t->opt_opd1_sign,
               count, right);
    if (t->tsk_eu_typ == MAC)
      read_row(y + i * to_step, to_step, high, 0, (int)t->opt_res0_sign, count, before);
    operate(t, count, left, right, before);
    round_row(t, count, left);
    write_row(left, count, to_step, high, (int)t->opt_res0_seg, y + i * to_step);
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
