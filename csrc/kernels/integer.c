// matmul_integer, qlinear_matmul, conv_integer, qlinear_conv: one tiled product, two ways to pack its columns.
#include "integer.h"

#include <string.h>

#include "infer.h"
#include "vec.h"
#include "window.h"

enum { ROWS = ITG_TILE_ROWS, WIDTH = ITG_TILE_WIDTH };

// ---- one tile: sums[r][c] over pairs; a is [pair][ROWS][2], b is [pair][WIDTH][2] ------------------
#if defined(ISA_avx512) || defined(ISA_avx2)
#if defined(ISA_avx512)
typedef __m512i vs;
#define vs_load(p) _mm512_loadu_si512(p)
#define vs_store(p, v) _mm512_storeu_si512(p, v)
#define vs_twice(pair) _mm512_set1_epi32(pair)
#define vs_add(sum, a, b) _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))
#define vs_zero _mm512_setzero_si512()
#else
typedef __m256i vs;
#define vs_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define vs_store(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define vs_twice(pair) _mm256_set1_epi32(pair)
#define vs_add(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
#define vs_zero _mm256_setzero_si256()
#endif

static void tile(const int16_t *a, const int16_t *b, int64_t pairs, uint32_t sums[ROWS][WIDTH]) {
  for (int c = 0; c < WIDTH; c += 2 * VL) {
    vs left[ROWS], right[ROWS];
    for (int r = 0; r < ROWS; r++) left[r] = right[r] = vs_zero;
    for (int64_t p = 0; p < pairs; p++) {
      const int16_t *column = b + (p * WIDTH + c) * 2;
      const vs b0 = vs_load(column), b1 = vs_load(column + 2 * VL);
      for (int r = 0; r < ROWS; r++) {
        int32_t pair;
        memcpy(&pair, a + (p * ROWS + r) * 2, sizeof pair);
        left[r] = vs_add(left[r], vs_twice(pair), b0);
        right[r] = vs_add(right[r], vs_twice(pair), b1);
      }
    }
    for (int r = 0; r < ROWS; r++) {
      vs_store(&sums[r][c], left[r]);
      vs_store(&sums[r][c + VL], right[r]);
    }
  }
}
#else
static void tile(const int16_t *a, const int16_t *b, int64_t pairs, uint32_t sums[ROWS][WIDTH]) {
  memset(sums, 0, ROWS * sizeof *sums);
  for (int64_t p = 0; p < pairs; p++, a += 2 * ROWS, b += 2 * WIDTH)
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < WIDTH; c++)
        sums[r][c] += (uint32_t)(a[2 * r] * b[2 * c] + a[2 * r + 1] * b[2 * c + 1]);
}
#endif

// ---- scales and zeros ------------------------------------------------------------------------------
typedef struct param {  // one number (step 0) or one per row or column
  const void *data;     // NULL: absent
  uint8_t dtype;
  int64_t step;
} param;

static param param_of(const itg_tensor *t) {
  return t ? (param){t->data, t->dtype, itg_count(t) > 1} : (param){NULL, 0, 0};
}
static param param_from(param p, int64_t first) {
  if (p.data) p.data = (const char *)p.data + p.step * first * (int64_t)itg_item(p.dtype);
  return p;
}
static float real(param p, int64_t i) { return (float)itg_load_f64(p.dtype, p.data, i * p.step); }
static int zero(param p, int64_t i) { return p.data ? (int)itg_load_i64(p.dtype, p.data, i * p.step) : 0; }

// Bytes are made 16-bit by (byte ^ flip) - flip, which extends the sign of i8 and leaves u8 alone.
static int flip_of(uint8_t dtype) { return dtype == ITG_I8 ? 0x80 : 0; }

// ---- the product -----------------------------------------------------------------------------------
typedef struct product {
  const uint8_t *a;  // rows x depth
  int a_flip;
  int64_t depth, out_step;  // out_step: elements between rows of the result
  param a_zero, a_scale, b_scale, y_scale, y_zero, bias;  // y_zero absent: the sums themselves are the result
  void *out;
} product;

static void pack_rows(const product *p, int64_t row, int64_t rows, int16_t *to) {
  if (rows < ROWS || p->depth % 2) memset(to, 0, (size_t)((p->depth + 1) / 2 * ROWS * 2) * sizeof *to);
  for (int64_t r = 0; r < rows; r++) {
    const uint8_t *a = p->a + (row + r) * p->depth;
    const int flip = p->a_flip, less = flip + zero(p->a_zero, row + r);
    int16_t *pair = to + 2 * r;
    for (int64_t k = 0; k + 1 < p->depth; k += 2, pair += 2 * ROWS) {
      pair[0] = (int16_t)((a[k] ^ flip) - less);
      pair[1] = (int16_t)((a[k + 1] ^ flip) - less);
    }
    if (p->depth % 2) pair[0] = (int16_t)((a[p->depth - 1] ^ flip) - less);
  }
}

