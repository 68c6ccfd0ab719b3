// Control flow: if, loop and scan run sub-plans. src/intaglio/plan.py documents what is passed in
// and out.
#include <string.h>

#include "runtime.h"

// They are in the table of operations so that files and Python know their attributes, but are no
// kernels.
itg_words itg_infer_control(const itg_call *call, itg_tensor *out) {
  return "control flow is run by a session";
}
itg_words itg_if_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  return itg_infer_control(call, NULL);
}
itg_words itg_loop_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  return itg_infer_control(call, NULL);
}
itg_words itg_scan_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  return itg_infer_control(call, NULL);
}

// ---- checks, once -------------------------------------------------------------------------------
typedef struct types {  // a tensor's type without its first `skip` axes
  const itg_file_tensor *t;
  int skip;
} types;

// May a value of type `from` be copied to `to` for all true extents?
static bool fits(types to, types from) {
  int rank = from.t->rank - from.skip;
  if (rank < 0 || to.t->rank - to.skip != rank || to.t->dtype != from.t->dtype) return false;
  for (int a = 0; a < rank; a++) {
    int64_t have = from.t->shape[a + from.skip], room = to.t->shape[a + to.skip];
    bool varies = from.t->dynamic >> (a + from.skip) & 1,
         may_vary = to.t->dynamic >> (a + to.skip) & 1;
    if (may_vary ? have > room : varies || have != room) return false;
  }
  return true;
}

static bool writable(const itg_file_tensor *t) {
  return t->memory == ITG_ARENA || t->memory == ITG_OUTPUT;
}

static itg_status check_copy(const itg_model *m, uint32_t to, uint32_t from, itg_error *e) {
  if (to == from || to == ITG_NONE) return ITG_OK;
  if (from == ITG_NONE || !writable(&m->tens[to]) ||
      !fits((types){&m->tens[to], 0}, (types){&m->tens[from], 0}))
    BAD("control flow: tensor %u cannot be passed on as tensor %u", from, to);
  return ITG_OK;
}

static itg_status check_scalar(const itg_model *m, uint32_t id, uint8_t dtype, bool written,
                               itg_error *e) {
  if (id == ITG_NONE) return ITG_OK;
  const itg_file_tensor *t = &m->tens[id];
  if (t->dtype != dtype || t->dynamic || itg_count(&m->tensors[id]) != 1 ||
      (written && !writable(t)))
    BAD("control flow: tensor %u is not one %s", id, itg_dtype_name(dtype));
  return ITG_OK;
}

// The sub-plan that an attribute names; it comes after the plan that runs it, so that no plan can
// run itself.
static const itg_file_plan *sub_plan(const itg_model *m, uint32_t plan, int64_t sub, itg_error *e) {
  if (sub <= plan || sub >= m->n_plans || m->plans[sub].main != m->plans[plan].main) {
    itg_fail(e, ITG_BAD_FILE, "control flow in plan %u: sub-plan %lld does not exist", plan,
             (long long)sub);
    return NULL;
  }
  uint32_t depth = m->families[sub].depth + 1;
  if (depth > ITG_MAX_DEPTH) {
    itg_fail(e, ITG_BAD_FILE, "control flow is more than %u levels deep", ITG_MAX_DEPTH);
    return NULL;
  }
  if (depth > m->families[plan].depth) m->families[plan].depth = depth;
  return &m->plans[sub];
}

// Output `to` collects one `from` per iteration, at most `bound` of them.
static itg_status check_scan_output(const itg_model *m, uint32_t to, uint32_t from, int64_t bound,
                                    itg_error *e) {
  const itg_file_tensor *t = &m->tens[to];
  if (!writable(t) || !t->rank || !fits((types){t, 1}, (types){&m->tens[from], 0}) ||
      (t->dynamic & 1 ? t->shape[0] < bound : t->shape[0] != bound))
    BAD("control flow: tensor %u cannot collect %lld of tensor %u", to, (long long)bound, from);
  return ITG_OK;
}

