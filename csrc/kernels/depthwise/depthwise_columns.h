// 3x3 depthwise convolution with stride one that moves down the image. The register tile is P
// neighbouring output pixels of three output lines (above, here, below), one vector of channels
// each. So an input line is loaded once for the three output lines that need it. It is used for
// channel counts at which the pixels of a few lines evict each other from the L1 cache. Included by
// depthwise.c.
#pragma once
#if defined(ISA_avx512)
enum { DOWN = 7 };
#elif defined(ITG_VECTORS)
enum { DOWN = 3 };
#endif
#ifdef ITG_VECTORS
typedef struct descent {
  int64_t image;  // offset of the first input pixel in the first input line
  int64_t out;    // offset of the first output pixel
  int64_t lines;  // output lines
  int64_t inside,
      end;  // the lines of input, counted from the first that is seen, that the image has
  int64_t first, last;  // input pixels [first, last), counted from the first, are inside the image
} descent;

INLINE void down(const task *t_, const descent *s_, int64_t c, int64_t n, const int P) {
  const task t = *t_;  // copies, which no store can alias
  const descent s = *s_;
  const int64_t channels = t.channels, line = t.w.in[2] * channels, first = s.first, last = s.last;
  const lanes bias = t.end.bias ? lanes_get(t.end.bias + c, n) : lanes_set(0.f);
  lanes w[9], above[DOWN], here[DOWN],
      below[DOWN];  // the lines of output that see a line of input last, second and first
  FOR_UNROLLED (32, int k = 0; k < 9; k++) w[k] = lanes_get(t.weights + k * channels + c, n);
  FOR_UNROLLED (32, int p = 0; p < P; p++) above[p] = here[p] = bias;
  const itg_element *row = t.image + s.image + c;
  int64_t out = s.out - 2 * t.w.out[2] * channels + c;
  int64_t j = 0;
#define LINE(A, B, C)                                   \
  FOR_UNROLLED (32, int p = 0; p < P; p++) C[p] = bias; \
  if (j >= s.inside && j < s.end) {                     \
    FOR_UNROLLED (32, int q = 0; q < P + 2; q++) {      \
      if (q < first || q >= last) continue;             \
      lanes x = get_element(row + q * channels, n);     \
      KEEP(x);                                          \
      FOR_UNROLLED (32, int k = 0; k < 3; k++) {        \
        if (q < k || q - k >= P) continue;              \
        A[q - k] = lanes_madd(x, w[6 + k], A[q - k]);   \
        B[q - k] = lanes_madd(x, w[3 + k], B[q - k]);   \
        C[q - k] = lanes_madd(x, w[k], C[q - k]);       \
      }                                                 \
    }                                                   \
  }                                                     \
  if (j >= 2) finish(&t, out, channels, c, n, A, P, P); \
  row += line, out += t.w.out[2] * channels;            \
  if (++j == s.lines + 2) break;
  for (;;) {
    LINE(above, here, below)
    LINE(here, below, above)
    LINE(below, above, here)
  }
#undef LINE
}

#define DESCENT(P)                                                                  \
  static void down_##P(const task *t, const descent *s, int64_t from, int64_t to) { \
    int64_t c = from;                                                               \
    EACH_VECTOR(down, t, s, P)                                                      \
  }
DESCENT(1)
DESCENT(2)
DESCENT(3)
#if defined(ISA_avx512)
DESCENT(4)
DESCENT(5)
DESCENT(6)
DESCENT(7)
#endif

static bool goes_down(const task *t) {
  const itg_window *w = &t->w;
  const int64_t pitch = t->channels * (int64_t)sizeof(itg_element);
  return pitch % 2048 == 0 && w->kernel[0] == 1 && w->kernel[1] == 3 && w->kernel[2] == 3 &&
         w->stride[1] == 1 && w->stride[2] == 1 && w->dilation[1] == 1 && w->dilation[2] == 1 &&
         !t->end.act;
}

// Computes channels [from, to) of rows [row, end).
static void run_down(const task *t, int64_t row, int64_t end, int64_t from, int64_t to) {
  static void (*const fns[])(const task *, const descent *, int64_t, int64_t) = {
      NULL,   down_1, down_2, down_3,
#if defined(ISA_avx512)
      down_4, down_5, down_6, down_7,
#endif
  };
  const itg_window *w = &t->w;
  const int64_t width = w->out[2], tiles = (width + DOWN - 1) / DOWN;
  for (int64_t next; row < end; row = next) {  // one image at a time
    const int64_t batch = row / w->out[1], y = row % w->out[1] - w->before[1];
    next = (batch + 1) * w->out[1] < end ? (batch + 1) * w->out[1] : end;
    for (int64_t i = 0; i < tiles; i++) {
      const int64_t p = itg_split(width, tiles, i), q = itg_split(width, tiles, i + 1),
                    x = p - w->before[2];
      const descent s = {((batch * w->in[1] + y) * w->in[2] + x) * t->channels,
                         (row * width + p) * t->channels,
                         next - row,
                         -y,
                         w->in[1] - y,
                         -x,
                         w->in[2] - x};
      fns[q - p](t, &s, from, to);
    }
  }
}
#endif