static void finish(const product *p, uint32_t sums[ROWS][WIDTH], int64_t row, int64_t rows, int64_t column, int64_t n) {
  if (!p->y_zero.data) {
    for (int64_t r = 0; r < rows; r++)
      memcpy((int32_t *)p->out + (row + r) * p->out_step + column, sums[r], (size_t)n * sizeof(int32_t));
    return;
  }
  const float lo = p->y_zero.dtype == ITG_I8 ? -128 : 0, hi = p->y_zero.dtype == ITG_I8 ? 127 : 255;
  float b_scale[WIDTH] = {0};
  for (int64_t c = 0; c < n; c++) b_scale[c] = real(p->b_scale, column + c);
  for (int64_t r = 0; r < rows; r++) {
    const float a_scale = real(p->a_scale, row + r), y_scale = real(p->y_scale, row + r);
    const float y_zero = (float)zero(p->y_zero, row + r);
    const uint32_t bias = p->bias.data ? (uint32_t)zero(p->bias, row + r) : 0;
    uint8_t whole[WIDTH];
    for (int c = 0; c < WIDTH; c++) {
      const float y = rintf((float)(int32_t)(sums[r][c] + bias) * (a_scale * b_scale[c] / y_scale)) + y_zero;
      const float above = y > lo ? y : lo;
      whole[c] = (uint8_t)(int32_t)(above < hi ? above : hi);
    }
    memcpy((uint8_t *)p->out + (row + r) * p->out_step + column, whole, (size_t)n);
  }
}

// Rows [row, row_end) times the n packed columns from `column` on.
static void multiply(const product *p, int64_t row, int64_t row_end, int64_t column, int64_t n, const int16_t *b,
                     int16_t *a) {
  const int64_t pairs = (p->depth + 1) / 2;
  uint32_t sums[ROWS][WIDTH];
  for (; row < row_end; row += ROWS) {
    const int64_t rows = row_end - row < ROWS ? row_end - row : ROWS;
    pack_rows(p, row, rows, a);
    for (int64_t c = 0; c < n; c += WIDTH) {
      tile(a, b + c * pairs * 2, pairs, sums);
      finish(p, sums, row, rows, column + c, n - c < WIDTH ? n - c : WIDTH);
    }
  }
}

// ---- matrices --------------------------------------------------------------------------------------
typedef struct batch_axes {  // of the result, and how far each tensor moves along them
  int rank;
  int64_t extent[ITG_MAX_RANK];
} batch_axes;

// Offset of batch number i in t, whose axes before its last two are broadcast to those of the result.
static int64_t batch_offset(const batch_axes *axes, const itg_tensor *t, int64_t i) {
  int64_t step = t->rank > 1 ? t->shape[t->rank - 1] * t->shape[t->rank - 2] : 0, at = 0;
  for (int d = axes->rank - 1, own = t->rank - 3; own >= 0; d--, own--) {
    if (t->shape[own] > 1) at += i % axes->extent[d] * step;
    i /= axes->extent[d];
    step *= t->shape[own];
  }
  return at;
}

static param batch_param(const batch_axes *axes, const itg_tensor *t, int64_t i) {
  param p = param_of(t);
  if (t && t->rank > 2) {
    p.data = (const char *)p.data + batch_offset(axes, t, i) * (int64_t)itg_item(t->dtype);
    p.step = t->shape[t->rank - 1] * t->shape[t->rank - 2] > 1;
  }
  return p;
}

static void pack_matrix(int flip, const uint8_t *b, param b_zero, int64_t depth, int64_t width, int64_t column,
                        int64_t n, int16_t *to) {
  for (int64_t c = 0; c < n; c += WIDTH) {
    const int64_t m = n - c < WIDTH ? n - c : WIDTH;
    int16_t less[WIDTH] = {0};
    for (int64_t j = 0; j < m; j++) less[j] = (int16_t)(flip + zero(b_zero, column + c + j));
    for (int64_t k = 0; k < depth; k += 2, to += 2 * WIDTH) {
      const uint8_t *one = b + k * width + column + c, *two = one + width;
      if (m < WIDTH || k + 1 == depth) memset(to, 0, 2 * WIDTH * sizeof *to);
      for (int64_t j = 0; j < m; j++) to[2 * j] = (int16_t)((one[j] ^ flip) - less[j]);
      if (k + 1 == depth) continue;
      for (int64_t j = 0; j < m; j++) to[2 * j + 1] = (int16_t)((two[j] ^ flip) - less[j]);
    }
  }
}

