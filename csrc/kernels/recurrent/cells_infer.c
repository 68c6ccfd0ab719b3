// Types, shapes and refusals of lstm_steps and gru_steps, lstm_layer and gru_layer, qlstm_steps and
// qgru_steps.
#include "cells.h"

static bool is(const itg_tensor *t, int rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  return !t || (t->dtype == ITG_F32 && itg_has_shape(t, rank, (const int64_t[]){a, b, c, d}));
}

// Checks that all kinds share. x has the steps and the batch; r is f32, or i8 in groups of four
// along k.
static itg_words read_cells(const itg_call *call, int gates, const itg_tensor *x,
                            const itg_tensor *r, const itg_tensor *h, const itg_tensor *last,
                            bool bytes, itg_cells *s) {
  const itg_attrs_lstm_steps *a = call->attrs;
  REFUSE(x->dtype != ITG_F32, "the inputs must be f32");
  REFUSE(x->rank != 3 || r->rank != 4, "the inputs must be of rank 3, the weights of rank 4");
  REFUSE(x->shape[0] < 1, "there must be a step");
  REFUSE(a->direction < 0 || a->direction > 2, "direction is unknown");
  REFUSE(a->hidden < 1 || a->hidden > INT64_C(1) << 30, "hidden must be positive and sane");
  *s = (itg_cells){.steps = x->shape[0],
                   .batch = x->shape[1],
                   .directions = a->direction == 2 ? 2 : 1,
                   .blocks = (a->hidden + ITG_UNITS - 1) / ITG_UNITS,
                   .hidden = a->hidden,
                   .r = r,
                   .h = h,
                   .last = last,
                   .backward = a->direction == 1};
  const int64_t wide = (int64_t)gates * ITG_UNITS;
  const int64_t fours[4] = {s->directions, s->blocks, (s->hidden + 3) / 4, 4 * wide};
  const int64_t pair = r->dtype == ITG_BF16 ? 2 : 1,
                want[4] = {s->directions, s->blocks, s->hidden / pair, wide * pair};
  if (r->dtype == ITG_I8 && bytes) {
    REFUSE(!itg_has_shape(r, 4, fours), "r must be directions x blocks x fours x gates * 64");
  } else {
    REFUSE(bytes || (r->dtype != ITG_F32 && r->dtype != ITG_BF16 && r->dtype != ITG_F16),
           "r must be f32, bf16 or f16, or bytes");
    REFUSE(s->hidden % pair, "weights of bf16 take an even number of units");
    REFUSE(!itg_has_shape(r, 4, want),
           "r must be directions x blocks x hidden x gates * 16, of bf16 in pairs of rows");
  }
  REFUSE(!is(h, 3, s->directions, s->batch, s->hidden, 0),
         "the initial state must be directions x batch x hidden");
  if (gates == ITG_LSTM_GATES)
    REFUSE(!is(last, 3, s->directions, s->batch, s->hidden, 0),
           "the initial cell must be like the state");
  else
    REFUSE(!is(last, 2, s->directions, s->blocks * ITG_UNITS, 0, 0),
           "the bias must be directions x blocks * 16");
  return NULL;
}

// Inputs: gates, r, initial h?, and for an LSTM initial c?, for a GRU the bias of the hidden gate's
// recurrent part?.
itg_words itg_cells_of(const itg_call *call, int gates, itg_cells *s) {
  if (gates == ITG_LSTM_GATES) TAKES(2, 4, 3);
  else TAKES(2, 4, 2);
  const itg_tensor *x = call->in[0];
  itg_words wrong =
      read_cells(call, gates, x, call->in[1], itg_input(call, 2), itg_input(call, 3), false, s);
  if (wrong) return wrong;
  REFUSE(x->shape[2] != s->directions * s->blocks * gates * ITG_UNITS,
         "the gates are not directions * blocks * gates * 16 wide");
  return NULL;
}

// Inputs: x, w, r, bias?, initial h?, and the last one as above.
itg_words itg_layer_of(const itg_call *call, int gates, itg_cells *s) {
  if (gates == ITG_LSTM_GATES) TAKES(3, 6, 3);
  else TAKES(3, 6, 2);
  const itg_tensor *x = call->in[0], *w = call->in[1], *bias = itg_input(call, 3);
  itg_words wrong =
      read_cells(call, gates, x, call->in[2], itg_input(call, 4), itg_input(call, 5), false, s);
  if (wrong) return wrong;
  const int64_t panels = s->directions * s->blocks * gates;
  s->deep = x->shape[2];
  REFUSE(call->in[2]->dtype != ITG_F32, "the weights of a layer must be f32");
  REFUSE(s->batch != 1, "a layer takes one sequence");
  REFUSE(s->deep < 1 || s->deep > INT64_C(1) << 30, "an input must have numbers, sanely many");
  REFUSE(!is(w, 3, panels, s->deep, ITG_UNITS, 0),
         "w must be directions * blocks * gates x deep x 16");
  REFUSE(!is(bias, 1, panels * ITG_UNITS, 0, 0, 0),
         "the bias must have one number per gate of every unit");
  return NULL;
}

