// npu.run: everything that a program claims is checked when the file is opened, so that the simulator can trust it.
// Programs are hostile: no number is used before it was compared, and no sum of products of them can overflow.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

static const char *const names[] = {"?",   "load",    "store", "copy",   "conv",   "depthwise",
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

enum { MOST_SRAM = 1 << 27, MOST_ALIGN = 1 << 16, MOST = 1 << 20 };  // MOST: of numbers that results are clamped to
#define MOST_BYTES ((uint64_t)1 << 32)                               // of internal memory, of a port

itg_words itg_npu_refuse(uint32_t number, const itg_npu_instruction *i, const char *format, ...) {
  static _Thread_local char words[240];  // whoever asked reads it before asking again
  int n = snprintf(words, sizeof words, "instruction %u (%s): ", number, names[i->head.op]);
  va_list list;
  va_start(list, format);
  vsnprintf(words + n, sizeof words - (size_t)n, format, list);
  va_end(list);
  return words;
}

typedef struct checker {
  const itg_npu_program *program;
  const itg_npu_instruction *at;
  uint32_t number;
  uint64_t inputs[256], outputs[16];  // bytes of each
} checker;

#define SAY(...) itg_npu_refuse(c->number, c->at, __VA_ARGS__)
#define NEED(condition, ...) \
  do {                       \
    if (!(condition)) return SAY(__VA_ARGS__); \
  } while (0)
#define TRY(check)                 \
  do {                             \
    itg_words wrong_ = (check);    \
    if (wrong_) return wrong_;     \
  } while (0)

static bool is_real(uint8_t dtype) { return dtype == ITG_F16; }
static bool is_whole(uint8_t dtype) { return dtype == ITG_I8 || dtype == ITG_U8 || dtype == ITG_I16; }

static void range_of(uint8_t dtype, int64_t *low, int64_t *high) {
  *low = dtype == ITG_I8 ? -128 : dtype == ITG_I16 ? -32768 : 0;
  *high = dtype == ITG_I8 ? 127 : dtype == ITG_I16 ? 32767 : 255;
}

// ---- features ---------------------------------------------------------------------------------------
#define IN(space) (1u << (space))

static uint64_t room(const checker *c, const itg_npu_feature *f) {
  switch (f->space) {
    case ITG_NPU_SRAM: return c->program->sram;
    case ITG_NPU_WEIGHTS: return c->program->weights;
    case ITG_NPU_INTERNAL: return c->program->internal;
    case ITG_NPU_INPUT: return f->slot < c->program->inputs ? c->inputs[f->slot] : 0;
    default: return f->slot < c->program->outputs ? c->outputs[f->slot] : 0;
  }
}

// Whether every element has bytes of its own: with its strides in order, each is past all that the smaller ones reach.
static bool apart(const itg_npu_feature *f) {
  uint64_t count[3] = {itg_npu_blocks(f), f->height, f->width}, stride[3] = {f->plane, f->row, f->pixel};
  uint64_t reach = (count[0] > 1 ? f->c2 : f->channels) * itg_item(f->dtype);
  for (int left = 3; left > 0; left--) {
    int least = -1;
    for (int k = 0; k < 3; k++)
      if (count[k] && (least < 0 || stride[k] < stride[least])) least = k;
    if (count[least] > 1) {
      if (stride[least] < reach) return false;
      reach += (count[least] - 1) * stride[least];
    }
    count[least] = 0;
  }
  return true;
}

static itg_words check_feature(const checker *c, const itg_npu_feature *f, const char *what, uint32_t spaces) {
  const uint64_t item = itg_item(f->dtype);
  NEED(item, "%s has element type %u, which does not exist", what, f->dtype);
  NEED(f->space <= ITG_NPU_OUTPUT && spaces >> f->space & 1, "%s lies in memory %u, which it cannot reach", what,
       f->space);
  NEED(f->channels && f->height && f->width && f->c2 && f->first < f->c2, "%s is empty, or begins at no lane", what);
  NEED(f->offset % item == 0 && f->plane % item == 0 && f->row % item == 0 && f->pixel % item == 0,
       "%s is not aligned to its elements", what);
  const uint64_t blocks = itg_npu_blocks(f), last = ((uint64_t)f->first + f->channels - 1) % f->c2 + 1;
  const unsigned __int128 corner = (unsigned __int128)f->offset + (unsigned __int128)(f->height - 1) * f->row +
                                   (unsigned __int128)(f->width - 1) * f->pixel;
  unsigned __int128 end = corner + (unsigned __int128)(blocks - 1) * f->plane + last * item;
  if (blocks > 1) {  // the block before the last has all its lanes
    const unsigned __int128 before = corner + (unsigned __int128)(blocks - 2) * f->plane + f->c2 * item;
    if (before > end) end = before;
  }
  NEED(end <= room(c, f), "%s lies outside of its memory, which has %llu bytes", what,
       (unsigned long long)room(c, f));
  const uint64_t align = c->program->align;
  NEED(f->space != ITG_NPU_SRAM || f->offset % align == 0 || f->offset % (f->c2 * item) == 0,
       "%s lies at %llu, which is no multiple of %llu, nor of a block of channels", what,
       (unsigned long long)f->offset, (unsigned long long)align);
  return NULL;
}

static itg_words check_place(const checker *c, uint64_t at, uint64_t bytes, uint32_t align, const char *what) {
  NEED(at % align == 0, "its %s lie at %llu, which is no multiple of %u", what, (unsigned long long)at, align);
  NEED(bytes <= c->program->sram && at <= c->program->sram - bytes, "its %s lie outside of SRAM", what);
  return NULL;
}

static itg_words check_line(const checker *c, uint64_t at, uint64_t bytes, const char *what) {
  return check_place(c, at, bytes, c->program->align, what);
}

static bool same_box(const itg_npu_feature *a, const itg_npu_feature *b) {
  return a->offset == b->offset && a->plane == b->plane && a->row == b->row && a->pixel == b->pixel &&
         a->channels == b->channels && a->height == b->height && a->width == b->width && a->c2 == b->c2 &&
         a->first == b->first && a->space == b->space && a->slot == b->slot && itg_item(a->dtype) == itg_item(b->dtype);
}

static bool same_extents(const itg_npu_feature *a, const itg_npu_feature *b) {
  return a->channels == b->channels && a->height == b->height && a->width == b->width;
}

// No byte of the result is read by the same instruction, unless `in_place` is exactly where the result goes.
static itg_words check_overlap(const checker *c, const itg_npu_feature *first, const itg_npu_feature *second) {
  itg_npu_region all[ITG_NPU_REGIONS], box[3];
  const itg_npu_feature *dst = &c->at->move.dst, *in_place[2] = {first, second};
  const int n = itg_npu_regions_of(c->at, all);
  for (int k = 0; k < n; k++)
    for (int w = 0; w < n; w++) {
      if (!all[w].write || all[k].write || all[k].space != all[w].space || !itg_npu_touch(&all[k], &all[w])) continue;
      bool allowed = false;
      for (int p = 0; p < 2; p++) {
        if (!in_place[p] || !same_box(in_place[p], dst)) continue;
        const int parts = itg_npu_box_regions(dst, false, box);
        for (int b = 0; b < parts; b++) allowed |= box[b].at == all[k].at && box[b].end == all[k].end;
      }
      NEED(allowed, "it writes to bytes that it reads");
    }
  return NULL;
}

// ---- what instructions have in common ---------------------------------------------------------------
static itg_words check_result(const checker *c) {
  const itg_npu_feature *dst = &c->at->move.dst;
  TRY(check_feature(c, dst, "dst", IN(ITG_NPU_SRAM)));
  NEED(apart(dst), "elements of dst lie on each other");
  return NULL;
}

static itg_words check_operand(const checker *c, const itg_npu_feature *f, const char *what, bool repeats) {
  TRY(check_feature(c, f, what, IN(ITG_NPU_SRAM)));
  NEED(is_whole(f->dtype) || is_real(f->dtype), "%s is %s; i8, u8, i16 and f16 are known", what,
       itg_dtype_name(f->dtype));
  NEED(repeats || apart(f), "elements of %s lie on each other", what);
  return NULL;
}

static itg_words check_zero(const checker *c, uint8_t dtype, int32_t zero, const char *what) {
  int64_t low = 0, high = 0;  // of floats
  if (!is_real(dtype)) range_of(dtype, &low, &high);
  NEED(zero >= low && zero <= high, "%s %d is no number of %s", what, zero, itg_dtype_name(dtype));
  return NULL;
}

// A rounded result: bounds that its type holds or, with a table, that the table is asked for.
static itg_words check_round(const checker *c, int32_t zero, int32_t low, int32_t high, uint32_t table,
                             uint32_t entries, int32_t base) {
  const uint8_t dtype = c->at->move.dst.dtype;
  int64_t least = -MOST, most = MOST;
  const bool sums = dtype == ITG_I32 && !entries && is_whole(c->at->move.src.dtype) &&
                    (c->at->head.op == ITG_NPU_CONV || c->at->head.op == ITG_NPU_MATMUL);
  NEED(is_whole(dtype) || is_real(dtype) || dtype == ITG_F32 || sums,
       "dst is %s; i8, u8, i16, f16, f32 and i32 of sums are known", itg_dtype_name(dtype));
  if (!entries && !is_whole(dtype)) return NULL;  // not rounded to whole numbers at all
  if (entries && is_real(c->at->move.src.dtype)) {
    NEED(is_real(dtype), "a table of f16 makes %s; it makes f16", itg_dtype_name(dtype));
    NEED(entries == ITG_NPU_CURVE, "its table of f16 has %u entries, not %u", entries, ITG_NPU_CURVE);
    return check_line(c, table, 4ull * entries, "table");
  }
  if (!entries) range_of(dtype, &least, &most);
  NEED(low >= least && low <= high && high <= most && zero >= -MOST && zero <= MOST,
       "it rounds to %d .. %d about %d, which %s does not hold", low, high, zero, itg_dtype_name(dtype));
  if (!entries) return NULL;
  NEED(base >= -MOST && base <= MOST, "its table begins at %d", base);
  return check_line(c, table, (uint64_t)entries * itg_item(dtype), "table");
}

static itg_words check_window(const checker *c, const uint16_t *kernel, const uint16_t *stride,
                              const uint16_t *dilation, const int32_t *pad) {
  for (int k = 0; k < 2; k++) {
    NEED(kernel[k] && stride[k] && dilation[k], "its window has kernel %u, stride %u, dilation %u", kernel[k],
         stride[k], dilation[k]);
    NEED(pad[k] >= -(1 << 24) && pad[k] <= 1 << 24, "its window begins %d before the input", pad[k]);
  }
  const itg_npu_feature *dst = &c->at->move.dst;  // so that places stay far inside of 64 bits
  NEED(dst->height < 1u << 31 && dst->width < 1u << 31, "dst is too large");
  return NULL;
}

// ---- each instruction -------------------------------------------------------------------------------
static itg_words check_move(const checker *c) {
  static const uint32_t from[] = {IN(ITG_NPU_WEIGHTS) | IN(ITG_NPU_INTERNAL) | IN(ITG_NPU_INPUT), IN(ITG_NPU_SRAM),
                                  IN(ITG_NPU_SRAM)};
  static const uint32_t to[] = {IN(ITG_NPU_SRAM), IN(ITG_NPU_INTERNAL) | IN(ITG_NPU_OUTPUT), IN(ITG_NPU_SRAM)};
  const itg_npu_move *m = &c->at->move;
  const int kind = m->head.op - ITG_NPU_LOAD;
  TRY(check_feature(c, &m->src, "src", from[kind]));
  TRY(check_feature(c, &m->dst, "dst", to[kind]));
  NEED(apart(&m->dst), "elements of dst lie on each other");
  NEED(same_extents(&m->src, &m->dst) && m->src.dtype == m->dst.dtype, "src and dst differ in extents or type");
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
  NEED(deep || p->src.channels == p->dst.channels, "src has %u channels, dst %u", p->src.channels, p->dst.channels);
  NEED(p->in_atom && p->out_atom, "its weights have atoms of %u inputs and %u outputs", p->in_atom, p->out_atom);
  const uint8_t x = p->src.dtype, w = p->weight_type < 256 ? (uint8_t)p->weight_type : 0;
  NEED(is_real(x) ? w == ITG_F16 : w == ITG_I8 || (w == ITG_I16 && x == ITG_I16), "its weights are %s, src is %s",
       w ? itg_dtype_name(w) : "nothing", itg_dtype_name(x));
  NEED(p->sparse <= (deep && w == ITG_I8 ? 3 : 0), "its weights are packed in form %u, which is not known", p->sparse);
  const itg_npu_form form = itg_npu_form_of(p);
  NEED(!p->sparse || ((form.outputs ? p->out_atom : p->in_atom) % form.of == 0 && p->out_atom * p->in_atom % 8 == 0),
       "its atoms of %u inputs and %u outputs hold no whole groups", p->in_atom, p->out_atom);
  unsigned __int128 bytes = (uint64_t)p->kernel[0] * p->kernel[1];
  if (p->sparse) {
    bytes *= (p->dst.channels - 1) / p->out_atom + 1;
    bytes *= (p->src.channels - 1) / p->in_atom + 1;
    bytes *= (uint64_t)itg_npu_atom_bytes(p);
  } else {
    bytes *= (uint64_t)p->dst.channels * itg_item(w);
    if (deep) bytes *= p->src.channels;
  }
  NEED(bytes == p->weight_bytes, "its weights have %u bytes, which is not what its extents need", p->weight_bytes);
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
  NEED(p->kind <= ITG_NPU_AVG && p->count_pad <= 1, "its kind is %u, its count %u", p->kind, p->count_pad);
  NEED(p->src.channels == p->dst.channels, "src has %u channels, dst %u", p->src.channels, p->dst.channels);
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
  NEED(is_real(e->src.dtype) == is_real(b->dtype), "src is %s, other %s", itg_dtype_name(e->src.dtype),
       itg_dtype_name(b->dtype));
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
  NEED(r->src.dtype == r->dst.dtype && r->src.channels == r->dst.channels, "src and dst differ in type or channels");
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
  NEED(a->width == 1 && b->width == 1 && y->width == 1 && a->height == y->height, "it has no such rows and columns");
  NEED((m->turned ? b->channels : b->height) == a->channels && (m->turned ? b->height : b->channels) == y->channels,
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

// ---- the program ------------------------------------------------------------------------------------
static itg_words check_head(const itg_tensor *code, const itg_tensor *weights, uint32_t n_in, uint32_t n_out) {
  REFUSE(code->dtype != ITG_U8 || code->rank != 1 || weights->dtype != ITG_U8 || weights->rank != 1,
         "program and weights must be rows of u8");
  REFUSE(!code->data || (weights->shape[0] && !weights->data), "program and weights must be constants");
  REFUSE((uintptr_t)code->data % 8, "the program is not aligned to 8 bytes");
  const itg_npu_program *p = code->data;
  const uint64_t bytes = (uint64_t)code->shape[0];
  REFUSE(code->shape[0] < (int64_t)sizeof *p || memcmp(p->magic, "NPU1", 4), "it is no NPU program");
  REFUSE(p->version != ITG_NPU_VERSION, "the program is of another version of the instruction set; compile it again");
  REFUSE(!p->cores || p->cores > ITG_NPU_CORES, "the program is for no cores, or for more than 16");
  REFUSE(p->inputs != n_in || p->outputs != n_out || n_in > 256 || !n_out || n_out > 16,
         "the program has other inputs or outputs than the step");
  REFUSE(p->sram > MOST_SRAM || p->internal > MOST_BYTES || p->near > p->internal, "the program needs too much memory");
  REFUSE(p->weights != (uint64_t)weights->shape[0], "the program has weights of another size");
  REFUSE(!p->align || p->align > MOST_ALIGN || p->align & (p->align - 1), "the program's alignment is no power of two");
  REFUSE(bytes - sizeof *p < (p->inputs + p->outputs) * sizeof(itg_npu_port), "the program ends before its ports");
  return NULL;
}

static itg_words check_port(const itg_npu_port *port, itg_tensor *to, uint64_t *bytes) {
  REFUSE(!itg_item(port->dtype) || port->rank > ITG_MAX_RANK, "a port of the program has no such type");
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
      return itg_npu_refuse(c.number, c.at, "it is for core %u; there are %u", c.at->head.core, p->cores);
    if ((wrong = check_instruction(&c))) return wrong;
  }
  REFUSE((const uint8_t *)c.at != end, "bytes follow the program's last instruction");
  return itg_npu_check_order(p);
}

static uint64_t up(uint64_t n) { return (n + 63) / 64 * 64; }

// The cores' SRAM, what they share, then what the largest product needs beside.
size_t itg_scratch_npu_run(const itg_call *call, uint32_t parts) {
  const itg_npu_program *p = call->in[0]->data;
  const itg_npu_instruction *i = itg_npu_first(p);
  uint64_t most = 0;
  for (uint32_t n = 0; n < p->instructions; n++, i = itg_npu_next(i)) {
    uint64_t need = 0;
    if (i->head.op == ITG_NPU_CONV || i->head.op == ITG_NPU_DEPTHWISE) need = itg_npu_plan_of(&i->product).total;
    if (i->head.op == ITG_NPU_MATMUL) need = itg_npu_plan_of_matmul(&i->matmul).total;
    if (need > most) most = need;
  }
  return p->cores * up(p->sram + ITG_NPU_SLACK) + up(p->internal) + most + ITG_NPU_SLACK;
}

// What a product needs beside: nothing where its input has many more borders than pixels.
itg_npu_plan itg_npu_plan_of(const itg_npu_product *p) {
  const bool deep = p->head.op == ITG_NPU_CONV;
  const uint64_t taps = (uint64_t)p->kernel[0] * p->kernel[1];
  itg_npu_plan made = {.depth = itg_npu_div_up(p->src.channels, 4), .groups = itg_npu_div_up(p->dst.channels, 16)};
  made.height = (int64_t)(p->dst.height - 1) * p->stride[0] + (int64_t)(p->kernel[0] - 1) * p->dilation[0] + 1;
  made.width = (int64_t)(p->dst.width - 1) * p->stride[1] + (int64_t)(p->kernel[1] - 1) * p->dilation[1] + 1;
  made.wide = itg_item(p->src.dtype) == 2;
  if (made.wide) made.depth = p->src.channels;
  const uint64_t deepest = (uint64_t)(made.wide ? made.depth : made.depth * 4);
  const unsigned __int128 image =
      (unsigned __int128)made.height * (uint64_t)made.width * (deep ? deepest : (uint64_t)made.groups * 16);
  const uint64_t pixels = (uint64_t)p->src.height * p->src.width, lanes = deepest + 16;
  made.fast = !(made.wide && p->sparse) && image <= 16 * (unsigned __int128)(pixels * lanes) + (1u << 20);
  if (!made.fast) return made;
  made.packed = up((uint64_t)made.groups * taps * (uint64_t)(deep ? made.depth * 64 : 64));
  made.image = up((uint64_t)image * (made.wide ? 4 : 1) + ITG_NPU_SLACK);
  made.total = made.packed + made.image + (uint64_t)made.groups * 192;
  return made;
}

itg_npu_plan itg_npu_plan_of_matmul(const itg_npu_matmul *p) {
  const uint64_t rows = p->src.height;
  itg_npu_plan made = {.depth = itg_npu_div_up(p->src.channels, 4), .groups = itg_npu_div_up(p->dst.channels, 16)};
  made.height = (int64_t)rows, made.width = 1, made.fast = true;
  made.wide = itg_item(p->src.dtype) == 2 || itg_item(p->other.dtype) == 2;
  if (made.wide) made.depth = p->src.channels;
  made.packed = up((uint64_t)made.groups * (uint64_t)made.depth * 64);
  made.image = up(rows * (uint64_t)made.depth * 4 + ITG_NPU_SLACK);
  made.total = made.packed + made.image + (uint64_t)made.groups * 192 + up(rows * 4);
  return made;
}
