// Custom operators. A model names them when it is opened, but a program registers them afterwards:
// so each gets a stand-in, a plug-in of the runtime, that calls what the running context has.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intaglio_plugin.h"
#include "rknn_internal.h"

#define PREFIX "python.rknn."  // of operators that RKNN.reg_custom_op of intaglio.compat made

_Thread_local rk_context *rk_running;
static _Thread_local rk_model *opening;
static _Thread_local char words[256];  // of an error

// ---- nodes --------------------------------------------------------------------------------------
void rk_begin_open(rk_model *model) { opening = model; }
void rk_end_open(void) { opening = NULL; }

void rk_free_nodes(rk_model *m) {
  for (rk_node *n = m->nodes, *next; n; n = next) {
    next = n->next;
    rk_json_free(n->attributes);
    free(n->text);
    free(n);
  }
  m->nodes = NULL;
}

static void describe(rk_node *n, uint32_t at, const itg_tensor *t) {
  n->tensors[at].dtype = t ? t->dtype : 0;
  n->tensors[at].rank = t ? t->rank : 0;
  if (t) memcpy(n->tensors[at].shape, t->shape, sizeof t->shape);
}

static itg_words add_node(const char *op_type, const itg_call *call) {
  rk_node *n = calloc(1, sizeof *n), **to = &opening->nodes;
  const int64_t *length = call->attrs;
  if (!n) return "no memory";
  while (*to) to = &(*to)->next;
  *to = n;
  snprintf(n->op_type, sizeof n->op_type, "%s", op_type);
  n->n_in = call->n_in;
  n->n_out = call->n_out;
  for (uint32_t i = 0; i < n->n_in + n->n_out; i++) describe(n, i, call->in[i]);
  if (!(n->text = calloc(1, (size_t)*length + 1))) return "no memory";
  memcpy(n->text, length + 1, (size_t)*length);
  if (!(n->attributes = rk_json_parse(n->text, (size_t)*length)))
    return "its attributes are no JSON";
  return NULL;
}

// The types are those that Python's shape_infer gave when the model was built: there is none in C.
// While a package is opened, its outputs follow the inputs in the list of arguments.
static itg_words infer(const char *op_type, const itg_call *call, itg_tensor *out) {
  const itg_tensor *const *outputs =
      call->out ? (const itg_tensor *const *)call->out : call->in + call->n_in;
  if (call->n_in > RKNN_MAX_DIMS || call->n_out > RKNN_MAX_DIMS)
    return "it has more than 16 inputs or outputs";
  for (uint32_t i = 0; i < call->n_out; i++) {
    if (!outputs[i] || rk_type_of(outputs[i]->dtype) == RKNN_TENSOR_TYPE_MAX)
      return "an output has an element type that RKNN lacks";
    itg_copy_type(&out[i], outputs[i]);
  }
  for (uint32_t i = 0; i < call->n_in; i++)
    if (call->in[i] && rk_type_of(call->in[i]->dtype) == RKNN_TENSOR_TYPE_MAX)
      return "an input has an element type that RKNN lacks";
  return opening ? add_node(op_type, call) : NULL;
}

void rk_name_nodes(rk_context *c) {
  for (rk_node *n = c->model->nodes; n; n = n->next) {
    uint32_t before = 0, same = 0, plan = UINT32_MAX;
    for (const rk_node *o = c->model->nodes; o != n; o = o->next)
      before += !strcmp(o->op_type, n->op_type);
    for (int counted = 0; c->session && counted < 2; counted++) {  // all plans have the same nodes
      uint32_t at = 0;
      for (uint32_t i = 0; i < itg_session_steps(c->session); i++) {
        itg_profile p;
        if (itg_get_profile(c->session, i, &p) || strncmp(p.op, PREFIX, sizeof PREFIX - 1) ||
            strcmp(p.op + sizeof PREFIX - 1, n->op_type))
          continue;
        if (plan == UINT32_MAX) plan = p.plan;
        if (p.plan != plan) continue;
        if (counted && at == before % same) snprintf(n->name, sizeof n->name, "%s", p.origin);
        at++;
      }
      if (!(same = at)) break;
    }
  }
}

