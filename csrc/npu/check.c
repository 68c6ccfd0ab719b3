// npu.run: everything that a program claims is checked when the file is opened, so that the
// simulator can trust it. Programs are hostile: no number is used before it was compared, and no
// sum of products of them can overflow.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

static const char *const names[] = {"?",    "load",    "store", "copy",   "conv",   "depthwise",
                                    "pool", "eltwise", "lut",   "resize", "matmul", "barrier"};
static const uint16_t sizes[] = {0,
                                 sizeof(itg_npu_move),
                                 sizeof(itg_npu_move),
                                 sizeof(itg_npu_move),
                                 sizeof(itg_npu_product),
                                 sizeof(itg_npu_product),
                                 sizeof(itg_npu_pool),
                                 sizeof(itg_npu_eltwise),
                                 sizeof(itg_npu_lut),
                                 sizeof(itg_npu_resize),
                                 sizeof(itg_npu_matmul),
                                 sizeof(itg_npu_barrier)};

enum {
  MOST_SRAM = 1 << 27,
  MOST_ALIGN = 1 << 16,
  MOST = 1 << 20,  // bound of numbers that results are clamped to
};
#define MOST_BYTES ((uint64_t)1 << 32)  // of internal memory, of a port

itg_words itg_npu_refuse(uint32_t number, const itg_npu_instruction *i, const char *format, ...) {
  static _Thread_local char words[240];  // read before the next refusal overwrites it
  int n = snprintf(words, sizeof words, "instruction %u (%s): ", number, names[i->head.op]);
  va_list list;
  va_start(list, format);
  vsnprintf(words + n, sizeof words - (size_t)n, format, list);
  va_end(list);
  return words;
}

#include "check_operands.h"

// ---- each instruction ---------------------------------------------------------------------------
static itg_words check_move(const checker *c) {
  static const uint32_t from[] = {IN(ITG_NPU_WEIGHTS) | IN(ITG_NPU_INTERNAL) | IN(ITG_NPU_INPUT),
                                  IN(ITG_NPU_SRAM), IN(ITG_NPU_SRAM)};
  static const uint32_t to[] = {IN(ITG_NPU_SRAM), IN(ITG_NPU_INTERNAL) | IN(ITG_NPU_OUTPUT),
                                IN(ITG_NPU_SRAM)};
  const itg_npu_move *m = &c->at->move;
  const int kind = m->head.op - ITG_NPU_LOAD;
  TRY(check_feature(c, &m->src, "src", from[kind]));
  TRY(check_feature(c, &m->dst, "dst", to[kind]));
  NEED(is_disjoint(&m->dst), "elements of dst lie on each other");
  NEED(same_extents(&m->src, &m->dst) && m->src.dtype == m->dst.dtype,
       "src and dst differ in extents or type");
  return check_overlap(c, NULL, NULL);
}

