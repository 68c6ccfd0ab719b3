// bf16 commands of the TIU: element-wise operations and table look-ups. Each is computed in f32 and
// rounded once.
#include "cv18xx_sums.h"

enum { MUL, MAC, ADD, SUB, MAX, MIN, SHIFT, AND, OR, XOR, MOVE, GE, LOOKUP };

static float computed(uint32_t kind, float a, float b, float before) {
  switch (kind) {
    case MUL: return a * b;
    case MAC: return before + a * b;
    case ADD: return a + b;
    case SUB: return a - b;
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    case GE: return a >= b ? 1.0F : 0.0F;
    default: return a;
  }
}

static void one_row(const itg_cv18xx_tiu *t, const view *va, const view *vb, const view *vy,
                    const uint8_t *a, const uint8_t *b, uint8_t *y) {
  float fixed = bf16_float((uint16_t)t->opd1_addr);
  for (int64_t i = 0; i < vy->w; i++) {
    uint8_t *to = y + i * vy->w_str;
    const uint8_t *from = a + i * va->w_str;
    if (t->tsk_eu_typ == MOVE) {
      write16(to, read16(from));
      continue;
    }
    float right = b ? bf16_float(read16(b + i * vb->w_str)) : fixed;
    float before = t->tsk_eu_typ == MAC ? bf16_float(read16(to)) : 0.0F;
    float v = computed(t->tsk_eu_typ, bf16_float(read16(from)), right, before);
    if (t->opt_relu_typ && v < 0) v = 0;
    write16(to, float_bf16(v));
  }
}

// The low byte of each element is an index into the 256 numbers of the lane's own table.
static int look_up(itg_cv18xx *m, const itg_cv18xx_tiu *t, const view *a, const view *y) {
  view table = place(m, t->opd1_addr, 1, m->lanes, 1, 512);
  strides(&table, 0, 0, 0, 1);
  table.lane = 0;
  if (!inside(m, &table, 1)) return 0;
  for (int64_t n = 0; n < y->n; n++)
    for (int64_t c = 0; c < y->c; c++) {
      const uint8_t *own = channel(m, &table, 0, (y->lane + c) % m->lanes);
      for (int64_t h = 0; h < y->h; h++) {
        const uint8_t *from = channel(m, a, n, c) + h * a->h_str;
        uint8_t *to = channel(m, y, n, c) + h * y->h_str;
        for (int64_t w = 0; w < y->w; w++)
          write16(to + w * y->w_str, read16(own + 2 * from[w * a->w_str]));
      }
    }
  return 1;
}

int itg_cv18xx_eltwise_bf16(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  if (t->opt_relu_typ > 1) return refuse(m, "only plain relu is supported");
  if (t->tsk_eu_typ >= SHIFT && t->tsk_eu_typ <= XOR)
    return refuse(m, "shifts and logic have no bf16 form");
  view a = operand0_view(m, t, 2), b = operand1_view(m, t, 2), y = result_view(m, t, 2);
  if (y.n * y.c * y.h * y.w > MOST_WORK / 64)
    return refuse(m, "it computes more than a real command can");
  a.n = b.n = y.n, a.c = b.c = y.c, a.h = b.h = y.h, a.w = b.w = y.w;
  int binary = !t->opt_opd1_const && t->tsk_eu_typ != MOVE && t->tsk_eu_typ != LOOKUP;
  if (!inside(m, &a, 2) || !inside(m, &y, 2) || (binary && !inside(m, &b, 2))) return 0;
  if (t->tsk_eu_typ == LOOKUP) return look_up(m, t, &a, &y);
  for (int64_t n = 0; n < y.n; n++)
    for (int64_t c = 0; c < y.c; c++)
      for (int64_t h = 0; h < y.h; h++)
        one_row(t, &a, &b, &y, channel(m, &a, n, c) + h * a.h_str,
                binary ? channel(m, &b, n, c) + h * b.h_str : NULL,
                channel(m, &y, n, c) + h * y.h_str);
  return 1;
}
