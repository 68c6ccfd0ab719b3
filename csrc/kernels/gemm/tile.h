// The register tile: a few rows times a few panels of a packed matrix. Matrix product, convolution
// and transposed convolution differ only in the addresses of the rows of the left operand, so each
// passes lists of row pointers to the tile.
//
// A packed matrix [k, n] is ceil(n / ITG_PANEL) panels of k rows of ITG_PANEL columns each, padded
// with zeros. The layout is the same for every ISA; the size of the tile (rows, panels) is not.
//
// bf16: one instruction multiplies and adds a pair of neighbours along k. A pair takes the place of
// a float on the input side, and a packed matrix has rows of ITG_PANEL pairs. Sums and biases are
// f32.
//
// f16: elements are converted to f32 when they are loaded, or where the ISA computes in f16, short
// sums are of f16 (tile_half.h). Lengths count pairs as for bf16, but a packed matrix stores whole
// rows one after another, as for f32.
#pragma once
#include "activate.h"
#include "infer.h"
#include "panel.h"

enum { ITG_TILE_ROWS = 7 };
#if defined(ISA_avx512bf16) || defined(ISA_neonbf16)
#define ITG_BF16
typedef uint16_t itg_element;  // of outputs and residuals that have the input's type
enum { ITG_PAIR = 2 };         // elements that take the place of one float of the input
#define ITG_ELEMENT bf16
#elif defined(ITG_HALF)
typedef uint16_t itg_element;
enum { ITG_PAIR = 2 };
#define ITG_ELEMENT f16
#else
typedef float itg_element;
enum { ITG_PAIR = 1 };
#define ITG_ELEMENT f32
#endif

// One run along k: `depth` floats of each row are multiplied by `depth` rows of the packed matrix.
typedef struct itg_tap {
  const float *row[ITG_TILE_ROWS];
  int64_t at;  // offset of the run in a panel, in floats
} itg_tap;

typedef struct itg_finish {  // the epilogue: bias, residual, activation
  const float *bias;         // per output column, or NULL
  const void *residual;      // laid out like the output and of its type, or NULL
  bool add_last;             // the residual is added after the activation
  float lo, hi;              // relu and clip are bounds
  itg_act_fn act;            // every other activation, or NULL
  double args[2];
  const float *slope;  // of prelu, per output column; `act` is then not NULL but unused
  bool other;          // the output has another type than the input: one is f32, the other 16-bit
  bool half;           // the 16-bit type is f16, else bf16
} itg_finish;

typedef struct itg_rows {  // the left operand of a tile
  const itg_tap *taps;
  int64_t n_taps, depth;
  int64_t out[ITG_TILE_ROWS];  // offset of each output row from `base`, in floats
  int rows;
  const float *ahead;  // memory to prefetch during this tile, or NULL
  int fetch;           // cache lines of it per step along k, 1 or 2
} itg_rows;

// Computes columns [column, column + columns) of a few rows, in at most itg_tile_panels(rows)
// panels. `b` is the first of these panels, `panel` the floats from one to the next.
#define ITG_TILE_ARGS                                                                   \
  const itg_rows *rows, const float *b, int64_t panel, int64_t column, int64_t columns, \
      void *base, const itg_finish *end
typedef void (*itg_tile_fn)(ITG_TILE_ARGS);
#if defined(ITG_HALF)
#define ITG_TILE_PASTE(isa) itg_tile_f16_##isa
#define ITG_PRODUCT_PASTE(isa) itg_product_f16_##isa
#else
#define ITG_TILE_PASTE(isa) itg_tile_##isa
#define ITG_PRODUCT_PASTE(isa) itg_product_##isa
#endif
#define ITG_TILE_NAME(isa) ITG_TILE_PASTE(isa)
#define itg_tile ITG_TILE_NAME(ISA)
void itg_tile(ITG_TILE_ARGS);

