// CNA, CORE and the first stages of the DPU: rows of the input, sums of products, bias and
// multiplier of each channel.
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum {
  GROUP = 8,       // channels that stand together in their table
  DEPTHWISE = 64,  // channels of a block of weights
  KERNELS = 32,    // outputs and inputs of a block of weights
  BIAS = 1,        // what the table of channels holds
  ZERO = 2,
  FACTOR = 4,
};

typedef struct layer {
  int64_t channels, stored, rows, width, kernel_y, kernel_x, stride_y, stride_x, dilation_y;
  int64_t dilation_x, top, left, outputs, height, columns, line, surface, kernels, kernel_bytes;
  uint64_t input, weights, table;
  int depthwise, picture, pad, use;
  int64_t high, wide;  // of the padded input
  int16_t *planes;     // [channels][high][wide]
  int16_t *taps;       // of 16 outputs: [16][inputs][kernel_y][kernel_x]
  int32_t *sums;       // of one output
  int64_t *numbers;    // of 16 outputs
} layer;

static int pixel_bytes(int64_t channels) {
  return channels == 1 ? 4 : channels == 3 || channels == 4 ? 16 : 0;
}

static int64_t entries(const layer *l) {  // of a row in the buffer
  int64_t atoms = (l->stored + RK_ATOM - 1) / RK_ATOM;
  if (atoms % 4 == 3) atoms++;
  return (l->width * atoms * RK_ATOM + RK_ENTRY - 1) / RK_ENTRY;
}

