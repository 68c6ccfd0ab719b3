// The records of a package file, version 1. src/intaglio/package/format.py declares the same for
// Python, a test compares the two, and docs/format.md explains them. Numbers are little-endian;
// sections start at multiples of 64.
#pragma once
// clang-format off: docs and tests show these records as they stand here
#include <stdint.h>

#define ITG_FILE_VERSION 1
#define ITG_ALIGN 64
#define ITG_NONE 0xffffffffu
#define ITG_FILE_ENCRYPTED 1u
#define ITG_WEIGHTS_VERSION 1
#define ITG_WEIGHTS_ANY_CONTENT 1u

typedef struct itg_file_header {
  char magic[4];      // "ITG1"
  uint32_t version;   // of the format: 1
  uint32_t sections;  // rows of the section table, which follows the header
  uint32_t flags;     // bit 0: encrypted; a reader refuses a file with bits that it does not know
  uint32_t isa;       // enum itg_isa bits that the CPU must have: weights are packed for these kernels
  uint32_t crc;       // CRC-32 (zlib) of header and section table, with this field 0
  uint64_t size;      // of the whole file, in bytes
} itg_file_header;

typedef struct itg_file_section {
  char kind[4];       // META PLAN TENS QUNT STEP ARGS ATTR CNST CODE NAME ORIG STAT SYMB AXES PTCH FORM WGTS PLUG PADS, or something newer
  uint32_t flags;     // bit 0: a reader that does not know this kind must refuse the file; else it skips the section
  uint64_t offset;    // from the start of the file, a multiple of 64
  uint64_t size;      // in bytes
  uint32_t crc;       // CRC-32 of these bytes
  uint32_t reserved;  // 0
} itg_file_section;

typedef struct itg_file_plan {
  uint32_t name;        // offset in NAME
  uint32_t main;        // the main plan that it belongs to; its own number if it is a main plan
  uint32_t first_step;  // in STEP; plans follow each other without gaps, sub-plans after their main plan
  uint32_t n_steps;
  uint32_t inputs;      // first of n_inputs tensor numbers in ARGS
  uint32_t n_inputs;
  uint32_t outputs;     // first of n_outputs tensor numbers in ARGS
  uint32_t n_outputs;
  uint64_t arena;       // bytes of internal memory; 0 in a sub-plan, which shares that of its main plan
} itg_file_plan;

typedef struct itg_file_tensor {
  uint32_t name;     // offset in NAME
  uint8_t dtype;     // enum itg_dtype
  uint8_t rank;      // at most 8
  uint8_t memory;    // 0 const (CNST), 1 arena, 2 input, 3 output, 4 code (CODE)
  uint8_t dynamic;   // bit i: axis i may be shorter at run time than shape[i]
  uint32_t slot;     // which input or output, counted over all main plans in order; of a constant 0, or 1 + row of WGTS; else 0
  uint32_t quant;    // row of QUNT, or 0xffffffff
  uint64_t offset;   // in that memory; a multiple of the element size, of a constant of 64; in a weight file from its start
  uint64_t size;     // bytes reserved there, at least those of the shape
  int64_t shape[8];  // 0 past the rank
} itg_file_tensor;

typedef struct itg_file_quant {
  int32_t axis;     // -1: one scale for the whole tensor
  uint32_t count;   // 1, or the extent of that axis
  uint64_t values;  // offset in ATTR: count scales as f64, then count zero points as i64
} itg_file_quant;

typedef struct itg_file_step {
  uint32_t op;          // offset in NAME: "add", "cpu.conv"
  uint32_t origin;      // offset in ORIG, or 0xffffffff: the place in the user's model
  uint32_t args;        // first in ARGS: n_in inputs (0xffffffff: absent), then n_out outputs
  uint32_t n_in;
  uint32_t n_out;
  uint32_t attrs_size;  // as the op declares
  uint64_t attrs;       // offset in ATTR, a multiple of 8: struct itg_attrs_<op>
  uint64_t macs;        // multiply-accumulates
} itg_file_step;

typedef struct itg_file_state {
  uint32_t plan;      // a main plan
  uint32_t input;     // its input that the next run reads ...
  uint32_t output;    // ... as this run made this output
  uint32_t file;      // where its first value lies: 0 in CNST, else in the weight file of row file - 1 of WGTS
  uint64_t initial;   // offset there, a multiple of 64: what the first run reads; 2^64 - 1: zeros
} itg_file_state;

// An open dimension of a main plan: the extents that it may have.
typedef struct itg_file_symbol {
  uint32_t name;      // offset in NAME
  uint32_t plan;      // a main plan; symbols of one plan follow each other
  int64_t low;        // the smallest extent, at least 0
  int64_t high;       // the largest; shapes and attributes in the file are those of the largest extents
  int64_t multiple;   // extents are multiples of it; so are low and high
} itg_file_symbol;

// An axis of an input whose extent is an open dimension.
typedef struct itg_file_axis {
  uint32_t plan;      // a main plan
  uint32_t input;     // of that plan
  uint32_t axis;      // marked as dynamic in its tensor
  uint32_t symbol;    // row of SYMB, of the same plan
} itg_file_axis;