typedef struct matmul_inputs {
  const itg_tensor *a, *a_scale, *a_zero, *b, *b_scale, *b_zero, *y_scale, *y_zero;
} matmul_inputs;

static itg_words matmul(const itg_call *call, const matmul_inputs *in, uint32_t part, uint32_t parts) {
  const itg_tensor *a = in->a, *b = in->b, *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int64_t depth = a->shape[a->rank - 1], height = a->rank > 1 ? a->shape[a->rank - 2] : 1;
  const int64_t width = b->rank > 1 ? b->shape[b->rank - 1] : 1;
  batch_axes axes = {.rank = out->rank - (a->rank > 1) - (b->rank > 1)};
  memcpy(axes.extent, out->shape, (size_t)axes.rank * sizeof *axes.extent);
  const int64_t row_chunks = (height - 1) / ITG_ROW_CHUNK + 1, chunks = (width - 1) / ITG_CHUNK + 1;
  int16_t *packed_b = (int16_t *)((char *)call->scratch + part * itg_packed_bytes(depth));
  int16_t *packed_a = packed_b + (depth + 1) / 2 * 2 * ITG_CHUNK;
  int64_t item, end;
  itg_share(itg_count_range(out, 0, axes.rank) * row_chunks * chunks, 1, part, parts, &item, &end);
  for (; item < end; item++) {
    const int64_t batch = item / (row_chunks * chunks), row = item / chunks % row_chunks * ITG_ROW_CHUNK;
    const int64_t column = item % chunks * ITG_CHUNK, n = width - column < ITG_CHUNK ? width - column : ITG_CHUNK;
    const product p = {
        .a = (const uint8_t *)a->data + batch_offset(&axes, a, batch),
        .a_flip = flip_of(a->dtype),
        .depth = depth,
        .out_step = width,
        .a_zero = batch_param(&axes, in->a_zero, batch),
        .a_scale = batch_param(&axes, in->a_scale, batch),
        .b_scale = batch_param(&axes, in->b_scale, batch),
        .y_scale = batch_param(&axes, in->y_scale, batch),
        .y_zero = batch_param(&axes, in->y_zero, batch),
        .out = (char *)out->data + batch * height * width * (int64_t)itg_item(out->dtype),
    };
    pack_matrix(flip_of(b->dtype), (const uint8_t *)b->data + batch_offset(&axes, b, batch),
                batch_param(&axes, in->b_zero, batch), depth, width, column, n, packed_b);
    multiply(&p, row, row + ITG_ROW_CHUNK < height ? row + ITG_ROW_CHUNK : height, column, n, packed_b, packed_a);
  }
  return NULL;
}

ITG_FN(matmul_integer, any) {
  const matmul_inputs in = {
      .a = call->in[0], .b = call->in[1], .a_zero = itg_input(call, 2), .b_zero = itg_input(call, 3)};
  return matmul(call, &in, part, parts);
}

ITG_FN(qlinear_matmul, any) {
  const itg_tensor *const *t = call->in;
  const matmul_inputs in = {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7]};
  return matmul(call, &in, part, parts);
}

// ---- convolution: weights are the rows, windows the columns ----------------------------------------
// One step of the depth (a place in the kernel on one channel) for n windows from number `first` on, 2 apart in `to`.
static void pack_tap(const itg_window *v, const uint8_t *x, const int64_t *tap, int flip, int less, int64_t first,
                     int64_t n, int16_t *to) {
  const int64_t plane = v->in[1] * v->in[2];
  while (n > 0) {
    const int64_t column = first % v->out[2], row = first / v->out[2] % v->out[1];
    const int64_t left = v->out[2] - column, m = left < n ? left : n;
    const int64_t z = first / v->out[2] / v->out[1] * v->stride[0] + tap[0] * v->dilation[0] - v->before[0];
    const int64_t y = row * v->stride[1] + tap[1] * v->dilation[1] - v->before[1];
    const int64_t step = v->stride[2], from = column * step + tap[2] * v->dilation[2] - v->before[2];
    // windows [begin, end) of these m see the tensor, the others its padding
    int64_t begin = from < 0 ? (step - 1 - from) / step : 0, end = (v->in[2] - from + step - 1) / step;
    if (z < 0 || z >= v->in[0] || y < 0 || y >= v->in[1] || from >= v->in[2]) end = 0;
    end = end < m ? end : m;
    begin = begin < end ? begin : end;
    const int64_t pixel = z * plane + y * v->in[2] + from;
    for (int64_t i = 0; i < begin; i++) to[2 * i] = 0;
    for (int64_t i = begin; i < end; i++) to[2 * i] = (int16_t)((x[pixel + i * step] ^ flip) - less);
    for (int64_t i = end; i < m; i++) to[2 * i] = 0;
    to += 2 * m;
    first += m;
    n -= m;
  }
}

