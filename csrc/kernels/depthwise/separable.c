// Depthwise separable convolution of f32 images, a band of output lines at a time. It calls the
// kernels of gemm and depthwise convolution on lines.
#include "depthwise.h"
#include "separable.h"

typedef struct task {
  const itg_separable *s;
  itg_product_task expand, last;  // a, out and residual move from band to band
  itg_depthwise_task taps;
  const float *x;
  float *ring, *made;
} task;

// Computes lines [*ready, end) of the expanded image into the ring buffer, over lines that no
// window needs any more.
static void expand(task *t, int64_t batch, int64_t *ready, int64_t end) {
  const itg_separable *s = t->s;
  const int64_t width = s->w.in[2];
  while (*ready < end) {
    const int64_t at = *ready % s->ring, room = s->ring - at,
                  n = end - *ready < room ? end - *ready : room;
    t->expand.a = t->x + (batch * s->w.in[1] + *ready) * width * s->deep;
    t->expand.out = t->ring + at * width * s->middle;
    itg_product(&t->expand, 0, n * width, 0, s->wide);
    *ready += n;
  }
}

// Computes output lines [y, end) of one image.
static void run_lines(task *t, const itg_call *call, int64_t batch, int64_t y, int64_t end) {
  const itg_separable *s = t->s;
  const itg_window *w = &s->w;
  const float *residual = t->last.end.residual;
  const int64_t line = w->out[2] * s->channels;
  int64_t ready = 0;
  t->taps.image = s->ring ? t->ring : t->x + batch * w->in[1] * w->in[2] * s->deep;
  for (int64_t n; y < end; y += n) {
    n = end - y < s->band ? end - y : s->band;
    if (s->ring) {
      const int64_t first = y * w->stride[1] - w->before[1],
                    last = first + (n - 1) * w->stride[1] + w->kernel[1];
      if (ready < first) ready = first;
      expand(t, batch, &ready, last < w->in[1] ? last : w->in[1]);
    }
    itg_depthwise_lines(&t->taps, y, y + n);
    itg_product_task last = t->last;
    last.out = (float *)call->out[0]->data + (batch * w->out[1] + y) * line;
    if (residual) last.end.residual = residual + (batch * w->out[1] + y) * line;
    itg_product(&last, 0, n * w->out[2], 0, s->panels);
  }
}

static itg_finish between(const itg_tensor *bias, int64_t act, const double *args) {
  itg_finish end = {.bias = bias ? bias->data : NULL};
  itg_finish_by(&end, act, args);
  return end;
}

ITG_FN(separable, f32) {
  const itg_attrs_separable *a = call->attrs;
  itg_separable s;
  itg_tensor type;
  itg_separable_of(call, &s, &type);
  int64_t row, end;
  itg_share(s.batch * s.w.out[1], 1, part, parts, &row, &end);
  if (!itg_count(&type) || row >= end) return NULL;
  float *ring = (float *)((char *)call->scratch + s.bytes * part), *made = ring + s.kept;
  const itg_tensor *wide = itg_input(call, ITG_SEPARABLE_EXPAND);
  task t = {.s = &s, .x = call->in[0]->data, .ring = ring, .made = made};
  if (wide)
    t.expand = (itg_product_task){
        NULL,
        s.deep,
        s.deep,
        wide->data,
        s.middle,
        0,
        NULL,
        s.middle,
        between(itg_input(call, ITG_SEPARABLE_EXPAND_BIAS), a->expand_act, a->expand_args)};
  t.taps = (itg_depthwise_task){
      .w = s.w,
      .channels = s.middle,
      .ring = s.ring,
      .out = made,
      .weights = itg_input(call, ITG_SEPARABLE_TAPS)->data,
      .end = between(itg_input(call, ITG_SEPARABLE_TAPS_BIAS), a->taps_act, a->taps_args)};
  t.last = (itg_product_task){made,
                              s.middle,
                              s.middle,
                              call->in[1]->data,
                              s.channels,
                              0,
                              NULL,
                              s.channels,
                              itg_finish_of(call, a->act, a->act_args, a->add_last)};
  for (int64_t next; row < end; row = next) {  // one image at a time
    const int64_t batch = row / s.w.out[1], first = batch * s.w.out[1];
    next = first + s.w.out[1] < end ? first + s.w.out[1] : end;
    run_lines(&t, call, batch, row - first, next - first);
  }
  return NULL;
}
