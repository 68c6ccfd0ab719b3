// Types, shapes and refusals of the 8-bit convolutions.
#include "qconv.h"

// Operands are the image, the weights, the bias per channel (with the input's zero folded in) and
// the scale per channel. Zeros and bounds are attributes.
static itg_words operands(const itg_call *call, int64_t channels, int64_t x_zero, int64_t y_zero,
                          int64_t lo, int64_t hi, int64_t dtype, itg_tensor *out) {
  TAKES(4, 4, 1);
  const itg_tensor *x = call->in[0], *w = call->in[1], *bias = call->in[2], *scale = call->in[3];
  REFUSE((x->dtype != ITG_U8 && x->dtype != ITG_I8) || w->dtype != ITG_I8,
         "takes an 8-bit image and weights of i8");
  REFUSE(channels < 0 || channels > INT64_C(1) << 40, "the number of channels is not sane");
  REFUSE(bias->dtype != ITG_I32 || !itg_has_shape(bias, 1, &channels),
         "the bias must be one i32 per output channel");
  REFUSE(scale->dtype != ITG_F32 || !itg_has_shape(scale, 1, &channels),
         "the scale must be one f32 per output channel");
  REFUSE(dtype != ITG_U8 && dtype != ITG_I8, "the result must be u8 or i8");
  const int64_t low = dtype == ITG_I8 ? -128 : 0, high = low + 255,
                first = x->dtype == ITG_I8 ? -128 : 0;
  REFUSE(x_zero < first || x_zero > first + 255, "x_zero is no number of the image's type");
  REFUSE(y_zero < low || y_zero > high, "y_zero is no number of the result's type");
  REFUSE(lo < low || hi > high || lo > hi,
         "the bounds are no numbers of the result's type in order");
  itg_copy_type(out, x);
  out->dtype = (uint8_t)dtype;
  out->shape[out->rank - 1] = channels;
  return NULL;
}

// Checks the operands of the requantisation: bias, scale, table, and zeros or second parts of the
// weights.
itg_words itg_qconv_endings(const itg_call *call, const itg_attrs_qconv *a, uint8_t weights,
                            itg_tensor *out) {
  TAKES(3, 11, 1);
  const itg_tensor *x = call->in[0], *w = call->in[1], *bias = call->in[2],
                   *scale = itg_input(call, 3);
  const itg_tensor *table = itg_input(call, 5), *zeros = itg_input(call, 6),
                   *second = itg_input(call, ITG_QCONV_SECOND);
  const int64_t channels = a->channels, dtype = a->dtype;
  REFUSE((x->dtype != ITG_U8 && x->dtype != ITG_I8) || w->dtype != weights,
         weights == ITG_I8    ? "takes an 8-bit image and weights of i8"
         : weights == ITG_I16 ? "takes an 8-bit image and weights of i16"
                              : "takes an 8-bit image and packed signs of u32");
  REFUSE(channels < 0 || channels > INT64_C(1) << 40, "the number of channels is not sane");
  REFUSE(bias->dtype != ITG_I32 || !itg_has_shape(bias, 1, &channels),
         "the bias must be one i32 per output channel");
  REFUSE(zeros && (zeros->dtype != ITG_I32 || !itg_has_shape(zeros, 1, &channels)),
         "the zeros of the weights must be one i32 per output channel");
  REFUSE(second && (second->dtype != ITG_I32 || second->rank != 1 || zeros),
         "the rows with second parts must be a list of i32, of weights without zeros");
  const int64_t first = x->dtype == ITG_I8 ? -128 : 0;
  REFUSE(a->x_zero < first || a->x_zero > first + 255, "x_zero is no number of the image's type");
  itg_copy_type(out, x);
  out->dtype = (uint8_t)dtype;
  out->shape[out->rank - 1] = channels;
  if (dtype == ITG_I32) {
    REFUSE(scale || itg_input(call, 4) || table, "sums have no scale, residual or table");
    return NULL;
  }
  REFUSE(!scale || scale->dtype != ITG_F32 || !itg_has_shape(scale, 1, &channels),
         "the scale must be one f32 per output channel");
  if (dtype == ITG_F32) {
    REFUSE(table, "a table is for results of bytes");
    return NULL;
  }
  REFUSE(dtype != ITG_U8 && dtype != ITG_I8, "the result must be u8, i8, i32 or f32");
  const int64_t low = table ? -32768 : dtype == ITG_I8 ? -128 : 0, high = table ? 65535 : low + 255;
  REFUSE(a->y_zero < low || a->y_zero > high, "y_zero is no number of the result's type");
  REFUSE(a->lo < low || a->hi > high || a->lo > a->hi,
         "the bounds are no numbers of the result's type in order");
  REFUSE(a->r_zero < -128 || a->r_zero > 255, "r_zero is no number of eight bits");
  const int64_t all = a->hi - a->lo + 1;
  const int64_t lines[2][2] = {{3, 128}, {3, 256}};
  REFUSE(table && (table->dtype != dtype || all > ITG_QENTRIES ||
                   !(itg_has_shape(table, 1, &all) || itg_has_shape(table, 2, lines[0]) ||
                     itg_has_shape(table, 2, lines[1]))),
         "the table must be one entry of the result per number between the bounds, or 128 or 256 "
         "pieces of lines");
  return NULL;
}