// An axis of an output that is cut to the extent of an input's axis if that input is padded.
typedef struct itg_file_pad {
  uint32_t output;
  uint32_t axis;
  uint32_t input;
  uint32_t input_axis;
} itg_file_pad;

// A number among the attributes of a step that depends on open dimensions.
typedef struct itg_file_patch {
  uint32_t step;      // row of STEP; patches are in the order of steps
  uint32_t field;     // which 8 bytes of its attributes: an i64
  uint32_t formula;   // first row in FORM
  uint32_t terms;     // number of rows
} itg_file_patch;

// One term of a formula in postfix notation: a number, a symbol, or an operation on the two results before it.
typedef struct itg_file_term {
  uint32_t code;      // enum itg_term
  uint32_t reserved;  // 0
  int64_t value;      // the number, or the row of SYMB
} itg_file_term;

// An operator of a plug-in that steps use.
typedef struct itg_file_plugin {
  uint32_t op;        // offset in NAME, as in STEP; rows are in the order of it
  uint32_t plugin;    // offset in NAME: name of the plug-in
  uint32_t version;   // offset in NAME: version of the plug-in that the package was compiled with
  uint32_t fields;    // offset in NAME: the operator's attributes, as the plug-in declares them
  uint32_t abi;       // ITG_PLUGIN_ABI of the compiler
  uint32_t reserved;  // 0
} itg_file_plugin;

enum itg_term { ITG_NUMBER, ITG_SYMBOL, ITG_ADD, ITG_SUBTRACT, ITG_MULTIPLY, ITG_FLOOR_DIVIDE, ITG_MODULO, ITG_MINIMUM, ITG_MAXIMUM };

// A weight file that holds constants of the package.
typedef struct itg_file_weights {
  uint32_t name;        // offset in NAME: the plain name of a file beside the package
  uint32_t flags;       // bit 0: any contents of this layout will do
  uint8_t layout[32];   // as in the header of the weight file
  uint8_t content[32];  // SHA-256 of its header (with crc 0) and table; zeros if bit 0 is set
} itg_file_weights;

// ---- the weight file: header, table of blobs, blobs ----
typedef struct itg_file_weights_header {
  char magic[4];       // "ITGW"
  uint32_t version;    // of the format of weight files: 1
  uint32_t blobs;      // rows of the table, which follows the header
  uint32_t crc;        // CRC-32 of header and table, with this field 0
  uint64_t size;       // of the whole file, in bytes: the end of the last blob, rounded up to a multiple of 64
  uint64_t flags;      // 0
  uint8_t layout[32];  // SHA-256 of the plan that it was made for: files of one layout fit the same packages
} itg_file_weights_header;

typedef struct itg_file_blob {
  uint64_t offset;    // from the start of the file: the end of the blob before, rounded up to a multiple of 64
  uint64_t size;      // in bytes
  uint8_t hash[32];   // SHA-256 of these bytes
  uint32_t crc;       // CRC-32 of these bytes
  uint32_t reserved;  // 0
} itg_file_blob;

typedef struct itg_file_crypt {
  uint32_t level;    // what is encrypted: 1 weights, 2 graph (all sections), 3 all
  uint32_t parts;    // rows that follow; together they are section BODY
  uint8_t salt[32];  // random; with the user's key it gives the key of this file
  uint8_t tag[16];   // of section CRPT, with this field 0
} itg_file_crypt;

typedef struct itg_file_part {
  uint64_t size;       // in bytes
  uint32_t encrypted;  // 0: only authenticated; 1: encrypted
  uint32_t reserved;   // 0
  uint8_t tag[16];     // of these bytes
} itg_file_part;

typedef struct itg_file_signature {
  uint8_t public_key[32];  // Ed25519
  uint8_t signature[64];
} itg_file_signature;

enum itg_memory_kind { ITG_CONST, ITG_ARENA, ITG_INPUT, ITG_OUTPUT, ITG_CODE };

_Static_assert(sizeof(itg_file_header) == 32, "header");
_Static_assert(sizeof(itg_file_section) == 32, "section");
_Static_assert(sizeof(itg_file_plan) == 40, "plan");
_Static_assert(sizeof(itg_file_tensor) == 96, "tensor");
_Static_assert(sizeof(itg_file_quant) == 16, "quant");
_Static_assert(sizeof(itg_file_step) == 40, "step");
_Static_assert(sizeof(itg_file_state) == 24, "state");
_Static_assert(sizeof(itg_file_symbol) == 32, "symbol");
_Static_assert(sizeof(itg_file_axis) == 16, "axis");
_Static_assert(sizeof(itg_file_pad) == 16, "pad");
_Static_assert(sizeof(itg_file_patch) == 16, "patch");
_Static_assert(sizeof(itg_file_term) == 16, "term");
_Static_assert(sizeof(itg_file_weights) == 72, "weights");
_Static_assert(sizeof(itg_file_weights_header) == 64, "weights header");
_Static_assert(sizeof(itg_file_blob) == 56, "blob");
_Static_assert(sizeof(itg_file_plugin) == 24, "plugin");
_Static_assert(sizeof(itg_file_crypt) == 56, "crypt");
_Static_assert(sizeof(itg_file_part) == 32, "part");
_Static_assert(sizeof(itg_file_signature) == 96, "signature");
