// Types, shapes and refusals of lstm, gru and rnn.
#include "recurrent.h"

enum { FORWARD, REVERSE, BIDIRECTIONAL };

static itg_words read_activations(const itg_attrs_lstm *attrs, itg_rnn *s) {
  const int64_t each = s->kind == ITG_LSTM  ? 3
                       : s->kind == ITG_GRU ? 2
                                            : 1,
                n = each * s->directions;
  REFUSE(
      attrs->n_activations != n || attrs->n_activation_alpha != n || attrs->n_activation_beta != n,
      "activations, alphas and betas must be one set for each direction");
  for (int64_t i = 0; i < n; i++) {
    REFUSE(attrs->activations[i] < 0 || attrs->activations[i] >= ITG_RNN_FUNCTIONS,
           "an activation is unknown");
    s->activations[i / each][i % each] = (itg_activation){
        attrs->activations[i], attrs->activation_alpha[i], attrs->activation_beta[i]};
  }
  return NULL;
}

static bool has(const itg_tensor *t, const itg_tensor *like, int rank, int64_t a, int64_t b,
                int64_t c) {
  return !t || (t->dtype == like->dtype && itg_has_shape(t, rank, (const int64_t[]){a, b, c}));
}

itg_words itg_rnn_of(const itg_call *call, enum itg_rnn_kind kind, itg_rnn *s) {
  // the structs of lstm, gru and rnn have the same first fields
  const itg_attrs_lstm *attrs = call->attrs;
  const bool lstm = kind == ITG_LSTM;
  if (lstm) TAKES(3, 8, 3);
  else TAKES(3, 6, 2);
  const itg_tensor *x = call->in[0], *w = call->in[1];
  *s = (itg_rnn){.kind = kind,
                 .gates = lstm              ? 4
                          : kind == ITG_GRU ? 3
                                            : 1,
                 .x = x,
                 .w = w,
                 .r = call->in[2],
                 .b = itg_input(call, 3),
                 .lens = itg_input(call, 4),
                 .h = itg_input(call, 5),
                 .c = itg_input(call, 6),
                 .p = itg_input(call, 7)};
  REFUSE(!itg_is_wide_float(x->dtype), "the data must be floats");
  REFUSE(x->rank != 3, "the data must be steps x batch x inputs");
  REFUSE(attrs->layout != 0, "only layout 0 has a kernel");
  REFUSE(attrs->direction < FORWARD || attrs->direction > BIDIRECTIONAL, "direction is unknown");
  REFUSE(attrs->hidden_size < 1 || attrs->hidden_size > INT64_C(1) << 40,
         "hidden_size must be positive and sane");
  REFUSE(!(attrs->clip >= 0), "clip must not be negative");
  s->steps = x->shape[0];
  s->batch = x->shape[1];
  s->inputs = x->shape[2];
  s->hidden = attrs->hidden_size;
  s->directions = attrs->direction == BIDIRECTIONAL ? 2 : 1;
  s->backward = attrs->direction == REVERSE;
  s->clip = attrs->clip;
  s->flag = lstm
                ? attrs->input_forget != 0
                : kind == ITG_GRU && ((const itg_attrs_gru *)call->attrs)->linear_before_reset != 0;
  const int64_t d = s->directions, h = s->hidden, gates = s->gates * h;
  REFUSE(!has(w, x, 3, d, gates, s->inputs),
         "w must be directions x gates*hidden x inputs, of the data's type");
  REFUSE(!has(s->r, x, 3, d, gates, h),
         "r must be directions x gates*hidden x hidden, of the data's type");
  REFUSE(!has(s->b, x, 2, d, 2 * gates, 0),
         "b must be directions x 2*gates*hidden, of the data's type");
  REFUSE(!has(s->h, x, 3, d, s->batch, h) || !has(s->c, x, 3, d, s->batch, h),
         "initial states must be directions x batch x hidden, of the data's type");
  REFUSE(!has(s->p, x, 2, d, 3 * h, 0), "p must be directions x 3*hidden, of the data's type");
  REFUSE(
      s->lens && (s->lens->dtype != ITG_I32 || s->lens->rank != 1 || s->lens->shape[0] != s->batch),
      "sequence_lens must be one i32 per batch entry");
  return read_activations(attrs, s);
}

static itg_words infer(const itg_call *call, enum itg_rnn_kind kind, itg_tensor *out) {
  itg_rnn s;
  itg_words wrong = itg_rnn_of(call, kind, &s);
  if (wrong) return wrong;
  const int64_t shape[4] = {s.steps, s.directions, s.batch, s.hidden};
  for (uint32_t i = 0; i < call->n_out; i++) {
    itg_set_type(&out[i], s.x->dtype, i ? 3 : 4);
    for (int k = 0; k < out[i].rank; k++) out[i].shape[k] = shape[i ? k + 1 : k];
  }
  return NULL;
}

itg_words itg_infer_lstm(const itg_call *call, itg_tensor *out) {
  return infer(call, ITG_LSTM, out);
}
itg_words itg_infer_gru(const itg_call *call, itg_tensor *out) { return infer(call, ITG_GRU, out); }
itg_words itg_infer_rnn(const itg_call *call, itg_tensor *out) { return infer(call, ITG_RNN, out); }

int64_t itg_rnn_rows(const itg_rnn *s) { return s->batch > ITG_RNN_ROWS ? s->batch : ITG_RNN_ROWS; }

// Scratch: the gates of the rows, and one more row of hidden size for each. Types other than f32
// also convert all operands to double.
static uint64_t scratch(const itg_call *call, enum itg_rnn_kind kind, uint32_t parts) {
  itg_rnn s;
  if (itg_rnn_of(call, kind, &s) || !s.batch) return 0;
  const uint64_t own = (uint64_t)(itg_rnn_rows(&s) * (s.gates + 1) * s.hidden);
  if (s.x->dtype == ITG_F32) return own * parts * sizeof(float);
  uint64_t n = own;  // one part does it all
  for (uint32_t i = 0; i < call->n_in; i++)
    if (call->in[i] && i != 4) n += (uint64_t)itg_count(call->in[i]);
  n += (uint64_t)((s.steps + (int64_t)call->n_out - 1) * s.directions * s.batch * s.hidden);
  return n * sizeof(double);
}

uint64_t itg_scratch_lstm(const itg_call *call, uint32_t parts) {
  return scratch(call, ITG_LSTM, parts);
}
uint64_t itg_scratch_gru(const itg_call *call, uint32_t parts) {
  return scratch(call, ITG_GRU, parts);
}
uint64_t itg_scratch_rnn(const itg_call *call, uint32_t parts) {
  return scratch(call, ITG_RNN, parts);
}
