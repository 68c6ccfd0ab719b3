// conv of 8 bits: a padded copy of the input times weights that are packed in groups of four inputs
// and 16 outputs. The register tile is PIXELS output pixels by VECTORS vectors of outputs:
// acc[pixel][vector]. Each step loads one vector of weights per vector of outputs and broadcasts
// four inputs per pixel.
#pragma once
#include "epilogue.h"

// Operands of a product in scratch memory.
typedef struct operands {
  uint8_t *image;  // [height][width][depth * 4], as u8
  int8_t *packed;  // [groups][taps][depth][16][4]
  int32_t *bias;   // [groups * 16], with the input's zero folded in
  float *scale;    // [groups * 16]
} operands;

static operands operands_of(const machine *m, const itg_npu_plan *plan) {
  uint8_t *end = m->scratch + plan->packed + plan->image;
  return (operands){m->scratch + plan->packed, (int8_t *)m->scratch, (int32_t *)(void *)end,
                    (float *)(void *)(end + plan->groups * 64)};
}

// ---- weights ------------------------------------------------------------------------------------
static bool same_weights(const itg_npu_product *a, const itg_npu_product *b) {
  return a && a->head.core == b->head.core && a->weights == b->weights &&
         a->weight_bytes == b->weight_bytes && a->in_atom == b->in_atom &&
         a->out_atom == b->out_atom && a->kernel[0] == b->kernel[0] &&
         a->kernel[1] == b->kernel[1] && a->src.channels == b->src.channels &&
         a->dst.channels == b->dst.channels && a->sparse == b->sparse && a->head.op == b->head.op;
}

static void pack_sparse(const machine *m, const itg_npu_product *p, const itg_npu_plan *plan,
                        int8_t *to) {
  const int64_t taps = (int64_t)p->kernel[0] * p->kernel[1], oa = p->out_atom, ia = p->in_atom;
  const int64_t ins = p->src.channels, outs = p->dst.channels, deeper = itg_npu_div_up(ins, ia);
  const itg_npu_form f = itg_npu_form_of(p);
  const int64_t values = oa * ia / f.of * f.many;
  const int8_t *from = (const int8_t *)m->sram[p->head.core] + p->weights;
  memset(to, 0, (size_t)(plan->groups * taps * plan->depth * 64));
  for (int64_t o = 0; o < outs; o += oa)
    for (int64_t tap = 0; tap < taps; tap++)
      for (int64_t i = 0; i < deeper * ia; i += ia, from += values + values * f.bits / 8) {
        const uint8_t *places = (const uint8_t *)from + values;
        for (int64_t k = 0; k < values; k++) {
          int64_t oc, ic;
          itg_npu_sparse_place(&f, places, k, oa, ia, &oc, &ic);
          oc += o, ic += i;
          if (oc < outs && ic < ins)
            to[((oc / LANES * taps + tap) * plan->depth + ic / 4) * 64 + oc % LANES * 4 + ic % 4] =
                from[k];
        }
      }
}

static void pack_weights(const machine *m, const itg_npu_product *p, const itg_npu_plan *plan,
                         int8_t *to) {
  const int64_t taps = (int64_t)p->kernel[0] * p->kernel[1], oa = p->out_atom, ia = p->in_atom;
  const int64_t ins = p->src.channels, outs = p->dst.channels, deeper = itg_npu_div_up(ins, ia);
  const int8_t *from =
      (const int8_t *)m->sram[p->head.core] + p->weights;  // one atom after another, not padded
  if (outs % LANES || ins % 4) memset(to, 0, (size_t)(plan->groups * taps * plan->depth * 64));
  for (int64_t o = 0; o < outs; o += oa)
    for (int64_t tap = 0; tap < taps; tap++)
      for (int64_t d = 0; d < deeper; d++) {
        const int64_t more = outs - o < oa ? outs - o : oa,
                      wide = ins - d * ia < ia ? ins - d * ia : ia;
        for (int64_t k = 0; k < more; k++) {
          const int64_t oc = o + k;
          int8_t *lane = to + (oc / LANES * taps + tap) * plan->depth * 64 + oc % LANES * 4;
          const int8_t *row = from + k * wide;
          int64_t i = 0;
          if (d * ia % 4 == 0) {
            lane += d * ia / 4 * 64;
            for (; i + 4 <= wide; i += 4, lane += 64) memcpy(lane, row + i, 4);
            for (int64_t j = 0; i < wide; i++, j++) lane[j] = row[i];
          } else {
            for (; i < wide; i++) lane[(d * ia + i) / 4 * 64 + (d * ia + i) % 4] = row[i];
          }
        }
        from += more * wide;
      }
}

