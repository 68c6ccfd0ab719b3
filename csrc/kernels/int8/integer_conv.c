// conv_integer and qlinear_conv.
#include "integer_product.h"
#include "window.h"

typedef struct run {     // neighbouring windows of one output line
  int64_t n, origin[3];  // their number; origin of the first one in the image, negative in padding
} run;

static int64_t runs_of(const itg_window *v, int64_t first, int64_t n, run *runs) {
  int64_t count = 0;
  while (n > 0) {
    const int64_t column = first % v->out[2], line = first / v->out[2];
    const int64_t left = v->out[2] - column, m = left < n ? left : n;
    runs[count++] = (run){
        m,
        {line / v->out[1] * v->stride[0] - v->before[0],
         line % v->out[1] * v->stride[1] - v->before[1], column * v->stride[2] - v->before[2]}};
    first += m;
    n -= m;
  }
  return count;
}

// Copies the inputs of WIDTH windows at one tap and one channel; padding is 0.
static void pack_tap(const itg_window *v, const uint8_t *x, const int64_t *tap, int flip, int less,
                     const run *runs, int64_t count, int16_t *to) {
  for (int64_t r = 0; r < count; r++) {
    const int64_t z = runs[r].origin[0] + tap[0] * v->dilation[0],
                  y = runs[r].origin[1] + tap[1] * v->dilation[1];
    const int64_t step = v->stride[2], from = runs[r].origin[2] + tap[2] * v->dilation[2],
                  m = runs[r].n;
    // windows [begin, end) of these m see the image
    int64_t begin = from < 0 ? (step - 1 - from) / step : 0, end = 0;
    if (z >= 0 && z < v->in[0] && y >= 0 && y < v->in[1] && from < v->in[2])
      end = step == 1 ? v->in[2] - from : (v->in[2] - from + step - 1) / step;
    end = end < m ? end : m;
    begin = begin < end ? begin : end;
    const int64_t pixel = (z * v->in[1] + y) * v->in[2] + from;
    for (int64_t i = 0; i < begin; i++) to[i] = 0;
    if (step == 1)
      for (int64_t i = begin; i < end; i++) to[i] = (int16_t)((x[pixel + i] ^ flip) - less);
    else
      for (int64_t i = begin; i < end; i++) to[i] = (int16_t)((x[pixel + i * step] ^ flip) - less);
    for (int64_t i = end; i < m; i++) to[i] = 0;
    to += m;
  }
}

// The WIDTH neighbouring pixels that the WIDTH windows of one run read at a tap; NULL if they read
// other pixels or padding.
static const uint8_t *unbroken(const itg_window *v, const uint8_t *x, const int64_t *tap,
                               const run *r) {
  const int64_t z = r->origin[0] + tap[0] * v->dilation[0],
                y = r->origin[1] + tap[1] * v->dilation[1];
  const int64_t from = r->origin[2] + tap[2] * v->dilation[2];
  const bool all = r->n == WIDTH && v->stride[2] == 1 && from >= 0 && from + WIDTH <= v->in[2];
  const bool inside = z >= 0 && z < v->in[0] && y >= 0 && y < v->in[1];
  return all && inside ? x + (z * v->in[1] + y) * v->in[2] + from : NULL;
}

static void next_tap(const itg_window *v, int64_t *tap, const uint8_t **channel) {
  for (int d = 2; d >= 0 && ++tap[d] == v->kernel[d]; d--) {
    tap[d] = 0;
    if (d == 0) *channel += itg_places(v->in);
  }
}