static itg_status check_if(const itg_model *m, uint32_t plan, const itg_file_step *s,
                           itg_error *e) {
  const itg_attrs_if *attrs = (const void *)(m->attrs + s->attrs);
  const uint32_t *in = m->args + s->args, *out = in + s->n_in;
  if (!s->n_in || in[0] == ITG_NONE) BAD("if: it has no condition");
  if (check_scalar(m, in[0], ITG_BOOL, false, e)) return ITG_BAD_FILE;
  for (int branch = 0; branch < 2; branch++) {
    const itg_file_plan *sub = sub_plan(m, plan, branch ? attrs->then_graph : attrs->else_graph, e);
    if (!sub) return ITG_BAD_FILE;
    if (sub->n_inputs != s->n_in - 1 || sub->n_outputs != s->n_out)
      BAD("if: a branch has other inputs or outputs");
    for (uint32_t i = 0; i < sub->n_inputs; i++)
      if (check_copy(m, m->args[sub->inputs + i], in[1 + i], e)) return ITG_BAD_FILE;
    for (uint32_t i = 0; i < sub->n_outputs; i++)
      if (check_copy(m, out[i], m->args[sub->outputs + i], e)) return ITG_BAD_FILE;
  }
  return ITG_OK;
}

static itg_status check_loop(const itg_model *m, uint32_t plan, const itg_file_step *s,
                             itg_error *e) {
  const itg_attrs_loop *attrs = (const void *)(m->attrs + s->attrs);
  const uint32_t *in = m->args + s->args, *out = in + s->n_in;
  const itg_file_plan *body = sub_plan(m, plan, attrs->body, e);
  if (!body) return ITG_BAD_FILE;
  uint64_t carried = (uint64_t)attrs->carried;
  if (s->n_in < 2 || carried > s->n_in - 2 || carried > s->n_out || body->n_inputs != s->n_in ||
      body->n_outputs != s->n_out + 1ull || attrs->bound < 0)
    BAD("loop: its body has other inputs or outputs");
  const uint32_t *body_in = m->args + body->inputs, *body_out = m->args + body->outputs;
  if (check_scalar(m, in[0], ITG_I64, false, e) || check_scalar(m, in[1], ITG_BOOL, false, e) ||
      check_scalar(m, body_in[0], ITG_I64, true, e) ||
      check_scalar(m, body_in[1], ITG_BOOL, true, e) ||
      check_scalar(m, body_out[0], ITG_BOOL, false, e))
    return ITG_BAD_FILE;
  for (uint32_t i = 2; i < s->n_in; i++)
    if (check_copy(m, body_in[i], in[i], e)) return ITG_BAD_FILE;
  for (uint32_t i = 0; i < carried; i++) {
    if (body_in[2 + i] == ITG_NONE) BAD("loop: a carried value is absent");
    if (check_copy(m, body_in[2 + i], body_out[1 + i], e)) return ITG_BAD_FILE;
    if (check_copy(m, out[i], body_in[2 + i], e)) return ITG_BAD_FILE;
  }
  for (uint32_t i = (uint32_t)carried; i < s->n_out; i++)
    if (check_scan_output(m, out[i], body_out[1 + i], attrs->bound, e)) return ITG_BAD_FILE;
  return ITG_OK;
}

