// qlinear_mean and cpu.qpool: exact sums of bytes, scaled and rounded once.
#include "qelements.h"
#include "window.h"

itg_words itg_qpool_of(const itg_call *call, itg_window *w, itg_tensor *out);

enum { RUN = 64, MOST = 256 };  // elements summed together; most bytes whose sum fits 16 bits

// sums[i] += the bytes of `count` rows of n <= RUN elements; rows are `step` bytes apart.
static void add_rows(const uint8_t *x, uint8_t flip, int64_t count, int64_t step, int64_t n,
                     uint32_t *sums) {
  if (n < RUN && step == n && RUN % n == 0 && count * n >= RUN) {  // joins short rows to one of RUN
    const int64_t rows = RUN / n;
    uint32_t wide[RUN] = {0};
    add_rows(x, flip, count / rows, RUN, RUN, wide);
    for (int64_t i = 0; i < RUN; i++) sums[i % n] += wide[i];
    x += count / rows * RUN;
    count %= rows;
  }
  while (count > 0) {
    const int64_t some = count < MOST ? count : MOST;
    uint16_t few[RUN] = {0};
    if (n == RUN) {  // a constant, so that GCC vectorises the loops
      for (int64_t r = 0; r < some; r++, x += step)
        for (int i = 0; i < RUN; i++) few[i] = (uint16_t)(few[i] + (x[i] ^ flip));
    } else {
      for (int64_t r = 0; r < some; r++, x += step)
        for (int64_t i = 0; i < n; i++) few[i] = (uint16_t)(few[i] + (x[i] ^ flip));
    }
    for (int i = 0; i < RUN; i++) sums[i] += few[i];
    count -= some;
  }
}

static uint64_t add_line(const uint8_t *x, uint8_t flip, int64_t n) {
  uint64_t total = 0;
  while (n > 0) {
    const int64_t some = n < 1 << 16 ? n : 1 << 16;
    uint32_t sum = 0;
    for (int64_t i = 0; i < some; i++) sum += (uint32_t)(x[i] ^ flip);
    total += sum;
    x += some, n -= some;
  }
  return total;
}

// add_window: sums of RUN channels over a window of at most MOST taps, with its first pixel at
// `at`.
#ifdef ITG_QELEMENTS
#if defined(ISA_neon)
#define WIDE(p, flip) \
  vreinterpretq_u32_u16(vmovl_u8(veor_u8(vld1_u8(p), vget_low_u8(vreinterpretq_u8_u32(flip)))))
#define ADD16(a, b) \
  vreinterpretq_u32_u16(vaddq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)))
#define qb_sub32 visub
#elif defined(ISA_avx512)
#define WIDE(p, flip)   \
  _mm512_cvtepu8_epi16( \
      _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(p)), _mm512_castsi512_si256(flip)))
#define ADD16 _mm512_add_epi16
#else
#define WIDE(p, flip)   \
  _mm256_cvtepu8_epi16( \
      _mm_xor_si128(_mm_loadu_si128((const __m128i *)(p)), _mm256_castsi256_si128(flip)))
#define ADD16 _mm256_add_epi16
#endif
enum { LANES = QBYTES / 2, VECTORS = RUN / LANES };
enum { MOST_32 = 1 << 22 };  // bytes whose sum 32 bits can hold

static void add_window(const itg_window *w, const uint8_t *x, uint8_t flip_, const int64_t *at,
                       const int64_t *begin, const int64_t *end, int64_t channels, int32_t *sums) {
  const vq flip = vq_set((int32_t)(flip_ * 0x01010101u));
  uint16_t few[RUN];
  vq sum[VECTORS];
  FOR_UNROLLED (16, int v = 0; v < VECTORS; v++) sum[v] = vq_set(0);
  for (int64_t k = begin[0]; k < end[0]; k++)
    for (int64_t j = begin[1]; j < end[1]; j++) {
      const int64_t line = (at[0] + k * w->dilation[0]) * w->in[1] + at[1] + j * w->dilation[1];
      const uint8_t *pixel = x + (line * w->in[2] + at[2] + begin[2] * w->dilation[2]) * channels;
      for (int64_t l = begin[2]; l < end[2]; l++, pixel += w->dilation[2] * channels)
        FOR_UNROLLED (16, int v = 0; v < VECTORS; v++)
          sum[v] = ADD16(sum[v], WIDE(pixel + v * LANES, flip));
    }
  FOR_UNROLLED (16, int v = 0; v < VECTORS; v++) vq_store(few + v * LANES, sum[v]);
  for (int i = 0; i < RUN; i++) sums[i] = few[i];
}