static void pack_windows(const itg_window *v, const uint8_t *x, int64_t depth, int flip, int less,
                         int64_t column, int64_t n, int16_t *to) {
  const int16_t shift = (int16_t)less;
  for (int64_t c = 0; c < n; c += WIDTH) {
    run runs[WIDTH];
    const int64_t count = runs_of(v, column + c, n - c < WIDTH ? n - c : WIDTH, runs);
    int64_t tap[3] = {0, 0, 0};
    int16_t both[2][WIDTH] = {{0}};
    const uint8_t *channel = x;
    for (int64_t k = 0; k < depth; k += 2, to += 2 * WIDTH) {
      const uint8_t *seen[2] = {NULL, NULL};
      for (int64_t h = 0; h < 2; h++) {
        if (k + h == depth) {
          memset(both[1], 0, sizeof both[1]);
          continue;
        }
        seen[h] = unbroken(v, channel, tap, runs);
        if (!seen[h]) pack_tap(v, channel, tap, flip, less, runs, count, both[h]);
        next_tap(v, tap, &channel);
      }
      if (seen[0] && seen[1]) {
        for (int i = 0; i < WIDTH; i++) {
          to[2 * i] = (int16_t)((seen[0][i] ^ flip) - shift);
          to[2 * i + 1] = (int16_t)((seen[1][i] ^ flip) - shift);
        }
        continue;
      }
      for (int h = 0; h < 2; h++)
        for (int i = 0; i < WIDTH && seen[h]; i++)
          both[h][i] = (int16_t)((seen[h][i] ^ flip) - shift);
      for (int i = 0; i < WIDTH; i++) {
        to[2 * i] = both[0][i];
        to[2 * i + 1] = both[1][i];
      }
    }
  }
}

typedef struct conv_inputs {
  const itg_tensor *x, *x_scale, *x_zero, *w, *w_scale, *w_zero, *y_scale, *y_zero, *bias,
      *residual, *r_scale, *r_zero;
} conv_inputs;

// ---- depthwise ----------------------------------------------------------------------------------
// The padded image is split into planes by line and column modulo the stride. So the inputs of all
// windows at one tap are contiguous in memory, a stream. Two taps are multiplied at a time.
static void spread(const itg_window *v, const itg_planes *g, const uint8_t *x, int flip, int less,
                   int16_t *to) {
  memset(to, 0, (size_t)itg_planes_count(g) * sizeof *to);
  for (int64_t y = 0; y < v->in[1]; y++) {
    const int64_t line = y + v->before[1], row = line / v->stride[1];
    if (row >= g->rows) continue;
    for (int64_t phase = 0; phase < v->stride[2]; phase++) {
      // this plane holds the padded columns phase, phase + stride, ...; [first, last) are inside
      // the image
      const int64_t step = v->stride[2];
      int64_t first = v->before[2] > phase ? (v->before[2] - phase + step - 1) / step : 0;
      int64_t last = (v->in[2] + v->before[2] - phase + step - 1) / step;
      last = last < g->pitch ? last : g->pitch;
      int16_t *out = to + ((line % v->stride[1] * step + phase) * g->rows + row) * g->pitch;
      const int64_t pixel = y * v->in[2] + phase - v->before[2];
      if (step == 1)
        for (int64_t i = first; i < last; i++) out[i] = (int16_t)((x[pixel + i] ^ flip) - less);
      else if (step == 2)  // a constant, so that GCC vectorises this loop too
        for (int64_t i = first; i < last; i++) out[i] = (int16_t)((x[pixel + 2 * i] ^ flip) - less);
      else
        for (int64_t i = first; i < last; i++)
          out[i] = (int16_t)((x[pixel + i * step] ^ flip) - less);
    }
  }
}

