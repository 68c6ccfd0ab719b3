// argmax and argmin: the best value so far and its index, for many columns or lanes at once.
#include "infer.h"
#include "vec.h"
#include "widen.h"

// Updates the n best values so far with row `at` of n elements. NaN beats every number.
#define BETTER(tag, type)                                                                    \
  static void better_##tag(type *best, int64_t *where, const type *x, int64_t n, int64_t at, \
                           bool max, bool last) {                                            \
    for (int64_t i = 0; i < n; i++) {                                                        \
      const type v = x[i], b = best[i];                                                      \
      const bool more = (max ? v > b : v < b) | ((v != v) & (b == b));                       \
      const bool same = (v == b) | ((v != v) & (b != b));                                    \
      if (more | (last & same)) best[i] = v, where[i] = at;                                  \
    }                                                                                        \
  }
BETTER(f32, float)
BETTER(f64, double)
BETTER(i64, int64_t)
BETTER(u64, uint64_t)

// Which lanes of v beat b.
static inline vm beats(vf v, vf b, bool max, bool last) {
  const vm more = max ? vgt(v, b) : vlt(v, b), nan = vand(visnan(v), vnot(visnan(b)));
  const vm same = vor(veq(v, b), vand(visnan(v), visnan(b)));
  return last ? vor(vor(more, nan), same) : vor(more, nan);
}

// f32: a second vector holds the indices of the best values, as integers in the bits of floats;
// extent < 2^31.
static void columns_f32(const float *x, int64_t *where, int64_t n, int64_t extent, int64_t step,
                        bool max, bool last) {
  for (int64_t i = 0; i < n; i += VL) {
    const int64_t w = n - i < VL ? n - i : VL;
    vf best = w == VL ? vload(x + i) : vloadn(x + i, w), index = vfloats(viset(0));
    for (int64_t k = 1; k < extent; k++) {
      const vf v = w == VL ? vload(x + k * step + i) : vloadn(x + k * step + i, w);
      const vm m = beats(v, best, max, last);
      best = vselect(m, v, best);
      index = vselect(m, vfloats(viset((int32_t)k)), index);
    }
    float bits[VL];
    vstore(bits, index);
    for (int64_t k = 0; k < w; k++) where[i + k] = (int64_t)itg_bits_of_float(bits[k]);
  }
}

static int64_t row_f32(const float *x, int64_t n, bool max, bool last) {
  int64_t at = 0, i = 0;
  float best = x[0];
  if (n >= 2 * VL) {
    float lane[VL], bits[VL];
    vf top = vload(x), index = vfloats(viset(0));
    for (i = VL; i + VL <= n; i += VL) {
      const vf v = vload(x + i);
      const vm m = beats(v, top, max, last);
      top = vselect(m, v, top);
      index = vselect(m, vfloats(viset((int32_t)i)), index);
    }
    vstore(lane, top);
    vstore(bits, index);
    at = -1;
    for (int k = 0; k < VL; k++) {
      const int64_t here = (int64_t)itg_bits_of_float(bits[k]) + k;
      const float v = lane[k];
      const bool more = (max ? v > best : v < best) | ((v != v) & (best == best));
      const bool same = (v == best) | ((v != v) & (best != best));
      if (at < 0 || more || (same && (last ? here > at : here < at))) best = v, at = here;
    }
  }
  for (; i < n; i++) better_f32(&best, &at, x + i, 1, i, max, last);
  return at;
}

// Bytes, extent <= 256: a key of 16 bits has the value above the index, so that the largest key is
// the best value at its first (or last) place. `flip` orders i8 like u8, and turns argmin to
// argmax.
static uint16_t key_of(uint8_t x, uint8_t flip, int64_t at, bool last) {
  return (uint16_t)((uint8_t)(x ^ flip) << 8 | (last ? at : 255 - at));
}

static int64_t index_of(uint16_t key, bool last) { return last ? key & 255 : 255 - (key & 255); }

#if defined(ISA_avx512) || defined(ISA_avx2)
// 16 bytes at a time: the largest byte of all, then a bit for each byte that equals it. The last 16
// bytes may overlap those before; a row shorter than 16 reads past its end, where `room` bytes can
// be read.
enum { ROW16 = 16, ROW_BITS = 64 };

INLINE __m128i bytes_at(const uint8_t *x, __m128i flip) {
  return _mm_xor_si128(_mm_loadu_si128((const __m128i *)x), flip);
}

INLINE int64_t chunk_at(int64_t k, int64_t n) {
  return k + ROW16 <= n || n < ROW16 ? k : n - ROW16;
}