static itg_words check_product(const checker *c) {
  const itg_npu_product *p = &c->at->product;
  const bool deep = p->head.op == ITG_NPU_CONV, adds = p->residual.channels != 0;
  TRY(check_operand(c, &p->src, "src", false));
  TRY(check_result(c));
  TRY(check_window(c, p->kernel, p->stride, p->dilation, p->pad));
  TRY(check_zero(c, p->src.dtype, p->x_zero, "x_zero"));
  if (adds) {
    TRY(check_operand(c, &p->residual, "residual", true));
    TRY(check_zero(c, p->residual.dtype, p->r_zero, "r_zero"));
    NEED(same_extents(&p->residual, &p->dst), "residual and dst differ in extents");
    NEED(p->dst.dtype != ITG_I32, "nothing is added to sums of i32");
  }
  NEED(deep || p->src.channels == p->dst.channels, "src has %u channels, dst %u", p->src.channels,
       p->dst.channels);
  NEED(p->in_atom && p->out_atom, "its weights have atoms of %u inputs and %u outputs", p->in_atom,
       p->out_atom);
  const uint8_t x = p->src.dtype, w = p->weight_type < 256 ? (uint8_t)p->weight_type : 0;
  NEED(is_real(x) ? w == ITG_F16 : w == ITG_I8 || (w == ITG_I16 && x == ITG_I16),
       "its weights are %s, src is %s", w ? itg_dtype_name(w) : "nothing", itg_dtype_name(x));
  NEED(p->sparse <= (deep && w == ITG_I8 ? 3 : 0),
       "its weights are packed in form %u, which is not known", p->sparse);
  const itg_npu_form form = itg_npu_form_of(p);
  const bool whole = form.block ? p->out_atom % 4 == 0 && p->in_atom % 4 == 0
                                : (form.outputs ? p->out_atom : p->in_atom) % form.of == 0 &&
                                      p->out_atom * p->in_atom % 8 == 0;
  NEED(!p->sparse || whole, "its atoms of %u inputs and %u outputs hold no whole groups",
       p->in_atom, p->out_atom);
  uint64_t bytes = (uint64_t)p->kernel[0] * p->kernel[1];
  if (p->sparse) {
    bytes = itg_npu_times(bytes, (p->dst.channels - 1) / p->out_atom + 1);
    bytes = itg_npu_times(bytes, (p->src.channels - 1) / p->in_atom + 1);
    bytes = itg_npu_times(bytes, (uint64_t)itg_npu_atom_bytes(p));
  } else {
    bytes = itg_npu_times(bytes, (uint64_t)p->dst.channels * itg_item(w));
    if (deep) bytes = itg_npu_times(bytes, p->src.channels);
  }
  NEED(bytes == p->weight_bytes, "its weights have %u bytes, which is not what its extents need",
       p->weight_bytes);
  TRY(check_line(c, p->weights, p->weight_bytes, "weights"));
  NEED(p->one_scale <= 1, "its scales are shared %u times", p->one_scale);
  TRY(check_place(c, p->params, itg_npu_param_bytes(p), 4, "parameters"));
  TRY(check_round(c, p->y_zero, p->low, p->high, p->table, p->entries, p->base));
  return check_overlap(c, adds ? &p->residual : NULL, NULL);
}

static itg_words check_pool(const checker *c) {
  const itg_npu_pool *p = &c->at->pool;
  TRY(check_operand(c, &p->src, "src", false));
  TRY(check_result(c));
  TRY(check_window(c, p->kernel, p->stride, p->dilation, p->pad));
  NEED(p->kind <= ITG_NPU_AVG && p->count_pad <= 1, "its kind is %u, its count %u", p->kind,
       p->count_pad);
  NEED(p->src.channels == p->dst.channels, "src has %u channels, dst %u", p->src.channels,
       p->dst.channels);
  if (p->kind == ITG_NPU_MAX) {
    NEED(p->src.dtype == p->dst.dtype, "src and dst differ in type");
  } else {
    TRY(check_zero(c, p->src.dtype, p->x_zero, "x_zero"));
  }
  TRY(check_round(c, p->y_zero, p->low, p->high, 0, 0, 0));
  return check_overlap(c, NULL, NULL);
}

static bool repeats_to(uint32_t have, uint32_t want) { return have == want || have == 1; }

static itg_words check_eltwise(const checker *c) {
  const itg_npu_eltwise *e = &c->at->eltwise;
  const itg_npu_feature *b = &e->other;
  TRY(check_operand(c, &e->src, "src", true));
  TRY(check_operand(c, b, "other", true));
  TRY(check_result(c));
  NEED(is_real(e->src.dtype) == is_real(b->dtype), "src is %s, other %s",
       itg_dtype_name(e->src.dtype), itg_dtype_name(b->dtype));
  NEED(e->kind <= ITG_NPU_MUL, "its kind is %u", e->kind);
  NEED(same_extents(&e->src, &e->dst), "src and dst differ in extents");
  NEED(repeats_to(b->channels, e->dst.channels) && repeats_to(b->height, e->dst.height) &&
           repeats_to(b->width, e->dst.width),
       "other has extents that dst has not, and that are not 1");
  TRY(check_zero(c, e->src.dtype, e->a_zero, "a_zero"));
  TRY(check_zero(c, b->dtype, e->b_zero, "b_zero"));
  TRY(check_round(c, e->y_zero, e->low, e->high, e->table, e->entries, e->base));
  return check_overlap(c, &e->src, b);
}

