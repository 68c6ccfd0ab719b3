// What the C tests share: CHECK, and a builder that makes package files by hand, so that they need
// no Python.
#pragma once
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "intaglio.h"

#define CHECK(what)                                              \
  do {                                                           \
    if (!(what)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
      exit(1);                                                   \
    }                                                            \
  } while (0)

enum { MAX_RECORDS = 256 };

typedef struct builder {
  itg_file_plan plan;
  itg_file_tensor tensors[MAX_RECORDS];
  itg_file_step steps[MAX_RECORDS];
  uint32_t args[4 * MAX_RECORDS];
  char names[16 * MAX_RECORDS];
  uint8_t consts[4096];
  itg_file_plugin plugins[8];
  uint8_t attrs[256];
  itg_file_symbol symbol;  // of axis 0 of all tensors that are not constants
  itg_file_axis axis;
  size_t n_tensors, n_steps, n_args, n_names, n_consts, n_plugins, n_attrs, n_symbols;
} builder;

static inline uint32_t add_name(builder *b, const char *name) {
  uint32_t at = (uint32_t)b->n_names;
  strcpy(b->names + at, name);
  b->n_names += strlen(name) + 1;
  return at;
}

// An f32 tensor of n elements; returns its number.
static inline uint32_t add_tensor(builder *b, const char *name, int memory, uint32_t slot,
                                  uint64_t offset, int64_t n) {
  itg_file_tensor *t = &b->tensors[b->n_tensors];
  *t = (itg_file_tensor){.name = add_name(b, name),
                         .dtype = ITG_F32,
                         .rank = 1,
                         .memory = (uint8_t)memory,
                         .slot = slot,
                         .quant = ITG_NONE,
                         .offset = offset,
                         .size = 4 * (uint64_t)n,
                         .shape = {n}};
  return (uint32_t)b->n_tensors++;
}

static inline uint32_t add_const(builder *b, const float *data, int64_t n) {
  uint64_t at = (b->n_consts + 63) / 64 * 64;
  memcpy(b->consts + at, data, 4 * (size_t)n);
  b->n_consts = at + 4 * (size_t)n;
  return add_tensor(b, "", ITG_CONST, 0, at, n);
}

static inline void add_args(builder *b, uint32_t count, ...) {
  va_list list;
  va_start(list, count);
  while (count--) b->args[b->n_args++] = va_arg(list, uint32_t);
  va_end(list);
}

// A step with n_in inputs and one output, no attributes.
static inline void add_step(builder *b, const char *op, uint32_t n_in, uint32_t x, uint32_t y,
                            uint32_t out) {
  b->steps[b->n_steps++] = (itg_file_step){.op = add_name(b, op),
                                           .origin = ITG_NONE,
                                           .args = (uint32_t)b->n_args,
                                           .n_in = n_in,
                                           .n_out = 1};
  if (n_in == 1) add_args(b, 2, x, out);
  else add_args(b, 3, x, y, out);
}