// Sums of RUN channels over all pixels, which are `step` bytes apart. 16-bit sums take MOST pixels
// and are then added to 32-bit sums.
static void add_pixels(const uint8_t *x, uint8_t flip_, int64_t count, int64_t step,
                       int32_t *sums) {
  const vq flip = vq_set((int32_t)(flip_ * 0x01010101u));
  for (int64_t left = count; left > 0; left -= MOST) {
    uint16_t few[RUN];
    vq sum[2][VECTORS];
    FOR_UNROLLED (16, int v = 0; v < 2 * VECTORS; v++) sum[v / VECTORS][v % VECTORS] = vq_set(0);
    const int64_t some = left < MOST ? left : MOST;
    int64_t i = 0;
    for (; i + 2 <= some; i += 2, x += 2 * step)  // two chains of sums
      FOR_UNROLLED (16, int k = 0; k < 2; k++)
        FOR_UNROLLED (16, int v = 0; v < VECTORS; v++)
          sum[k][v] = ADD16(sum[k][v], WIDE(x + k * step + v * LANES, flip));
    if (i < some) {
      FOR_UNROLLED (16, int v = 0; v < VECTORS; v++)
        sum[0][v] = ADD16(sum[0][v], WIDE(x + v * LANES, flip));
      x += step;
    }
    FOR_UNROLLED (16, int v = 0; v < VECTORS; v++)
      vq_store(few + v * LANES, ADD16(sum[0][v], sum[1][v]));
    for (int k = 0; k < RUN; k++) sums[k] += few[k];
  }
}

static void finish_run(const itg_quant *y, const int32_t *sums, int32_t less, float factor,
                       uint8_t *to) {
  const qb_end end = qb_end_of(y);
  for (int64_t i = 0; i < RUN; i += QBYTES) {
    vf real[4];
    FOR_UNROLLED (16, int k = 0; k < 4; k++)
      real[k] = vmul(vq_floats(qb_sub32(vq_load(sums + i + k * QL), vq_set(less))), vset(factor));
    vq_store(to + i, qb_in_order(qb_bytes(real, &end)));
  }
}
#endif

static void finish(const itg_quant *y, const int64_t *sums, float factor, int64_t n, uint8_t *to) {
  for (int64_t i = 0; i < n; i++) to[i] = itg_byte_of(y, (float)sums[i] * factor);
}

// The factor from sums to quantised means, in f32.
static float factor_of(const itg_quant *x, const itg_quant *y, int64_t count) {
  return x->scale / (y->scale * (float)count);
}

// ---- qlinear_mean: [outer, reduced, inner] ------------------------------------------------------
ITG_FN(qlinear_mean, any) {
  const itg_attrs_qlinear_mean *attrs = call->attrs;
  const itg_tensor *const *in = call->in, *x = in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const itg_quant from = itg_quant_of(in[1], in[2]), y = itg_quant_of(in[3], in[4]);
  const int first = (int)attrs->axes[0], last = (int)attrs->axes[attrs->n_axes - 1];
  const int64_t many = itg_count_range(x, first, last + 1),
                inner = itg_count_range(x, last + 1, x->rank);
  const int64_t outer = itg_count_range(x, 0, first), runs = (inner - 1) / RUN + 1;
  const float factor = factor_of(&from, &y, many);
#ifdef ITG_QELEMENTS
  const bool fast =
      inner >= RUN && many <= MOST_32 && fabsf(factor) * (255.f * (float)many) < ITG_CONVERTS;
#endif
  int64_t i, end;
  itg_share(outer * runs, 1, part, parts, &i, &end);
  for (; i < end; i++) {
    int64_t at = i % runs * RUN, again = 0;
    const int64_t n = inner < RUN ? inner : RUN;
    if (at > inner - n)
      again = at - (inner - n), at -= again;  // the last run repeats some elements
    const uint8_t *image = (const uint8_t *)x->data + i / runs * many * inner + at;
#ifdef ITG_QELEMENTS
    if (fast) {
      int32_t sums32[RUN] = {0};
      add_pixels(image, from.flip, many, inner, sums32);
      finish_run(&y, sums32, (int32_t)many * from.less, factor,
                 (uint8_t *)out->data + i / runs * inner + at);
      continue;
    }
#endif
    int64_t sums[RUN];
    if (inner == 1) {
      sums[0] = (int64_t)add_line(image, from.flip, many) - many * from.less;
    } else {
      memset(sums, 0, sizeof sums);
      for (int64_t done = 0; done < many; done += 1 << 22) {  // sums of so many bytes fit 32 bits
        uint32_t few[RUN] = {0};
        const int64_t some = many - done < 1 << 22 ? many - done : 1 << 22;
        add_rows(image + done * inner, from.flip, some, inner, n, few);
        for (int64_t k = 0; k < n; k++) sums[k] += (int64_t)few[k] - some * from.less;
      }
    }
    finish(&y, sums + again, factor, n - again,
           (uint8_t *)out->data + i / runs * inner + at + again);
  }
  return NULL;
}