itg_words itg_qconv_residual(const itg_call *call, const itg_attrs_qconv *a,
                             const itg_tensor *out) {
  const itg_tensor *residual = itg_input(call, 4);
  const uint8_t bytes = residual ? residual->dtype : 0;
  REFUSE(residual && !itg_has_shape(residual, out->rank, out->shape),
         "the residual has not the result's shape");
  REFUSE(residual && (a->dtype == ITG_F32 ? bytes != ITG_F32 : bytes != ITG_U8 && bytes != ITG_I8),
         "the residual must be f32 where the result is, and bytes where those are");
  return NULL;
}

// Checks zero point and scale of the image if they are inputs.
static itg_words dynamic(const itg_call *call, const itg_attrs_qconv *a, bool *given) {
  const itg_tensor *zero = itg_input(call, ITG_QCONV_ZERO),
                   *scale = itg_input(call, ITG_QCONV_SCALE),
                   *sums = itg_input(call, ITG_QCONV_SUMS);
  *given = zero;
  REFUSE(!zero != !scale || !zero != !sums, "zero, scale and sums belong together");
  if (!zero) return NULL;
  const int64_t channels = a->channels;
  REFUSE(a->dtype != ITG_F32, "a scale known at run time needs results of f32");
  REFUSE(zero->dtype != call->in[0]->dtype || !itg_has_shape(zero, 1, call->in[0]->shape),
         "there must be one zero of the image's type per image");
  REFUSE(scale->dtype != ITG_F32 || !itg_has_shape(scale, 1, call->in[0]->shape),
         "there must be one f32 scale per image");
  REFUSE(sums->dtype != ITG_I32 || !itg_has_shape(sums, 1, &channels),
         "the sums must be one i32 per output channel");
  return NULL;
}

itg_words itg_qconv_of(const itg_call *call, itg_qconv *c, itg_tensor *out) {
  const itg_attrs_qconv *a = call->attrs;
  itg_words words = itg_qconv_endings(call, a, ITG_I8, out);
  if (!words) words = dynamic(call, a, &c->dynamic);
  if (words) return words;
  const itg_tensor *x = call->in[0], *w = call->in[1];
  words = itg_window_of(x, 1, x->rank - 2, a->kernel, a->stride, a->dilation, a->pad, &c->w);
  if (words) return words;
  c->batch = x->shape[0];
  c->channels = a->channels;
  c->groups = a->groups;
  c->flip = x->dtype == ITG_I8 ? 0x80 : 0;
  c->fill = (uint8_t)a->x_zero;
  REFUSE(c->groups < 1 || c->channels % c->groups, "the groups do not divide the output channels");
  REFUSE(x->shape[x->rank - 1] % c->groups || x->shape[x->rank - 1] < 1,
         "the groups do not divide the input channels");
  c->deep = x->shape[x->rank - 1] / c->groups;
  c->per = c->channels / c->groups;
  c->panels = c->per / ITG_PANEL + (c->per % ITG_PANEL != 0);
  REFUSE(c->deep > INT64_C(1) << 31, "the image is absurdly deep");
  REFUSE(a->run < ITG_QRUN_TAP || a->run > ITG_QRUN_WINDOW,
         "the runs are of no kind that there is");
  c->joined = (enum itg_qrun)a->run;
  REFUSE(c->joined != ITG_QRUN_TAP && (c->groups != 1 || c->w.dilation[2] != 1),
         "taps that lie together need one group and no dilation");
  const int64_t together = c->joined == ITG_QRUN_TAP    ? 1
                           : c->joined == ITG_QRUN_LINE ? c->w.kernel[2]
                                                        : itg_taps(&c->w);
  c->run = c->deep * together;
  c->runs = itg_taps(&c->w) / together;
  c->fours = (c->run + ITG_FOUR - 1) / ITG_FOUR;
  REFUSE(c->joined == ITG_QRUN_WINDOW && c->deep * c->w.kernel[2] > ITG_QROW,
         "a line of the window is too long to join");
  const itg_tensor *second = itg_input(call, ITG_QCONV_SECOND);
  c->second = second ? itg_count(second) : 0;
  c->rows = c->runs * c->fours + c->second;
  const int64_t want[4] = {c->groups, c->panels, c->rows, ITG_QROW};
  REFUSE(!itg_has_shape(w, 4, want), "the weights are not packed for this convolution");
  words = itg_slide(&c->w, 1, out->rank - 2, a->pad, out);
  if (words) return words;
  c->direct = true;
  for (int i = 0; i < ITG_AXES; i++)
    c->direct &=
        c->w.kernel[i] == 1 && !c->w.before[i] && (c->w.out[i] - 1) * c->w.stride[i] < c->w.in[i];
  words = itg_qconv_residual(call, a, out);
  if (words) return words;
  itg_qlayout l;
  REFUSE(!itg_empty(out) && !itg_qlayout_of(c, &l),
         "what the windows see at a time is absurdly large");
  return NULL;
}