static inline uint32_t crc_of(const void *data,
                              size_t size) {  // bit by bit: slow, and not the runtime's own
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; i++) {
    crc ^= ((const uint8_t *)data)[i];
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

static inline void seal(uint8_t *file) {  // checksums
  itg_file_header *h = (void *)file;
  itg_file_section *s = (void *)(file + sizeof *h);
  for (uint32_t i = 0; i < h->sections; i++) s[i].crc = crc_of(file + s[i].offset, s[i].size);
  h->crc = 0;
  h->crc = crc_of(file, sizeof *h + h->sections * sizeof *s);
}

// The file, aligned to 64; its size goes to *size.
static inline uint8_t *build(builder *b, size_t *size) {
  b->plan.n_steps = (uint32_t)b->n_steps;
  const struct {
    const char *kind;
    const void *data;
    size_t size;
  } parts[] = {{"META", "{}", 2},
               {"PLAN", &b->plan, sizeof b->plan},
               {"TENS", b->tensors, b->n_tensors * sizeof *b->tensors},
               {"QUNT", "", 0},
               {"STEP", b->steps, b->n_steps * sizeof *b->steps},
               {"ARGS", b->args, b->n_args * sizeof *b->args},
               {"ATTR", b->attrs, b->n_attrs},
               {"NAME", b->names, b->n_names},
               {"CNST", b->consts, b->n_consts},
               {"PLUG", b->plugins, b->n_plugins * sizeof *b->plugins},
               {"SYMB", &b->symbol, b->n_symbols * sizeof b->symbol},
               {"AXES", &b->axis, b->n_symbols * sizeof b->axis}};
  enum { N = sizeof parts / sizeof *parts };
  itg_file_section table[N] = {0};
  uint64_t at = (sizeof(itg_file_header) + sizeof table + 63) / 64 * 64;
  for (int i = 0; i < N; i++) {
    memcpy(table[i].kind, parts[i].kind, 4);
    table[i].offset = at;
    table[i].size = parts[i].size;
    at = (at + parts[i].size + 63) / 64 * 64;
  }
  uint8_t *file = aligned_alloc(64, at);
  memset(file, 0, at);
  *(itg_file_header *)(void *)file = (itg_file_header){
      .magic = {'I', 'T', 'G', '1'}, .version = ITG_FILE_VERSION, .sections = N, .size = at};
  memcpy(file + sizeof(itg_file_header), table, sizeof table);
  for (int i = 0; i < N; i++) memcpy(file + table[i].offset, parts[i].data, parts[i].size);
  seal(file);
  *size = at;
  return file;
}

// y = |x| + w, with `pairs` pairs of negations in between: 2 * pairs + 2 steps. If it is open, x
// may have any number of elements up to n.
static inline uint8_t *build_any_chain(int64_t n, int pairs, int open, size_t *size) {
  builder *b = calloc(1, sizeof *b);
  b->n_names = 1;
  float w[16];
  for (int i = 0; i < 16; i++) w[i] = (float)i;
  uint32_t x = add_tensor(b, "x", ITG_INPUT, 0, 0, n), y = add_tensor(b, "y", ITG_OUTPUT, 0, 0, n);
  uint32_t weights = n <= 16 && !open ? add_const(b, w, n) : add_const(b, w + 1, 1);
  const uint64_t second = 4 * (uint64_t)(n + 15) / 16 * 16;
  b->plan.n_inputs = b->plan.n_outputs = 1;
  b->plan.arena = 8 * (uint64_t)(n + 16);
  b->plan.outputs = 1;
  add_args(b, 2, x, y);
  uint32_t last = add_tensor(b, "", ITG_ARENA, 0, 0, n);
  add_step(b, "abs", 1, x, 0, last);
  for (int i = 0; i < 2 * pairs; i++) {
    const uint32_t to = add_tensor(b, "", ITG_ARENA, 0, i % 2 ? 0 : second, n);
    add_step(b, "neg", 1, last, 0, to);
    last = to;
  }
  add_step(b, "add", 2, last, weights, y);
  if (open) {
    for (size_t i = 0; i < b->n_tensors; i++) b->tensors[i].dynamic = i != weights;
    b->symbol = (itg_file_symbol){.name = add_name(b, "n"), .low = 1, .high = n, .multiple = 1};
    b->n_symbols = 1;
  }
  uint8_t *file = build(b, size);
  free(b);
  return file;
}

static inline uint8_t *build_chain(int64_t n, int pairs, size_t *size) {
  return build_any_chain(n, pairs, 0, size);
}

static inline float chain_at(float x, int64_t i, int64_t n) {
  return fabsf(x) + (n <= 16 ? (float)i : 1.f);
}

static inline itg_model *open_or_die(const void *file, size_t size) {
  itg_model *model;
  itg_error error = {{0}};
  itg_status status = itg_model_open(file, size, 0, &model, &error);
  if (status) fprintf(stderr, "open: %s\n", error.words);
  CHECK(!status);
  return model;
}

static inline itg_session *create_or_die(const itg_model *model, const itg_options *options) {
  itg_session *session;
  itg_error error = {{0}};
  itg_status status = itg_session_create(model, options, &session, &error);
  if (status) fprintf(stderr, "create: %s\n", error.words);
  CHECK(!status);
  return session;
}