// ---- tensors ------------------------------------------------------------------------------------
static void fill(rknn_custom_op_tensor *t, uint32_t index, uint8_t dtype, uint8_t rank,
                 const int64_t *shape, void *data) {
  memset(t, 0, sizeof *t);
  t->attr.index = index;
  t->attr.n_dims = rank;
  t->attr.n_elems = 1;
  for (int i = 0; i < rank; i++) t->attr.n_elems *= t->attr.dims[i] = (uint32_t)shape[i];
  t->attr.type = rk_type_of(dtype);
  if (t->attr.type == RKNN_TENSOR_FLOAT16 || t->attr.type == RKNN_TENSOR_BFLOAT16)
    t->attr.type = RKNN_TENSOR_FLOAT32;
  t->attr.fmt = rank == 4 ? RKNN_TENSOR_NCHW : RKNN_TENSOR_UNDEFINED;
  t->attr.scale = 1;
  t->attr.size = t->attr.size_with_stride = t->attr.n_elems * (uint32_t)rk_type_size(t->attr.type);
  t->mem = (rknn_tensor_mem){.virt_addr = data, .fd = -1, .size = t->attr.size};
}

static rk_view flat(void *data, rknn_tensor_type type, uint32_t count) {
  return (rk_view){.data = data,
                   .type = type,
                   .fmt = RKNN_TENSOR_UNDEFINED,
                   .n = 1,
                   .c = 1,
                   .h = 1,
                   .w = count,
                   .h_stride = 1,
                   .w_stride = count};
}

// Floats of 16 bits are float32 for the callbacks.
static bool widen(rknn_custom_op_tensor *t, const itg_tensor *held, bool input) {
  const rknn_tensor_type type = rk_type_of(held->dtype);
  if (type == t->attr.type) return true;
  if (!(t->mem.virt_addr = malloc((size_t)t->attr.size + 1))) return false;
  t->mem.priv_data = t->mem.virt_addr;
  if (!input) return true;
  const rk_view from = flat(held->data, type, t->attr.n_elems),
                to = flat(t->mem.virt_addr, t->attr.type, t->attr.n_elems);
  rk_copy(&from, &to, NULL);
  return true;
}

// ---- runs ---------------------------------------------------------------------------------------
static bool fits(const rk_node *n, const itg_call *call) {
  const int64_t *length = call->attrs;
  bool same = n->n_in == call->n_in && n->n_out == call->n_out &&
              strlen(n->text) == (size_t)*length && !memcmp(n->text, length + 1, (size_t)*length);
  for (uint32_t i = 0; same && i < n->n_in + n->n_out; i++) {
    const itg_tensor *t = i < n->n_in ? call->in[i] : call->out[i - n->n_in];
    same =
        t ? n->tensors[i].dtype == t->dtype && n->tensors[i].rank == t->rank : !n->tensors[i].dtype;
    for (int a = 0; same && t && a < t->rank; a++) same = n->tensors[i].shape[a] >= t->shape[a];
  }
  return same;
}

static rk_instance *instance_of(rk_registered *r, const itg_call *call, uint64_t stamp) {
  rk_instance *found = NULL;
  for (uint32_t i = 0; i < r->count; i++)
    if (fits(r->instances[i].node, call)) {
      if (r->instances[i].stamp != stamp) return &r->instances[i];
      if (!found) found = &r->instances[i];
    }
  return found;
}

static itg_words call_back(const rk_registered *r, rk_instance *instance, rknn_custom_op_tensor *in,
                           uint32_t n_in, rknn_custom_op_tensor *out, uint32_t n_out) {
  int code = r->op.prepare ? r->op.prepare(&instance->context, in, n_in, out, n_out) : 0;
  if (code == RKNN_WARNING_SKIP_CUSTOM_OP_COMPUTE) return NULL;
  if (!code) code = r->op.compute(&instance->context, in, n_in, out, n_out);
  if (!code) return NULL;
  snprintf(words, sizeof words, "custom operator '%.80s': its callback returned %d", r->op.op_type,
           code);
  return words;
}

