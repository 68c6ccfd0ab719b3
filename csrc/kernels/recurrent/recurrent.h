// The operands and attributes of lstm, gru and rnn, read once from a call.
#pragma once
#include "infer.h"

enum itg_rnn_kind { ITG_LSTM, ITG_GRU, ITG_RNN };
enum itg_rnn_function {  // the order of the ENUM in recurrent.inc
  ITG_SIGMOID,
  ITG_TANH,
  ITG_RELU,
  ITG_AFFINE,
  ITG_LEAKY_RELU,
  ITG_THRESHOLDED_RELU,
  ITG_SCALED_TANH,
  ITG_HARD_SIGMOID,
  ITG_ELU,
  ITG_SOFTSIGN,
  ITG_SOFTPLUS,
  ITG_RNN_FUNCTIONS,
};
enum { ITG_RNN_ROWS = 16 };  // inputs of several steps that are multiplied together

typedef struct itg_activation {
  int64_t function;
  double alpha, beta;
} itg_activation;

typedef struct itg_rnn {
  enum itg_rnn_kind kind;
  int gates;  // 4, 3 or 1
  int64_t steps, batch, inputs, hidden, directions;
  bool backward;                     // the first direction runs backward
  bool flag;                         // lstm: input_forget; gru: linear_before_reset
  double clip;                       // 0: none
  itg_activation activations[2][3];  // of each direction
  const itg_tensor *x, *w, *r, *b, *lens, *h, *c, *p;  // b to p may be NULL
} itg_rnn;

itg_words itg_rnn_of(const itg_call *call, enum itg_rnn_kind kind,
                     itg_rnn *out);      // refuses what cannot be computed
int64_t itg_rnn_rows(const itg_rnn *s);  // rows of gates that one part keeps

// The length of batch entry b, or -1 if the tensor says something impossible.
static inline int64_t itg_rnn_length(const itg_rnn *s, int64_t b) {
  if (!s->lens) return s->steps;
  const int64_t n = ((const int32_t *)s->lens->data)[b];
  return n < 0 || n > s->steps ? -1 : n;
}
