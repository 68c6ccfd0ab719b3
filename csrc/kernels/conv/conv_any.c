// Types, shapes and refusals of convolutions, and a plain loop for element types without a kernel.
#include "conv.h"

static itg_words packed(const itg_call *call, itg_conv *c, const int64_t *kernel,
                        const int64_t *stride, const int64_t *dilation, const int64_t *pad,
                        int64_t channels, int64_t groups) {
  TAKES(2, 5, 1);
  const itg_tensor *x = call->in[0], *w = call->in[1];
  REFUSE(!itg_is_wide_float(x->dtype) || x->dtype != w->dtype,
         "image and weights must be floats of one type");
  REFUSE(w->rank != 4, "the weights must be [groups, panels, window * channels, 16]");
  itg_words words = itg_window_of(x, 1, x->rank - 2, kernel, stride, dilation, pad, &c->w);
  if (words) return words;
  c->batch = x->shape[0];
  c->channels = channels;
  c->groups = groups;
  REFUSE(groups < 1 || channels < 0 || channels % groups,
         "the groups do not divide the output channels");
  REFUSE(x->shape[x->rank - 1] % groups || x->shape[x->rank - 1] < 1,
         "the groups do not divide the input channels");
  c->deep = x->shape[x->rank - 1] / groups;
  c->per = channels / groups;
  c->panels = c->per / ITG_PANEL + (c->per % ITG_PANEL != 0);
  REFUSE(c->deep > INT64_C(1) << 32, "the image is absurdly deep");
  c->depth = itg_taps(&c->w) * c->deep;
  const int64_t pair = x->dtype == ITG_BF16 ? 2 : 1;
  REFUSE(c->deep % 2 && (x->dtype == ITG_BF16 || x->dtype == ITG_F16),
         "convolutions of 16-bit floats take an even number of channels per group");
  const int64_t want[4] = {groups, c->panels, c->depth / pair, ITG_PANEL * pair};
  REFUSE(!itg_has_shape(w, 4, want), "the weights are not packed for this convolution");
  return NULL;
}

itg_words itg_conv_of(const itg_call *call, itg_conv *c, itg_tensor *out) {
  const itg_attrs_conv *a = call->attrs;
  itg_words words =
      packed(call, c, a->kernel, a->stride, a->dilation, a->pad, a->channels, a->groups);
  if (words) return words;
  c->transposed = false;
  itg_copy_type(out, call->in[0]);
  out->shape[out->rank - 1] = a->channels;
  return itg_slide(&c->w, 1, out->rank - 2, a->pad, out);
}

itg_words itg_conv_transpose_of(const itg_call *call, itg_conv *c, itg_tensor *out) {
  const itg_attrs_conv_transpose *a = call->attrs;
  itg_words words =
      packed(call, c, a->kernel, a->stride, a->dilation, a->pad, a->channels, a->groups);
  if (words) return words;
  c->transposed = true;
  itg_copy_type(out, call->in[0]);
  int axes = out->rank - 2;
  for (int i = 0; i < axes; i++) {
    int to = ITG_AXES - axes + i;
    const itg_window *w = &c->w;
    REFUSE(a->output_pad[i] < 0 || a->output_pad[i] > INT64_C(1) << 31,
           "output_pad is negative or absurdly large");
    REFUSE(w->in[to] < 1 || w->in[to] > INT64_C(1) << 31, "the image is empty or absurdly large");
    int64_t size =
        (w->in[to] - 1) * w->stride[to] + a->output_pad[i] - a->pad[i] - a->pad[axes + i];
    REFUSE(size > INT64_C(1) << 62, "the output is absurdly large");
    size += (w->kernel[to] - 1) * w->dilation[to] + 1;
    REFUSE(size < 0, "the pads leave nothing of the output");
    out->shape[1 + i] = c->w.out[to] = size;
  }
  out->shape[out->rank - 1] = a->channels;
  FITS(out);
  return NULL;
}

itg_words itg_infer_conv(const itg_call *call, itg_tensor *out) {
  const itg_attrs_conv *a = call->attrs;
  itg_conv c;
  itg_words words = itg_conv_of(call, &c, out);
  if (!words) words = itg_check_made(a->made, out);
  return words ? words : itg_check_epilogue(call, out, a->act, a->add_last);
}