static int read_settings(rk_machine *m, layer *l) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t mode = GET(0x100C), steps = GET(0x1014), size = GET(0x1020), depth = GET(0x1024);
  const uint32_t window = GET(0x1038), pads = GET(0x1068), cube = GET(0x403C);
  l->use = GET(0x501C) >> 1 & 15;
  l->depthwise = (mode & 15) == 3;
  l->picture = (mode >> 12 & 15) != 0;
  l->stride_x = steps & 7, l->stride_y = steps >> 3 & 7;
  l->dilation_x = (steps >> 16 & 31) + 1, l->dilation_y = (steps >> 21 & 31) + 1;
  l->width = size >> 16 & 0x7FF, l->rows = size & 0x7FF;
  l->stored = depth & 0xFFFF;
  const int64_t real = (depth >> 16 & 0x3FFF) + 1;
  l->channels = l->picture ? real : (l->stored - 1) / 64 * 64 + real;
  l->kernel_x = window >> 24 & 31, l->kernel_y = window >> 16 & 31, l->kernels = window & 0x3FFF;
  l->kernel_bytes = GET(0x1034) & 0x7FFFF;
  l->top = pads & 15, l->left = pads >> 4 & 15;
  l->pad = (int8_t)(GET(0x1184) & 0xFF);
  l->outputs = (cube >> 16 & 0x1FFF) + 1;
  l->columns = (GET(0x4030) & 0x1FFF) + 1, l->height = (GET(0x4034) & 0x1FFF) + 1;
  l->line = GET(0x107C) & 0xFFFFFFF;
  l->surface = ((GET(0x1080) & 0xFFFFFFF) + l->line) & 0xFFFFFFF;
  l->input = GET(0x1070), l->weights = GET(0x1110), l->table = GET(0x5020);
  const uint32_t buffer = GET(0x1040), row = GET(0x1044), atomics = GET(0x102C) & 0x3FFFFF;
  const uint32_t core = GET(0x3014), weight_bytes = GET(0x1030);
  if (missing) return RK_BAD;
  if (mode >> 4 & 0x3F) return rk_fail(m, RK_UNSUPPORTED, "only int8 convolutions are simulated");
  if (mode >> 16 & 1) return rk_fail(m, RK_UNSUPPORTED, "deconvolutions are not simulated");
  if (!(l->use & BIAS) || l->use > (BIAS | ZERO | FACTOR))
    return rk_fail(m, RK_UNSUPPORTED, "BRDMA_DATA_USE is %d", l->use);
  if (!l->stride_x || !l->stride_y || !l->kernel_x || !l->kernel_y || !l->width || !l->rows ||
      !l->stored || !l->kernels || l->channels > rk_round_up(l->stored, RK_ATOM))
    return rk_fail(m, RK_BAD, "a size or stride is 0, or channels are more than are stored");
  if ((mode & 15) && !l->depthwise)
    return rk_fail(m, RK_UNSUPPORTED, "CONV_MODE is %u", mode & 15);

  const int64_t data = buffer & 15, held = buffer >> 4 & 15;
  if (!data || !held || data + held > RK_BANKS)
    return rk_fail(m, RK_BAD, "%d and %d banks; there are %d", (int)data, (int)held, RK_BANKS);
  int64_t needed = l->rows * entries(l) * RK_ENTRY;
  if (l->picture) {
    if (!pixel_bytes(l->channels))
      return rk_fail(m, RK_UNSUPPORTED, "a picture of %d channels", (int)l->channels);
    needed = l->rows * l->width * pixel_bytes(l->channels);
  } else if (row != entries(l)) {
    return rk_fail(m, RK_BAD, "a row takes %d entries of the buffer, not %u", (int)entries(l), row);
  }
  if (needed > data * RK_BANK_BYTES)
    return rk_fail(m, RK_BAD, "%d rows need %lld bytes; %d banks are less", (int)l->rows,
                   (long long)needed, (int)data);
  if (atomics != l->height * l->columns || core != (uint32_t)((l->height - 1) << 16 | (l->columns - 1)))
    return rk_fail(m, RK_BAD, "the sizes of the output differ: %d x %d", (int)l->height,
                   (int)l->columns);
  const int64_t taps = l->kernel_x * l->kernel_y;
  const int64_t inputs = rk_round_up(l->channels, RK_ATOM);
  if (l->depthwise) {
    if (l->kernel_bytes % taps || l->kernel_bytes / taps < l->outputs || l->channels < l->outputs)
      return rk_fail(m, RK_BAD, "windows of %d bytes for %d channels", (int)l->kernel_bytes,
                     (int)l->outputs);
  } else if (l->kernel_bytes != taps * inputs || l->kernels < l->outputs) {
    return rk_fail(m, RK_BAD, "a kernel of %d bytes; %d are needed", (int)l->kernel_bytes,
                   (int)(taps * inputs));
  }
  if (weight_bytes != l->kernels * l->kernel_bytes)
    return rk_fail(m, RK_BAD, "%u bytes of weights; kernels have %lld", weight_bytes,
                   (long long)(l->kernels * l->kernel_bytes));
  return RK_DONE;
#undef GET
}

// Copies the input into padded planes; rows and columns that no register names are padding.
static int load_input(rk_machine *m, layer *l) {
  const int64_t span_y = (l->height - 1) * l->stride_y + (l->kernel_y - 1) * l->dilation_y + 1;
  const int64_t span_x = (l->columns - 1) * l->stride_x + (l->kernel_x - 1) * l->dilation_x + 1;
  l->high = span_y > l->top + l->rows ? span_y : l->top + l->rows;
  l->wide = span_x > l->left + l->width ? span_x : l->left + l->width;
  const int64_t plane = l->high * l->wide;
  l->planes = malloc((size_t)(l->channels * plane) * sizeof *l->planes);
  if (!l->planes) return rk_fail(m, RK_BAD, "no memory for %lld inputs", (long long)(l->channels * plane));
  for (int64_t i = 0; i < l->channels * plane; i++) l->planes[i] = (int16_t)l->pad;
  const int64_t atom = l->picture ? l->channels : RK_ATOM;
  const int64_t row = l->picture ? l->line * l->channels : l->line / 4 * RK_ATOM;
  if (row < l->width * atom)
    return rk_fail(m, RK_BAD, "rows of %d pixels lie %lld bytes apart", (int)l->width, (long long)row);
  for (int64_t first = 0; first < l->channels; first += atom) {
    const uint64_t base = l->input + (uint64_t)(first / atom * l->surface * RK_ATOM);
    const uint64_t size = (uint64_t)((l->rows - 1) * row + l->width * atom);
    const uint8_t *from = m->memory(m->context, base, size);
    if (!from)
      return rk_fail(m, RK_BAD, "%llu bytes of input at %#llx are not in the memory",
                     (unsigned long long)size, (unsigned long long)base);
    const int64_t many = l->channels - first < atom ? l->channels - first : atom;
    for (int64_t c = 0; c < many; c++) {
      int16_t *to = l->planes + (first + c) * plane + l->top * l->wide + l->left;
      for (int64_t y = 0; y < l->rows; y++)
        for (int64_t x = 0; x < l->width; x++)
          to[y * l->wide + x] = (int8_t)from[y * row + x * atom + c];
    }
  }
  return RK_DONE;
}

