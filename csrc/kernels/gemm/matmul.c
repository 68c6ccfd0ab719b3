// Matrix product of any element type, packing of matrices into panels, and the checks that packed
// products share.
#include "infer.h"
#include "matrices.h"
#include "tile.h"

itg_words itg_check_made(int64_t made, itg_tensor *out) {
  enum { SAME, F32, BF16, F16, COUNT };
  if (made < SAME || made >= COUNT) return "unknown type of the output";
  const uint8_t to = made == F32 ? ITG_F32 : made == BF16 ? ITG_BF16 : ITG_F16, now = out->dtype;
  if (made != SAME && now != ITG_F32 && now != ITG_BF16 && now != ITG_F16)
    return "only f32, bf16 and f16 can mix";
  if (made != SAME && to != now && to != ITG_F32 && now != ITG_F32)
    return "bf16 and f16 cannot make each other";
  if (made != SAME) out->dtype = to;
  FITS(out);
  return NULL;
}

itg_words itg_check_epilogue(const itg_call *call, const itg_tensor *out, int64_t act,
                             int64_t add_last) {
  const itg_tensor *bias = itg_input(call, 2), *residual = itg_input(call, 3),
                   *slope = itg_input(call, 4);
  const uint8_t sums = out->dtype == ITG_BF16 || out->dtype == ITG_F16 ? ITG_F32 : out->dtype;
  if (bias &&
      (bias->rank != 1 || bias->shape[0] != out->shape[out->rank - 1] || bias->dtype != sums))
    return "the bias must have one element per output channel";
  if (residual && (!itg_same_shape(residual, out) || residual->dtype != out->dtype))
    return "the residual must be like the output";
  if (slope &&
      (slope->rank != 1 || slope->shape[0] != out->shape[out->rank - 1] || slope->dtype != sums))
    return "prelu must have one slope per output channel";
  if (act < 0 || act >= ITG_ACT_COUNT) return "unknown activation";
  if ((act == ITG_ACT_prelu) != (slope != NULL))
    return "prelu has slopes, other activations have none";
  if (act != ITG_ACT_none && sums != ITG_F32)
    return "only f32, bf16 and f16 have a fused activation";
  if (add_last != 0 && add_last != 1) return "add_last must be 0 or 1";
  return NULL;
}

// Broadcasts the leading dimensions of a and b that come before their last `a_tail` and `b_tail`.
static itg_words broadcast_batch(const itg_tensor *a, int a_tail, const itg_tensor *b, int b_tail,
                                 itg_tensor *out) {
  int ra = a->rank - a_tail, rb = b->rank - b_tail, rank = ra > rb ? ra : rb;
  if (rank + 2 > ITG_MAX_RANK) return "the rank is too high";
  for (int i = 0; i < rank; i++) {
    int da = i - (rank - ra), db = i - (rank - rb);
    int64_t x = da >= 0 ? a->shape[da] : 1, y = db >= 0 ? b->shape[db] : 1;
    if (x != y && x != 1 && y != 1) return "the batches of the two operands cannot be broadcast";
    out->shape[i] = x == 1 ? y : x;
  }
  out->rank = (uint8_t)rank;
  return NULL;
}

// ---- pack ---------------------------------------------------------------------------------------
itg_words itg_infer_pack(const itg_call *call, itg_tensor *out) {
  const itg_attrs_pack *attrs = call->attrs;
  if (call->n_in != 1 || call->n_out != 1 || !call->in[0]) return "takes one input and one output";
  const itg_tensor *b = call->in[0];
  if (b->rank < 2 || b->rank + 1 > ITG_MAX_RANK) return "takes a matrix or a batch of matrices";
  if (attrs->tile < 1 || attrs->tile > 1024) return "tile must be between 1 and 1024";
  if (attrs->transposed != 0 && attrs->transposed != 1) return "transposed must be 0 or 1";
  int64_t k = b->shape[b->rank - 2 + attrs->transposed],
          n = b->shape[b->rank - 1 - attrs->transposed];
  itg_copy_type(out, b);
  out->rank = (uint8_t)(b->rank + 1);
  out->shape[b->rank - 2] = n / attrs->tile + (n % attrs->tile != 0);
  out->shape[b->rank - 1] = k;
  out->shape[b->rank] = attrs->tile;
  FITS(out);
  return NULL;
}