static int64_t short_row(const uint8_t *x, int64_t n, uint8_t flip_, bool last) {
  const __m128i flip = _mm_set1_epi8((char)flip_);
  __m128i most = _mm_setzero_si128();
  if (n < ROW16) {
    const __m128i order = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    most = _mm_and_si128(bytes_at(x, flip), _mm_cmpgt_epi8(_mm_set1_epi8((char)n), order));
  } else {
    for (int64_t k = 0; k < n; k += ROW16)
      most = _mm_max_epu8(most, bytes_at(x + chunk_at(k, n), flip));
  }
  const __m128i least = _mm_xor_si128(most, _mm_set1_epi8(-1));
  const __m128i pairs = _mm_min_epu8(least, _mm_srli_epi16(least, 8));  // as u16: the smaller byte
  const __m128i best = _mm_set1_epi8((char)(255 - _mm_cvtsi128_si32(_mm_minpos_epu16(pairs))));
  uint64_t equal = 0;
  for (int64_t k = 0; k < n; k += ROW16) {
    const int64_t at = chunk_at(k, n);
    const __m128i same = _mm_cmpeq_epi8(bytes_at(x + at, flip), best);
    equal |= (uint64_t)(uint32_t)_mm_movemask_epi8(same) << at;
  }
  equal &= ~(uint64_t)0 >> (ROW_BITS - n);
  return last ? 63 - __builtin_clzll(equal) : __builtin_ctzll(equal);
}
#endif

static int64_t row_bytes(const uint8_t *x, int64_t n, uint8_t flip, bool last, int64_t room) {
#if defined(ISA_avx512) || defined(ISA_avx2)
  if (n <= ROW_BITS && room >= ROW16) return short_row(x, n, flip, last);
#endif
  (void)room;
  uint16_t best = 0;
  for (int64_t k = 0; k < n; k++) {
    const uint16_t key = key_of(x[k], flip, k, last);
    best = key > best ? key : best;
  }
  return index_of(best, last);
}

static void columns_bytes(const uint8_t *x, int64_t *where, int64_t n, int64_t extent, int64_t step,
                          uint8_t flip, bool last) {
  uint16_t best[ITG_BLOCK];
  for (int64_t i = 0; i < n; i++) best[i] = 0;
  for (int64_t k = 0; k < extent; k++)
    for (int64_t i = 0; i < n; i++) {
      const uint16_t key = key_of(x[k * step + i], flip, k, last);
      best[i] = key > best[i] ? key : best[i];
    }
  for (int64_t i = 0; i < n; i++) where[i] = index_of(best[i], last);
}

static itg_words extreme(const itg_call *call, uint32_t part, uint32_t parts, bool max) {
  const itg_attrs_argmax *a = call->attrs;
  const itg_tensor *x = call->in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int axis = itg_axis(a->axis, x->rank);
  const int64_t extent = x->shape[axis], inner = itg_count_range(x, axis + 1, x->rank);
  const int64_t item = (int64_t)itg_item(x->dtype), chunk = inner == 1 ? ITG_BLOCK : 1;
  const enum itg_wide wide = itg_wide(x->dtype);
  const bool last = a->select_last_index != 0, fast = x->dtype == ITG_F32 && extent < INT32_MAX;
  const bool bytes = (x->dtype == ITG_U8 || x->dtype == ITG_I8) && extent <= 256;
  const uint8_t flip = (uint8_t)((x->dtype == ITG_I8 ? 0x80 : 0) ^ (max ? 0 : 0xff));
  int64_t i, end, *to = out->data;
  itg_share(itg_count(out), 64, part, parts, &i, &end);
  while (i < end) {
    itg_block best, row;
    const int64_t col = i % inner, left = inner - col < end - i ? inner - col : end - i;
    const int64_t n = left < ITG_BLOCK ? left : ITG_BLOCK;
    const char *from = (const char *)x->data + (i / inner * extent * inner + col) * item;
    if (fast && inner == 1) {
      to[i++] = row_f32((const float *)from, extent, max, last);
      continue;
    }
    if (fast) {
      columns_f32((const float *)from, to + i, n, extent, inner, max, last);
      i += n;
      continue;
    }
    if (bytes && inner == 1) {
      const uint8_t *row_at = (const uint8_t *)from,
                    *stop = (const uint8_t *)x->data + itg_count(x);
      for (; i < end; i++, row_at += extent)
        to[i] = row_bytes(row_at, extent, flip, last, stop - row_at);
      continue;
    }
    if (bytes) {
      columns_bytes((const uint8_t *)from, to + i, n, extent, inner, flip, last);
      i += n;
      continue;
    }
    itg_widen(&best, from, x->dtype, n);
    for (int64_t k = 0; k < n; k++) to[i + k] = 0;
    for (int64_t at = 1; at < extent;
         at += chunk) {  // along a row many elements are widened at once
      const int64_t m = extent - at < chunk ? extent - at : chunk;
      itg_widen(&row, from + at * inner * item, x->dtype, inner == 1 ? m : n);
      for (int64_t k = 0; k < m; k++) {
        if (wide == ITG_WIDE_F32) better_f32(best.f32, to + i, row.f32 + k, n, at + k, max, last);
        else if (wide == ITG_WIDE_F64)
          better_f64(best.f64, to + i, row.f64 + k, n, at + k, max, last);
        else if (wide == ITG_WIDE_I64)
          better_i64(best.i64, to + i, row.i64 + k, n, at + k, max, last);
        else better_u64(best.u64, to + i, row.u64 + k, n, at + k, max, last);
      }
    }
    i += n;
  }
  return NULL;
}
ITG_FN(argmax, any) { return extreme(call, part, parts, true); }
ITG_FN(argmin, any) { return extreme(call, part, parts, false); }
