// CNA, CORE and the first stages of the DPU: rows of the input, sums of products, bias and
// multiplier of each channel.
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { INPUTS = 32 };  // of a block of weights

static int pixel_bytes(int64_t channels) {
  return channels == 1 ? 4 : channels == 3 || channels == 4 ? 16 : 0;
}

static int64_t held_channels(const rk_chip *chip, int64_t channels) {  // of a pixel in the buffer
  const int64_t atoms = (channels + chip->atom - 1) / chip->atom;
  return (atoms + (chip->entry == 4 * chip->atom && atoms % 4 == 3)) * chip->atom;
}

int64_t rk_entries(const rk_chip *chip, const rk_layer *l) {  // of a row in the buffer
  return (l->width * held_channels(chip, l->stored) + chip->entry - 1) / chip->entry;
}

static int64_t kernel_inputs(const rk_chip *chip, const rk_layer *l) {
  if (chip->family == RK_356X) return held_channels(chip, l->channels);
  return rk_round_up(l->channels, RK_ATOM);
}

// How rows lie in memory and in the buffer, what surrounds them, and the size that CORE computes.
static int read_places(rk_machine *m, rk_layer *l, uint32_t mode, uint32_t depth, uint32_t pads) {
  int missing = 0;
#define GET(address) rk_get(m, address, &missing)
  const int64_t line = GET(0x107C) & 0xFFFFFFF, surface = GET(0x1080) & 0xFFFFFFF;
  const uint32_t row = GET(0x1044);
  const int64_t real = (depth >> 16 & 0x3FFF) + 1;
  uint32_t core, wanted = (uint32_t)rk_entries(m->chip, l);
  l->top = pads & 15, l->left = pads >> 4 & 15;
  if (m->chip->family == RK_356X) {
    if (l->picture) return rk_fail(m, RK_UNSUPPORTED, "pictures are converted");
    l->channels = real;
    l->pad = (int8_t)(pads >> 16 & 0xFF);
    l->row = line * m->chip->atom, l->surface = surface;
    core = GET(0x3010);
    wanted |= (uint32_t)(l->width << 16);
  } else if (m->chip->family == RV_110X) {
    if (l->picture) return rk_fail(m, RK_UNSUPPORTED, "pictures are converted");
    l->channels = real;
    l->top = pads & 0xFF, l->left = pads >> 8 & 0xFF;
    l->pad = (int8_t)(GET(0x1184) & 0xFF);
    l->row = line / 4 * m->chip->atom, l->surface = surface;
    core = GET(0x3014);
    wanted |= (uint32_t)(l->width << 16);
  } else {
    const int single = mode >> 29 & 1;  // lines are not read in groups of four
    const int plain = l->picture || (mode >> 16 & 1);
    l->channels = plain ? real : (l->stored - 1) / 64 * 64 + real;
    l->pad = (int8_t)(GET(0x1184) & 0xFF);
    l->row = l->picture ? line * l->channels : line / (single ? 1 : 4) * RK_ATOM;
    l->surface = (surface + (single && !l->picture ? l->width : line)) & 0xFFFFFFF;
    core = GET(0x3014);
  }
#undef GET
  if (missing) return RK_BAD;
  if (!l->picture && row != wanted)
    return rk_fail(m, RK_BAD, "a row takes %d entries of the buffer; CBUF_CON1 is %#x, not %#x",
                   (int)rk_entries(m->chip, l), row, wanted);
  if (core != (uint32_t)((l->height - 1) << 16 | (l->columns - 1)))
    return rk_fail(m, RK_BAD, "the sizes of the output differ: %d x %d", (int)l->height,
                   (int)l->columns);
  return RK_DONE;
}

static int check_buffer(rk_machine *m, const rk_layer *l, uint32_t buffer) {
  const rk_chip *chip = m->chip;
  int missing = 0;
  int64_t data = buffer & 15, held = buffer >> 4 & 15;
  if (chip->family == RV_110X) {
    data = rk_get(m, 0x1048, &missing) >> 26;
    held = chip->banks - data;
    if (missing) return RK_BAD;
  }
  if (!data || !held || data + held > chip->banks)
    return rk_fail(m, RK_BAD, "%d and %d banks; there are %d", (int)data, (int)held, chip->banks);
  int64_t needed = l->rows * rk_entries(chip, l) * chip->entry;
  if (l->picture) {
    if (!pixel_bytes(l->channels))
      return rk_fail(m, RK_UNSUPPORTED, "a picture of %d channels", (int)l->channels);
    needed = l->rows * l->width * pixel_bytes(l->channels);
  }
  if (needed > data * chip->bank_bytes)
    return rk_fail(m, RK_BAD, "%d rows need %lld bytes; %d banks are less", (int)l->rows,
                   (long long)needed, (int)data);
  return RK_DONE;
}