// Inputs: gates, r, scales and sums of its columns, initial h?, and the last one as above.
itg_words itg_qcells_of(const itg_call *call, int gates, itg_cells *s) {
  if (gates == ITG_LSTM_GATES) TAKES(4, 6, 3);
  else TAKES(4, 6, 2);
  const itg_tensor *x = call->in[0], *scale = call->in[2], *sums = call->in[3];
  itg_words wrong =
      read_cells(call, gates, x, call->in[1], itg_input(call, 4), itg_input(call, 5), true, s);
  if (wrong) return wrong;
  const int64_t each[2] = {s->directions, s->blocks * gates * ITG_UNITS};
  REFUSE(x->shape[2] != each[0] * each[1],
         "the gates are not directions * blocks * gates * 16 wide");
  REFUSE(s->hidden > INT32_MAX / (128 * 255) - 4,
         "there are more units than a sum of 32 bits holds");
  REFUSE(!is(scale, 2, each[0], each[1], 0, 0), "there must be one f32 scale per column of r");
  REFUSE(sums->dtype != ITG_I32 || !itg_has_shape(sums, 2, each),
         "there must be one i32 sum per column of r");
  return NULL;
}

static itg_words infer(const itg_call *call, itg_words wrong, const itg_cells *s, itg_tensor *out) {
  if (wrong) return wrong;
  const int64_t shape[4] = {s->steps, s->directions, s->batch, s->hidden};
  for (uint32_t i = 0; i < call->n_out; i++) {
    itg_set_type(&out[i], ITG_F32, i ? 3 : 4);
    for (int k = 0; k < out[i].rank; k++) out[i].shape[k] = shape[i ? k + 1 : k];
    FITS(&out[i]);
  }
  return NULL;
}

#define INFER(op, gates, of)                                        \
  itg_words itg_infer_##op(const itg_call *call, itg_tensor *out) { \
    itg_cells s;                                                    \
    itg_words wrong = of(call, gates, &s);                          \
    return infer(call, wrong, &s, out);                             \
  }
INFER(lstm_steps, ITG_LSTM_GATES, itg_cells_of)
INFER(gru_steps, ITG_GRU_GATES, itg_cells_of)
INFER(lstm_layer, ITG_LSTM_GATES, itg_layer_of)
INFER(gru_layer, ITG_GRU_GATES, itg_layer_of)
INFER(qlstm_steps, ITG_LSTM_GATES, itg_qcells_of)
INFER(qgru_steps, ITG_GRU_GATES, itg_qcells_of)

// Scratch: the gates of the current and of the next ITG_AHEAD steps, and for every thread the
// transposed inputs of the next.
static uint64_t scratch(const itg_call *call, int gates, uint32_t parts) {
  itg_cells s;
  if (itg_layer_of(call, gates, &s)) return 0;
  const uint64_t made =
      (uint64_t)(s.directions * s.blocks) * (uint64_t)gates * ITG_UNITS * ITG_AHEAD;
  return (2 * made + parts * (uint64_t)(s.directions * s.deep) * ITG_AHEAD) * sizeof(float);
}

uint64_t itg_scratch_lstm_layer(const itg_call *call, uint32_t parts) {
  return scratch(call, ITG_LSTM_GATES, parts);
}
uint64_t itg_scratch_gru_layer(const itg_call *call, uint32_t parts) {
  return scratch(call, ITG_GRU_GATES, parts);
}

// Scratch of every thread: the previous state as bytes, and its scales.
static uint64_t state_scratch(const itg_call *call, int gates, uint32_t parts) {
  itg_cells s;
  return itg_qcells_of(call, gates, &s) ? 0 : itg_qstate_of(&s).total * parts;
}

uint64_t itg_scratch_qlstm_steps(const itg_call *call, uint32_t parts) {
  return state_scratch(call, ITG_LSTM_GATES, parts);
}
uint64_t itg_scratch_qgru_steps(const itg_call *call, uint32_t parts) {
  return state_scratch(call, ITG_GRU_GATES, parts);
}