// A whole product: rows [from, to) of `a` times panels [first, last) of `b`.
typedef struct itg_product_task {
  const float *a;
  int64_t a_row, k;   // floats from one row to the next; columns of a
  const float *b;     // packed
  int64_t n, column;  // columns of b; column of the output that its first one becomes
  void *out;
  int64_t out_row;
  itg_finish end;
} itg_product_task;
#define ITG_PRODUCT_ARGS \
  const itg_product_task *t, int64_t from, int64_t to, int64_t first, int64_t last
#define ITG_PRODUCT_NAME(isa) ITG_PRODUCT_PASTE(isa)
#define itg_product ITG_PRODUCT_NAME(ISA)
void itg_product(ITG_PRODUCT_ARGS);

#if defined(ISA_avx512) || defined(ISA_neonfp16)
enum { ITG_TILE_M = 7, ITG_TILE_PANELS = 4 };
#elif defined(ISA_avx2) || defined(ISA_neon) || defined(ISA_rvv)
enum { ITG_TILE_M = 6, ITG_TILE_PANELS = 4 };
#else
enum { ITG_TILE_M = 2, ITG_TILE_PANELS = 1 };
#endif
static inline int itg_tile_panels(int rows) {  // the most panels of a tile
#if defined(ISA_rvvfp16)
  if (rows > 1) return 2;
#elif defined(ISA_avx2) || defined(ISA_neon) || defined(ISA_rvv)
  if (rows > 1) return 1;
#endif
  return ITG_TILE_PANELS;
}

// The number of the matrix of `t` that belongs to matrix `batch` of the output. The batch axes of
// t, all but its last `tail`, are broadcast to the output's first `rank` axes.
static inline int64_t itg_matrix_at(const itg_tensor *t, int tail, const itg_tensor *out, int rank,
                                    int64_t batch) {
  int64_t at = 0, step = 1;
  for (int i = rank - 1; i >= 0; i--) {
    int d = i - (rank - (t->rank - tail));
    if (d >= 0 && t->shape[d] > 1) at += batch % out->shape[i] * step;
    if (d >= 0) step *= t->shape[d];
    batch /= out->shape[i];
  }
  return at;
}

// Checks that all products share. itg_check_epilogue: inputs 2 to 4 (bias, residual, slopes of
// prelu) and the activation's attributes. itg_check_made: the type of the result is that of the
// input, or the one that the attribute names.
itg_words itg_check_made(int64_t made, itg_tensor *out);
itg_words itg_check_epilogue(const itg_call *call, const itg_tensor *out, int64_t act,
                             int64_t add_last);

// Sets the activation: relu and clip become bounds, every other one is a function.
static inline void itg_finish_by(itg_finish *end, int64_t act, const double *args) {
  end->lo = -__builtin_inff();
  end->hi = __builtin_inff();
  end->args[0] = args[0];
  end->args[1] = args[1];
  if (act == ITG_ACT_relu) end->lo = 0;
  else if (act == ITG_ACT_clip) end->lo = (float)args[0], end->hi = (float)args[1];
  else end->act = itg_act(act == ITG_ACT_prelu ? ITG_ACT_leaky_relu : act);
}

static inline itg_finish itg_finish_of(const itg_call *call, int64_t act, const double *args,
                                       int64_t add_last) {
  const itg_tensor *bias = itg_input(call, 2), *residual = itg_input(call, 3),
                   *slope = itg_input(call, 4);
  itg_finish end = {.bias = bias ? bias->data : NULL,
                    .residual = residual ? residual->data : NULL,
                    .add_last = add_last != 0,
                    .slope = slope ? slope->data : NULL,
                    .other = call->out[0]->dtype != call->in[0]->dtype,
                    .half = call->out[0]->dtype == ITG_F16 || call->in[0]->dtype == ITG_F16};
  itg_finish_by(&end, act, args);
  return end;
}

// Applies the activation to n floats: whole rows of `columns` output columns from `column` on.
static inline void itg_bend(const itg_finish *end, float *row, int64_t n, int64_t column,
                            int64_t columns) {
  if (!end->slope) {
    end->act(row, n, end->args);
    return;
  }
  const float *slope = end->slope + column;
  for (; n > 0; n -= columns, row += columns) itg_slopes(row, slope, columns);
}