static void pack_windows(const itg_window *v, const uint8_t *x, int64_t depth, int flip, int less, int64_t column,
                         int64_t n, int16_t *to) {
  const int64_t image = itg_places(v->in);
  for (int64_t c = 0; c < n; c += WIDTH) {
    const int64_t m = n - c < WIDTH ? n - c : WIDTH;
    int64_t tap[3] = {0, 0, 0};
    const uint8_t *channel = x;
    for (int64_t k = 0; k < (depth + 1) / 2 * 2; k++, to += k % 2 ? 1 : 2 * WIDTH - 1) {
      if (m < WIDTH || k == depth)
        for (int64_t i = 0; i < WIDTH; i++) to[2 * i] = 0;
      if (k == depth) continue;
      pack_tap(v, channel, tap, flip, less, column + c, m, to);
      for (int d = 2; d >= 0 && ++tap[d] == v->kernel[d]; d--) {
        tap[d] = 0;
        if (d == 0) channel += image;
      }
    }
  }
}

typedef struct conv_inputs {
  const itg_tensor *x, *x_scale, *x_zero, *w, *w_scale, *w_zero, *y_scale, *y_zero, *bias;
} conv_inputs;

static itg_words conv(const itg_call *call, const conv_inputs *in, uint32_t part, uint32_t parts) {
  const itg_attrs_conv_integer *attrs = call->attrs;
  const itg_tensor *x = in->x, *w = in->w, *out = call->out[0];
  if (itg_empty(out)) return NULL;
  itg_window v;  // infer has found it sound
  itg_window_of(x, 2, x->rank - 2, w->shape + 2, attrs->stride, attrs->dilation, attrs->pad, &v);
  for (int i = 2; i < out->rank; i++) v.out[ITG_AXES - out->rank + i] = out->shape[i];
  const int64_t groups = attrs->groups, depth = itg_count_range(w, 1, w->rank), height = w->shape[0] / groups;
  const int64_t image = itg_places(v.in), width = itg_places(v.out);
  const int64_t row_chunks = (height - 1) / ITG_ROW_CHUNK + 1, chunks = (width - 1) / ITG_CHUNK + 1;
  int16_t *packed_b = (int16_t *)((char *)call->scratch + part * itg_packed_bytes(depth));
  int16_t *packed_a = packed_b + (depth + 1) / 2 * 2 * ITG_CHUNK;
  int64_t item, end;
  itg_share(x->shape[0] * groups * row_chunks * chunks, 1, part, parts, &item, &end);
  for (; item < end; item++) {
    const int64_t batch = item / (row_chunks * chunks), group = batch % groups;  // batch counts images x groups
    const int64_t row = item / chunks % row_chunks * ITG_ROW_CHUNK;
    const int64_t column = item % chunks * ITG_CHUNK, n = width - column < ITG_CHUNK ? width - column : ITG_CHUNK;
    const product p = {
        .a = (const uint8_t *)w->data + group * height * depth,
        .a_flip = flip_of(w->dtype),
        .depth = depth,
        .out_step = width,
        .a_zero = param_from(param_of(in->w_zero), group * height),
        .a_scale = param_from(param_of(in->w_scale), group * height),
        .b_scale = param_of(in->x_scale),
        .y_scale = param_of(in->y_scale),
        .y_zero = param_of(in->y_zero),
        .bias = param_from(param_of(in->bias), group * height),
        .out = (char *)out->data + batch * height * width * (int64_t)itg_item(out->dtype),
    };
    pack_windows(&v, (const uint8_t *)x->data + batch * w->shape[1] * image, depth, flip_of(x->dtype),
                 flip_of(x->dtype) + zero(param_of(in->x_zero), 0), column, n, packed_b);
    multiply(&p, row, row + ITG_ROW_CHUNK < height ? row + ITG_ROW_CHUNK : height, column, n, packed_b, packed_a);
  }
  return NULL;
}

ITG_FN(conv_integer, any) {
  const conv_inputs in = {
      .x = call->in[0], .w = call->in[1], .x_zero = itg_input(call, 2), .w_zero = itg_input(call, 3)};
  return conv(call, &in, part, parts);
}

_Static_assert(sizeof(itg_attrs_qlinear_conv) == sizeof(itg_attrs_conv_integer), "one struct serves both");

ITG_FN(qlinear_conv, any) {
  const itg_tensor *const *t = call->in;
  const conv_inputs in = {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], itg_input(call, 8)};
  return conv(call, &in, part, parts);
}
