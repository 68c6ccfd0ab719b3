// matmul_integer and qlinear_matmul.
#include "integer_product.h"

typedef struct batch_axes {  // of the result
  int rank;
  int64_t extent[ITG_MAX_RANK];
} batch_axes;

// Offset of batch number i in t. The axes of t before its last two are broadcast to those of the
// result.
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

static void pack_matrix(int flip, const uint8_t *b, param b_zero, int64_t depth, int64_t width,
                        int64_t column, int64_t n, int16_t *to) {
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

// ---- few rows: packing the matrix would not pay -------------------------------------------------
// sums[c] = sum over the depth of a * (b ^ flip) for WIDTH columns, two lines of b at a time.
static void stream(const int32_t *pairs, int64_t depth, const uint8_t *b, int64_t width, int flip,
                   uint32_t *sums) {
#if defined(ISA_avx512) || defined(ISA_avx2)
  __m256i low[2], high[2];
  const __m128i turn = _mm_set1_epi8((char)flip);
  for (int h = 0; h < 2; h++) low[h] = high[h] = _mm256_setzero_si256();
  for (int64_t k = 0; k < depth; k += 2) {
    const __m256i pair = _mm256_set1_epi32(pairs[k / 2]);
    const uint8_t *one = b + k * width, *two = k + 1 < depth ? one + width : one;
    for (int h = 0; h < 2; h++) {
      const __m256i x = _mm256_cvtepu8_epi16(
          _mm_xor_si128(_mm_loadu_si128((const __m128i *)(one + 16 * h)), turn));
      const __m256i y = _mm256_cvtepu8_epi16(
          _mm_xor_si128(_mm_loadu_si128((const __m128i *)(two + 16 * h)), turn));
      low[h] = _mm256_add_epi32(low[h], _mm256_madd_epi16(_mm256_unpacklo_epi16(x, y), pair));
      high[h] = _mm256_add_epi32(high[h], _mm256_madd_epi16(_mm256_unpackhi_epi16(x, y), pair));
    }
  }
  for (int h = 0; h < 2; h++) {  // restores the order: unpacking works within 128 bits
    _mm256_storeu_si256((__m256i *)(sums + 16 * h),
                        _mm256_permute2x128_si256(low[h], high[h], 0x20));
    _mm256_storeu_si256((__m256i *)(sums + 16 * h + 8),
                        _mm256_permute2x128_si256(low[h], high[h], 0x31));
  }
#else
  memset(sums, 0, WIDTH * sizeof *sums);
  for (int64_t k = 0; k < depth; k++) {
    const int16_t a = (int16_t)(k % 2 ? pairs[k / 2] >> 16 : pairs[k / 2] & 0xffff);
    for (int c = 0; c < WIDTH; c++) sums[c] += (uint32_t)(a * (b[k * width + c] ^ flip));
  }
#endif
}

// Multiplies row `row` with columns [column, column + n) of a matrix of at least WIDTH columns.
static void multiply_row(const product *p, int64_t row, const uint8_t *b, int flip, param b_zero,
                         int64_t column, int64_t n, int32_t *pairs) {
  const uint8_t *a = p->a + row * p->depth;
  const int less = p->a_flip + zero(p->a_zero, row);
  const row_end end = row_end_of(p, row);
  uint32_t total = 0, sums[2 * WIDTH] = {0};
  for (int64_t k = 0; k < p->depth; k++) {
    const uint32_t v = (uint32_t)((a[k] ^ p->a_flip) - less);
    total += v;
    pairs[k / 2] = (int32_t)(k % 2 ? (uint32_t)pairs[k / 2] | v << 16 : v & 0xffff);
  }
  for (int64_t c = column; c < column + n; c += WIDTH) {
    const int64_t first =
        c + WIDTH <= p->out_step ? c : p->out_step - WIDTH;  // never read past the end of a line
    const int64_t m = first + WIDTH - c < column + n - c ? first + WIDTH - c : column + n - c;
    stream(pairs, p->depth, b + first, p->out_step, flip, sums);
    for (int64_t i = 0; i < WIDTH; i++)
      sums[i] -= total * (uint32_t)(flip + zero(b_zero, first + i));
    finish(p, &end, sums + (c - first), c, m, row * p->out_step + c);
  }
}

typedef struct matmul_inputs {
  const itg_tensor *a, *a_scale, *a_zero, *b, *b_scale, *b_zero, *y_scale, *y_zero;
} matmul_inputs;

static itg_words matmul(const itg_call *call, const matmul_inputs *in, uint32_t part,
                        uint32_t parts) {
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
    const int64_t batch = item / (row_chunks * chunks),
                  row = item / chunks % row_chunks * ITG_ROW_CHUNK;
    const int64_t column = item % chunks * ITG_CHUNK,
                  n = width - column < ITG_CHUNK ? width - column : ITG_CHUNK;
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
    const uint8_t *matrix = (const uint8_t *)b->data + batch_offset(&axes, b, batch);
    const param b_zero = batch_param(&axes, in->b_zero, batch);
    if (height < ROWS && width >= WIDTH) {
      for (int64_t r = 0; r < height; r++)
        multiply_row(&p, r, matrix, flip_of(b->dtype), b_zero, column, n, (int32_t *)packed_a);
      continue;
    }
    pack_matrix(flip_of(b->dtype), matrix, b_zero, depth, width, column, n, packed_b);
    multiply(&p, row, row + ITG_ROW_CHUNK < height ? row + ITG_ROW_CHUNK : height, column, n,
             packed_b, packed_a);
  }
  return NULL;
}

ITG_FN(matmul_integer, any) {
  const matmul_inputs in = {.a = call->in[0],
                            .b = call->in[1],
                            .a_zero = itg_input(call, 2),
                            .b_zero = itg_input(call, 3)};
  return matmul(call, &in, part, parts);
}

ITG_FN(qlinear_matmul, any) {
  const itg_tensor *const *t = call->in;
  const matmul_inputs in = {
      t[0], t[1], t[2], t[3], t[4], t[5], itg_input(call, 6), itg_input(call, 7)};
  return matmul(call, &in, part, parts);
}
