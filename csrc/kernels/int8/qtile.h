// The register tile of 8-bit products: like gemm/tile.h, with four bytes along k in place of a
// float. A packed matrix has panels of ITG_PANEL columns: [k / 4][ITG_PANEL columns][4 bytes along
// k]. Each tap's run along k is padded with zero weights to a multiple of four. Up to three bytes
// after a run of inputs are read and multiplied by these zeros; the caller makes sure that they are
// readable.
#pragma once
#include "infer.h"
#include "gemm/panel.h"
#include "qvec.h"

enum { ITG_FOUR = 4, ITG_QROW = ITG_PANEL * ITG_FOUR };  // bytes of a group, of a packed row
#if defined(ISA_avx512vnni)
enum {
  ITG_QTILE_M = 6,       // rows of a tile with all panels; tiles of fewer panels have more rows
  ITG_QTILE_PANELS = 4,  // panels of a tile, at most
};
#elif defined(ISA_avx512)
enum { ITG_QTILE_M = 6, ITG_QTILE_PANELS = 2 };
#elif defined(ISA_avx2)
enum { ITG_QTILE_M = 4, ITG_QTILE_PANELS = 1 };
#else
enum { ITG_QTILE_M = 1, ITG_QTILE_PANELS = 1 };
#endif

typedef struct itg_qtap {  // a contiguous run along k, the same for every row
  int64_t x;               // offset of its inputs from itg_qrow.x
  int64_t w;               // offset of its weights in a panel
  int64_t fours;           // length in groups of four bytes
} itg_qtap;

typedef struct itg_qrow {
  const uint8_t *x;
  int64_t out;  // index of its first column in the result
  int32_t sum;  // of all its input bytes; multiplied by w_zero
} itg_qrow;

typedef struct itg_qproduct {  // shared by all tiles of a call
  const itg_qtap *taps;
  int64_t n_taps;
  int64_t panel;          // bytes from one panel to the next
  const int32_t *bias;    // initial sums
  const int32_t *w_zero;  // per column minus the zero point of the weights, or NULL
  const itg_requantize *end;
  void *out;
  int flip;             // 0x80 if inputs are i8: xor with it makes them u8
  const int32_t *less;  // ARM: sums of the first rows of the panel, per column, for every number of
                        // rows; or NULL
  const int8_t *pairs;  // i8mm: the rows as itg_qtile_pairs packs them, or NULL
} itg_qproduct;

// Packs n rows for itg_qtile with i8mm, if they are many enough and fit `room` bytes. Returns the
// bytes that are written to `to`, or 0.
int64_t itg_qtile_pairs(const itg_qproduct *p, const itg_qrow *rows, int64_t n, int8_t *to,
                        int64_t room);

// Computes columns [column, column + columns) of n rows; `b` is the first of their panels.
#define ITG_QTILE_ARGS                                                                      \
  const itg_qproduct *p, const itg_qrow *rows, int64_t n, const uint8_t *b, int64_t column, \
      int64_t columns
#define ITG_QTILE_PASTE(isa) itg_qtile_##isa
#define ITG_QTILE_NAME(isa) ITG_QTILE_PASTE(isa)
#define itg_qtile ITG_QTILE_NAME(ISA)
void itg_qtile(ITG_QTILE_ARGS);