itg_words itg_infer_conv_transpose(const itg_call *call, itg_tensor *out) {
  const itg_attrs_conv_transpose *a = call->attrs;
  itg_conv c;
  itg_words words = itg_conv_transpose_of(call, &c, out);
  if (!words) words = itg_check_made(a->made, out);
  return words ? words : itg_check_epilogue(call, out, a->act, a->add_last);
}

// Computes all channels of one output pixel and group, in double.
static void pixel(const itg_call *call, const itg_conv *c, const itg_finish *end, int64_t batch,
                  const int64_t *o, int64_t g) {
  const itg_tensor *x = call->in[0], *w = call->in[1], *out = call->out[0];
  const itg_tensor *bias = itg_input(call, 2), *residual = itg_input(call, 3);
  const itg_window *s = &c->w;
  const uint8_t dtype = x->dtype;
  const int64_t place = ((batch * s->out[0] + o[0]) * s->out[1] + o[1]) * s->out[2] + o[2];
  for (int64_t m = 0; m < c->per; m++) {
    const int64_t column = g * c->per + m, panel = (g * c->panels + m / ITG_PANEL) * c->depth;
    double sum = bias ? itg_load_f64(bias->dtype, bias->data, column) : 0;
    int64_t k[ITG_AXES], in[ITG_AXES], tap = 0;
    for (k[0] = 0; k[0] < s->kernel[0]; k[0]++)
      for (k[1] = 0; k[1] < s->kernel[1]; k[1]++)
        for (k[2] = 0; k[2] < s->kernel[2]; k[2]++, tap++) {
          bool inside = true;
          for (int i = 0; i < ITG_AXES; i++) {
            if (c->transposed) {
              int64_t reach = o[i] + s->before[i] - k[i] * s->dilation[i];
              in[i] = reach % s->stride[i] ? -1 : reach / s->stride[i];
            } else {
              in[i] = o[i] * s->stride[i] - s->before[i] + k[i] * s->dilation[i];
            }
            inside &= in[i] >= 0 && in[i] < s->in[i];
          }
          if (!inside) continue;
          int64_t at = ((batch * s->in[0] + in[0]) * s->in[1] + in[1]) * s->in[2] + in[2];
          at = (at * c->groups + g) * c->deep;
          for (int64_t i = 0; i < c->deep; i++) {
            const int64_t row = panel + tap * c->deep + i;
            int64_t weight = row * ITG_PANEL + m % ITG_PANEL;
            if (dtype == ITG_BF16) weight = (row / 2 * ITG_PANEL + m % ITG_PANEL) * 2 + row % 2;
            sum += itg_load_f64(dtype, x->data, at + i) * itg_load_f64(dtype, w->data, weight);
          }
        }
    if (residual && !end->add_last)
      sum += itg_load_f64(out->dtype, residual->data, place * c->channels + column);
    if (sum < end->lo) sum = end->lo;
    if (sum > end->hi) sum = end->hi;
    if (end->act) {
      float y = (float)sum;
      itg_bend(end, &y, 1, column, 1);
      sum = y;
    }
    if (residual && end->add_last)
      sum += itg_load_f64(out->dtype, residual->data, place * c->channels + column);
    itg_store_f64(out->dtype, out->data, place * c->channels + column, sum);
  }
}

static void plain(const itg_call *call, const itg_conv *c, const itg_finish *end, uint32_t part,
                  uint32_t parts) {
  int64_t i, to;
  if (c->per == 0) return;
  itg_share(c->batch * itg_places(c->w.out) * c->groups, 1, part, parts, &i, &to);
  for (; i < to; i++) {
    int64_t rest = i / c->groups, o[ITG_AXES];
    for (int d = ITG_AXES - 1; d >= 0; d--) {
      o[d] = rest % c->w.out[d];
      rest /= c->w.out[d];
    }
    pixel(call, c, end, rest, o, i % c->groups);
  }
}

itg_words itg_conv_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  itg_conv c;
  itg_tensor out;
  const itg_attrs_conv *a = call->attrs;
  itg_conv_of(call, &c, &out);
  const itg_finish end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  plain(call, &c, &end, part, parts);
  return NULL;
}

itg_words itg_conv_transpose_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  itg_conv c;
  itg_tensor out;
  const itg_attrs_conv_transpose *a = call->attrs;
  itg_conv_transpose_of(call, &c, &out);
  const itg_finish end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  plain(call, &c, &end, part, parts);
  return NULL;
}