int rk_check_weights(rk_machine *m, const rk_layer *l, uint32_t bytes) {
  const int64_t taps = l->kernel_x * l->kernel_y, inputs = kernel_inputs(m->chip, l);
  if (l->depthwise) {
    if (l->kernel_bytes % taps || l->kernel_bytes / taps < l->outputs || l->channels < l->outputs)
      return rk_fail(m, RK_BAD, "windows of %d bytes for %d channels", (int)l->kernel_bytes,
                     (int)l->outputs);
  } else if (l->kernel_bytes != taps * inputs || l->kernels < l->outputs) {
    return rk_fail(m, RK_BAD, "a kernel of %d bytes; %d are needed", (int)l->kernel_bytes,
                   (int)(taps * inputs));
  }
  if (bytes != l->kernels * l->kernel_bytes)
    return rk_fail(m, RK_BAD, "%u bytes of weights; kernels have %lld", bytes,
                   (long long)(l->kernels * l->kernel_bytes));
  return RK_DONE;
}

static int read_settings(rk_machine *m, rk_layer *l) {
  if (rk_newer(m)) return rk3576_layer(m, l);
  int missing = 0, result;
#define GET(address) rk_get(m, address, &missing)
  const uint32_t mode = GET(0x100C), steps = GET(0x1014), size = GET(0x1020), depth = GET(0x1024);
  const uint32_t window = GET(0x1038), pads = GET(0x1068), cube = GET(0x403C);
  l->use = GET(0x501C) >> 1 & 15;
  l->zero = m->chip->family == RV_110X ? 0 : (int16_t)(GET(0x4054) & 0xFFFF);
  const int pairs = m->chip->family == RV_110X;
  l->depthwise = (mode & 15) == (pairs ? 7u : 3u);
  l->picture = (mode >> 12 & 15) != 0;
  l->stride_x = steps & 7, l->stride_y = steps >> 3 & 7;
  l->dilation_x = (steps >> 16 & 31) + 1, l->dilation_y = (steps >> 21 & 31) + 1;
  l->apart_x = l->apart_y = 1;
  if (pairs || (mode >> 16 & 1))
    l->apart_x = (steps >> 8 & 7) + 1, l->apart_y = (steps >> 11 & 7) + 1;
  l->width = size >> 16 & 0x7FF, l->rows = size & 0x7FF;
  l->stored = depth & 0xFFFF;
  l->kernel_x = window >> 24 & 31, l->kernel_y = window >> 16 & 31, l->kernels = window & 0x3FFF;
  l->kernel_bytes = GET(0x1034) & 0x7FFFF;
  l->outputs = (cube >> 16 & 0x1FFF) + 1;
  l->columns = (GET(0x4030) & 0x1FFF) + 1, l->height = (GET(0x4034) & 0x1FFF) + 1;
  l->input = GET(0x1070), l->weights = GET(0x1110), l->table = GET(0x5020);
  const uint32_t buffer = GET(0x1040), atomics = GET(0x102C) & 0x3FFFFF, bytes = GET(0x1030);
#undef GET
  if (missing) return RK_BAD;
  if (mode >> 4 & 0x3F) return rk_fail(m, RK_UNSUPPORTED, "only int8 convolutions are simulated");
  if ((mode & 15) && !l->depthwise) return rk_fail(m, RK_UNSUPPORTED, "CONV_MODE is %u", mode & 15);
  if (!(l->use & RK_BIAS) || l->use > (RK_BIAS | RK_ZERO | RK_MULTIPLIER))
    return rk_fail(m, RK_UNSUPPORTED, "BRDMA_DATA_USE is %d", l->use);
  if ((result = read_places(m, l, mode, depth, pads))) return result;
  if (!l->stride_x || !l->stride_y || !l->kernel_x || !l->kernel_y || !l->width || !l->rows ||
      !l->stored || !l->kernels || l->channels > rk_round_up(l->stored, m->chip->atom))
    return rk_fail(m, RK_BAD, "a size or stride is 0, or channels are more than are stored");
  if (atomics != l->height * l->columns)
    return rk_fail(m, RK_BAD, "the sizes of the output differ: %d x %d", (int)l->height,
                   (int)l->columns);
  if ((result = check_buffer(m, l, buffer))) return result;
  return rk_check_weights(m, l, bytes);
}

