// Epilogues of the register tile of 8-bit products: sums to results. Included by qtile_sum.h.
//
// sum[m][v] holds row m and vector v of QL columns. A sum becomes a byte by
//   float(sum) * scale [+ residual], rounded, + zero, narrowed to 8 bits [, looked up in a table].
#pragma once
#include "qtile.h"

enum { PARTS = ITG_PANEL / QL, VECTORS = ITG_QTILE_PANELS * PARTS, MOST_ROWS = 12 };

typedef struct span span;
// Converts and stores m rows of n vectors each; vector v of row r is sum[r * VECTORS + v].
typedef void (*store_fn)(int m, int n, const itg_qproduct *p, const span *s, const itg_qrow *rows,
                         const vq *sum);

struct span {  // the columns of one call; parameters are padded to whole vectors
  const uint8_t *b;
  const int32_t *bias, *w_zero;
  const float *scale;
  int64_t column, columns;
#if defined(ISA_avx512)
  __mmask16 some[VECTORS];  // mask of the columns that each vector has
#else
  int64_t some[VECTORS];  // number of columns that each vector has
#endif
  bool plain;      // i8 results without residual, table or clamp: finish_plain converts registers
  store_fn store;  // all other epilogues take the sums from memory
};

// Stores one vector of bytes: N vectors of sums for each of ROWS rows. With AVX-512 it holds 4 x 16
// columns: one row of up to four vectors, two rows of two, or four rows of one.
INLINE void put_bytes(const int N, const int ROWS, uint8_t *out, const int64_t *at, const span *s,
                      vq bytes) {
#if defined(ISA_avx512)
  const __m256i half[2] = {_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64(bytes, 1)};
  const bool whole = s->columns == N * QL;
  if (N > 2) {  // two 32-byte stores delay the products of the next tile less than one of 64 bytes
    if (!whole) {
      _mm512_mask_storeu_epi8(out + at[0], ~(__mmask64)0 >> (64 - s->columns), bytes);
    } else {
      _mm256_storeu_si256((__m256i *)(out + at[0]), half[0]);
      if (N == 4) _mm256_storeu_si256((__m256i *)(out + at[0] + 32), half[1]);
      else _mm_storeu_si128((__m128i *)(out + at[0] + 32), _mm256_castsi256_si128(half[1]));
    }
  } else if (N == 2) {
    FOR_UNROLLED (16, int r = 0; r < ROWS; r++) {
      if (whole) _mm256_storeu_si256((__m256i *)(out + at[r]), half[r]);
      else _mm256_mask_storeu_epi8(out + at[r], ~(__mmask32)0 >> (32 - s->columns), half[r]);
    }
  } else {
    const __m128i part[4] = {_mm256_castsi256_si128(half[0]), _mm256_extracti128_si256(half[0], 1),
                             _mm256_castsi256_si128(half[1]), _mm256_extracti128_si256(half[1], 1)};
    FOR_UNROLLED (16, int r = 0; r < ROWS; r++) {
      if (whole) _mm_storeu_si128((__m128i *)(out + at[r]), part[r]);
      else _mm_mask_storeu_epi8(out + at[r], (__mmask16)(0xffff >> (16 - s->columns)), part[r]);
    }
  }
#else
  const __m128i part[2] = {_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)};
  FOR_UNROLLED (16, int r = 0; r < ROWS; r++) {
    if (s->columns == ITG_PANEL) {
      _mm_storeu_si128((__m128i *)(out + at[r]), part[r]);
    } else {
      uint8_t some[ITG_PANEL];
      _mm_storeu_si128((__m128i *)some, part[r]);
      memcpy(out + at[r], some, (size_t)s->columns);
    }
  }
#endif
}

#if defined(ISA_avx512)
// Narrows one vector of 16 numbers to bytes and stores them. The conversion runs on other ports
// than the next tile's products, and a narrow store delays these less.
INLINE void put_vector(vq y, uint8_t *to, __mmask16 some, const int SIGNED) {
  if (SIGNED) _mm512_mask_cvtsepi32_storeu_epi8(to, some, y);
  else _mm512_mask_cvtusepi32_storeu_epi8(to, some, _mm512_max_epi32(y, vq_set(0)));
}

