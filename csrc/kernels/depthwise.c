// Convolution of a channel-last f32 image in which each channel has a window of its own; vectors run along channels.
#include "activate.h"
#include "tile.h"
#include "vec.h"
#include "window.h"

itg_words itg_depthwise_of(const itg_call *call, itg_window *w, itg_tensor *out);


ITG_FN(depthwise, f32) {
  const itg_attrs_depthwise *a = call->attrs;
  itg_window w;
  itg_tensor type;
  itg_depthwise_of(call, &w, &type);
  const itg_finish end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  const int64_t channels = type.shape[type.rank - 1];
  const float *image = call->in[0]->data, *weights = call->in[1]->data;
  int64_t i, to;
  if (channels == 0) return NULL;
  itg_share(type.shape[0] * itg_places(w.out), 1, part, parts, &i, &to);
  for (; i < to; i++) {
    float *out = (float *)call->out[0]->data + i * channels;
    const float *residual = end.residual ? end.residual + i * channels : NULL;
    int64_t z = i / w.out[2] / w.out[1] % w.out[0] * w.stride[0] - w.before[0];
    int64_t y = i / w.out[2] % w.out[1] * w.stride[1] - w.before[1], x = i % w.out[2] * w.stride[2] - w.before[2];
    const float *picture = image + i / itg_places(w.out) * itg_places(w.in) * channels;
    for (int64_t c = 0; c < channels; c += VL) {
      const int64_t n = channels - c < VL ? channels - c : VL;
      vf sum = !end.bias ? vset(0.f) : n == VL ? vload(end.bias + c) : vloadn(end.bias + c, n);
      for (int64_t k = 0; k < w.kernel[0]; k++)
        for (int64_t j = 0; j < w.kernel[1]; j++)
          for (int64_t l = 0; l < w.kernel[2]; l++) {
            int64_t iz = z + k * w.dilation[0], iy = y + j * w.dilation[1], ix = x + l * w.dilation[2];
            if (iz < 0 || iz >= w.in[0] || iy < 0 || iy >= w.in[1] || ix < 0 || ix >= w.in[2]) continue;
            const float *p = picture + ((iz * w.in[1] + iy) * w.in[2] + ix) * channels + c;
            const float *q = weights + ((k * w.kernel[1] + j) * w.kernel[2] + l) * channels + c;
            if (n == VL) sum = vadd(sum, vmul(vload(p), vload(q)));
            else sum = vadd(sum, vmul(vloadn(p, n), vloadn(q, n)));
          }
      vf r = !residual ? vset(0.f) : n == VL ? vload(residual + c) : vloadn(residual + c, n);
      if (!end.add_last) sum = vadd(sum, r);
      sum = vmin(vset(end.hi), vmax(vset(end.lo), sum));
      if (end.add_last && !end.act) sum = vadd(sum, r);
      if (n == VL) vstore(out + c, sum);
      else vstoren(out + c, n, sum);
    }
    if (end.act) {
      end.act(out, channels, end.args);
      if (residual && end.add_last)
        for (int64_t c = 0; c < channels; c++) out[c] += residual[c];
    }
  }
  return NULL;
}
