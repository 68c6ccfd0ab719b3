// Types, shapes and refusals of grouped convolution.
#include "grouped.h"

itg_words itg_grouped_of(const itg_call *call, itg_grouped *g, itg_tensor *out) {
  const itg_attrs_grouped_conv *a = call->attrs;
  TAKES(2, 5, 1);
  const itg_tensor *x = call->in[0], *w = call->in[1];
  REFUSE(x->dtype != ITG_F32 || w->dtype != ITG_F32, "image and weights must be f32");
  REFUSE(x->rank != 4, "takes images of two spatial axes");
  REFUSE(w->rank != 5 || w->shape[3] != ITG_GROUPED_WIDTH || w->shape[4] != ITG_PANEL,
         "the weights must be [panels, lines, channels of a group, 3, 16]");
  const int64_t kernel[2] = {w->shape[1], ITG_GROUPED_WIDTH}, one[2] = {1, 1},
                most = INT64_C(1) << 31;
  itg_words words = itg_window_of(x, 1, 2, kernel, a->stride, one, a->pad, &g->w);
  if (words) return words;
  REFUSE(a->stride[1] > 2, "the stride along a line must be 1 or 2");
  g->deep = w->shape[2];
  g->inputs = x->shape[3];
  REFUSE(w->shape[0] < 0 || w->shape[0] > most || g->inputs > most,
         "it has absurdly many channels");
  g->channels = w->shape[0] * ITG_PANEL;
  REFUSE(g->deep < 1 || g->inputs < 1 || g->inputs % g->deep,
         "the groups do not divide the input channels");
  const int64_t groups = g->inputs / g->deep;
  REFUSE(g->channels % groups, "the groups do not divide the output channels");
  g->per = g->channels / groups;
  REFUSE(g->per % ITG_PANEL && (g->per != g->deep || ITG_PANEL % g->per),
         "a group must have a multiple of 16 output channels, or 1, 2, 4 or 8 and as many input "
         "channels");
  itg_copy_type(out, x);
  out->shape[3] = g->channels;
  return itg_slide(&g->w, 1, 2, a->pad, out);
}

itg_words itg_infer_grouped_conv(const itg_call *call, itg_tensor *out) {
  const itg_attrs_grouped_conv *a = call->attrs;
  itg_grouped g;
  itg_words words = itg_grouped_of(call, &g, out);
  return words ? words : itg_check_epilogue(call, out, a->act, a->add_last);
}