// Copies the input into padded planes; rows and columns that no register names are padding.
static int load_input(rk_machine *m, rk_layer *l) {
  const int64_t span_y = (l->height - 1) * l->stride_y + (l->kernel_y - 1) * l->dilation_y + 1;
  const int64_t span_x = (l->columns - 1) * l->stride_x + (l->kernel_x - 1) * l->dilation_x + 1;
  const int64_t below = l->top + (l->rows - 1) * l->apart_y + 1;
  const int64_t right = l->left + (l->width - 1) * l->apart_x + 1;
  l->high = span_y > below ? span_y : below;
  l->wide = span_x > right ? span_x : right;
  if (l->staged && (span_y > below + l->bottom || span_x > right + l->right))
    return rk_fail(m, RK_BAD, "windows reach over %d x %d of %d x %d padded pixels", (int)span_y,
                   (int)span_x, (int)(below + l->bottom), (int)(right + l->right));
  const int64_t plane = l->high * l->wide;
  l->planes = malloc((size_t)(l->channels * plane) * sizeof *l->planes);
  if (!l->planes)
    return rk_fail(m, RK_BAD, "no memory for %lld inputs", (long long)(l->channels * plane));
  for (int64_t i = 0; i < l->channels * plane; i++) l->planes[i] = (int16_t)l->pad;
  const int64_t atom = l->picture ? l->channels : m->chip->atom;
  if (l->row < l->width * atom)
    return rk_fail(m, RK_BAD, "rows of %d pixels lie %lld bytes apart", (int)l->width,
                   (long long)l->row);
  for (int64_t first = 0; first < l->channels; first += atom) {
    const uint64_t base = l->input + (uint64_t)(first / atom * l->surface * m->chip->atom);
    const uint64_t size = (uint64_t)((l->rows - 1) * l->row + l->width * atom);
    const uint8_t *from =
        l->staged ? l->staged + first / atom * l->rows * l->row : m->memory(m->context, base, size);
    if (!from)
      return rk_fail(m, RK_BAD, "%llu bytes of input at %#llx are not in the memory",
                     (unsigned long long)size, (unsigned long long)base);
    const int64_t many = l->channels - first < atom ? l->channels - first : atom;
    for (int64_t c = 0; c < many; c++) {
      int16_t *to = l->planes + (first + c) * plane + l->top * l->wide + l->left;
      for (int64_t y = 0; y < l->rows; y++)
        for (int64_t x = 0; x < l->width; x++)
          to[y * l->apart_y * l->wide + x * l->apart_x] = (int8_t)from[y * l->row + x * atom + c];
    }
  }
  return RK_DONE;
}