// sums[i] = sum over pairs p of taps[p][0][at + i] * lower half of weights[p] + taps[p][1][at + i]
// * upper half
#if defined(ISA_avx512) || defined(ISA_avx2)
static void streams(const int16_t *const (*taps)[2], const int32_t *weights, int64_t pairs,
                    int64_t at, uint32_t *sums) {
  __m256i low[2], high[2];
  for (int h = 0; h < 2; h++) low[h] = high[h] = _mm256_setzero_si256();
  for (int64_t p = 0; p < pairs; p++) {
    const __m256i w = _mm256_set1_epi32(weights[p]);
    for (int h = 0; h < 2; h++) {
      const __m256i a = _mm256_loadu_si256((const __m256i *)(taps[p][0] + at + 16 * h));
      const __m256i b = _mm256_loadu_si256((const __m256i *)(taps[p][1] + at + 16 * h));
      low[h] = _mm256_add_epi32(low[h], _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w));
      high[h] = _mm256_add_epi32(high[h], _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w));
    }
  }
  for (int h = 0; h < 2; h++) {  // restores the order: unpacking works within 128 bits
    _mm256_storeu_si256((__m256i *)(sums + 16 * h),
                        _mm256_permute2x128_si256(low[h], high[h], 0x20));
    _mm256_storeu_si256((__m256i *)(sums + 16 * h + 8),
                        _mm256_permute2x128_si256(low[h], high[h], 0x31));
  }
}
#else
static void streams(const int16_t *const (*taps)[2], const int32_t *weights, int64_t pairs,
                    int64_t at, uint32_t *sums) {
  memset(sums, 0, WIDTH * sizeof *sums);
  for (int64_t p = 0; p < pairs; p++) {
    const int16_t left = (int16_t)(weights[p] & 0xffff), right = (int16_t)(weights[p] >> 16);
    for (int i = 0; i < WIDTH; i++)
      sums[i] += (uint32_t)(taps[p][0][at + i] * left + taps[p][1][at + i] * right);
  }
}
#endif

static itg_words depthwise(const itg_call *call, const conv_inputs *in, const itg_window *v,
                           uint32_t part, uint32_t parts) {
  const itg_tensor *x = in->x, *w = in->w, *out = call->out[0];
  const itg_planes g = itg_planes_of(v);
  const int64_t channels = x->shape[1], each = w->shape[0] / channels, taps = itg_taps(v),
                pairs = (taps + 1) / 2;
  const int64_t image = itg_places(v->in), width = itg_places(v->out),
                item = (int64_t)itg_item(out->dtype);
  int16_t *planes = (int16_t *)((char *)call->scratch + part * itg_depthwise8_bytes(v));
  char *results = (char *)(planes + itg_planes_count(&g));
  const product p = {.a_scale = param_of(in->w_scale),
                     .b_scale = param_of(in->x_scale),
                     .y_scale = param_of(in->y_scale),
                     .y_zero = param_of(in->y_zero),
                     .bias = param_of(in->bias),
                     .out = results};
  int64_t i, end;
  itg_share(x->shape[0] * channels, 1, part, parts, &i, &end);
  for (; i < end; i++) {
    const int flip = flip_of(x->dtype), w_flip = flip_of(w->dtype);
    spread(v, &g, (const uint8_t *)x->data + i * image, flip, flip + zero(param_of(in->x_zero), 0),
           planes);
    for (int64_t row = i % channels * each; row < (i % channels + 1) * each; row++) {
      const int16_t *streamed[ITG_DEPTHWISE8_TAPS / 2][2];
      int32_t weights[ITG_DEPTHWISE8_TAPS / 2];
      for (int64_t t = 0; t < 2 * pairs; t++) {
        const int64_t y = t / v->kernel[2] * v->dilation[1], z = t % v->kernel[2] * v->dilation[2];
        const int64_t plane = y % v->stride[1] * v->stride[2] + z % v->stride[2];
        const int64_t at = (plane * g.rows + y / v->stride[1]) * g.pitch + z / v->stride[2];
        streamed[t / 2][t % 2] = planes + (t < taps ? at : 0);
        const int k = t < taps ? (((const uint8_t *)w->data)[row * taps + t] ^ w_flip) - w_flip : 0;
        const uint32_t less =
            t < taps ? (uint32_t)(k - zero(param_of(in->w_zero), row)) & 0xffff : 0;
        weights[t / 2] = (int32_t)(t % 2 ? (uint32_t)weights[t / 2] | less << 16 : less);
      }
      const row_end end_of_row = row_end_of(&p, row);
      const int64_t size = v->out[1] * g.pitch;
      for (int64_t at = 0; at < size; at += WIDTH) {
        uint32_t sums[WIDTH];
        streams(streamed, weights, pairs, at, sums);
        finish(&p, &end_of_row, sums, 0, size - at < WIDTH ? size - at : WIDTH, at);
      }
      char *to = (char *)out->data + (i / channels * w->shape[0] + row) * width * item;
      for (int64_t line = 0; line < v->out[1]; line++)
        memcpy(to + line * v->out[2] * item, results + line * g.pitch * item,
               (size_t)(v->out[2] * item));
    }
  }
  return NULL;
}