static itg_words check_lut(const checker *c) {
  const itg_npu_lut *l = &c->at->lut;
  TRY(check_operand(c, &l->src, "src", true));
  TRY(check_result(c));
  NEED(same_extents(&l->src, &l->dst), "src and dst differ in extents");
  NEED(l->entries, "it has no table");
  TRY(check_round(c, 0, 0, 0, l->table, l->entries, l->base));
  return check_overlap(c, &l->src, NULL);
}

static itg_words check_resize(const checker *c) {
  const itg_npu_resize *r = &c->at->resize;
  TRY(check_feature(c, &r->src, "src", IN(ITG_NPU_SRAM)));
  TRY(check_result(c));
  NEED(r->src.dtype == r->dst.dtype && r->src.channels == r->dst.channels,
       "src and dst differ in type or channels");
  NEED(r->factor[0] && r->factor[1], "its factor is 0");
  NEED(((uint64_t)r->dst.height - 1 + r->phase[0]) / r->factor[0] < r->src.height &&
           ((uint64_t)r->dst.width - 1 + r->phase[1]) / r->factor[1] < r->src.width,
       "it reads past the end of src");
  return check_overlap(c, NULL, NULL);
}

static itg_words check_matmul(const checker *c) {
  const itg_npu_matmul *m = &c->at->matmul;
  const itg_npu_feature *a = &m->src, *b = &m->other, *y = &m->dst;
  TRY(check_operand(c, a, "src", false));
  TRY(check_operand(c, b, "other", false));
  TRY(check_result(c));
  NEED(is_real(a->dtype) == is_real(b->dtype), "src is %s, other %s", itg_dtype_name(a->dtype),
       itg_dtype_name(b->dtype));
  NEED(m->turned <= 1, "it is turned %u times", m->turned);
  NEED(a->width == 1 && b->width == 1 && y->width == 1 && a->height == y->height,
       "it has no such rows and columns");
  NEED((m->turned ? b->channels : b->height) == a->channels &&
           (m->turned ? b->height : b->channels) == y->channels,
       "its operands do not fit each other");
  TRY(check_zero(c, a->dtype, m->a_zero, "a_zero"));
  TRY(check_zero(c, b->dtype, m->b_zero, "b_zero"));
  TRY(check_round(c, m->y_zero, m->low, m->high, 0, 0, 0));
  return check_overlap(c, NULL, NULL);
}

static itg_words check_instruction(const checker *c) {
  switch (c->at->head.op) {
    case ITG_NPU_LOAD:
    case ITG_NPU_STORE:
    case ITG_NPU_COPY: return check_move(c);
    case ITG_NPU_CONV:
    case ITG_NPU_DEPTHWISE: return check_product(c);
    case ITG_NPU_POOL: return check_pool(c);
    case ITG_NPU_ELTWISE: return check_eltwise(c);
    case ITG_NPU_LUT: return check_lut(c);
    case ITG_NPU_RESIZE: return check_resize(c);
    case ITG_NPU_MATMUL: return check_matmul(c);
    default: return NULL;
  }
}