static void sum_weights(const int8_t *w, int64_t steps, int32_t *sums) {
  for (int i = 0; i < LANES; i++) sums[i] = 0;
  for (int64_t s = 0; s < steps; s++, w += 64)
    for (int i = 0; i < LANES; i++)
      sums[i] += w[4 * i] + w[4 * i + 1] + w[4 * i + 2] + w[4 * i + 3];
}

// ---- the input ----------------------------------------------------------------------------------
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The rows [from, to) of src that windows cover along one axis.
static void seen(int64_t extent, int64_t pad, int64_t reach, int64_t *from, int64_t *to) {
  *from = most(0, -pad);
  *to = least(extent, reach - pad);
  if (*to < *from) *to = *from;
}

enum { STREAMS = 8 };  // blocks of 16 channels that are copied together
typedef uint8_t byte_run __attribute__((vector_size(16), aligned(1), may_alias));

// Copies rows of src in blocks of 16 channels. All blocks of a pixel are copied before the next
// pixel, so that every cache line of the image is written once.
static void fill_lanes(const box *src, int64_t top, int64_t bottom, int64_t left, int64_t right,
                       int64_t line, int64_t deep, uint8_t flip, uint8_t *image) {
  for (int64_t y = top; y < bottom; y++)
    for (int64_t c = 0; c < deep; c += STREAMS * LANES) {
      const int64_t whole = least(STREAMS, (deep - c) / LANES),
                    rest = least(STREAMS * LANES, deep - c) % LANES;
      const uint8_t *from[STREAMS];
      for (int64_t k = 0; k < whole + (rest > 0); k++)
        from[k] = element(src, c + k * LANES, y, left);
      uint8_t *to = image + (y - top) * line + c;
      for (int64_t at = 0; at < (right - left) * src->pixel; at += src->pixel, to += deep) {
        for (int64_t k = 0; k < whole; k++)
          *(byte_run *)(to + k * LANES) = *(const byte_run *)(from[k] + at) ^ flip;
        for (int64_t i = 0; i < rest; i++) to[whole * LANES + i] = from[whole][at + i] ^ flip;
      }
    }
}

static void fill_image(const machine *m, const itg_npu_product *p, const itg_npu_plan *plan,
                       int64_t deep, uint8_t flip, uint8_t *image) {
  const box src = box_of(m, &p->head, &p->src);
  int64_t top, bottom, left, right;
  seen(src.height, p->pad[0], plan->height, &top, &bottom);
  seen(src.width, p->pad[1], plan->width, &left, &right);
  if (bottom - top != plan->height || right - left != plan->width)
    memset(image, (uint8_t)p->x_zero ^ flip, (size_t)(plan->height * plan->width * deep));
  uint8_t *corner = image + ((top + p->pad[0]) * plan->width + left + p->pad[1]) * deep;
  if (has_lanes(&src)) {  // lanes past the last channel hold any value; their weights are zero
    fill_lanes(&src, top, bottom, left, right, plan->width * deep, deep, flip, corner);
    return;
  }
  for (int64_t c = 0; c < deep;) {
    const int64_t lane = (src.first + c) % src.c2, room = least(src.c2 - lane, deep - c);
    const int64_t run = c < src.channels ? room : deep - c;
    for (int64_t y = top; y < bottom; y++) {
      uint8_t *to = corner + (y - top) * plan->width * deep + c;
      const uint8_t *from = element(&src, c < src.channels ? c : 0, y, left);
      if (c >= src.channels) {  // padding of the channels, whose weights are zero
        for (int64_t x = left; x < right; x++, to += deep) memset(to, 0, (size_t)run);
      } else if (run == 8) {
        for (int64_t x = left; x < right; x++, to += deep, from += src.pixel) {
          uint64_t eight;
          memcpy(&eight, from, 8);
          eight ^= flip * 0x0101010101010101ull;
          memcpy(to, &eight, 8);
        }
      } else if (run == 1) {
        for (int64_t x = left; x < right; x++, to += deep, from += src.pixel) *to = *from ^ flip;
      } else {
        for (int64_t x = left; x < right; x++, to += deep, from += src.pixel)
          for (int64_t k = 0; k < run; k++) to[k] = from[k] ^ flip;
      }
    }
    c += run;
  }
}