static itg_words run(const char *op_type, const itg_call *call) {
  rk_context *c = rk_running;
  rk_registered *r = c ? c->ops : NULL;
  while (r && strcmp(r->op.op_type, op_type)) r = r->next;
  rk_instance *instance = r ? instance_of(r, call, c->run_stamp) : NULL;
  if (!instance) {
    snprintf(words, sizeof words,
             "custom operator '%.80s' is not registered; call rknn_register_custom_ops after "
             "rknn_init",
             op_type);
    return words;
  }
  instance->stamp = c->run_stamp;
  rknn_custom_op_tensor *t = calloc(call->n_in + call->n_out + 1, sizeof *t), *out = t + call->n_in;
  itg_words wrong = t ? NULL : "no memory";
  for (uint32_t i = 0; t && i < call->n_in + call->n_out; i++) {
    const bool input = i < call->n_in;
    const itg_tensor *held = input ? call->in[i] : call->out[i - call->n_in];
    if (!held) continue;
    fill(&t[i], input ? i : i - call->n_in, held->dtype, held->rank, held->shape, held->data);
    if (!widen(&t[i], held, input)) wrong = "no memory";
  }
  if (!wrong) wrong = call_back(r, instance, t, call->n_in, out, call->n_out);
  for (uint32_t i = 0; t && i < call->n_in + call->n_out; i++) {
    if (!t[i].mem.priv_data) continue;
    if (i >= call->n_in && !wrong) {
      const itg_tensor *held = call->out[i - call->n_in];
      const rk_view from = flat(t[i].mem.priv_data, t[i].attr.type, t[i].attr.n_elems),
                    to = flat(held->data, rk_type_of(held->dtype), t[i].attr.n_elems);
      rk_copy(&from, &to, NULL);
    }
    free(t[i].mem.priv_data);
  }
  free(t);
  return wrong;
}

// ---- stand-ins: functions of the runtime get no operator, so each has two of its own ------------
enum { SLOTS = 16 };

typedef struct stand_in {
  char name[64];
  itg_op op;
  itg_kernel kernel;
  itg_plugin plugin;
} stand_in;

static stand_in slots[SLOTS];
static uint32_t n_slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define FUNCTIONS(i)                                                             \
  static itg_words infer##i(const itg_call *call, itg_tensor *out) {             \
    return infer(slots[0x##i].name + sizeof PREFIX - 1, call, out);              \
  }                                                                              \
  static itg_words run##i(const itg_call *call, uint32_t part, uint32_t parts) { \
    return part ? NULL : run(slots[0x##i].name + sizeof PREFIX - 1, call);       \
  }
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(a) X(b) X(c) X(d) X(e) X(f)
EACH(FUNCTIONS)
#define PAIR(i) {infer##i, run##i},
static const struct {
  itg_infer_fn infer;
  itg_run_fn run;
} functions[SLOTS] = {EACH(PAIR)};

// The name in: package needs the custom op 'rknn.cstSoftmax', a Python class ...
bool rk_stand_in(const char *error) {
  const char *from = strstr(error, "custom op 'rknn."), *to = from ? strchr(from + 11, '\'') : NULL;
  if (!to || to - from - 11 > 50) return false;
  pthread_mutex_lock(&lock);
  bool good = n_slots < SLOTS;
  if (good) {
    stand_in *s = &slots[n_slots];
    snprintf(s->name, sizeof s->name, "python.%.*s", (int)(to - from - 11), from + 11);
    s->op = (itg_op){
        .name = s->name, .flags = ITG_CALLER | ITG_TEXT, .infer = functions[n_slots].infer};
    s->kernel = (itg_kernel){
        .op = &s->op, .types = "any", .isa = "callback", .tile = "", .run = functions[n_slots].run};
    s->plugin = (itg_plugin){.abi = ITG_PLUGIN_ABI,
                             .n_kernels = 1,
                             .name = s->name,
                             .version = "",
                             .kernels = &s->kernel};
    itg_error wrong;
    good = !itg_register_plugin(&s->plugin, &wrong);
    n_slots += good;
  }
  pthread_mutex_unlock(&lock);
  return good;
}

// ---- the API ------------------------------------------------------------------------------------
static int add_op(rk_context *c, const char *function, const rknn_custom_op *op) {
  if (!memchr(op->op_type, 0, sizeof op->op_type) || !*op->op_type || !op->compute)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function, "%s; set op_type and compute",
                   op->compute ? "op_type is empty"
                               : "compute is "
                                 "NULL");
  if (op->target != RKNN_TARGET_TYPE_CPU)
    return rk_fail(RKNN_ERR_DEVICE_UNAVAILABLE, function,
                   "'%s': target is %d; only RKNN_TARGET_TYPE_CPU runs on a PC", op->op_type,
                   (int)op->target);
  for (const rk_registered *r = c->ops; r; r = r->next)
    if (!strcmp(r->op.op_type, op->op_type))
      return rk_fail(RKNN_ERR_PARAM_INVALID, function, "'%s' is registered already", op->op_type);
  rk_registered *r = calloc(1, sizeof *r);
  uint32_t count = 0;
  for (const rk_node *n = c->model->nodes; n; n = n->next)
    count += !strcmp(n->op_type, op->op_type);
  if (!r || !(r->instances = calloc(count + 1, sizeof *r->instances))) {
    free(r);
    return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for '%s'", op->op_type);
  }
  r->op = *op;
  r->next = c->ops;
  c->ops = r;
  for (rk_node *n = c->model->nodes; n; n = n->next) {
    if (strcmp(n->op_type, op->op_type)) continue;
    rk_instance *instance = &r->instances[r->count++];
    instance->node = n;
    instance->context.target = RKNN_TARGET_TYPE_CPU;
    instance->context.internal_ctx = (rknn_custom_op_interal_context)(uintptr_t)instance;
    if (!op->init) continue;
    rknn_custom_op_tensor *t = calloc(n->n_in + n->n_out + 1, sizeof *t);
    if (!t) return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for '%s'", op->op_type);
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++)
      if (n->tensors[i].dtype)
        fill(&t[i], i < n->n_in ? i : i - n->n_in, n->tensors[i].dtype, n->tensors[i].rank,
             n->tensors[i].shape, NULL);
    const int code = op->init(&instance->context, t, n->n_in, t + n->n_in, n->n_out);
    free(t);
    if (code)
      return rk_fail(RKNN_ERR_FAIL, function, "'%s': its init returned %d", op->op_type, code);
  }
  return RKNN_SUCC;
}