// Packs one panel of `tile` columns; columns from `columns` on are zero. Inlined with constant
// sizes, so that its copies are single instructions.
INLINE void pack_panel(char *to, const char *from, int64_t k, int64_t columns, int64_t tile,
                       int64_t row, int64_t step, size_t item) {
  if (columns < tile) memset(to, 0, (size_t)(k * tile) * item);
  if (step == 1) {
    for (int64_t i = 0; i < k; i++)
      memcpy(to + (size_t)(i * tile) * item, from + (size_t)(i * row) * item,
             (size_t)columns * item);
    return;
  }
  for (int64_t i = 0; i < k; i++)
    for (int64_t j = 0; j < columns; j++)
      memcpy(to + (size_t)(i * tile + j) * item, from + (size_t)(i * row + j * step) * item, item);
}

itg_words itg_pack_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_attrs_pack *attrs = call->attrs;
  const itg_tensor *b = call->in[0], *out = call->out[0];
  const int64_t tile = attrs->tile, panels = out->shape[out->rank - 3],
                k = out->shape[out->rank - 2];
  const int64_t n = b->shape[b->rank - 1 - attrs->transposed], row = attrs->transposed ? 1 : n;
  const int64_t step = attrs->transposed ? k : 1;
  const size_t item = itg_item(b->dtype);
  int64_t p, to;
  itg_share(itg_count_range(out, 0, out->rank - 2), 1, part, parts, &p, &to);
  for (; p < to; p++) {
    int64_t matrix = p / panels, column = p % panels * tile,
            columns = n - column < tile ? n - column : tile;
    char *put = (char *)out->data + (size_t)(p * k * tile) * item;
    const char *from = (const char *)b->data + (size_t)(matrix * k * n + column * step) * item;
    if (item == 4 && tile == ITG_PANEL && columns == ITG_PANEL) {
      if (step == 1) pack_panel(put, from, k, ITG_PANEL, ITG_PANEL, row, 1, 4);
      else pack_panel(put, from, k, ITG_PANEL, ITG_PANEL, 1, step, 4);
    } else {
      pack_panel(put, from, k, columns, tile, row, step, item);
    }
  }
  return NULL;
}

// ---- packed product -----------------------------------------------------------------------------
itg_words itg_infer_gemm(const itg_call *call, itg_tensor *out) {
  const itg_attrs_gemm *attrs = call->attrs;
  if (call->n_in < 2 || call->n_in > 5 || call->n_out != 1 || !call->in[0] || !call->in[1])
    return "takes two to five inputs and one output";
  const itg_tensor *a = call->in[0], *b = call->in[1];
  if ((a->dtype != ITG_F32 && a->dtype != ITG_BF16 && a->dtype != ITG_F16) || b->dtype != a->dtype)
    return "takes f32, bf16 or f16";
  if (a->rank < 2 || b->rank < 3) return "takes a matrix and a packed matrix";
  int64_t panels = b->shape[b->rank - 3], k = b->shape[b->rank - 2];
  const int64_t pair = a->dtype == ITG_BF16 ? 2 : 1;
  if (b->shape[b->rank - 1] != ITG_PANEL * pair)
    return "the right operand must be packed in panels of 16 columns";
  if (a->shape[a->rank - 1] % pair || a->shape[a->rank - 1] / pair != k)
    return "the operands do not agree on k";
  if (a->dtype == ITG_F16 && k % 2) return "f16 takes an even k";
  if (attrs->n < 0 || panels != attrs->n / ITG_PANEL + (attrs->n % ITG_PANEL != 0))
    return "n does not fit the panels";
  itg_words words = broadcast_batch(a, 2, b, 3, out);
  if (words) return words;
  out->dtype = a->dtype;
  out->shape[out->rank++] = a->shape[a->rank - 2];
  out->shape[out->rank++] = attrs->n;
  FITS(out);
  words = itg_check_made(attrs->made, out);
  return words ? words : itg_check_epilogue(call, out, attrs->act, attrs->add_last);
}