// The taps of `count` outputs from `first` on, as [output][input][y][x], without their zero point.
static void load_taps(layer *l, const int8_t *packed, int64_t first, int64_t count,
                      const int32_t *zeros) {
  const int64_t taps = l->kernel_y * l->kernel_x;
  if (l->depthwise) {
    const int64_t held = l->kernel_bytes / taps;
    for (int64_t o = 0; o < count; o++) {
      const int64_t c = first + o, start = c / DEPTHWISE * DEPTHWISE;
      const int64_t many = held - start < DEPTHWISE ? held - start : DEPTHWISE;
      const int8_t *block = packed + start * taps;
      for (int64_t t = 0; t < taps; t++)
        l->taps[o * taps + t] = (int16_t)(block[t * many + c - start] + zeros[o]);
    }
    return;
  }
  const int64_t inputs = rk_round_up(l->channels, RK_ATOM);
  for (int64_t o = 0; o < count; o++) {
    const int64_t start = (first + o) / KERNELS * KERNELS;
    const int64_t outs = l->kernels - start < KERNELS ? l->kernels - start : KERNELS;
    for (int64_t i = 0; i < l->channels; i++) {
      const int64_t in = i / KERNELS * KERNELS;
      const int64_t ins = inputs - in < KERNELS ? inputs - in : KERNELS;
      const int8_t *block = packed + start * taps * inputs + in * taps * outs;
      for (int64_t t = 0; t < taps; t++)
        l->taps[(o * l->channels + i) * taps + t] =
            (int16_t)(block[(t * outs + first + o - start) * ins + i - in] + zeros[o]);
    }
  }
}

static inline void add_row(int32_t *restrict sums, const int16_t *restrict row, int32_t tap,
                           int64_t count, int64_t step) {
  if (step == 1)
    for (int64_t x = 0; x < count; x++) sums[x] += tap * row[x];
  else if (step == 2)
    for (int64_t x = 0; x < count; x++) sums[x] += tap * row[2 * x];
  else
    for (int64_t x = 0; x < count; x++) sums[x] += tap * row[step * x];
}

static void add_plane(const layer *l, const int16_t *plane, const int16_t *taps) {
  const int whole = l->wide == l->columns && l->stride_x == 1 && l->stride_y == 1;
  for (int64_t ky = 0; ky < l->kernel_y; ky++)
    for (int64_t kx = 0; kx < l->kernel_x; kx++) {
      const int32_t tap = taps[ky * l->kernel_x + kx];
      if (!tap) continue;
      const int16_t *from = plane + ky * l->dilation_y * l->wide + kx * l->dilation_x;
      if (whole) {
        add_row(l->sums, from, tap, l->height * l->columns, 1);
        continue;
      }
      for (int64_t y = 0; y < l->height; y++)
        add_row(l->sums + y * l->columns, from + y * l->stride_y * l->wide, tap, l->columns,
                l->stride_x);
    }
}

