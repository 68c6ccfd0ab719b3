// Executes register commands of Rockchip's NPUs in the order of their blocks, to the bit. Sizes,
// strides and addresses come from the registers alone; memory is what the caller's function gives.
#pragma once
#include "intaglio.h"

enum {
  RK_ATOM = 16,  // the most channels that lie side by side in memory
  RK_REGISTERS = 0x8000 / 4,
  RK_BLOCKS = 8,     // by the first digit of a register's address
  RK_TABLE = 513,    // entries of each of the two tables
  RK_MESSAGE = 256,  // bytes
  RK_BUFFER = 8 * (64 << 10),
  RK_TAIL = 4,  // words that end a task: the next task, a barrier, start
};

typedef enum rk_result {
  RK_DONE = 0,
  RK_BAD = 1,          // a wrong address, stride or size
  RK_UNSUPPORTED = 2,  // settings that are not simulated
} rk_result;

typedef enum rk_family { RK_3588, RK_356X, RV_110X, RK_3576, RK_3562 } rk_family;

// What differs between the NPUs.
typedef struct rk_chip {
  const char *name;
  rk_family family;
  int atom;  // channels side by side in memory
  int banks, bank_bytes;
  int entry;    // bytes to which a row in the buffer is rounded up
  int outputs;  // that are computed at a time; a depthwise convolution computes twice as many
  int group;    // channels that stand together in their table
  int pairs;    // weights of a depthwise convolution, before as many zero points; 0: none
  uint32_t convolution;  // mask of the blocks that a convolution starts
} rk_chip;

// The bytes [address, address + size) of the device, or NULL if they are not all in one buffer.
typedef uint8_t *(*rk_memory)(void *context, uint64_t address, uint64_t size);

typedef struct rk_machine {
  const rk_chip *chip;
  rk_memory memory;
  void *context;
  uint32_t value[2][RK_REGISTERS];  // registers come in two sets, used in turn by each block
  uint8_t known[2][RK_REGISTERS];
  uint8_t set[RK_BLOCKS];          // that the next command of a block writes
  uint8_t fixed[RK_BLOCKS];        // whether a block uses its first set alone
  int16_t table[2][RK_TABLE + 1];  // LE and LO
  uint32_t table_id, table_at, table_writes;
  uint64_t macs;            // that were computed
  uint8_t rows[RK_BUFFER];  // what the buffer of an RK3576 holds, for the next task
  char message[RK_MESSAGE];
} rk_machine;

ITG_API uint64_t itg_rk_machine_bytes(void);
ITG_API void itg_rk_start(rk_machine *m, rk_memory memory, void *context);
// The chip whose registers these are, RK3588 at first; RK_BAD if the name is not known.
ITG_API int itg_rk_choose(rk_machine *m, const char *chip);
// Executes one task: its words up to the one that starts the blocks.
ITG_API int itg_rk_task(rk_machine *m, const uint64_t *words, uint64_t count);
// The same for `tasks` tasks of one memory [0, size): their first words and counts.
ITG_API int itg_rk_simulate(rk_machine *m, uint8_t *bytes, uint64_t size, const uint64_t *words,
                            const uint64_t *first, const uint64_t *counts, uint64_t tasks);
ITG_API const char *itg_rk_message(const rk_machine *m);

// ---- for the blocks
// ------------------------------------------------------------------------------
int rk_fail(rk_machine *m, rk_result result, const char *form, ...)
    __attribute__((format(printf, 3, 4)));
uint32_t rk_get(rk_machine *m, uint32_t address, int *missing);
int rk_convolution(rk_machine *m);
int rk_elementwise(rk_machine *m);
int rk_pool(rk_machine *m);

// Shifts right; halves go to the even neighbour.
static inline int64_t rk_half_even(int64_t v, int shift) {
  if (!shift) return v;
  return (v + ((INT64_C(1) << (shift - 1)) - 1) + (v >> shift & 1)) >> shift;
}

static inline int64_t rk_clamp(int64_t v, int64_t low, int64_t high) {
  return v < low ? low : v > high ? high : v;
}