// ---- the product --------------------------------------------------------------------------------
typedef struct window {
  int64_t rows;     // of the kernel
  int64_t steps;    // groups of four inputs of a contiguous run: of a tap, or of a row of taps
  int64_t columns;  // runs of a row of the kernel; 1 if a row of taps is contiguous
  int64_t column;   // bytes of the image between columns of taps
  int64_t row;      // bytes of the image between rows of taps
  int64_t group;    // bytes of weights between groups of 16 outputs
} window;

#if defined(ITG_QVECTORS)
#if defined(ISA_avx512vnni)
enum { PIXELS = 6, VECTORS = 4 };
#elif defined(ISA_avx512)
enum { PIXELS = 6, VECTORS = 2 };
#else
enum { PIXELS = 3, VECTORS = 2 };
#endif

// Sums of `pixels` pixels and `vectors` vectors of outputs, whose weights start at w.
INLINE void sum_tile(const window *v, const uint8_t *const *at, const int8_t *w,
                     const int32_t *bias, const int pixels, const int vectors,
                     int32_t (*sums)[VECTORS * QL]) {
  vq acc[PIXELS][VECTORS];
  const int8_t *lane[VECTORS];
  FOR_UNROLLED (16, int k = 0; k < vectors; k++) {
    lane[k] = w + k * QL / LANES * v->group + k * QL % LANES * 4;
    FOR_UNROLLED (16, int q = 0; q < pixels; q++) acc[q][k] = vq_load(bias + k * QL);
  }
  int64_t done = 0;
  for (int64_t r = 0; r < v->rows; r++)
    for (int64_t c = 0; c < v->columns; c++) {
      const int64_t by = r * v->row + c * v->column;
      for (int64_t s = 0; s < v->steps; s++, done += 64) {
        vq_four weights[VECTORS];
        FOR_UNROLLED (16, int k = 0; k < vectors; k++)
          weights[k] = vq_weights(vq_load(lane[k] + done));
        FOR_UNROLLED (16, int q = 0; q < pixels; q++) {
          int32_t four;
          memcpy(&four, at[q] + by + 4 * s, 4);
          const vq_four x = vq_inputs(vq_set(four));
          FOR_UNROLLED (16, int k = 0; k < vectors; k++)
            acc[q][k] = vq_dot(acc[q][k], x, weights[k]);
        }
      }
    }
  FOR_UNROLLED (16, int q = 0; q < pixels; q++)
    FOR_UNROLLED (16, int k = 0; k < vectors; k++) vq_store(&sums[q][k * QL], acc[q][k]);
}

static __attribute__((noinline)) void sum_some(const window *v, const uint8_t *const *at,
                                               const int8_t *w, const int32_t *bias, int pixels,
                                               int vectors, int32_t (*sums)[VECTORS * QL]) {
#define TILE(p, n) \
  if (pixels == p && vectors == n) return sum_tile(v, at, w, bias, p, n, sums)
#if defined(ISA_avx512vnni)
  TILE(6, 4);
  TILE(5, 4);
  TILE(4, 4);
  TILE(3, 4);
  TILE(2, 4);
  TILE(1, 4);
  TILE(6, 3);
  TILE(5, 3);
  TILE(4, 3);
  TILE(3, 3);
  TILE(2, 3);
  TILE(1, 3);
#endif
#if defined(ISA_avx512)
  TILE(6, 2);
  TILE(5, 2);
  TILE(4, 2);
  TILE(6, 1);
  TILE(5, 1);
  TILE(4, 1);
  TILE(3, 1);
  TILE(2, 1);
  TILE(1, 1);
#endif
  TILE(3, 2);
  TILE(2, 2);
  TILE(1, 2);
#undef TILE
}
#else  // plain C: one pixel and 16 outputs at a time
enum { PIXELS = 1, VECTORS = 1, QL = 16 };
static void sum_some(const window *v, const uint8_t *const *at, const int8_t *w,
                     const int32_t *bias, int pixels, int vectors, int32_t (*sums)[VECTORS * QL]) {
  uint32_t acc[QL];
  memcpy(acc, bias, sizeof acc);
  for (int64_t r = 0; r < v->rows; r++)
    for (int64_t c = 0; c < v->columns; c++) {
      const uint8_t *x = at[0] + r * v->row + c * v->column;
      for (int64_t s = 0; s < v->steps; s++, w += 64, x += 4)
        for (int i = 0; i < QL; i++)
          acc[i] += (uint32_t)(x[0] * w[4 * i] + x[1] * w[4 * i + 1] + x[2] * w[4 * i + 2] +
                               x[3] * w[4 * i + 3]);
    }
  memcpy(sums[0], acc, sizeof acc);
}
#endif

