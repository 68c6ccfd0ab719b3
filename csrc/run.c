// Runs a session: the loop over its steps, and their measured times.
#include <string.h>
#include <time.h>

#include "runtime.h"

itg_status itg_step_fails(itg_session *s, const itg_step *step, itg_words words) {
  const char *origin = itg_origin(s->model, step->record);
  return itg_fail(&s->error, ITG_RUN_ERROR, "%s%s%.80s%s: %s", step->op->name, *origin ? " '" : "",
                  origin, *origin ? "'" : "", words);
}

static itg_words run_round(itg_session *s, const itg_step *step) {
  if (step->parts > 1) return itg_pool_run(s->pool, step->run, &step->call, step->parts);
  return step->run(&step->call, 0, 1);
}

static itg_words run_kernel(itg_session *s, itg_step *step) {
  if (!(step->op->flags & ITG_ROUNDS)) return run_round(s, step);
  itg_words words = NULL;
  if (itg_empty(step->call.out[0])) return NULL;
  for (step->call.round = 0; !words && step->call.round < step->call.out[0]->shape[0];
       step->call.round++)
    words = run_round(s, step);
  return words;
}

// Is `shape` what the file promises for a tensor: equal, or at most as long on dynamic axes?
bool itg_as_planned(const itg_file_tensor *t, const int64_t *shape) {
  for (int a = 0; a < t->rank; a++)
    if (t->dynamic >> a & 1 ? shape[a] < 0 || shape[a] > t->shape[a] : shape[a] != t->shape[a])
      return false;
  return true;
}

// Gives the outputs of a step the shapes that follow from its inputs, if they fit what was planned.
itg_words itg_infer_step(itg_session *s, const itg_step *step) {
  const itg_call *call = &step->call;
  const itg_file_tensor *tens = s->model->tens;
  const uint32_t *in = s->model->args + step->record->args, *ids = in + call->n_in;
  itg_tensor inferred[ITG_MAX_OUTPUTS];
  memset(inferred, 0, call->n_out * sizeof *inferred);
  itg_words words = step->op->infer(call, inferred);
  if (words) return words;
  for (uint32_t i = 0; i < call->n_out; i++) {
    itg_tensor *t = call->out[i];
    if (inferred[i].dtype != t->dtype || inferred[i].rank != t->rank ||
        !itg_as_planned(&tens[ids[i]], inferred[i].shape))
      return "its result does not fit the shape that was planned for it";
    memcpy(t->shape, inferred[i].shape, sizeof t->shape);
    for (int a = t->rank; a < ITG_MAX_RANK; a++) t->shape[a] = 0;
  }
  if (step->op->flags & (ITG_INPLACE | ITG_INPLACE_FIRST))
    for (uint32_t i = 0; i < call->n_in; i++)
      if (call->in[i] && itg_same_place(&tens[in[i]], &tens[ids[0]]) && call->out[0]->capacity &&
          !itg_same_shape(call->in[i], call->out[0]))
        return "its operands have extents that cannot be computed in place";
  return NULL;
}

void itg_prepare_step(const itg_step *step) {
  if (step->prepare) step->prepare(&step->call, (void *)step->whole.prepared);
}

