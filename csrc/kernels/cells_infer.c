// Types, shapes and refusals of lstm_steps and gru_steps.
#include "cells.h"

static bool is(const itg_tensor *t, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  return !t || (t->dtype == ITG_F32 && itg_has_shape(t, rank, (const int64_t[]){a, b, c, d}));
}

// Inputs: gates, r, initial h?, and for an LSTM initial c?, for a GRU the bias of the hidden gate's recurrent part?.
itg_words itg_cells_of(const itg_call *call, int gates, itg_cells *s) {
  const itg_attrs_lstm_steps *a = call->attrs;
  const bool lstm = gates == ITG_LSTM_GATES;
  if (lstm) TAKES(2, 4, 3);
  else TAKES(2, 4, 2);
  const itg_tensor *x = call->in[0], *r = call->in[1], *h = itg_input(call, 2), *last = itg_input(call, 3);
  REFUSE(x->dtype != ITG_F32 || r->dtype != ITG_F32, "the gates and weights must be f32");
  REFUSE(x->rank != 3 || r->rank != 4, "the gates must be of rank 3, the weights of rank 4");
  REFUSE(x->shape[0] < 1, "there must be a step");
  REFUSE(a->direction < 0 || a->direction > 2, "direction is unknown");
  REFUSE(a->hidden < 1 || a->hidden > INT64_C(1) << 30, "hidden must be positive and sane");
  *s = (itg_cells){.steps = x->shape[0], .batch = x->shape[1], .directions = a->direction == 2 ? 2 : 1,
                   .blocks = (a->hidden + ITG_UNITS - 1) / ITG_UNITS, .hidden = a->hidden,
                   .backward = a->direction == 1};
  const int64_t wide = (int64_t)gates * ITG_UNITS;
  REFUSE(x->shape[2] != s->directions * s->blocks * wide, "the gates are not directions * blocks * gates * 16 wide");
  REFUSE(!is(r, 4, s->directions, s->blocks, s->hidden, wide), "r must be directions x blocks x hidden x gates * 16");
  REFUSE(!is(h, 3, s->directions, s->batch, s->hidden, 0), "the initial state must be directions x batch x hidden");
  if (lstm) REFUSE(!is(last, 3, s->directions, s->batch, s->hidden, 0), "the initial cell must be like the state");
  else REFUSE(!is(last, 2, s->directions, s->blocks * ITG_UNITS, 0, 0), "the bias must be directions x blocks * 16");
  return NULL;
}

static itg_words infer(const itg_call *call, int gates, itg_tensor *out) {
  itg_cells s;
  itg_words wrong = itg_cells_of(call, gates, &s);
  if (wrong) return wrong;
  const int64_t shape[4] = {s.steps, s.directions, s.batch, s.hidden};
  for (uint32_t i = 0; i < call->n_out; i++) {
    itg_set_type(&out[i], ITG_F32, i ? 3 : 4);
    for (int k = 0; k < out[i].rank; k++) out[i].shape[k] = shape[i ? k + 1 : k];
    FITS(&out[i]);
  }
  return NULL;
}

itg_words itg_infer_lstm_steps(const itg_call *call, itg_tensor *out) { return infer(call, ITG_LSTM_GATES, out); }
itg_words itg_infer_gru_steps(const itg_call *call, itg_tensor *out) { return infer(call, ITG_GRU_GATES, out); }