enum { GROUPS = VECTORS * QL / LANES };

// Computes all pixels of the result. `down` and `across` are the bytes of the image between the
// windows of neighbouring output rows and columns. `more` (or NULL) is added to the sums of each
// row.
static void multiply(const window *v, const operands *b, const ending *end, int64_t groups,
                     int64_t down, int64_t across, const int32_t *more) {
  const int64_t lanes = groups * LANES, wide = end->dst.width;
  for (int64_t c = 0; c < lanes; c += VECTORS * QL) {
    const int vectors = (int)least(VECTORS, (lanes - c) / QL), sixteens = vectors * QL / LANES;
    place places[GROUPS] = {{0}};
    for (int k = 0; k < sixteens; k++) places[k] = place_of(end, c / LANES + k);
    for (int64_t left = end->dst.height * wide, y = 0, x = 0; left > 0; left -= PIXELS) {
      const int some = (int)least(PIXELS, left);
      const uint8_t *at[PIXELS];
      int32_t sums[PIXELS][VECTORS * QL];
      int64_t ys[PIXELS], xs[PIXELS];
      for (int q = 0; q < some; q++) {
        at[q] = b->image + y * down + x * across;
        ys[q] = y, xs[q] = x;
        if (++x == wide) x = 0, y++;
      }
      sum_some(v, at, b->packed + c / LANES * v->group, b->bias + c, some, vectors, sums);
      for (int q = 0; more && q < some; q++)
        for (int i = 0; i < VECTORS * QL; i++)
          sums[q][i] = (int32_t)((uint32_t)sums[q][i] + (uint32_t)more[ys[q]]);
      for (int k = 0; k < sixteens; k++)
        for (int q = 0; q < some; q++)
          end_sixteen(end, &places[k], sixteen_of(sums[q] + k * LANES), ys[q], xs[q]);
    }
  }
}

static void conv(machine *m, const itg_npu_product *p, const itg_npu_plan plan) {
  const operands b = operands_of(m, &plan);
  const int64_t taps = (int64_t)p->kernel[0] * p->kernel[1], deep = plan.depth * 4;
  const uint8_t flip = p->src.dtype == ITG_I8 ? 0x80 : 0;
  if (!same_weights(m->packed, p)) (p->sparse ? pack_sparse : pack_weights)(m, p, &plan, b.packed);
  m->packed = p;
  for (int64_t g = 0; g < plan.groups; g++) {
    int32_t sums[LANES];
    sum_weights(b.packed + g * taps * plan.depth * 64, taps * plan.depth, sums);
    for (int64_t i = 0; i < LANES; i++) {
      const int64_t c = g * LANES + i;
      int32_t bias = 0;
      b.scale[c] = 0;
      if (c < p->dst.channels) load_params(m, p, c, &b.scale[c], &bias);
      b.bias[c] = (int32_t)((uint32_t)bias - (uint32_t)sums[i] * (uint32_t)(p->x_zero + flip));
    }
  }
  fill_image(m, p, &plan, deep, flip, b.image);
  window v = {.rows = p->kernel[0], .steps = plan.depth, .columns = p->kernel[1]};
  v.row = p->dilation[0] * plan.width * deep, v.column = p->dilation[1] * deep;
  v.group = taps * plan.depth * 64;
  if (p->dilation[1] == 1) v.steps *= v.columns, v.columns = 1;
  const ending end = ending_of(m, p, b.scale);
  multiply(&v, &b, &end, plan.groups, p->stride[0] * plan.width * deep, p->stride[1] * deep, NULL);
}