// ---- the program --------------------------------------------------------------------------------
static itg_words check_head(const itg_tensor *code, const itg_tensor *weights, uint32_t n_in,
                            uint32_t n_out) {
  REFUSE(code->dtype != ITG_U8 || code->rank != 1 || weights->dtype != ITG_U8 || weights->rank != 1,
         "program and weights must be rows of u8");
  REFUSE(!code->data || (weights->shape[0] && !weights->data),
         "program and weights must be constants");
  REFUSE((uintptr_t)code->data % 8, "the program is not aligned to 8 bytes");
  const itg_npu_program *p = code->data;
  const uint64_t bytes = (uint64_t)code->shape[0];
  REFUSE(code->shape[0] < (int64_t)sizeof *p || memcmp(p->magic, "NPU1", 4),
         "it is no NPU program");
  REFUSE(p->version != ITG_NPU_VERSION,
         "the program is of another version of the instruction set; compile it again");
  REFUSE(!p->cores || p->cores > ITG_NPU_CORES, "the program is for no cores, or for more than 16");
  REFUSE(p->chip_cores && (p->chip_cores < p->cores || p->chip_cores > ITG_NPU_CORES),
         "the program is for more cores than its chip has");
  REFUSE(p->inputs != n_in || p->outputs != n_out || n_in > 256 || !n_out || n_out > 16,
         "the program has other inputs or outputs than the step");
  REFUSE(p->sram > MOST_SRAM || p->internal > MOST_BYTES || p->near > p->internal,
         "the program needs too much memory");
  REFUSE(p->weights != (uint64_t)weights->shape[0], "the program has weights of another size");
  REFUSE(!p->align || p->align > MOST_ALIGN || p->align & (p->align - 1),
         "the program's alignment is no power of two");
  REFUSE(bytes - sizeof *p < (p->inputs + p->outputs) * sizeof(itg_npu_port),
         "the program ends before its ports");
  return NULL;
}

static itg_words check_port(const itg_npu_port *port, itg_tensor *to, uint64_t *bytes) {
  REFUSE(!itg_item(port->dtype) || port->rank > ITG_MAX_RANK,
         "a port of the program has no such type");
  itg_set_type(to, port->dtype, port->rank);
  for (int a = 0; a < port->rank; a++) to->shape[a] = port->shape[a];
  REFUSE(!itg_countable(to), "a port of the program has no such shape");
  *bytes = (uint64_t)itg_count(to) * itg_item(to->dtype);
  REFUSE(*bytes > MOST_BYTES, "a port of the program is too large");
  return NULL;
}

itg_words itg_infer_npu_run(const itg_call *call, itg_tensor *out) {
  REFUSE(call->n_in < 2 || !call->in[0] || !call->in[1], "takes a program, weights and inputs");
  for (uint32_t i = 2; i < call->n_in; i++) REFUSE(!call->in[i], "takes every input");
  checker c = {.program = call->in[0]->data};
  itg_words wrong = check_head(call->in[0], call->in[1], call->n_in - 2, call->n_out);
  if (wrong) return wrong;
  const itg_npu_program *p = c.program;
  const itg_npu_port *ports = itg_npu_ports(p);
  for (uint32_t i = 0; i < p->inputs; i++) {
    itg_tensor type;
    if ((wrong = check_port(&ports[i], &type, &c.inputs[i]))) return wrong;
    REFUSE(type.dtype != call->in[2 + i]->dtype || !itg_same_shape(&type, call->in[2 + i]),
           "an input has another type than the program's port");
  }
  for (uint32_t i = 0; i < p->outputs; i++)
    if ((wrong = check_port(&ports[p->inputs + i], &out[i], &c.outputs[i]))) return wrong;
  const uint8_t *end = (const uint8_t *)call->in[0]->data + call->in[0]->shape[0];
  c.at = itg_npu_first(p);
  for (; c.number < p->instructions; c.number++, c.at = itg_npu_next(c.at)) {
    const uint64_t left = (uint64_t)(end - (const uint8_t *)c.at);
    REFUSE(left < sizeof(itg_npu_head), "the program ends before its last instruction");
    const uint8_t op = c.at->head.op;
    REFUSE(!op || op > ITG_NPU_BARRIER || c.at->head.bytes != sizes[op] || left < sizes[op],
           "the program has an instruction that is not known");
    if (c.at->head.core >= p->cores)
      return itg_npu_refuse(c.number, c.at, "it is for core %u; there are %u", c.at->head.core,
                            p->cores);
    if ((wrong = check_instruction(&c))) return wrong;
  }
  REFUSE((const uint8_t *)c.at != end, "bytes follow the program's last instruction");
  return itg_npu_check_order(p);
}
