// Types, shapes and refusals of depthwise separable convolution, and the height of its bands.
#include "separable.h"

enum { NEAR = 64 << 10 };             // floats of intermediate results that the L2 cache keeps
enum { PIXELS = 8 * ITG_TILE_ROWS };  // pixels of a band that make the products efficient

// Computes the floats of the ring buffer and of a band after the depthwise convolution; false if a
// size overflows.
static bool sizes(itg_separable *s, bool expands) {
  const itg_window *w = &s->w;
  s->ring = expands ? (s->band - 1) * w->stride[1] + w->kernel[1] : 0;
  if (s->ring > w->in[1]) s->ring = w->in[1];
  int64_t all;
  if (__builtin_mul_overflow(w->in[2] * s->ring, s->middle, &s->kept)) return false;
  if (__builtin_mul_overflow(w->out[2] * s->band, s->middle, &s->made)) return false;
  s->kept = (s->kept + ITG_PANEL - 1) / ITG_PANEL * ITG_PANEL;
  s->made = (s->made + ITG_PANEL - 1) / ITG_PANEL * ITG_PANEL;
  if (__builtin_add_overflow(s->kept, s->made, &all) || all > INT64_C(1) << 40) return false;
  s->bytes = (uint64_t)all * sizeof(float);
  return true;
}

// The height of a band, and memory for it. A smaller image never needs more memory than a larger
// one, because what a band may take depends on its image by one line alone.
static bool fit(itg_separable *s, bool expands) {
  const int64_t *stride = s->w.stride;
  const int64_t step = stride[1] < 8 && stride[2] < 8 ? stride[1] * stride[2] : 64;
  s->band = 1;
  if (!sizes(s, expands)) return false;
  const int64_t one = s->kept + s->made;
  int64_t most = one + PIXELS * s->middle * (expands ? 1 + step : 1);
  most = (most + ITG_PANEL - 1) / ITG_PANEL * ITG_PANEL;
  if (most > NEAR) most = NEAR;
  if (most < one) most = one;
  s->band = (PIXELS + s->w.out[2] - 1) / s->w.out[2];
  if (s->band > s->w.out[1]) s->band = s->w.out[1];
  while (sizes(s, expands) && s->band > 1 && s->kept + s->made > most) s->band--;
  if (s->band == s->w.out[1]) return sizes(s, expands);
  const int64_t band = s->band;
  s->band = s->w.out[1];
  if (sizes(s, expands) && s->kept + s->made < most) most = s->kept + s->made;
  s->band = band;
  if (!sizes(s, expands)) return false;
  s->bytes = (uint64_t)most * sizeof(float);
  return true;
}

static itg_words product(const itg_tensor *w, const itg_tensor *bias, int64_t k, int64_t n,
                         int64_t panels) {
  const int64_t want[4] = {1, panels, k, ITG_PANEL};
  REFUSE(w->dtype != ITG_F32 || !itg_has_shape(w, 4, want),
         "the weights are not packed for this convolution");
  REFUSE(bias && (bias->dtype != ITG_F32 || !itg_has_shape(bias, 1, &n)),
         "a bias must have one f32 per channel");
  return NULL;
}

itg_words itg_separable_of(const itg_call *call, itg_separable *s, itg_tensor *out) {
  TAKES(2, 9, 1);
  const itg_attrs_separable *a = call->attrs;
  const itg_tensor *x = call->in[0], *taps = itg_input(call, ITG_SEPARABLE_TAPS);
  const itg_tensor *expand = itg_input(call, ITG_SEPARABLE_EXPAND),
                   *bias = itg_input(call, ITG_SEPARABLE_EXPAND_BIAS);
  const int64_t one[2] = {1, 1}, most = INT64_C(1) << 31;
  REFUSE(x->dtype != ITG_F32 || x->rank != 4, "takes f32 images of two spatial axes");
  REFUSE(!taps || taps->dtype != ITG_F32 || taps->rank != 3, "takes f32 taps [window, channels]");
  itg_words words = itg_window_of(x, 1, 2, taps->shape, a->stride, one, a->pad, &s->w);
  if (words) return words;
  s->batch = x->shape[0];
  s->deep = x->shape[3];
  s->middle = taps->shape[2];
  s->channels = a->channels;
  REFUSE(x->shape[1] < 1 || x->shape[2] < 1 || x->shape[1] > most || x->shape[2] > most,
         "the image is empty or absurdly large");
  REFUSE(s->deep < 1 || s->middle < 1 || s->deep > most || s->middle > most,
         "it has no channels or absurdly many");
  REFUSE(a->channels < 0, "the number of output channels is negative");
  REFUSE(!expand && s->middle != s->deep, "the taps have another number of channels");
  REFUSE(!expand && bias, "a bias of the expansion needs its weights");
  s->panels = a->channels / ITG_PANEL + (a->channels % ITG_PANEL != 0);
  s->wide = (s->middle + ITG_PANEL - 1) / ITG_PANEL;
  words = product(call->in[1], itg_input(call, 2), s->middle, s->channels, s->panels);
  if (!words && expand) words = product(expand, bias, s->deep, s->middle, s->wide);
  if (words) return words;
  bias = itg_input(call, ITG_SEPARABLE_TAPS_BIAS);
  REFUSE(bias && (bias->dtype != ITG_F32 || !itg_has_shape(bias, 1, &s->middle)),
         "a bias must have one f32 per channel");
  for (int i = 0; i < 2; i++) {  // only the last product has slopes of prelu
    const int64_t act = i ? a->expand_act : a->taps_act;
    REFUSE(act < 0 || act >= ITG_ACT_COUNT || act == ITG_ACT_prelu,
           "unknown activation between the products");
  }
  itg_copy_type(out, x);
  out->shape[3] = a->channels;
  words = itg_slide(&s->w, 1, 2, a->pad, out);
  if (words) return words;
  REFUSE(s->w.out[2] > most, "the output is absurdly wide");
  REFUSE(!fit(s, expand), "what lies between the products is absurdly large");
  return NULL;
}

itg_words itg_infer_separable(const itg_call *call, itg_tensor *out) {
  const itg_attrs_separable *a = call->attrs;
  itg_separable s;
  itg_words words = itg_separable_of(call, &s, out);
  return words ? words : itg_check_epilogue(call, out, a->act, a->add_last);
}

uint64_t itg_scratch_separable(const itg_call *call, uint32_t parts) {
  itg_separable s;
  itg_tensor out;
  return itg_separable_of(call, &s, &out) || !itg_count(&out) ? 0 : s.bytes * parts;
}
