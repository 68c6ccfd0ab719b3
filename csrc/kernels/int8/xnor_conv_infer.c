// Types, shapes and refusals of the convolution of signs, and its scratch memory.
#include "xnor_conv.h"

itg_attrs_qconv itg_xnor_like(const itg_attrs_xnor_conv *a) {
  return (itg_attrs_qconv){.channels = a->channels,
                           .y_zero = a->y_zero,
                           .lo = a->lo,
                           .hi = a->hi,
                           .dtype = a->dtype,
                           .r_zero = a->r_zero,
                           .r_scale = a->r_scale};
}

// Lines of the packed image, and the memory of a thread.
static itg_words layout(itg_xnor *c) {
  const int64_t most = INT64_C(1) << 31, stride = c->w.stride[1];
  const int64_t reach = (c->w.kernel[1] - 1) * c->w.dilation[1] + 1;
  const int64_t wide = (c->w.out[2] - 1) * c->w.stride[2] + (c->w.kernel[2] - 1) * c->w.dilation[2];
  REFUSE(__builtin_mul_overflow(wide + 1, c->pixel, &c->line) || c->line > most,
         "what the windows see at a time is absurdly large");
  c->rows = ITG_XNOR_IMAGE / c->line;
  c->rows = c->rows > reach ? (c->rows - reach) / stride + 1 : 1;
  c->rows = c->rows < c->w.out[1] ? c->rows : c->w.out[1];
  // Smaller images take no more memory than larger ones, though more of their lines fit.
  const int64_t lines = (c->w.out[1] - 1) * stride + reach;
  int64_t bytes, least;
  if (__builtin_mul_overflow(lines, c->line, &bytes) || bytes > ITG_XNOR_IMAGE)
    bytes = ITG_XNOR_IMAGE;
  REFUSE(__builtin_mul_overflow(reach, c->line, &least) || least > most,
         "what the windows see at a time is absurdly large");
  bytes = bytes > least ? bytes : least;
  c->image = ((uint64_t)bytes + 64 + 63) / 64 * 64;  // the last run may be read beyond its end
  c->lists = ((uint64_t)c->count * 8 + 63) / 64 * 64;
  c->starts = (uint64_t)(ITG_XNOR_CLASSES + 1) * (uint64_t)c->panels * ITG_PANEL * 4;
  c->total = c->image + c->lists + c->starts;
  return NULL;
}

itg_words itg_xnor_of(const itg_call *call, itg_xnor *c, itg_tensor *out) {
  const itg_attrs_xnor_conv *a = call->attrs;
  const itg_attrs_qconv like = itg_xnor_like(a);
  TAKES(3, 7, 1);
  itg_call first = *call;  // without the padding
  first.n_in = call->n_in < ITG_XNOR_PADDING ? call->n_in : ITG_XNOR_PADDING;
  itg_words words = itg_qconv_endings(&first, &like, ITG_U32, out);
  if (words) return words;
  const itg_tensor *x = call->in[0], *padding = itg_input(call, ITG_XNOR_PADDING);
  REFUSE(x->rank != 4, "takes an image of two spatial axes");
  words = itg_window_of(x, 1, 2, a->kernel, a->stride, a->dilation, a->pad, &c->w);
  if (words) return words;
  REFUSE(c->w.kernel[1] > ITG_XNOR_KERNEL || c->w.kernel[2] > ITG_XNOR_KERNEL,
         "takes windows of at most 7x7");
  const int64_t first_number = x->dtype == ITG_I8 ? -128 : 0;
  REFUSE(a->above < first_number || a->above > first_number + 255,
         "the bound of the signs is no number of the image's type");
  REFUSE(a->step < -65280 || a->step > 65280, "the step of the sums is not sane");
  c->batch = x->shape[0];
  c->deep = x->shape[3];
  c->channels = a->channels;
  REFUSE(c->deep < 1 || c->deep > 1 << 24, "the image is absurdly deep");
  c->panels = c->channels / ITG_PANEL + (c->channels % ITG_PANEL != 0);
  c->pixel = (c->deep + 7) / 8;
  c->runs = c->w.dilation[2] == 1 ? 1 : c->w.kernel[2];
  c->run = c->pixel * (c->w.kernel[2] / c->runs);
  c->words = (c->run + 3) / 4;
  c->count = c->w.kernel[1] * c->runs * c->words;
  c->last = c->run % 4 ? (1u << c->run % 4 * 8) - 1 : UINT32_MAX;
  const int64_t want[3] = {c->panels, c->count, ITG_PANEL},
                taps[2] = {itg_taps(&c->w), c->channels};
  REFUSE(!itg_has_shape(call->in[1], 3, want), "the signs are not packed for this convolution");
  REFUSE(padding && (padding->dtype != ITG_I32 || !itg_has_shape(padding, 2, taps)),
         "the padding must be one i32 per tap and output channel");
  words = itg_slide(&c->w, 1, 2, a->pad, out);
  if (!words) words = itg_qconv_residual(call, &like, out);
  if (words || itg_empty(out)) return words;
  return layout(c);
}

itg_words itg_infer_xnor_conv(const itg_call *call, itg_tensor *out) {
  itg_xnor c;
  return itg_xnor_of(call, &c, out);
}

uint64_t itg_scratch_xnor_conv(const itg_call *call, uint32_t parts) {
  itg_xnor c;
  itg_tensor out;
  if (itg_xnor_of(call, &c, &out) || itg_empty(&out)) return 0;
  return c.total * parts;
}

uint64_t itg_prepare_xnor_conv(const itg_call *call, void *to) {
  itg_xnor_prepared *p = to;
  itg_tensor out;
  if (!to) return sizeof *p;
  p->empty = itg_xnor_of(call, &p->c, &out) || itg_empty(&out);
  return sizeof *p;
}
