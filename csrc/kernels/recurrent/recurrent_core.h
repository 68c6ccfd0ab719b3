// The recurrence itself, over `real`: included once for float on vectors and once for double. The
// includer defines
//   real, dots(rows, m, w, n, k, out)   out[i][j] += sum over k of rows[i][k] * w[j][k]
//   activate(a, clip, x, n)             x[i] = a(clip(x[i]))
// Threads split the (direction, batch entry) pairs, which are independent. States are kept in the
// outputs y_h and y_c.

typedef struct arrays {  // the tensors of a call as arrays of real; absent ones are NULL
  const real *x, *w, *r, *b, *h, *c, *p;
  real *y, *y_h, *y_c;
} arrays;

typedef struct direction {  // pointers to one direction's weights
  const real *w, *r, *b, *p;
  const itg_activation *f;
  bool backward;
} direction;

static void lstm_cell(const itg_rnn *s, const direction *d, real *gates, real *h, real *c) {
  const int64_t n = s->hidden;
  real *in = gates, *out = gates + n, *forget = gates + 2 * n, *cell = gates + 3 * n;
  if (d->p)
    for (int64_t i = 0; i < n; i++) {
      in[i] += d->p[i] * c[i];
      forget[i] += d->p[2 * n + i] * c[i];
    }
  activate(&d->f[0], s->clip, in, n);
  if (s->flag)
    for (int64_t i = 0; i < n; i++) forget[i] = 1 - in[i];
  else activate(&d->f[0], s->clip, forget, n);
  activate(&d->f[1], s->clip, cell, n);
  for (int64_t i = 0; i < n; i++) c[i] = forget[i] * c[i] + in[i] * cell[i];
  if (d->p)
    for (int64_t i = 0; i < n; i++) out[i] += d->p[n + i] * c[i];
  activate(&d->f[0], s->clip, out, n);
  memcpy(cell, c, (size_t)n * sizeof *c);
  activate(&d->f[2], 0, cell, n);  // gates are clipped, the cell state is not
  for (int64_t i = 0; i < n; i++) h[i] = out[i] * cell[i];
}

// The gates hold x*W + both biases of z and r; of h, the input's bias only. `extra` holds the
// recurrent part of h.
static void gru_cell(const itg_rnn *s, const direction *d, real *gates, real *h, real *extra) {
  const int64_t n = s->hidden;
  real *update = gates, *reset = gates + n, *hidden = gates + 2 * n;
  const real *bias = d->b ? d->b + 5 * n : NULL;
  activate(&d->f[0], s->clip, gates, 2 * n);
  if (s->flag) {  // extra = h * R
    for (int64_t i = 0; i < n; i++) hidden[i] += reset[i] * (extra[i] + (bias ? bias[i] : 0));
  } else {
    for (int64_t i = 0; i < n; i++) reset[i] *= h[i];
    if (bias)
      for (int64_t i = 0; i < n; i++) hidden[i] += bias[i];
    const real *row = reset;
    dots(&row, 1, d->r + 2 * n * n, n, n, &hidden);
  }
  activate(&d->f[1], s->clip, hidden, n);
  for (int64_t i = 0; i < n; i++) h[i] = (1 - update[i]) * hidden[i] + update[i] * h[i];
}

// Adds the recurrent part to the gates of m <= ITG_RNN_ROWS rows and computes their new states.
static void advance(const itg_rnn *s, const direction *d, int64_t m, real **gates, real **h,
                    real **c, real **extra) {
  const int64_t n = s->hidden;
  const real *states[ITG_RNN_ROWS];
  for (int64_t i = 0; i < m; i++) states[i] = h[i];
  dots(states, m, d->r, (s->kind == ITG_GRU ? 2 : s->gates) * n, n, gates);
  if (s->kind == ITG_GRU && s->flag) {
    for (int64_t i = 0; i < m; i++) memset(extra[i], 0, (size_t)n * sizeof **extra);
    dots(states, m, d->r + 2 * n * n, n, n, extra);
  }
  for (int64_t i = 0; i < m; i++) {
    if (s->kind == ITG_LSTM) lstm_cell(s, d, gates[i], h[i], c[i]);
    else if (s->kind == ITG_GRU) gru_cell(s, d, gates[i], h[i], extra[i]);
    else {
      activate(&d->f[0], s->clip, gates[i], n);
      memcpy(h[i], gates[i], (size_t)n * sizeof *h[i]);
    }
  }
}