RK_API int rknn_register_custom_ops(rknn_context ctx, rknn_custom_op *op, uint32_t custom_op_num) {
  rk_context *c = rk_find(ctx, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, __func__, "no such context; call rknn_init first");
  if (!op || !custom_op_num)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "no operators are given; pass their address "
                   "and number");
  int code = RKNN_SUCC;
  for (uint32_t i = 0; !code && i < custom_op_num; i++) code = add_op(c, __func__, &op[i]);
  return code;
}

static void take_value(const rk_instance *in, const char *name, rknn_custom_op_attr *attr) {
  const rk_json *pairs = rk_json_get(in->node->attributes, "attributes"), *v = NULL;
  for (const rk_json *p = pairs ? pairs->first : NULL; p && !v; p = p->next)
    if (rk_json_count(p) == 2 && p->first->kind == RK_TEXT && !strcmp(p->first->text, name))
      v = p->first->next;
  const char *text = !v && !strcmp(name, "name") ? in->node->name
                     : v && v->kind == RK_TEXT   ? v->text
                                                 : NULL;
  if (text) {
    attr->dtype = RKNN_TENSOR_UINT8;
    attr->n_elems = (uint32_t)strlen(text);
    attr->data = strdup(text);
    return;
  }
  const bool list = v && v->kind == RK_LIST;
  const rk_json *first = list ? v->first : v;
  uint32_t n = 0;
  bool whole = true;
  for (const rk_json *x = first; x; x = list ? x->next : NULL, n++) {
    if (x->kind != RK_NUMBER && x->kind != RK_BOOL) return;
    whole &= x->whole || x->kind == RK_BOOL;
  }
  attr->dtype = whole ? RKNN_TENSOR_INT64 : RKNN_TENSOR_FLOAT32;
  if (!n || !(attr->data = calloc(n, 8))) return;
  for (const rk_json *x = first; x; x = list ? x->next : NULL)
    if (whole) ((int64_t *)attr->data)[attr->n_elems++] = (int64_t)x->number;
    else ((float *)attr->data)[attr->n_elems++] = (float)x->number;
}

RK_API void rknn_custom_op_get_op_attr(rknn_custom_op_context *op_ctx, const char *attr_name,
                                       rknn_custom_op_attr *op_attr) {
  if (!op_attr) return;
  memset(op_attr, 0, sizeof *op_attr);
  if (!op_ctx || !attr_name || !op_ctx->internal_ctx) return;
  rk_instance *in = (rk_instance *)(uintptr_t)op_ctx->internal_ctx;
  rk_value *v = in->values;
  while (v && strncmp(v->attr.name, attr_name, sizeof v->attr.name - 1)) v = v->next;
  if (!v && (v = calloc(1, sizeof *v))) {
    snprintf(v->attr.name, sizeof v->attr.name, "%s", attr_name);
    take_value(in, attr_name, &v->attr);
    v->next = in->values;
    in->values = v;
  }
  if (v) *op_attr = v->attr;
}

void rk_free_ops(rk_context *c) {
  for (rk_registered *r = c->ops, *next; r; r = next) {
    next = r->next;
    for (uint32_t i = 0; i < r->count; i++) {
      if (r->op.destroy) r->op.destroy(&r->instances[i].context);
      for (rk_value *v = r->instances[i].values, *after; v; v = after) {
        after = v->next;
        free(v->attr.data);
        free(v);
      }
    }
    free(r->instances);
    free(r);
  }
  c->ops = NULL;
}