// ---- other convolutions: weights are the rows, windows the columns ------------------------------
static itg_words conv(const itg_call *call, const conv_inputs *in, uint32_t part, uint32_t parts) {
  const itg_attrs_conv_integer *attrs = call->attrs;
  const itg_tensor *x = in->x, *w = in->w, *out = call->out[0];
  if (itg_empty(out)) return NULL;
  itg_window v = itg_conv8_window(x, w, attrs, out);
  if (!in->residual && itg_is_depthwise8(x, w, &v)) return depthwise(call, in, &v, part, parts);
  if (itg_taps(&v) == 1 && itg_places(v.stride) == 1 && itg_places(v.in) == itg_places(v.out)) {
    // 1x1 without padding: all pixels are one line of windows
    v.in[2] = v.out[2] = itg_places(v.in);
    v.in[0] = v.in[1] = v.out[0] = v.out[1] = 1;
  }
  const int64_t groups = attrs->groups, depth = itg_count_range(w, 1, w->rank),
                height = w->shape[0] / groups;
  const int64_t image = itg_places(v.in), width = itg_places(v.out);
  const int64_t row_chunks = (height - 1) / ITG_ROW_CHUNK + 1, chunks = (width - 1) / ITG_CHUNK + 1;
  int16_t *packed_b = (int16_t *)((char *)call->scratch + part * itg_packed_bytes(depth));
  int16_t *packed_a = packed_b + (depth + 1) / 2 * 2 * ITG_CHUNK;
  int64_t item, end;
  itg_share(x->shape[0] * groups * row_chunks * chunks, 1, part, parts, &item, &end);
  for (; item < end; item++) {
    const int64_t batch = item / (row_chunks * chunks),
                  group = batch % groups;  // batch counts images x groups
    const int64_t row = item / chunks % row_chunks * ITG_ROW_CHUNK;
    const int64_t column = item % chunks * ITG_CHUNK,
                  n = width - column < ITG_CHUNK ? width - column : ITG_CHUNK;
    const int64_t first = batch * height * width;  // of the result of this group
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
        .r_scale = param_of(in->r_scale),
        .r_zero = param_of(in->r_zero),
        .residual = in->residual
                        ? (char *)in->residual->data + first * (int64_t)itg_item(out->dtype)
                        : NULL,
        .out = (char *)out->data + first * (int64_t)itg_item(out->dtype),
    };
    pack_windows(&v, (const uint8_t *)x->data + batch * w->shape[1] * image, depth,
                 flip_of(x->dtype), flip_of(x->dtype) + zero(param_of(in->x_zero), 0), column, n,
                 packed_b);
    multiply(&p, row, row + ITG_ROW_CHUNK < height ? row + ITG_ROW_CHUNK : height, column, n,
             packed_b, packed_a);
  }
  return NULL;
}

ITG_FN(conv_integer, any) {
  const conv_inputs in = {.x = call->in[0],
                          .w = call->in[1],
                          .x_zero = itg_input(call, 2),
                          .w_zero = itg_input(call, 3)};
  return conv(call, &in, part, parts);
}

_Static_assert(sizeof(itg_attrs_qlinear_conv) == sizeof(itg_attrs_conv_integer),
               "one struct serves both");

ITG_FN(qlinear_conv, any) {
  const itg_tensor *const *t = call->in;
  const conv_inputs in = {t[0],
                          t[1],
                          t[2],
                          t[3],
                          t[4],
                          t[5],
                          itg_input(call, 6),
                          itg_input(call, 7),
                          itg_input(call, 8),
                          itg_input(call, 9),
                          itg_input(call, 10),
                          itg_input(call, 11)};
  return conv(call, &in, part, parts);
}