static itg_status check_scan(const itg_model *m, uint32_t plan, const itg_file_step *s,
                             itg_error *e) {
  const itg_attrs_scan *attrs = (const void *)(m->attrs + s->attrs);
  const uint32_t *in = m->args + s->args, *out = in + s->n_in;
  const itg_file_plan *body = sub_plan(m, plan, attrs->body, e);
  if (!body) return ITG_BAD_FILE;
  uint64_t states = (uint64_t)attrs->states, scans = (uint64_t)attrs->scans;
  if (states > s->n_in || !scans || scans > s->n_in - states || states > s->n_out ||
      body->n_inputs != s->n_in || body->n_outputs != s->n_out)
    BAD("scan: its body has other inputs or outputs");
  const uint32_t *body_in = m->args + body->inputs, *body_out = m->args + body->outputs;
  int64_t length = 0;
  for (uint32_t i = 0; i < s->n_in; i++) {
    if (i < states || i >= states + scans) {
      if (check_copy(m, body_in[i], in[i], e)) return ITG_BAD_FILE;
      continue;
    }
    if (in[i] == ITG_NONE || !m->tens[in[i]].rank) BAD("scan: input %u has no axis to scan", i);
    const itg_file_tensor *from = &m->tens[in[i]],
                          *to = body_in[i] == ITG_NONE ? NULL : &m->tens[body_in[i]];
    if (i > states && length != from->shape[0]) BAD("scan: its inputs have different lengths");
    length = from->shape[0];
    if (to && (!writable(to) || !fits((types){to, 0}, (types){from, 1})))
      BAD("scan: input %u does not fit the body", i);
  }
  for (uint32_t i = 0; i < s->n_out; i++) {
    if (i >= states) {
      if (check_scan_output(m, out[i], body_out[i], length, e)) return ITG_BAD_FILE;
      continue;
    }
    if (body_in[i] == ITG_NONE) BAD("scan: a state is absent");
    if (check_copy(m, body_in[i], body_out[i], e) || check_copy(m, out[i], body_in[i], e))
      return ITG_BAD_FILE;
  }
  return ITG_OK;
}

itg_status itg_check_control(const itg_model *m, uint32_t plan, const itg_file_step *s,
                             itg_error *e) {
  const char *op = itg_name(m, s->op);
  return *op == 'i'   ? check_if(m, plan, s, e)
         : *op == 'l' ? check_loop(m, plan, s, e)
                      : check_scan(m, plan, s, e);
}

// ---- running ------------------------------------------------------------------------------------
static void set_shape(itg_tensor *to, const itg_tensor *from) {
  memcpy(to->shape, from->shape, sizeof to->shape);
}

static void copy(itg_tensor *to, const itg_tensor *from) {
  if (!to || to == from) return;
  set_shape(to, from);
  if (to->data != from->data && itg_count(from)) memmove(to->data, from->data, itg_bytes(from));
}

static itg_status run_if(itg_session *s, itg_step *step) {
  const itg_attrs_if *attrs = step->call.attrs;
  uint32_t branch =
      (uint32_t)(*(const uint8_t *)step->call.in[0]->data ? attrs->then_graph : attrs->else_graph);
  const itg_file_plan *sub = &s->model->plans[branch];
  for (uint32_t i = 0; i < sub->n_inputs; i++) copy(s->args[sub->inputs + i], step->call.in[1 + i]);
  itg_status status = itg_run_plan(s, branch);
  if (status) return status;
  for (uint32_t i = 0; i < sub->n_outputs; i++) copy(step->call.out[i], s->args[sub->outputs + i]);
  return ITG_OK;
}

// Puts `from` at place `at` of scan output `to`; `first`: it decides the inner extents.
static itg_words collect(itg_tensor *to, const itg_tensor *from, int64_t at, bool first) {
  for (int a = 0; a < from->rank; a++) {
    if (!first && to->shape[a + 1] != from->shape[a])
      return "a scan output changes its shape from one iteration to the next";
    to->shape[a + 1] = from->shape[a];
  }
  if (itg_count(from))
    memmove((uint8_t *)to->data + (uint64_t)at * itg_bytes(from), from->data, itg_bytes(from));
  return NULL;
}

// After the last iteration: a scan output has `count` entries.
static itg_words finish(itg_session *s, const itg_step *step, uint32_t out, int64_t count) {
  const itg_file_tensor *t =
      &s->model->tens[s->model->args[step->record->args + step->record->n_in + out]];
  if (!(t->dynamic & 1) && count != t->shape[0])
    return "it ended after fewer iterations than were planned";
  step->call.out[out]->shape[0] = count;
  return NULL;
}

