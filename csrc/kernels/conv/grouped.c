// Grouped convolution of channel-last f32 images with windows three pixels wide. A vector holds VL
// output channels of one pixel; a strip is up to 7 pixels of a line, as in depthwise.c. The
// products run over the lines of the window and the input channels j of a group. Registers
// meanwhile:
//   sum[p]   pixel p of the strip, VL output channels
//   f[k]     weights of column k of the window: from channel j to these output channels
//   x        channel j of one input pixel; each lane has the channel of its own group. If a group
//            has at least VL output channels, x is one number for all lanes. Otherwise a vector
//            covers several groups, and x is a permutation of the pixel's channels. x is multiplied
//            by every f[k] whose window covers the pixel.
#include "grouped.h"
#include "vec.h"

#if defined(ISA_avx512)
#define KEEP(x) \
  __asm__("" : "+v"(x))  // keeps it in a register; GCC would broadcast it for every use
#define permute(v, index) _mm512_permutexvar_ps(index, v)
#define lane_numbers() _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#elif defined(ISA_avx2)
#define KEEP(x) __asm__("" : "+v"(x))
#define permute(v, index) _mm256_permutevar8x32_ps(v, index)
#define lane_numbers() _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
#elif defined(ISA_neon)
#define KEEP(x) __asm__("" : "+w"(x))
static inline vf permute(vf v, vi index) {  // bytes 4 i to 4 i + 3 of lane i
  const uint32x4_t bytes = vmlaq_n_u32(viset(0x03020100), index, 0x04040404);
#if defined(ISA_armv7)
  const uint8x16_t at = vreinterpretq_u8_u32(bytes), from = vreinterpretq_u8_f32(v);
  const uint8x8x2_t table = {{vget_low_u8(from), vget_high_u8(from)}};
  return vreinterpretq_f32_u8(
      vcombine_u8(vtbl2_u8(table, vget_low_u8(at)), vtbl2_u8(table, vget_high_u8(at))));
#else
  return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(v), vreinterpretq_u8_u32(bytes)));
#endif
}
static inline vi lane_numbers(void) {
  static const uint32_t lane[4] = {0, 1, 2, 3};
  return vld1q_u32(lane);
}
#elif defined(ISA_rvv)
#define KEEP(x)
#define permute(v, index) vpermute(v, index)
static inline vi lane_numbers(void) {
  return (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}
#else
#define KEEP(x)
#define permute(v, index) (v)
#define lane_numbers() viset(0)
#endif
enum {
  K = ITG_GROUPED_WIDTH,
  PIXELS = 7,  // output pixels of a strip
  SHORT = 4,   // output pixels of a strip at the end of a line
};

typedef struct task {
  itg_grouped g;
  itg_finish end;
  const float *image, *weights;
  float *out;
} task;

typedef struct strip {  // neighbouring output pixels of one line; `count` strips follow each other
  int64_t lines;        // lines of the window that lie inside the image
  int64_t weight;       // offset of the weights of the first of these lines in a panel
  int64_t image, out;   // offsets of the first input and output pixel
  int64_t first, last;  // input pixels [first, last), counted from the first, lie inside the image
  int64_t pixels;       // output pixels that are stored
  int64_t count, step;  // strips; input pixels from one strip to the next
} strip;

// Applies an activation other than bounds, one call for the whole strip.
static __attribute__((noinline)) void finish_more(const task *t, int64_t at, int64_t c, float *sums,
                                                  int64_t pixels) {
  const itg_finish *end = &t->end;
  const float *residual = (const float *)end->residual;
  for (int64_t i = 0; residual && !end->add_last && i < pixels; i++)
    vstore(sums + i * VL, vadd(vload(sums + i * VL), vload(residual + at + i * t->g.channels)));
  itg_bend(end, sums, pixels * VL, c, VL);
  for (int64_t i = 0; i < pixels; i++, at += t->g.channels) {
    const vf y = vload(sums + i * VL);
    vstore(t->out + at, residual && end->add_last ? vadd(y, vload(residual + at)) : y);
  }
}

INLINE void finish(const task *t, int64_t at, int64_t c, vf *sum, const int P, int64_t pixels) {
  const itg_finish *end = &t->end;
  const float *residual = (const float *)end->residual;
  if (end->act) {
    float sums[PIXELS * VL];
    FOR_UNROLLED (32, int p = 0; p < P; p++) vstore(sums + p * VL, sum[p]);
    finish_more(t, at, c, sums, pixels);
    return;
  }
  const vf lo = vset(end->lo), hi = vset(end->hi);
  FOR_UNROLLED (32, int p = 0; p < P; p++) {
    if (p >= pixels) break;
    vf y = sum[p];
    if (residual && !end->add_last) y = vadd(y, vload(residual + at));
    y = vmin(hi, vmax(lo, y));
    if (residual && end->add_last) y = vadd(y, vload(residual + at));
    vstore(t->out + at, y);
    at += t->g.channels;
  }
}

// Computes VL output channels from c on of P pixels. S: stride; SIDE: a vector covers several
// groups.
INLINE void pixels(const task *t, const strip *s, int64_t c, const int P, const int S,
                   const int SIDE) {
  const int64_t deep = t->g.deep, pitch = t->g.inputs, first = s->first, last = s->last;
  const int64_t panel = t->g.w.kernel[1] * deep * K * ITG_PANEL;
  const float *weight = t->weights + c / ITG_PANEL * panel + c % ITG_PANEL + s->weight;
  const float *line = t->image + s->image + (SIDE ? c : c / t->g.per * deep);
  const vi group = SIDE ? viand(lane_numbers(), viset((int)-t->g.per))
                        : viset(0);  // the first channel of a lane's group
  vf sum[PIXELS];
  sum[0] = t->end.bias ? vload(t->end.bias + c) : vset(0.f);
  FOR_UNROLLED (32, int p = 1; p < P; p++) sum[p] = sum[0];
  for (int64_t i = 0; i < s->lines; i++, line += t->g.w.in[2] * pitch)
    for (int64_t j = 0; j < deep; j++, weight += K * ITG_PANEL) {
      const vi index = viadd(group, viset((int)j));
      (void)index;  // plain C has no lanes to permute
      const float *pixel = SIDE ? line : line + j;
      vf f[K];
      FOR_UNROLLED (32, int k = 0; k < K; k++) f[k] = vload(weight + k * ITG_PANEL);
      FOR_UNROLLED (32, int q = 0; q < (P - 1) * S + K; q++, pixel += pitch) {
        if (q < first || q >= last) continue;
        vf x = SIDE ? permute(vload(pixel), index) : vset(*pixel);
        KEEP(x);
        FOR_UNROLLED (32, int k = 0; k < K; k++)
          if ((q - k) % S == 0 && q >= k && (q - k) / S < P)
            sum[(q - k) / S] = vmadd(x, f[k], sum[(q - k) / S]);
      }
    }
  finish(t, s->out + c, c, sum, P, s->pixels);
}

#define STRIP(P, S, SIDE)                                                                   \
  static void strip_##P##_##S##_##SIDE(const task *task_, const strip *strip_, int64_t c) { \
    const task t = *task_; /* copies, which no store can alias */                           \
    strip s = *strip_;                                                                      \
    for (int64_t i = s.count; i > 0; i--) {                                                 \
      pixels(&t, &s, c, P, S, SIDE);                                                        \
      s.image += s.step * t.g.inputs;                                                       \
      s.out += P * t.g.channels;                                                            \
      s.first -= s.step;                                                                    \
      s.last -= s.step;                                                                     \
    }                                                                                       \
  }
