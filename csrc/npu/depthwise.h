// depthwise and pool, 16 neighbouring channels at a time.
#pragma once
#include "conv.h"

// Strides of the image that windows slide over.
typedef struct slide {
  const uint8_t *at;
  int64_t row, pixel;
} slide;

enum { TILE_PIXELS = 4 };  // pixels of a tile: weights of a tap are loaded once for all of them

// Sums of a few pixels of 16 channels: acc[pixel][vector]. Weights are [taps][16] in 32 bits with
// an upper half of 0, so that vpmaddwd, which adds two 16-bit products, computes one product.
#if defined(ITG_QVECTORS)
#if defined(ISA_avx512)
#define WIDEN(low, at)                                                  \
  ((low) ? _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(at))) \
         : _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(at))))
#define MULTIPLY(x, w) _mm512_madd_epi16(x, w)
#else
#define WIDEN(low, at)                                                  \
  ((low) ? _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(at))) \
         : _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(at))))
#define MULTIPLY(x, w) _mm256_madd_epi16(x, w)
#endif
enum { HALVES = LANES / QL };

INLINE void sum_taps(const uint8_t *at, int64_t next, int64_t down, int64_t across,
                     const int32_t *w, const uint16_t *kernel, const bool low, const int pixels,
                     const int32_t *bias, int32_t (*sums)[LANES]) {
  vq acc[TILE_PIXELS][HALVES];
  FOR_UNROLLED (16, int q = 0; q < pixels; q++)
    FOR_UNROLLED (16, int h = 0; h < HALVES; h++) acc[q][h] = vq_load(bias + h * QL);
  for (int64_t i = 0; i < kernel[0]; i++, at += down) {
    const uint8_t *pixel = at;
    for (int64_t j = 0; j < kernel[1]; j++, w += LANES, pixel += across)
      FOR_UNROLLED (16, int h = 0; h < HALVES; h++) {
        const vq weight = vq_load(w + h * QL);
        FOR_UNROLLED (16, int q = 0; q < pixels; q++)
          acc[q][h] = vq_add(acc[q][h], MULTIPLY(WIDEN(low, pixel + q * next + h * QL), weight));
      }
  }
  FOR_UNROLLED (16, int q = 0; q < pixels; q++)
    FOR_UNROLLED (16, int h = 0; h < HALVES; h++) vq_store(&sums[q][h * QL], acc[q][h]);
}
#else
INLINE void sum_taps(const uint8_t *at, int64_t next, int64_t down, int64_t across,
                     const int32_t *w, const uint16_t *kernel, const bool low, const int pixels,
                     const int32_t *bias, int32_t (*sums)[LANES]) {
  for (int q = 0; q < pixels; q++) {
    uint32_t acc[LANES];
    memcpy(acc, bias, sizeof acc);
    for (int64_t i = 0; i < kernel[0]; i++)
      for (int64_t j = 0; j < kernel[1]; j++) {
        const uint8_t *pixel = at + q * next + i * down + j * across;
        const int32_t *tap = w + (i * kernel[1] + j) * LANES;
        for (int k = 0; k < LANES; k++)
          acc[k] += (uint32_t)((low ? (int8_t)pixel[k] : pixel[k]) * (int32_t)(int16_t)tap[k]);
      }
    memcpy(sums[q], acc, sizeof acc);
  }
}
#endif

static __attribute__((noinline)) void sum_slide(const uint8_t *at, int64_t next, int64_t down,
                                                int64_t across, const int32_t *w,
                                                const uint16_t *kernel, bool low, int pixels,
                                                const int32_t *bias, int32_t (*sums)[LANES]) {
  if (pixels == TILE_PIXELS) {
    if (low) sum_taps(at, next, down, across, w, kernel, true, TILE_PIXELS, bias, sums);
    else sum_taps(at, next, down, across, w, kernel, false, TILE_PIXELS, bias, sums);
    return;
  }
  for (int q = 0; q < pixels; q++, at += next) {
    if (low) sum_taps(at, next, down, across, w, kernel, true, 1, bias, sums + q);
    else sum_taps(at, next, down, across, w, kernel, false, 1, bias, sums + q);
  }
}

// Packs the weights, folds the input's zero into the biases, and copies the scales.
static void pack_depthwise(const machine *m, const itg_npu_product *p, const itg_npu_plan *plan,
                           const operands *b) {
  const int64_t taps = (int64_t)p->kernel[0] * p->kernel[1], channels = p->dst.channels;
  const int8_t *from = (const int8_t *)m->sram[p->head.core] + p->weights;
  int32_t *to = (int32_t *)(void *)b->packed;
  for (int64_t c = 0; c < plan->groups * LANES; c++) {
    int32_t *lane = to + c / LANES * taps * LANES + c % LANES;
    int32_t bias = 0, sum = 0;
    b->scale[c] = 0;
    for (int64_t t = 0; t < taps; t++) {
      const int32_t one = c < channels ? from[itg_npu_weight_at(p, c, t, 0)] : 0;
      lane[t * LANES] = one & 0xffff;
      sum += one;
    }
    if (c < channels) load_params(m, p, c, &b->scale[c], &bias);
    b->bias[c] = (int32_t)((uint32_t)bias - (uint32_t)sum * (uint32_t)p->x_zero);
  }
}