// ---- cpu.qpool: windows of channel-last images --------------------------------------------------
ITG_FN(qpool, any) {
  const itg_attrs_qpool *attrs = call->attrs;
  const itg_tensor *const *in = call->in;
  itg_window w;
  itg_tensor out;
  itg_qpool_of(call, &w, &out);
  if (itg_empty(&out)) return NULL;
  const itg_quant from = itg_quant_of(in[1], in[2]), y = itg_quant_of(in[3], in[4]);
  const int64_t channels = out.shape[out.rank - 1];
  int64_t i, to;
  itg_share(out.shape[0] * itg_places(w.out), 1, part, parts, &i, &to);
  for (; i < to; i++) {
    const int64_t o[ITG_AXES] = {i / w.out[2] / w.out[1] % w.out[0], i / w.out[2] % w.out[1],
                                 i % w.out[2]};
    int64_t at[ITG_AXES], begin[ITG_AXES], end[ITG_AXES], taps = 1;
    for (int d = 0; d < ITG_AXES; d++) {
      at[d] = o[d] * w.stride[d] - w.before[d];
      itg_taps_inside(&w, d, at[d], &begin[d], &end[d]);
      taps *= end[d] > begin[d] ? end[d] - begin[d] : 0;
    }
    const uint8_t *x =
        (const uint8_t *)in[0]->data + i / itg_places(w.out) * itg_places(w.in) * channels;
    const int64_t count = attrs->count_include_pad ? itg_taps(&w) : taps ? taps : 1;
    const float factor = factor_of(&from, &y, count);
#ifdef ITG_QELEMENTS
    if (channels >= RUN && itg_taps(&w) <= MOST && fabsf(factor) * (255.f * MOST) < ITG_CONVERTS) {
      for (int64_t c = 0; c < channels; c += RUN) {
        const int64_t run =
            c + RUN <= channels ? c : channels - RUN;  // the last overlaps the one before
        int32_t sums[RUN];
        add_window(&w, x + run, from.flip, at, begin, end, channels, sums);
        finish_run(&y, sums, (int32_t)taps * from.less, factor,
                   (uint8_t *)call->out[0]->data + i * channels + run);
      }
      continue;
    }
#endif
    for (int64_t c = 0; c < channels; c += RUN) {
      const int64_t n = channels - c < RUN ? channels - c : RUN;
      uint32_t few[RUN] = {0};
      for (int64_t k = begin[0]; k < end[0]; k++)
        for (int64_t j = begin[1]; j < end[1] && begin[2] < end[2]; j++) {
          const int64_t line = (at[0] + k * w.dilation[0]) * w.in[1] + at[1] + j * w.dilation[1];
          const int64_t pixel = line * w.in[2] + at[2] + begin[2] * w.dilation[2];
          add_rows(x + pixel * channels + c, from.flip, end[2] - begin[2], w.dilation[2] * channels,
                   n, few);
        }
      int64_t sums[RUN];
      for (int64_t k = 0; k < n; k++) sums[k] = (int64_t)few[k] - taps * from.less;
      finish(&y, sums, factor, n, (uint8_t *)call->out[0]->data + i * channels + c);
    }
  }
  return NULL;
}