#define EACH(D, SIDE) D(4, 1, SIDE) D(7, 1, SIDE) D(4, 2, SIDE) D(7, 2, SIDE)
EACH(STRIP, 0)
#ifdef ITG_VECTORS
EACH(STRIP, 1)
#endif

typedef void (*strip_fn)(const task *t, const strip *s, int64_t c);

static strip_fn strip_for(const itg_grouped *g, bool full) {
  static const strip_fn fns[2][2][2] = {
      // [SIDE][stride 2][full strip]
      {{strip_4_1_0, strip_7_1_0}, {strip_4_2_0, strip_7_2_0}},
#ifdef ITG_VECTORS
      {{strip_4_1_1, strip_7_1_1}, {strip_4_2_1, strip_7_2_1}},
#endif
  };
  return fns[g->per < VL][g->w.stride[2] == 2][full];
}

// One line of output pixels, channels [from, to).
static void run_line(const task *t, int64_t row, int64_t from, int64_t to) {
  const itg_grouped *g = &t->g;
  const itg_window *w = &g->w;
  const int64_t batch = row / w->out[1], iy = row % w->out[1] * w->stride[1] - w->before[1];
  int64_t y0, y1;
  itg_taps_inside(w, 1, iy, &y0, &y1);
  const int64_t line = (batch * w->in[1] + iy + y0) * w->in[2], width = w->out[2],
                full = width / PIXELS;
  strip s = {.lines = y1 - y0, .weight = y0 * g->deep * K * ITG_PANEL};
  for (int64_t c = from; c < to; c += VL)
    for (int end = 0; end < 2; end++) {  // full strips, then the end of the line
      const int64_t p = end ? full * PIXELS : 0, x = p * w->stride[2] - w->before[2];
      s.pixels = end ? width % PIXELS : PIXELS;
      s.count = end ? s.pixels > 0 : full;
      s.step = s.pixels * w->stride[2];
      s.image = (line + x) * g->inputs;
      s.out = (row * width + p) * g->channels;
      s.first = -x;
      s.last = w->in[2] - x;
      if (s.count) strip_for(g, s.pixels > SHORT)(t, &s, c);
    }
}

ITG_FN(grouped_conv, f32) {
  const itg_attrs_grouped_conv *a = call->attrs;
  task t;
  itg_tensor type;
  itg_grouped_of(call, &t.g, &type);
  if (!itg_count(&type)) return NULL;
  t.end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  t.image = call->in[0]->data;
  t.weights = call->in[1]->data;
  t.out = call->out[0]->data;
  int64_t row = 0, end = type.shape[0] * t.g.w.out[1], from = 0, to = t.g.channels;
  if (end >= 8 * (int64_t)parts) itg_share(end, 1, part, parts, &row, &end);
  else itg_share(to, ITG_PANEL, part, parts, &from, &to);
  for (; row < end; row++) run_line(&t, row, from, to);
  return NULL;
}