static bool all_inside(const itg_npu_product *p, const itg_npu_plan *plan) {
  return p->pad[0] <= 0 && p->pad[1] <= 0 && plan->height - p->pad[0] <= p->src.height &&
         plan->width - p->pad[1] <= p->src.width;
}

static void depthwise(machine *m, const itg_npu_product *p, const itg_npu_plan plan) {
  m->packed = NULL;
  const operands b = operands_of(m, &plan);
  const box src = box_of(m, &p->head, &p->src);
  const bool direct = has_lanes(&src) && all_inside(p, &plan), low = p->src.dtype == ITG_I8;
  const int64_t deep = plan.groups * LANES, taps = (int64_t)p->kernel[0] * p->kernel[1];
  pack_depthwise(m, p, &plan, &b);
  slide s = {b.image, plan.width * deep, deep};
  if (direct) s = (slide){NULL, src.row, src.pixel};
  else fill_image(m, p, &plan, deep, 0, b.image);
  const ending end = ending_of(m, p, b.scale);
  const int64_t down = p->dilation[0] * s.row, across = p->dilation[1] * s.pixel;
  for (int64_t g = 0; g < plan.groups; g++) {
    const int32_t *w = (const int32_t *)(const void *)b.packed + g * taps * LANES,
                  *bias = b.bias + g * LANES;
    const place here = place_of(&end, g);
    const uint8_t *first = direct
                               ? element(&src, g * LANES, -(int64_t)p->pad[0], -(int64_t)p->pad[1])
                               : b.image + g * LANES;
    const int64_t next = p->stride[1] * s.pixel;
    for (int64_t y = 0; y < end.dst.height; y++) {
      const uint8_t *at = first + y * p->stride[0] * s.row;
      for (int64_t x = 0; x < end.dst.width; x += TILE_PIXELS, at += TILE_PIXELS * next) {
        const int some = (int)least(TILE_PIXELS, end.dst.width - x);
        int32_t sums[TILE_PIXELS][LANES];
        sum_slide(at, next, down, across, w, p->kernel, low, some, bias, sums);
        for (int q = 0; q < some; q++) end_sixteen(&end, &here, sixteen_of(sums[q]), y, x + q);
      }
    }
  }
}

// ---- pool ---------------------------------------------------------------------------------------
#define MAX_TAPS(type, lowest)                                                                 \
  type best[LANES];                                                                            \
  for (int k = 0; k < LANES; k++) best[k] = lowest;                                            \
  for (int64_t i = w.v.from; i < w.v.to; i++)                                                  \
    for (int64_t j = w.h.from; j < w.h.to; j++) {                                              \
      const type *pixel = (const type *)(at + i * down + j * across);                          \
      for (int k = 0; k < LANES; k++) best[k] = pixel[k] > best[k] ? pixel[k] : best[k];       \
    }                                                                                          \
  for (int k = 0; k < LANES; k++) best[k] = best[k] > (type)p->low ? best[k] : (type)p->low;   \
  for (int k = 0; k < LANES; k++) best[k] = best[k] < (type)p->high ? best[k] : (type)p->high; \
  memcpy(results, best, LANES);

#define ADD_TAPS(type)                                                \
  for (int64_t i = w.v.from; i < w.v.to; i++)                         \
    for (int64_t j = w.h.from; j < w.h.to; j++) {                     \
      const type *pixel = (const type *)(at + i * down + j * across); \
      for (int k = 0; k < LANES; k++) sums[k] += pixel[k];            \
    }

enum { MOST_TAPS = 1 << 22 };  // most bytes whose sum fits 32 bits

static void pool(const machine *m, const itg_npu_pool *p) {
  const box src = box_of(m, &p->head, &p->src), dst = box_of(m, &p->head, &p->dst);
  if (!has_lanes(&src) || src.item != 1 || (int64_t)p->kernel[0] * p->kernel[1] > MOST_TAPS) {
    pool_elements(m, p);
    return;
  }
  const rounding end = ROUNDING(m, p, 0, 0, 0);
  const int64_t down = p->dilation[0] * src.row, across = p->dilation[1] * src.pixel;
  const bool with_sign = src.dtype == ITG_I8;
  for (int64_t y = 0; y < dst.height; y++)
    for (int64_t x = 0; x < dst.width; x++) {
      const pool_window w = pool_window_at(p, y, x);
      for (int64_t c = 0; c < dst.channels; c += LANES) {
        const uint8_t *at = element(&src, c, w.v.place, w.h.place);
        uint8_t results[4 * LANES];
        if (p->kind == ITG_NPU_AVG) {
          int32_t sums[LANES] = {0};
          float t[LANES];
          if (with_sign) {
            ADD_TAPS(int8_t)
          } else {
            ADD_TAPS(uint8_t)
          }
          const int32_t less = (int32_t)w.inside * p->x_zero;
          for (int k = 0; k < LANES; k++) t[k] = (float)(sums[k] - less) * w.factor;
          finish(&end, t, results);
        } else if (with_sign) {
          MAX_TAPS(int8_t, -128)
        } else {
          MAX_TAPS(uint8_t, 0)
        }
        put_lanes(&dst, c, y, x, results, least(LANES, dst.channels - c));
      }
    }
}
