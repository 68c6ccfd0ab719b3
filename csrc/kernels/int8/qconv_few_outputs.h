// 1x1 convolutions with one to four output channels and f32 results, of pixels of 16, 32 or 64
// bytes (the last layer of a segmentation network). A panel of 16 columns would be nearly empty.
// Here a vector holds 4, 2 or 1 whole pixels and is multiplied by the weights of one channel. The
// lanes of a pixel are then added by transposing. Included by qconv.c.
#if defined(ISA_avx512vnni)
enum { FEW = 4, FEW_PIXELS = 16 };

static bool fits_few(const task *t) {
  const itg_qconv *c = t->c;
  const int64_t *stride = c->w.stride;
  return c->direct && stride[0] == 1 && stride[1] == 1 && stride[2] == 1 && c->groups == 1 &&
         c->channels <= FEW && (c->deep == 16 || c->deep == 32 || c->deep == 64) && !t->w_zero &&
         !c->second && t->to.kind == ITG_Q_FLOATS && !t->to.residual;
}

// Adds neighbouring 128-bit lanes: (a0 + a1, a2 + a3, b0 + b1, b2 + b3).
INLINE vq few_lanes(vq a, vq b) {
  return vq_add(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// Products of four pixels with one channel: each 128-bit lane holds one pixel as four partial sums.
INLINE vq few_four(const uint8_t *x, vq flip, vq w, const int DEEP) {
  vq sum[4];
  FOR_UNROLLED (16, int i = 0; i < DEEP / 16; i++)
    sum[i] = vq_dot(vq_set(0), vq_xor(vq_load(x + i * 64), flip), w);
  if (DEEP == 16) return sum[0];
  if (DEEP == 32) return few_lanes(sum[0], sum[1]);
  return few_lanes(few_lanes(sum[0], sum[1]), few_lanes(sum[2], sum[3]));
}

typedef struct few {
  vq weights[FEW], order[FEW];
  __mmask16 of[FEW][FEW];  // [v][c]: lanes of result vector v that belong to channel c
} few;

static few few_of(const task *t) {
  const int64_t deep = t->c->deep, channels = t->c->channels;
  few f = {0};
  for (int64_t c = 0; c < channels; c++) {
    int32_t w[16], order[16];
    for (int i = 0; i < 16; i++) {
      const int64_t g = i % (deep / ITG_FOUR), pixel = (c * 16 + i) / channels,
                    channel = (c * 16 + i) % channels;
      memcpy(&w[i], t->w + g * ITG_QROW + c * ITG_FOUR, sizeof *w);
      order[i] = (int32_t)(pixel % 4 * 4 + pixel / 4);  // lane of this pixel in `few_pixels`
      f.of[c][channel] |= (__mmask16)(1u << i);
    }
    f.weights[c] = vq_load(w);
    f.order[c] = vq_load(order);
  }
  return f;
}

// Computes 16 pixels of N channels. After the transposing sums, lane 4 * i + j of y[c] is pixel
// 4 * j + i of channel c.
INLINE void few_pixels(const task *t, const few *f, const uint8_t *x, float *out, const int N,
                       const int DEEP) {
  const vq flip = vq_set((int32_t)(t->c->flip * 0x01010101u));
  vf y[FEW];
  FOR_UNROLLED (16, int c = 0; c < N; c++) {
    vq p[4];
    FOR_UNROLLED (16, int i = 0; i < 4; i++)
      p[i] = few_four(x + i * 4 * DEEP, flip, f->weights[c], DEEP);
    const vq a = vq_add(_mm512_unpacklo_epi32(p[0], p[1]), _mm512_unpackhi_epi32(p[0], p[1]));
    const vq b = vq_add(_mm512_unpacklo_epi32(p[2], p[3]), _mm512_unpackhi_epi32(p[2], p[3]));
    const vq sum = vq_add(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    y[c] = vmul(vq_floats(vq_add(sum, vq_set(t->to.bias[c]))), vset(t->to.scale[c]));
  }
  FOR_UNROLLED (16, int v = 0; v < N; v++) {
    vf result = _mm512_permutexvar_ps(f->order[v], y[0]);
    FOR_UNROLLED (16, int c = 1; c < N; c++)
      result = _mm512_mask_permutexvar_ps(result, f->of[v][c], f->order[v], y[c]);
    vq_store_halves(out + v * 16, (vq)result);
  }
}

INLINE void few_rows(const task *t, int64_t from, int64_t to, const int N, const int DEEP) {
  const few f = few_of(t);
  for (int64_t r = from; r < to; r += FEW_PIXELS) {
    const int64_t at = r + FEW_PIXELS <= to ? r : to - FEW_PIXELS;  // may repeat a few pixels
    few_pixels(t, &f, t->x + at * DEEP, (float *)t->out + at * N, N, DEEP);
  }
}

typedef void (*few_fn)(const task *t, int64_t from, int64_t to);
#define FEW_ROWS(n, deep)                                                 \
  static void few_##n##_##deep(const task *t, int64_t from, int64_t to) { \
    few_rows(t, from, to, n, deep);                                       \
  }
#define FEW_DEEP(deep) FEW_ROWS(1, deep) FEW_ROWS(2, deep) FEW_ROWS(3, deep) FEW_ROWS(4, deep)
FEW_DEEP(16)
FEW_DEEP(32)
FEW_DEEP(64)

// Computes pixels [from, to), at least FEW_PIXELS of them.
static void run_few(const task *t, int64_t from, int64_t to) {
#define FEW_ENTRY(deep) \
  { few_1_##deep, few_2_##deep, few_3_##deep, few_4_##deep }
  static const few_fn all[3][FEW] = {FEW_ENTRY(16), FEW_ENTRY(32), FEW_ENTRY(64)};
#undef FEW_ENTRY
  all[t->c->deep == 16 ? 0 : t->c->deep == 32 ? 1 : 2][t->c->channels - 1](t, from, to);
}
#endif