// Stores N vectors of one row as bytes, one vector at a time.
INLINE void finish_row(const int N, const int SIGNED, const itg_requantize *end, const span *s,
                       uint8_t *out, int64_t at, const vq *sum) {
  const vq zero = vq_set(end->zero);
  FOR_UNROLLED (16, int v = 0; v < N; v++) {
    vf y = vmul(vq_floats(sum[v]), vload(s->scale + v * QL));
    if (end->residual) y = vadd(y, vq_residual(end, end->residual + at + v * QL, s->some[v]));
    if (!end->saturates) y = vmin(vmax(y, vset(end->lo)), vset(end->hi));
    put_vector(vq_add(vq_rounded(y), zero), out + at + v * QL, s->some[v], SIGNED);
  }
}

// The most common epilogue: i8 without a residual, saturated by narrowing. The sums stay in
// registers.
INLINE void finish_plain(const int M, const int N, const itg_qproduct *p, const span *s,
                         const itg_qrow *rows, vq (*sum)[VECTORS]) {
  const vq zero = vq_set(p->end->zero);
  const float *scale = s->scale;
  uint8_t *out = (uint8_t *)p->out;
  int64_t at[MOST_ROWS];
  FOR_UNROLLED (16, int m = 0; m < M; m++) at[m] = rows[m].out + s->column;
  __mmask16 some[VECTORS];
  FOR_UNROLLED (16, int v = 0; v < N; v++) some[v] = s->some[v];
  FOR_UNROLLED (16, int m = 0; m < M; m++)
    FOR_UNROLLED (16, int v = 0; v < N; v++) {
      const vf y = vmul(vq_floats(sum[m][v]), vload(scale + v * QL));
      put_vector(vq_add(vq_rounded(y), zero), out + at[m] + v * QL, some[v], 1);
    }
}
#endif

// Converts the n * N vectors of n rows to one vector of bytes and stores it.
INLINE void finish_group(const int N, const int n, const itg_requantize *end, vq_end all,
                         const span *s, uint8_t *out, const int64_t *at, const vq (*sum)[VECTORS]) {
  vf y[4];
  FOR_UNROLLED (16, int i = 0; i < n * N; i++)
    y[i] = vmul(vq_floats(sum[i / N][i % N]), vload(s->scale + i % N * QL));
  if (end->residual)
    FOR_UNROLLED (16, int i = 0; i < n * N; i++)
      y[i] = vadd(y[i], vq_residual(end, end->residual + at[i / N] + i % N * QL, s->some[i % N]));
  if (!end->saturates && !vq_bounds_later(end))
    FOR_UNROLLED (16, int i = 0; i < n * N; i++) y[i] = vmin(vmax(y[i], all.lo), all.hi);
  vq bytes;
  if (end->entries > 256 || end->pieces) {
    vq whole[4];
    FOR_UNROLLED (16, int i = 0; i < n * N; i++) whole[i] = vq_add(vq_rounded(y[i]), all.zero);
    bytes = vq_lookup_wide(whole, n * N, end);
  } else {
    bytes = vq_in_order(vq_narrow(y, n * N, all));
    if (end->table) bytes = vq_lookup(bytes, end->table);
  }
  put_bytes(N, n, out, at, s, bytes);
}

// Stores m rows as bytes, as many rows at a time as fill one vector of bytes.
INLINE void store_groups(const int N, int m, const itg_qproduct *p, const span *s,
                         const itg_qrow *rows, const vq *sum) {
  const int ROWS = N >= 3 ? 1 : 4 / N;
  const vq_end all = vq_end_of(p->end);
  int64_t at[4] = {0};
  for (; m > 0; m -= ROWS, rows += ROWS, sum += ROWS * VECTORS) {
    const vq(*group)[VECTORS] = (const vq(*)[VECTORS])sum;
    for (int r = 0; r < ROWS && r < m; r++) at[r] = rows[r].out + s->column;
    if (m >= ROWS) finish_group(N, ROWS, p->end, all, s, p->out, at, group);
    else
      for (int r = 0; r < m; r++) finish_group(N, 1, p->end, all, s, p->out, at + r, group + r);
  }
}