static int compute(rk_machine *m, layer *l, const rk_output *out) {
  const int64_t pixels = l->height * l->columns, plane = l->high * l->wide;
  const int64_t taps = l->kernel_y * l->kernel_x, inputs = l->depthwise ? 1 : l->channels;
  l->taps = malloc((size_t)(RK_ATOM * inputs * taps) * sizeof *l->taps);
  l->sums = malloc((size_t)pixels * sizeof *l->sums);
  l->numbers = malloc((size_t)(RK_ATOM * pixels) * sizeof *l->numbers);
  if (!l->taps || !l->sums || !l->numbers) return rk_fail(m, RK_BAD, "no memory for sums");
  const uint64_t all = (uint64_t)(l->kernels * l->kernel_bytes);
  const int8_t *packed = (const int8_t *)m->memory(m->context, l->weights, all);
  if (!packed)
    return rk_fail(m, RK_BAD, "%llu bytes of weights at %#llx are not in the memory",
                   (unsigned long long)all, (unsigned long long)l->weights);
  const int64_t each = 4 + (l->use & ZERO ? 2 : 0) + (l->use & FACTOR ? 2 : 0);
  const uint64_t rows = (uint64_t)(rk_round_up(l->outputs, GROUP) * each);
  const uint8_t *table = m->memory(m->context, l->table, rows);
  if (!table)
    return rk_fail(m, RK_BAD, "the numbers of %d channels at %#llx are not in the memory",
                   (int)l->outputs, (unsigned long long)l->table);
  for (int64_t first = 0; first < l->outputs; first += RK_ATOM) {
    const int64_t count = l->outputs - first < RK_ATOM ? l->outputs - first : RK_ATOM;
    int32_t bias[RK_ATOM], zeros[RK_ATOM] = {0};
    int16_t factor[RK_ATOM] = {0};
    for (int64_t o = 0; o < count; o++) {
      const uint8_t *group = table + (first + o) / GROUP * GROUP * each;
      const int64_t at = (first + o) % GROUP;
      memcpy(&bias[o], group + 4 * at, 4);
      group += 4 * GROUP;
      if (l->use & ZERO) {
        int16_t zero;
        memcpy(&zero, group + 2 * at, 2);
        zeros[o] = zero;
        group += 2 * GROUP;
      }
      if (l->use & FACTOR) memcpy(&factor[o], group + 2 * at, 2);
    }
    load_taps(l, packed, first, count, zeros);
    for (int64_t o = 0; o < count; o++) {
      memset(l->sums, 0, (size_t)pixels * sizeof *l->sums);
      if (l->depthwise) add_plane(l, l->planes + (first + o) * plane, l->taps + o * taps);
      else
        for (int64_t i = 0; i < l->channels; i++)
          add_plane(l, l->planes + i * plane, l->taps + (o * l->channels + i) * taps);
      int64_t *to = l->numbers + o * pixels;
      for (int64_t i = 0; i < pixels; i++) to[i] = l->sums[i];
    }
    const int result = rk_write_block(m, out, first / RK_ATOM, count, l->numbers, bias, factor);
    if (result) return result;
  }
  m->macs += (uint64_t)(l->outputs * pixels * inputs * taps);
  return RK_DONE;
}

int rk_convolution(rk_machine *m) {
  layer l = {0};
  rk_output out = {0};
  int result = read_settings(m, &l);
  if (!result) result = rk_output_of(m, &out);
  if (!result && (out.channels != l.outputs || out.height != l.height || out.width != l.columns))
    result = rk_fail(m, RK_BAD, "the DPU writes another size than the sums have");
  if (!result) result = load_input(m, &l);
  if (!result) result = rk_fill_blocks(m, &out);
  if (!result) result = compute(m, &l, &out);
  free(l.planes), free(l.taps), free(l.sums), free(l.numbers);
  return result;
}