static itg_status run_loop(itg_session *s, itg_step *step) {
  const itg_attrs_loop *attrs = step->call.attrs;
  const itg_call *call = &step->call;
  const itg_file_plan *body = &s->model->plans[attrs->body];
  itg_tensor **body_in = s->args + body->inputs, **body_out = s->args + body->outputs;
  uint32_t carried = (uint32_t)attrs->carried;
  int64_t trip = call->in[0] ? *(const int64_t *)call->in[0]->data : INT64_MAX, i = 0;
  uint8_t go = call->in[1] ? *(const uint8_t *)call->in[1]->data : 1;
  for (uint32_t k = 2; k < call->n_in; k++) copy(body_in[k], call->in[k]);
  itg_words words = NULL;
  for (; !words && go && i < trip; i++) {
    if (i >= attrs->bound)
      return itg_step_fails(s, step, "it wants more iterations than were planned");
    if (body_in[0]) *(int64_t *)body_in[0]->data = i;
    if (body_in[1]) *(uint8_t *)body_in[1]->data = go;
    itg_status status = itg_run_plan(s, (uint32_t)attrs->body);
    if (status) return status;
    go = *(const uint8_t *)body_out[0]->data;
    for (uint32_t k = carried; !words && k < call->n_out; k++)
      words = collect(call->out[k], body_out[1 + k], i, i == 0);
    for (uint32_t k = 0; k < carried; k++) copy(body_in[2 + k], body_out[1 + k]);
  }
  for (uint32_t k = 0; k < carried; k++) copy(call->out[k], body_in[2 + k]);
  for (uint32_t k = carried; !words && k < call->n_out; k++) words = finish(s, step, k, i);
  return words ? itg_step_fails(s, step, words) : ITG_OK;
}

static void copy_slice(itg_tensor *to, const itg_tensor *from, int64_t at) {
  if (!to) return;
  for (int a = 0; a < to->rank; a++) to->shape[a] = from->shape[a + 1];
  if (itg_count(to))
    memmove(to->data, (const uint8_t *)from->data + (uint64_t)at * itg_bytes(to), itg_bytes(to));
}

static itg_status run_scan(itg_session *s, itg_step *step) {
  const itg_attrs_scan *attrs = step->call.attrs;
  const itg_call *call = &step->call;
  const itg_file_plan *body = &s->model->plans[attrs->body];
  itg_tensor **body_in = s->args + body->inputs, **body_out = s->args + body->outputs;
  uint32_t states = (uint32_t)attrs->states, last = states + (uint32_t)attrs->scans;
  int64_t length = call->in[states]->shape[0];
  for (uint32_t k = states; k < last; k++)
    if (call->in[k]->shape[0] != length)
      return itg_step_fails(s, step, "its inputs have different lengths");
  for (uint32_t k = 0; k < call->n_in; k++)
    if (k < states || k >= last) copy(body_in[k], call->in[k]);
  itg_words words = NULL;
  for (int64_t i = 0; !words && i < length; i++) {
    for (uint32_t k = states; k < last; k++) {
      bool reverse = k - states < 63 && attrs->reverse_in >> (k - states) & 1;
      copy_slice(body_in[k], call->in[k], reverse ? length - 1 - i : i);
    }
    itg_status status = itg_run_plan(s, (uint32_t)attrs->body);
    if (status) return status;
    for (uint32_t k = states; !words && k < call->n_out; k++) {
      bool reverse = k - states < 63 && attrs->reverse_out >> (k - states) & 1;
      words = collect(call->out[k], body_out[k], reverse ? length - 1 - i : i, i == 0);
    }
    for (uint32_t k = 0; k < states; k++) copy(body_in[k], body_out[k]);
  }
  for (uint32_t k = 0; k < states; k++) copy(call->out[k], body_in[k]);
  for (uint32_t k = states; !words && k < call->n_out; k++) words = finish(s, step, k, length);
  return words ? itg_step_fails(s, step, words) : ITG_OK;
}

itg_status itg_run_control(itg_session *s, itg_step *step) {
  const char *op = step->op->name;
  return *op == 'i' ? run_if(s, step) : *op == 'l' ? run_loop(s, step) : run_scan(s, step);
}
