// Pooling of channel-last f32 images; vectors run along channels.
#include "vec.h"
#include "window.h"

enum { MAX, AVG, LP };
itg_words itg_pool_of(const itg_call *call, itg_window *w, itg_tensor *out);

static inline vf first(const float *p, int64_t n) { return n >= VL ? vload(p) : vloadn(p, n); }

static vf power(vf x, int64_t p) {  // |x|^p
  vf a = vabs(x), y = a;
  for (int64_t i = 1; i < p; i++) y = vmul(y, a);
  return y;
}

ITG_FN(pool, f32) {
  const itg_attrs_pool *a = call->attrs;
  itg_window w;
  itg_tensor type;
  itg_pool_of(call, &w, &type);
  const int64_t channels = type.shape[type.rank - 1];
  int64_t i, to;
  if (!itg_count(&type)) return NULL;
  itg_share(type.shape[0] * itg_places(w.out), 1, part, parts, &i, &to);
  for (; i < to; i++) {
    float *out = (float *)call->out[0]->data + i * channels;
    const float *picture = (const float *)call->in[0]->data + i / itg_places(w.out) * itg_places(w.in) * channels;
    const int64_t o[ITG_AXES] = {i / w.out[2] / w.out[1] % w.out[0], i / w.out[2] % w.out[1], i % w.out[2]};
    int64_t from[ITG_AXES], begin[ITG_AXES], end[ITG_AXES], inside = 1;  // the taps that meet the image
    for (int d = 0; d < ITG_AXES; d++) {
      from[d] = o[d] * w.stride[d] - w.before[d];
      itg_taps_inside(&w, d, from[d], &begin[d], &end[d]);
      inside *= end[d] > begin[d] ? end[d] - begin[d] : 0;
    }
    const float count = (float)(a->count_include_pad ? itg_taps(&w) : inside ? inside : 1);
    for (int64_t c = 0; c < channels; c += VL) {
      const int64_t n = channels - c;
      vf y = vset(a->kind == MAX ? -INFINITY : 0.f);
      for (int64_t k = begin[0]; k < end[0]; k++)
        for (int64_t j = begin[1]; j < end[1]; j++) {
          int64_t line = ((from[0] + k * w.dilation[0]) * w.in[1] + from[1] + j * w.dilation[1]) * w.in[2];
          for (int64_t l = begin[2]; l < end[2]; l++) {
            vf x = first(picture + (line + from[2] + l * w.dilation[2]) * channels + c, n);
            if (a->kind == MAX) y = vselect(vne(y, y), y, vmax(y, x));  // a NaN stays
            else y = vadd(y, a->kind == AVG ? x : power(x, a->p));
          }
        }
      if (a->kind == AVG) y = vdiv(y, vset(count));
      if (n >= VL) vstore(out + c, y);
      else vstoren(out + c, n, y);
    }
    if (a->kind == LP && a->p > 1)
      for (int64_t c = 0; c < channels; c++) out[c] = a->p == 2 ? sqrtf(out[c]) : powf(out[c], 1.f / (float)a->p);
  }
  return NULL;
}