// A step whose extents are known only now: infer them, run, compare them with what was planned.
static itg_words run_dynamic(itg_session *s, itg_step *step) {
  const itg_call *call = &step->call;
  const itg_op *op = step->op;
  itg_words words = itg_infer_step(s, step);
  if (words) return words;
  if (op->flags & ITG_VIEW && call->in[0]->data == call->out[0]->data) return NULL;
  if (op->scratch && op->scratch(call, step->parts) > s->scratch_size)
    return "it needs more scratch memory than planned";
  itg_prepare_step(step);
  if ((words = run_kernel(s, step))) return words;
  const uint32_t *ids = s->model->args + step->record->args + call->n_in;
  for (uint32_t i = 0; op->flags & ITG_EXTENT && i < call->n_out; i++)
    if (!itg_as_planned(&s->model->tens[ids[i]], call->out[i]->shape)) {
      memcpy(call->out[i]->shape, s->model->tens[ids[i]].shape, sizeof call->out[i]->shape);
      return "its result does not fit the shape that was planned for it";
    }
  return NULL;
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static itg_status run_step(itg_session *s, itg_step *step) {
  if (step->control) return itg_run_control(s, step);
  itg_words words = step->dynamic == ITG_AT_RUN_TIME ? run_dynamic(s, step) : run_kernel(s, step);
  return words ? itg_step_fails(s, step, words) : ITG_OK;
}

itg_status itg_run_plan(itg_session *s, uint32_t plan) {
  const itg_steps *steps = &s->plans[plan - s->first_plan];
  if (steps->count >= s->steps_left)
    return itg_fail(
        &s->error, ITG_RUN_ERROR,
        "the model ran more than %llu steps; a loop does not end, or max_steps is too low",
        (unsigned long long)s->max_steps);
  s->steps_left -= steps->count + 1;
  for (itg_step *step = steps->first, *end = step + steps->count; step < end; step++) {
    if (step->idle) continue;
    uint64_t start = s->profile ? now() : 0;
    itg_status status = run_step(s, step);
    if (status) return status;
    if (!s->profile) continue;
    step->ns += now() - start;
    step->calls++;
  }
  return ITG_OK;
}

static itg_status run_all(itg_session *s) {
  if (s->unshaped)
    return itg_fail(&s->error, ITG_BAD_INPUT,
                    "the last shapes were refused; set shapes that the model can compute with");
  for (uint32_t i = 0; i < s->plan->n_inputs; i++)
    if (!s->inputs[i].data) return itg_fail(&s->error, ITG_BAD_INPUT, "input %u is not bound", i);
  const uint32_t *slots = s->model->output_slots + s->model->families[s->plan_number].outputs;
  for (uint32_t i = 0; i < s->plan->n_outputs; i++)
    if (!s->outputs[i].data && slots[i] != ITG_NONE)
      return itg_fail(&s->error, ITG_BAD_INPUT, "output %u is not bound", i);
  if (!s->arena && s->arena_size + s->scratch_size)
    return itg_fail(&s->error, ITG_BAD_INPUT,
                    "the session has no internal memory; give it some with itg_set_internal");
  s->steps_left = s->max_steps;
  itg_status status = itg_run_plan(s, s->plan_number);
  if (status) return status;
  for (uint32_t i = 0; i < s->plan->n_outputs;
       i++) {  // outputs that lie in the arena, a constant or an input
    const itg_tensor *t = s->args[s->plan->outputs + i];
    if (slots[i] == ITG_NONE && s->outputs[i].data && itg_bytes(t))
      memmove(s->outputs[i].data, t->data, itg_bytes(t));
  }
  if (s->padded) itg_cut_outputs(s);
  if (s->model->n_states) itg_carry_states(s);
  return ITG_OK;
}

// A child that was forked during a run inherits the mark, but not the thread that would remove it:
// the mark of another process counts as none.
bool itg_begin(itg_session *s) {
  const unsigned mine = itg_forks() + 1;
  unsigned now = atomic_load_explicit(&s->busy, memory_order_relaxed);
  return now != mine && atomic_compare_exchange_strong(&s->busy, &now, mine);
}

void itg_end(itg_session *s) { atomic_store(&s->busy, 0); }

static itg_status run_in_buffers(itg_session *s) {
  itg_error ignored;
  itg_status status = itg_check_buffers(s);
  if (status) return status;
  status = itg_sync_buffers(s, false, &s->error);
  if (!status) status = run_all(s);
  const itg_status ended = itg_sync_buffers(s, true, status ? &ignored : &s->error);
  return status ? status : ended;
}

itg_status itg_run(itg_session *s) { return itg_run_with(s, NULL, NULL); }

itg_status itg_run_with(itg_session *s, const void *const *inputs, void *const *outputs) {
  if (!s) return ITG_BAD_INPUT;
  if (!itg_begin(s)) return ITG_BUSY;  // session->error belongs to the thread that runs
  s->error.words[0] = 0;
  itg_pool_after_fork(s->pool);
  itg_status status = itg_bind_all(s, inputs, outputs);
  if (!status) status = s->buffers ? run_in_buffers(s) : run_all(s);
  itg_end(s);
  return status;
}

// ---- profile ------------------------------------------------------------------------------------
// Step `*i` of those of the present plan and its sub-plans that compute something; else NULL, with
// their number subtracted from *i.
static const itg_step *find_step(const itg_session *s, uint32_t *i) {
  for (uint32_t p = s->plan_number; p < s->last_plan && s->model->plans[p].main == s->plan_number;
       p++) {
    const itg_steps *steps = &s->plans[p - s->first_plan];
    for (const itg_step *step = steps->first; step < steps->first + steps->count; step++)
      if (!step->idle && !(*i)--) return step;
  }
  return NULL;
}

uint32_t itg_session_steps(const itg_session *s) {
  uint32_t left = UINT32_MAX;
  if (s) find_step(s, &left);
  return UINT32_MAX - left;
}

itg_status itg_get_profile(const itg_session *s, uint32_t i, itg_profile *to) {
  const itg_step *step = s && to ? find_step(s, &i) : NULL;
  if (!step) return ITG_BAD_INPUT;
  *to = (itg_profile){step->op->name, itg_origin(s->model, step->record),
                      step->isa,      step->plan - s->plan_number,
                      step->parts,    step->record->macs,
                      step->calls,    step->ns};
  return ITG_OK;
}

void itg_reset_profile(itg_session *s) {
  for (uint32_t i = 0; s && i < s->n_steps; i++) s->steps[i].ns = s->steps[i].calls = 0;
}
