// Types, shapes and refusals of depthwise convolution.
#include "depthwise.h"

itg_words itg_depthwise_of(const itg_call *call, itg_window *w, itg_tensor *out) {
  const itg_attrs_depthwise *a = call->attrs;
  TAKES(2, 5, 1);
  const itg_tensor *x = call->in[0], *weights = call->in[1];
  REFUSE((x->dtype != ITG_F32 && x->dtype != ITG_BF16 && x->dtype != ITG_F16) ||
             weights->dtype != ITG_F32,
         "takes an image of f32, bf16 or f16, and weights of f32");
  REFUSE(x->rank < 3 || x->rank > 5 || weights->rank != x->rank - 1,
         "takes an image and weights [window, channels]");
  REFUSE(weights->shape[weights->rank - 1] != x->shape[x->rank - 1],
         "the weights have another number of channels");
  itg_words words =
      itg_window_of(x, 1, x->rank - 2, weights->shape, a->stride, a->dilation, a->pad, w);
  if (words) return words;
  itg_copy_type(out, x);
  return itg_slide(w, 1, x->rank - 2, a->pad, out);
}

itg_words itg_infer_depthwise(const itg_call *call, itg_tensor *out) {
  const itg_attrs_depthwise *a = call->attrs;
  itg_window w;
  itg_words words = itg_depthwise_of(call, &w, out);
  if (!words) words = itg_check_made(a->made, out);
  return words ? words : itg_check_epilogue(call, out, a->act, a->add_last);
}