// ---- any element type ---------------------------------------------------------------------------
itg_words itg_infer_matmul(const itg_call *call, itg_tensor *out) {
  if (call->n_in != 2 || call->n_out != 1 || !call->in[0] || !call->in[1])
    return "takes two inputs and one output";
  const itg_tensor *a = call->in[0], *b = call->in[1];
  if (a->dtype != b->dtype) return "the operands must have the same element type";
  if (!a->rank || !b->rank) return "a scalar is no matrix";
  matrices s = matrices_of(a, b);
  if (b->shape[s.vector_b ? 0 : b->rank - 2] != s.k) return "the operands do not agree on k";
  itg_words words = broadcast_batch(a, s.vector_a ? 1 : 2, b, s.vector_b ? 1 : 2, out);
  if (words) return words;
  out->dtype = a->dtype;
  if (!s.vector_a) out->shape[out->rank++] = s.m;
  if (!s.vector_b) out->shape[out->rank++] = s.n;
  FITS(out);
  return NULL;
}

// Computes a block of one output row, so that the right operand is read along its rows.
#define ROW_PRODUCT(name, wide, load, store)                                                \
  static void name(uint8_t dtype, const void *a, int64_t a_at, const void *b, int64_t b_at, \
                   int64_t k, int64_t n, void *out, int64_t at) {                           \
    for (int64_t j = 0; j < n; j += 64) {                                                   \
      wide sum[64] = {0};                                                                   \
      int64_t width = n - j < 64 ? n - j : 64;                                              \
      for (int64_t i = 0; i < k; i++) {                                                     \
        wide x = (wide)load(dtype, a, a_at + i);                                            \
        for (int64_t c = 0; c < width; c++)                                                 \
          sum[c] += x * (wide)load(dtype, b, b_at + i * n + j + c);                         \
      }                                                                                     \
      for (int64_t c = 0; c < width; c++) store(dtype, out, at + j + c, sum[c]);            \
    }                                                                                       \
  }
#define STORE_BITS(dtype, data, i, v) itg_store_i64(dtype, data, i, (int64_t)(v))
ROW_PRODUCT(row_f64, double, itg_load_f64, itg_store_f64)
ROW_PRODUCT(row_bits, uint64_t, itg_load_i64, STORE_BITS)  // unsigned: integers wrap around

itg_words itg_matmul_any_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_tensor *a = call->in[0], *b = call->in[1], *out = call->out[0];
  const matrices s = matrices_of(a, b);
  const int rank = out->rank - !s.vector_a - !s.vector_b;
  int64_t r, to;
  itg_share(itg_count_range(out, 0, rank) * s.m, 1, part, parts, &r, &to);
  for (; r < to; r++) {
    int64_t batch = r / s.m;
    int64_t a_at = (itg_matrix_at(a, s.vector_a ? 1 : 2, out, rank, batch) * s.m + r % s.m) * s.k;
    int64_t b_at = itg_matrix_at(b, s.vector_b ? 1 : 2, out, rank, batch) * s.k * s.n;
    if (itg_is_float(a->dtype))
      row_f64(a->dtype, a->data, a_at, b->data, b_at, s.k, s.n, out->data, r * s.n);
    else row_bits(a->dtype, a->data, a_at, b->data, b_at, s.k, s.n, out->data, r * s.n);
  }
  return NULL;
}