static inline int64_t rk_round_up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

// A stage of the DPU: adds, multiplies and cuts off what is below 0.
typedef struct rk_stage {
  int adds, multiplies, negative_only, relu, limited, multiplies_first;
  int memory_addend, memory_factor;  // of each channel
  int64_t addend, factor, limit;
  int shift, shift_negative;
} rk_stage;

typedef struct rk_reader {  // of a second map: blocks of channels from two places in turn
  uint64_t base[2], step[2];
  int readers, broadcasts;  // one pixel for all
} rk_reader;

// What the DPU does with sums or with a map, and where it writes.
typedef struct rk_output {
  int64_t channels, height, width;
  int64_t written;         // channels, with those that fill up blocks
  uint64_t base, surface;  // bytes
  int64_t skipped;         // bytes behind each row
  rk_stage bs, bn;
  int has_second, multiplies, looks_up;
  rk_stage after;  // the second map
  rk_reader second;
  int64_t second_offset, second_scale;
  int second_shift;
  int64_t scale, zero;
  int shift;
} rk_output;

// A convolution as its registers say, and what it needs of memory.
typedef struct rk_layer {
  int64_t channels, stored, rows, width, kernel_y, kernel_x, stride_y, stride_x, dilation_y;
  int64_t dilation_x, top, left, outputs, height, columns, surface, kernels, kernel_bytes;
  int64_t apart_y, apart_x;  // rows and columns from pixel to pixel; of a deconvolution above 1
  uint64_t input, weights, table;
  int depthwise, picture, pad, use;
  int zero;               // of the weights of all outputs, where the table has none
  int64_t row;            // bytes from row to row
  int64_t high, wide;     // of the padded input
  int16_t *planes;        // [channels][high][wide]
  int16_t *taps;          // of 16 outputs: [16][inputs][kernel_y][kernel_x]
  int32_t *sums;          // of one output
  int64_t *numbers;       // of 16 outputs
  uint8_t *staged;        // [blocks][rows][width][16]: rows that the buffer holds
  int64_t bottom, right;  // padding, where registers name it
} rk_layer;

enum { RK_BIAS = 1, RK_ZERO = 2, RK_MULTIPLIER = 4 };  // what the table of channels holds

// A map that the DPU reads alone.
typedef struct rk_source {
  int64_t width, height, line;  // in pixels; bytes from row to row
  uint64_t base, surface;
  uint32_t channels, window;
  // of pixels that are repeated
  int64_t columns, rows, skipped;  // that are written; bytes behind each row
  uint64_t to, phase;              // bytes from one repetition of the first row to the next
  int computes;                    // whether a stage changes numbers
} rk_source;

int64_t rk_entries(const rk_chip *chip, const rk_layer *l);  // of a row in the buffer
int rk_check_weights(rk_machine *m, const rk_layer *l, uint32_t bytes);
// The registers of an RK3576; those of an RK3562 have the same places.
static inline int rk_newer(const rk_machine *m) {
  return m->chip->family == RK_3576 || m->chip->family == RK_3562;
}
int rk3576_layer(rk_machine *m, rk_layer *l);
int rk3576_output(rk_machine *m, rk_output *out);
int rk3562_stages(rk_machine *m, rk_output *out);
int rk3576_ends(rk_machine *m, rk_stage *s, const uint32_t places[4], int *missing);
int rk3576_second(rk_machine *m, rk_output *out, int multiplies, int *missing);
int rk3576_source(rk_machine *m, rk_source *s);
int rk3576_look_up(rk_machine *m, int64_t *v, int64_t count);

int rk_output_of(rk_machine *m, rk_output *out);
// Writes the blocks behind the last channel, which have no meaning.
int rk_fill_blocks(rk_machine *m, const rk_output *out);
// Finishes and writes a block of up to 16 channels from numbers [channels][height * width];
// `bias` and `factor` of the channels, where they come from memory.
int rk_write_block(rk_machine *m, const rk_output *out, int64_t block, int64_t channels,
                   int64_t *numbers, const int32_t *bias, const int16_t *factor);
