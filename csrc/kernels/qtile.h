// The register tile of 8-bit products: like tile.h, with four bytes along k in the place of a float. A packed matrix
// has panels of ITG_PANEL columns; each tap's run along k is padded with zero weights to whole groups of four. Up to
// three bytes behind a run are read, then, whatever they are: the caller sees to it that they can be.
#pragma once
#include "infer.h"
#include "panel.h"
#include "qvec.h"

enum { ITG_FOUR = 4, ITG_QROW = ITG_PANEL * ITG_FOUR };  // bytes of a group, of a packed row
#if defined(ISA_avx512vnni)
enum { ITG_QTILE_M = 6, ITG_QTILE_PANELS = 4 };
#elif defined(ISA_avx512)
enum { ITG_QTILE_M = 6, ITG_QTILE_PANELS = 2 };
#elif defined(ISA_avx2)
enum { ITG_QTILE_M = 4, ITG_QTILE_PANELS = 1 };
#else
enum { ITG_QTILE_M = 1, ITG_QTILE_PANELS = 1 };
#endif
enum { ITG_QTILE_ROWS = 6 };  // the most of any ISA

typedef struct itg_qtap {  // one run along k of each row
  const uint8_t *row[ITG_QTILE_ROWS];
  int64_t at;  // where in a panel its weights start, in bytes
} itg_qtap;

typedef struct itg_qrows {
  const itg_qtap *taps;
  int64_t n_taps, fours;        // fours: groups of four of each tap
  int64_t out[ITG_QTILE_ROWS];  // where each output row starts
  int rows;
} itg_qrows;

// Columns [column, column + columns) of a few rows; `b` is the first panel of them, `panel` the bytes between panels.
#define ITG_QTILE_ARGS                                                                                         \
  const itg_qrows *rows, const uint8_t *b, int64_t panel, int64_t column, int64_t columns, uint8_t *out, \
      const itg_requantize *end, int flip
typedef void (*itg_qtile_fn)(ITG_QTILE_ARGS);
#define ITG_QTILE_PASTE(isa) itg_qtile_##isa
#define ITG_QTILE_NAME(isa) ITG_QTILE_PASTE(isa)
#define itg_qtile ITG_QTILE_NAME(ISA)
void itg_qtile(ITG_QTILE_ARGS);