#if defined(ISA_avx512)
INLINE void store_rows(const int N, int m, const itg_qproduct *p, const span *s,
                       const itg_qrow *rows, const vq *sum) {
  for (int r = 0; r < m; r++, sum += VECTORS) {
    if (p->end->high) finish_row(N, 1, p->end, s, p->out, rows[r].out + s->column, sum);
    else finish_row(N, 0, p->end, s, p->out, rows[r].out + s->column, sum);
  }
}
#endif

INLINE void store_vectors(const int N, int m, const itg_qproduct *p, const span *s,
                          const itg_qrow *rows, const vq *sum) {
#if defined(ISA_avx512)
  if (!p->end->table) {
    store_rows(N, m, p, s, rows, sum);
    return;
  }
#endif
  store_groups(N, m, p, s, rows, sum);
}

// Stores bytes; n is the number of vectors per row.
static void store_bytes(int m, int n, const itg_qproduct *p, const span *s, const itg_qrow *rows,
                        const vq *sum) {
#if defined(ISA_avx512)
  if (n == 1) store_vectors(1, m, p, s, rows, sum);
  else if (n == 2) store_vectors(2, m, p, s, rows, sum);
#if defined(ISA_avx512vnni)
  else if (n == 3) store_vectors(3, m, p, s, rows, sum);
  else store_vectors(4, m, p, s, rows, sum);
#endif
#else
  store_vectors(PARTS, m, p, s, rows, sum);
#endif
}

// Stores the first n < 16 floats of a vector. Masked stores are slow, above all across two cache
// lines, so most counts use unmasked stores of 8, 4, 2 and 1 floats.
INLINE void put_few(float *to, int64_t n, vf y) {
#if defined(ISA_avx512)
  __m128 four = _mm512_castps512_ps128(y);
  if (n >= 8) {
    if (n == 8) _mm256_storeu_ps(to, _mm512_castps512_ps256(y));
    else vstoren(to, n, y);
    return;
  }
  if (n >= 4) {
    _mm_storeu_ps(to, four);
    four = _mm512_extractf32x4_ps(y, 1);
    to += 4, n -= 4;
  }
  if (n >= 2) {
    _mm_storel_pi((__m64 *)to, four);
    four = _mm_movehl_ps(four, four);
    to += 2, n -= 2;
  }
  if (n) _mm_store_ss(to, four);
#else
  vstoren(to, n, y);
#endif
}

// Stores i32 sums.
static void store_sums(int m, int n, const itg_qproduct *p, const span *s, const itg_qrow *rows,
                       const vq *sum) {
  for (int r = 0; r < m; r++)
    for (int v = 0; v < n && v * QL < s->columns; v++) {
      const int64_t left = s->columns - v * QL, at = rows[r].out + s->column + v * QL;
      memcpy((int32_t *)p->out + at, sum + r * VECTORS + v, (size_t)(left < QL ? left : QL) * 4);
    }
}

// Stores scaled sums as floats.
static void store_floats(int m, int n, const itg_qproduct *p, const span *s, const itg_qrow *rows,
                         const vq *sum) {
  const float *residual = (const float *)p->end->residual, *scale = s->scale;
  const int64_t columns = s->columns, whole = columns / QL, left = columns % QL;
  for (int r = 0; r < m; r++, sum += VECTORS) {
    const int64_t at = rows[r].out + s->column;
    float *out = (float *)p->out + at;
    for (int v = 0; v < n && v <= whole; v++) {
      vf y = vmul(vq_floats(sum[v]), vload(scale + v * QL));
      if (v < whole) {
        if (residual) y = vadd(y, vload(residual + at + v * QL));
        vstore(out + v * QL, y);
      } else if (left) {
        if (residual) y = vadd(y, vloadn(residual + at + v * QL, left));
        put_few(out + v * QL, left, y);
      }
    }
  }
}