itg_words itg_infer_qconv(const itg_call *call, itg_tensor *out) {
  itg_qconv c;
  return itg_qconv_of(call, &c, out);
}

uint64_t itg_scratch_qconv(const itg_call *call, uint32_t parts) {
  itg_qconv c;
  itg_tensor out;
  itg_qlayout l;
  if (itg_qconv_of(call, &c, &out) || itg_empty(&out) || !itg_qlayout_of(&c, &l)) return 0;
  return l.total * parts;
}

uint64_t itg_prepare_qconv(const itg_call *call, void *to) {
  itg_qconv_prepared *p = to;
  itg_tensor out;
  if (!to) return sizeof *p;
  p->empty = itg_qconv_of(call, &p->c, &out) || itg_empty(&out);
  if (p->empty) return sizeof *p;
  itg_qlayout_of(&p->c, &p->l);
  p->wide = p->c.channels > p->c.batch * itg_places(p->c.w.out) &&
            itg_count(call->in[1]) > itg_count(call->in[0]) + itg_count(&out);
  return sizeof *p;
}

itg_words itg_qdepthwise_of(const itg_call *call, itg_qdepth *d, itg_tensor *out) {
  const itg_attrs_qdepthwise *a = call->attrs;
  TAKES(4, 5, 1);
  const itg_tensor *x = call->in[0], *w = call->in[1], *table = itg_input(call, 4);
  REFUSE(x->rank < 3 || x->rank > 5, "takes an image [n, .., c]");
  const int64_t channels = x->shape[x->rank - 1];
  itg_call four = *call;  // without the table, which is checked below
  four.n_in = 4;
  itg_words words = operands(&four, channels, a->x_zero, a->y_zero, a->lo, a->hi, a->dtype, out);
  itg_window v;
  if (!words)
    words = itg_window_of(x, 1, x->rank - 2, a->kernel, a->stride, a->dilation, a->pad, &v);
  if (!words) words = itg_slide(&v, 1, out->rank - 2, a->pad, out);
  if (!words) words = itg_qdepth_of(&v, channels, d);
  if (words) return words;
  const int64_t once = d->outs * d->high * d->wide;
  d->parts = w->rank == 3 && w->shape[1] == 2 * once ? 2 : 1;
  const int64_t want[3] = {d->blocks, d->parts * once, ITG_QPLACE};
  REFUSE(!itg_has_shape(w, 3, want), "the weights are not packed for this convolution");
  const int64_t bytes = 256;
  REFUSE(table && ((table->dtype != ITG_U8 && table->dtype != ITG_I8) ||
                   !itg_has_shape(table, 1, &bytes)),
         "the table must be 256 bytes");
  if (table) out->dtype = table->dtype;
  return NULL;
}

itg_words itg_infer_qdepthwise(const itg_call *call, itg_tensor *out) {
  itg_qdepth d;
  return itg_qdepthwise_of(call, &d, out);
}

uint64_t itg_scratch_qdepthwise(const itg_call *call, uint32_t parts) {
  itg_qdepth d;
  itg_tensor out;
  if (itg_qdepthwise_of(call, &d, &out) || !itg_count(&out)) return 0;
  return d.total * parts;
}

uint64_t itg_prepare_qdepthwise(const itg_call *call, void *to) {
  itg_qdepth_prepared *p = to;
  itg_tensor out;
  if (!to) return sizeof *p;
  p->empty = itg_qdepthwise_of(call, &p->d, &out) || itg_empty(&out);
  p->batch = call->in[0]->shape[0];
  return sizeof *p;
}