// The taps of `count` outputs from `first` on, as [output][input][y][x], without their zero point.
static void load_taps(const rk_chip *chip, rk_layer *l, const int8_t *packed, int64_t first,
                      int64_t count, const int32_t *zeros) {
  const int64_t taps = l->kernel_y * l->kernel_x;
  if (l->depthwise) {
    const int64_t held = l->kernel_bytes / taps, together = 2 * chip->outputs;
    const int pairs = l->kernels > 1 ? chip->pairs : 0;  // before as many zero points
    for (int64_t o = 0; o < count; o++) {
      const int64_t c = first + o, start = c / together * together;
      const int64_t many = held - start < together ? held - start : together;
      const int8_t *block = packed + start * taps * (pairs ? 2 : 1);
      const int64_t in = c - start, place = pairs ? in / pairs * 2 * pairs + in % pairs : in;
      for (int64_t t = 0; t < taps; t++) {
        const int8_t *at = block + t * many * (pairs ? 2 : 1) + place;
        // -128 beside a weight is 128: no zero point is 128, and the vendor's means need it
        const int zero = !pairs ? zeros[o] : at[pairs] == INT8_MIN ? 128 : at[pairs];
        l->taps[o * taps + t] = (int16_t)(at[0] + zero);
      }
    }
    return;
  }
  const int64_t inputs = kernel_inputs(chip, l), together = chip->outputs;
  for (int64_t o = 0; o < count; o++) {
    const int64_t start = (first + o) / together * together;
    const int64_t outs = l->kernels - start < together ? l->kernels - start : together;
    for (int64_t i = 0; i < l->channels; i++) {
      const int64_t in = i / INPUTS * INPUTS;
      const int64_t ins = inputs - in < INPUTS ? inputs - in : INPUTS;
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

static void add_plane(const rk_layer *l, const int16_t *plane, const int16_t *taps) {
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

static int compute(rk_machine *m, rk_layer *l, const rk_output *out) {
  const int64_t pixels = l->height * l->columns, plane = l->high * l->wide;
  const int64_t taps = l->kernel_y * l->kernel_x, inputs = l->depthwise ? 1 : l->channels;
  l->taps = malloc((size_t)(RK_ATOM * inputs * taps) * sizeof *l->taps);
  l->sums = malloc((size_t)pixels * sizeof *l->sums);
  l->numbers = malloc((size_t)(RK_ATOM * pixels) * sizeof *l->numbers);
  if (!l->taps || !l->sums || !l->numbers) return rk_fail(m, RK_BAD, "no memory for sums");
  const int64_t atom = m->chip->atom, together = m->chip->group;
  const uint64_t all = (uint64_t)(l->kernels * l->kernel_bytes);
  const int8_t *packed = (const int8_t *)m->memory(m->context, l->weights, all);
  if (!packed)
    return rk_fail(m, RK_BAD, "%llu bytes of weights at %#llx are not in the memory",
                   (unsigned long long)all, (unsigned long long)l->weights);
  const int64_t each =
      (l->use & RK_BIAS ? 4 : 0) + (l->use & RK_ZERO ? 2 : 0) + (l->use & RK_MULTIPLIER ? 2 : 0);
  const uint64_t rows = (uint64_t)(rk_round_up(l->outputs, m->chip->group) * each);
  const uint8_t *table = l->use ? m->memory(m->context, l->table, rows) : NULL;
  if (l->use && !table)
    return rk_fail(m, RK_BAD, "the numbers of %d channels at %#llx are not in the memory",
                   (int)l->outputs, (unsigned long long)l->table);
  for (int64_t first = 0; first < l->outputs; first += atom) {
    const int64_t count = l->outputs - first < atom ? l->outputs - first : atom;
    int32_t bias[RK_ATOM], zeros[RK_ATOM];
    int16_t factor[RK_ATOM] = {0};
    for (int64_t o = 0; o < count; o++) {
      const uint8_t *group = l->use ? table + (first + o) / together * together * each : NULL;
      const int64_t at = (first + o) % together;
      bias[o] = 0;
      if (l->use & RK_BIAS) memcpy(&bias[o], group + 4 * at, 4), group += 4 * together;
      zeros[o] = l->zero;
      if (l->use & RK_ZERO) {
        int16_t zero;
        memcpy(&zero, group + 2 * at, 2);
        zeros[o] = zero;
        group += 2 * together;
      }
      if (l->use & RK_MULTIPLIER) memcpy(&factor[o], group + 2 * at, 2);
    }
    load_taps(m->chip, l, packed, first, count, zeros);
    for (int64_t o = 0; o < count; o++) {
      memset(l->sums, 0, (size_t)pixels * sizeof *l->sums);
      if (l->depthwise) add_plane(l, l->planes + (first + o) * plane, l->taps + o * taps);
      else
        for (int64_t i = 0; i < l->channels; i++)
          add_plane(l, l->planes + i * plane, l->taps + (o * l->channels + i) * taps);
      int64_t *to = l->numbers + o * pixels;
      for (int64_t i = 0; i < pixels; i++) to[i] = l->sums[i];
    }
    const int result = rk_write_block(m, out, first / atom, count, l->numbers, bias, factor);
    if (result) return result;
  }
  m->macs += (uint64_t)(l->outputs * pixels * inputs * taps);
  return RK_DONE;
}

int rk_convolution(rk_machine *m) {
  rk_layer l = {0};
  rk_output out = {0};
  int result = read_settings(m, &l);
  if (!result) result = rk_output_of(m, &out);
  if (!result && (out.channels != l.outputs || out.height != l.height || out.width != l.columns))
    result = rk_fail(m, RK_BAD, "the DPU writes another size than the sums have");
  if (!result) result = load_input(m, &l);
  if (!result) result = rk_fill_blocks(m, &out);
  if (!result) result = compute(m, &l, &out);
  free(l.planes), free(l.taps), free(l.sums), free(l.numbers), free(l.staged);
  return result;
}
