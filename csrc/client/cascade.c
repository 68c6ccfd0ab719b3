#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intaglio_client.h"

enum { MAX_SENT = 32 };
static const float BURST = 10;  // the budget is kept over ten requests, or over 1 / budget
static const double SUM_TOLERANCE = .02;  // of probabilities of an int8 model

struct itg_cascade {
  const itg_model *model;
  itg_session *session;
  itg_remote *remote;
  itg_cascade_options options;
  float credit, most_credit;
  char output[128];
  itg_error error;
};

// The probability of the best class less that of the second; logits get their softmax first.
static float margin_of(const float *scores, size_t n) {
  double sum = 0, least = 0, high = -INFINITY;
  for (size_t i = 0; i < n; i++) {
    sum += scores[i];
    least = fmin(least, scores[i]);
    high = fmax(high, scores[i]);
  }
  const int logits = least < 0 || !(fabs(sum - 1) <= SUM_TOLERANCE);
  double first = 0, second = 0, total = 0;
  for (size_t i = 0; i < n; i++) {
    const double p = logits ? exp(scores[i] - high) : scores[i];
    total += p;
    if (p > first) second = first, first = p;
    else if (p > second) second = p;
  }
  return (float)((first - second) / (logits ? total : 1));
}

itg_status itg_cascade_create(const itg_model *model, itg_session *session, itg_remote *remote,
                              const itg_cascade_options *options, itg_cascade **cascade,
                              itg_error *error) {
  itg_error ignored;
  itg_info info;
  if (!error) error = &ignored;
  const char *why = NULL;
  if (!model || !session || !remote || !options || !cascade) why = "an argument is NULL";
  else if (!(options->margin >= 0 && options->margin <= 1.01f)) why = "margin is 0 to 1";
  else if (!(options->budget >= 0 && options->budget <= 1)) why = "budget is 0 to 1";
  else if (itg_model_output(model, 0, options->output, &info)) why = "the model has no such output";
  else if (info.dtype != ITG_F32) why = "the scores are not f32";
  else if (info.bytes < 2 * sizeof(float)) why = "a margin needs two classes or more";
  if (why) {
    snprintf(error->words, sizeof error->words, "itg_cascade_create: %s", why);
    return ITG_BAD_INPUT;
  }
  itg_cascade *c = calloc(1, sizeof *c);
  if (!c) return snprintf(error->words, sizeof error->words, "no memory"), ITG_NO_MEMORY;
  *c = (itg_cascade){.model = model, .session = session, .remote = remote, .options = *options};
  if (!c->options.budget) c->options.budget = 1;
  c->credit = c->most_credit = fmaxf(1, BURST * c->options.budget);
  snprintf(c->output, sizeof c->output, "%s", info.name);
  *cascade = c;
  return ITG_OK;
}

void itg_cascade_destroy(itg_cascade *c) { free(c); }

const char *itg_cascade_error(const itg_cascade *c) { return c ? c->error.words : "no cascade"; }

// The session's inputs, with their names.
static uint32_t inputs_of(const itg_model *model, itg_session *session, itg_named *sent) {
  const uint32_t plan = itg_session_plan(session), n = itg_model_inputs(model, plan);
  if (n > MAX_SENT) return 0;
  for (uint32_t i = 0; i < n; i++) {
    itg_info info;
    if (itg_model_input(model, plan, i, &info) || itg_get_input(session, i, &sent[i].value))
      return 0;
    sent[i].name = info.name;
  }
  return n;
}

itg_status itg_cascade_run(itg_cascade *c, itg_answer *answer) {
  if (!c || !answer) return ITG_BAD_INPUT;
  *answer = (itg_answer){0};
  itg_status status = itg_run(c->session);
  if (!status) status = itg_get_output(c->session, c->options.output, &answer->output);
  if (status) {
    snprintf(c->error.words, sizeof c->error.words, "%.250s", itg_session_error(c->session));
    return status;
  }
  const itg_view *o = &answer->output;
  const size_t all = o->bytes / sizeof(float), n = o->rank ? (size_t)o->shape[o->rank - 1] : 0;
  if (n < 2) return strcpy(c->error.words, "a margin needs two classes or more"), ITG_BAD_INPUT;
  answer->margin = 1;
  for (size_t at = 0; at + n <= all; at += n)  // of a batch, the least sure row
    answer->margin = fminf(answer->margin, margin_of((const float *)o->data + at, n));
  c->credit = fminf(c->credit + c->options.budget, c->most_credit);
  c->error.words[0] = 0;
  if (answer->margin >= c->options.margin || c->credit < 1) return ITG_OK;
  itg_named sent[MAX_SENT];
  const uint32_t count = inputs_of(c->model, c->session, sent);
  status = itg_remote_run(c->remote, sent, count);
  if (status == ITG_BAD_INPUT) {
    snprintf(c->error.words, sizeof c->error.words, "%.250s", itg_remote_error(c->remote));
    return status;
  }
  itg_view scores;
  if (status) return ITG_OK;  // the device's answer stands
  if (itg_remote_output(c->remote, c->output, &scores) &&
      itg_remote_output(c->remote, NULL, &scores))
    return ITG_OK;
  c->credit -= 1;
  answer->output = scores;
  answer->from_server = 1;
  return ITG_OK;
}

itg_status itg_split_run(const itg_model *edge_model, itg_session *edge, itg_session *whole,
                         itg_remote *remote, itg_answer *answer) {
  if (!edge_model || !edge || !whole || !remote || !answer) return ITG_BAD_INPUT;
  *answer = (itg_answer){0};
  if (!itg_remote_down(remote)) {
    itg_status status = itg_run(edge);
    itg_info info;
    itg_named sent = {0};
    if (!status) status = itg_model_output(edge_model, itg_session_plan(edge), 0, &info);
    if (!status) status = itg_get_output(edge, 0, &sent.value);
    if (status) return status;
    sent.name = info.name;
    status = itg_remote_run(remote, &sent, 1);
    if (status == ITG_BAD_INPUT) return status;
    if (!status && !itg_remote_output(remote, NULL, &answer->output)) {
      answer->from_server = 1;
      return ITG_OK;
    }
  }
  const itg_status status = itg_run(whole);
  return status ? status : itg_get_output(whole, 0, &answer->output);
}
