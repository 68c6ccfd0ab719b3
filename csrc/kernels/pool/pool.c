// Pooling of channel-last f32, bf16 and f16 images; vectors run along channels.
#define ITG_VLH 32
#include "pool.h"
#include "vec_half.h"

typedef struct task {
  itg_window w;
  int64_t channels, p;
  bool count_pad;
} task;

typedef struct patch {            // the part of a window that lies on the image
  int64_t from;                   // where it begins, in elements of the image
  int64_t planes, lines, pixels;  // taps along each axis
  int64_t plane, line, pixel;     // elements from one to the next
} patch;

INLINE vf power(vf x, int64_t p) {  // |x|^p
  vf a = vabs(x), y = a;
  for (int64_t i = 1; i < p; i++) y = vmul(y, a);
  return y;
}

enum { F32, BF16, F16 };  // what `small` says
INLINE vf get(const void *p, int64_t at, int64_t n, const int small) {
  if (small == F16) return vsome_f16((const uint16_t *)p + at, n);
  if (small) return vsome_bf16((const uint16_t *)p + at, n);
  return n >= VL ? vload((const float *)p + at) : vloadn((const float *)p + at, n);
}
INLINE void put(void *p, int64_t at, int64_t n, vf y, const int small) {
  if (small == F16) vkeep_f16((uint16_t *)p + at, n, y);
  else if (small) vkeep_bf16((uint16_t *)p + at, n, y);
  else if (n >= VL) vstore((float *)p + at, y);
  else vstoren((float *)p + at, n, y);
}

INLINE vf one_vector(const patch *s, const void *image, int64_t c, int64_t n, const int kind,
                     int64_t p, const int small) {
  vf y = vset(kind == ITG_POOL_MAX ? -INFINITY : 0.f);
  vm none = vlt(y, y);  // where a NaN was seen: it stays
  for (int64_t i = 0; i < s->planes; i++)
    for (int64_t j = 0; j < s->lines; j++) {
      int64_t at = s->from + i * s->plane + j * s->line + c;
      for (int64_t k = 0; k < s->pixels; k++, at += s->pixel) {
        const vf x = get(image, at, n, small);
        if (kind == ITG_POOL_MAX) {
          none = vor(none, visnan(x));
          y = vmax(x, y);  // never NaN
        } else y = vadd(y, kind == ITG_POOL_AVG ? x : power(x, p));
      }
    }
  return kind == ITG_POOL_MAX ? vselect(none, vset(NAN), y) : y;
}

// Pools n channels of one output pixel; `count` is the divisor of a mean.
INLINE void channels_of(const task *t, const patch *s, const void *image, float count, void *out,
                        int64_t at, int64_t c, int64_t n, const int kind, const int small) {
  vf y = one_vector(s, image, c, n, kind, t->p, small);
  if (kind == ITG_POOL_AVG) y = vdiv(y, vset(count));
  if (kind == ITG_POOL_LP && t->p > 1) {
    float root[VL];
    vstore(root, y);
    for (int64_t i = 0; i < n; i++)
      root[i] = t->p == 2 ? sqrtf(root[i]) : powf(root[i], 1.f / (float)t->p);
    y = vload(root);
  }
  put(out, at + c, n, y, small);
}

#if defined(ITG_HALVES)
// Maxima of f16 by comparisons of f16.
INLINE void most_of(const task *t, const patch *s, const uint16_t *image, uint16_t *out, int64_t c,
                    int64_t n) {
  vh y = hset(-INFINITY);
  for (int64_t i = 0; i < s->planes; i++)
    for (int64_t j = 0; j < s->lines; j++) {
      int64_t at = s->from + i * s->plane + j * s->line + c;
      for (int64_t k = 0; k < s->pixels; k++, at += s->pixel) y = hmax(y, hsome(image + at, n));
    }
  hkeep(out + c, n, y);
}
#endif

INLINE void one_pixel(const task *t, const patch *s, const void *image, float count, void *out,
                      int64_t at, const int kind, const int small) {
  int64_t c = 0;
#if defined(ITG_HALVES)
  if (kind == ITG_POOL_MAX) {
    for (; c + VLH <= t->channels; c += VLH) most_of(t, s, image, (uint16_t *)out + at, c, VLH);
    if (c < t->channels) most_of(t, s, image, (uint16_t *)out + at, c, t->channels - c);
    return;
  }
#endif
  for (; c + VL <= t->channels; c += VL)
    channels_of(t, s, image, count, out, at, c, VL, kind, small);
  if (c < t->channels) channels_of(t, s, image, count, out, at, c, t->channels - c, kind, small);
}

// Computes output rows [row, end).
INLINE void rows(const task *t, const void *image, void *out, int64_t row, int64_t end,
                 const int kind, const int small) {
  const itg_window *w = &t->w;
  for (; row < end; row++) {
    const int64_t y = row % w->out[1] * w->stride[1] - w->before[1];
    const int64_t z = row / w->out[1] % w->out[0] * w->stride[0] - w->before[0],
                  batch = row / w->out[1] / w->out[0];
    int64_t z0, z1, y0, y1, x0, x1;
    itg_taps_inside(w, 0, z, &z0, &z1);
    itg_taps_inside(w, 1, y, &y0, &y1);
    const int64_t pixel = t->channels, line = w->in[2] * pixel, plane = w->in[1] * line;
    const int64_t base =
        (batch * w->in[0] + z + z0 * w->dilation[0]) * plane + (y + y0 * w->dilation[1]) * line;
    patch s = {0,
               z1 - z0,
               y1 - y0,
               0,
               w->dilation[0] * plane,
               w->dilation[1] * line,
               w->dilation[2] * pixel};
    for (int64_t i = 0; i < w->out[2]; i++) {
      const int64_t x = i * w->stride[2] - w->before[2];
      itg_taps_inside(w, 2, x, &x0, &x1);
      s.pixels = x1 - x0;
      const bool any = s.planes > 0 && s.lines > 0 && s.pixels > 0;
      if (any) s.from = base + (x + x0 * w->dilation[2]) * pixel;
      else s.planes = 0;
      const int64_t count = t->count_pad ? itg_taps(w) : any ? s.planes * s.lines * s.pixels : 1;
      one_pixel(t, &s, image, (float)count, out, (row * w->out[2] + i) * t->channels, kind, small);
      s.planes = z1 - z0;
    }
  }
}

INLINE void pool(const itg_call *call, uint32_t part, uint32_t parts, const int small) {
  const itg_attrs_pool *a = call->attrs;
  task t = {.p = a->p, .count_pad = a->count_include_pad != 0};
  itg_tensor type;
  itg_pool_of(call, &t.w, &type);
  t.channels = type.shape[type.rank - 1];
  if (!itg_count(&type)) return;
  const void *image = call->in[0]->data;
  void *out = call->out[0]->data;
  int64_t from, to;
  itg_share(type.shape[0] * t.w.out[0] * t.w.out[1], 1, part, parts, &from, &to);
  if (a->kind == ITG_POOL_MAX) rows(&t, image, out, from, to, ITG_POOL_MAX, small);
  else if (a->kind == ITG_POOL_AVG) rows(&t, image, out, from, to, ITG_POOL_AVG, small);
  else rows(&t, image, out, from, to, ITG_POOL_LP, small);
}

#if !defined(ITG_HALVES)
ITG_FN(pool, f32) {
  pool(call, part, parts, F32);
  return NULL;
}

ITG_FN(pool, bf16) {
  pool(call, part, parts, BF16);
  return NULL;
}
#endif

ITG_FN(pool, f16) {
  pool(call, part, parts, F16);
  return NULL;
}