// gates = biases + x * W for m rows.
static void project(const itg_rnn *s, const direction *d, int64_t m, const real **x, real **gates) {
  const int64_t n = s->gates * s->hidden, both = s->kind == ITG_GRU ? 2 * s->hidden : n;
  for (int64_t i = 0; i < m; i++)
    for (int64_t k = 0; k < n; k++) gates[i][k] = d->b ? d->b[k] + (k < both ? d->b[n + k] : 0) : 0;
  if (s->inputs) dots(x, m, d->w, n, s->inputs, gates);
}

// Computes one direction for batch entries [first, last).
static itg_words run_direction(const itg_rnn *s, const arrays *t, const direction *d, int64_t which,
                               int64_t first, int64_t last, real *scratch) {
  const int64_t n = s->hidden, row = s->gates * n, rows = itg_rnn_rows(s), batch = last - first;
  const int64_t ahead = batch >= ITG_RNN_ROWS
                            ? 1
                            : ITG_RNN_ROWS / batch;  // steps whose inputs are projected together
  real *spare = scratch + rows * row;
  for (int64_t b = first; b < last; b++) {
    const int64_t at = (which * s->batch + b) * n;
    REFUSE(itg_rnn_length(s, b) < 0, "a sequence length lies outside of the time axis");
    for (int64_t i = 0; i < n; i++) t->y_h[at + i] = t->h ? t->h[at + i] : 0;
    for (int64_t i = 0; i < n && t->y_c; i++) t->y_c[at + i] = t->c ? t->c[at + i] : 0;
  }
  for (int64_t start = 0; start < s->steps; start += ahead) {
    const int64_t stop = start + ahead < s->steps ? start + ahead : s->steps;
    const real *x[ITG_RNN_ROWS];
    real *gates[ITG_RNN_ROWS], *h[ITG_RNN_ROWS], *c[ITG_RNN_ROWS], *extra[ITG_RNN_ROWS];
    int64_t m = 0;
    for (int64_t step = start; step < stop; step++)
      for (int64_t b = first; b < last; b++) {
        const int64_t length = itg_rnn_length(s, b);
        if (step < length) {
          const int64_t time = d->backward ? length - 1 - step : step;
          x[m] = t->x + (time * s->batch + b) * s->inputs;
          gates[m++] = scratch + ((step - start) * batch + b - first) * row;
        }
        if (m == ITG_RNN_ROWS || (step == stop - 1 && b == last - 1)) {
          project(s, d, m, x, gates);
          m = 0;
        }
      }
    for (int64_t step = start; step < stop; step++)
      for (int64_t b = first; b < last; b++) {
        const int64_t at = (which * s->batch + b) * n;
        if (step < itg_rnn_length(s, b)) {
          gates[m] = scratch + ((step - start) * batch + b - first) * row;
          h[m] = t->y_h + at;
          c[m] = t->y_c ? t->y_c + at : NULL;
          extra[m++] = spare + (b - first) * n;
        }
        if (m == ITG_RNN_ROWS || b == last - 1) {
          advance(s, d, m, gates, h, c, extra);
          m = 0;
        }
        if (b < last - 1) continue;
        for (int64_t e = first; e < last; e++) {
          const int64_t length = itg_rnn_length(s, e),
                        time = d->backward && step < length ? length - 1 - step : step;
          real *y = t->y + ((time * s->directions + which) * s->batch + e) * n;
          if (step < length) memcpy(y, t->y_h + (which * s->batch + e) * n, (size_t)n * sizeof *y);
          else memset(y, 0, (size_t)n * sizeof *y);
        }
      }
  }
  return NULL;
}

static itg_words run(const itg_rnn *s, const arrays *t, real *scratch, uint32_t part,
                     uint32_t parts) {
  int64_t pair, end;
  itg_share(s->directions * s->batch, 1, part, parts, &pair, &end);
  while (pair < end) {
    const int64_t which = pair / s->batch, first = pair % s->batch;
    const int64_t last = first + end - pair < s->batch ? first + end - pair : s->batch;
    const int64_t n = s->hidden, row = s->gates * n;
    const direction d = {
        .w = t->w + which * row * s->inputs,
        .r = t->r + which * row * n,
        .b = t->b ? t->b + which * 2 * row : NULL,
        .p = t->p ? t->p + which * 3 * n : NULL,
        .f = s->activations[which],
        .backward = which == 1 || s->backward,
    };
    itg_words wrong = run_direction(s, t, &d, which, first, last, scratch);
    if (wrong) return wrong;
    pair += last - first;
  }
  return NULL;
}
