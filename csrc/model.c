// Opening a package file: maps it, decrypts it (decrypt.c), finds its sections, compares checksums,
// finds its weight files (weights.c), checks it (check.c), and answers questions about it.
#define _FILE_OFFSET_BITS 64  // on 32-bit systems too: a large file is refused in words
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "encryption.h"
#include "runtime.h"

itg_status itg_fail(itg_error *error, itg_status status, const char *format, ...) {
  if (!error) return status;
  va_list list;
  va_start(list, format);
  vsnprintf(error->words, sizeof error->words, format, list);
  va_end(list);
  for (char *c = error->words; *c; c++)  // names come from the file: keep the message on one line
    if ((unsigned char)*c < 32 || *c == 127) *c = '?';
  return status;
}

enum { BIG_ENDIAN_CPU = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ };

// A section as an array of records of `item` bytes.
typedef struct {
  const char *kind;
  size_t item;
  const void **data;
  uint64_t *size;
} section;

static itg_status check_header(itg_model *m, itg_error *e) {
  itg_file_header h;
  if (m->size < sizeof h)
    return itg_fail(e, ITG_BAD_FILE,
                    "file has %llu bytes, its header alone has 32; it is empty or truncated",
                    (unsigned long long)m->size);
  memcpy(&h, m->file, sizeof h);
  if (memcmp(h.magic, "ITG1", 4))
    return itg_fail(e, ITG_BAD_FILE, "file does not start with ITG1; it is no package file");
  if (h.version == ITG_FILE_VERSION << 24 || BIG_ENDIAN_CPU)
    return itg_fail(e, ITG_UNSUPPORTED,
                    BIG_ENDIAN_CPU
                        ? "this CPU is big-endian; packages are little-endian, and the runtime "
                          "does not convert them; use a little-endian CPU"
                        : "file has big-endian numbers; packages are little-endian; compile the "
                          "model again");
  if (h.version != ITG_FILE_VERSION)
    return itg_fail(e, ITG_BAD_FILE,
                    "file has format version %u, this runtime reads %u; compile the model again",
                    h.version, ITG_FILE_VERSION);
  if (h.flags)
    return itg_fail(e, ITG_BAD_FILE, "file has flags 0x%x, which this runtime does not know",
                    h.flags);
  if (h.size != m->size)
    return itg_fail(e, ITG_BAD_FILE,
                    "file has %llu bytes, its header says %llu; it is truncated or damaged",
                    (unsigned long long)m->size, (unsigned long long)h.size);
  if (h.sections > ITG_MAX_SECTIONS || m->size - sizeof h < h.sections * sizeof(itg_file_section))
    return itg_fail(e, ITG_BAD_FILE, "file says it has %u sections; that does not fit", h.sections);
  uint32_t crc = h.crc;
  h.crc = 0;
  if (itg_crc32(itg_crc32(0, &h, sizeof h), m->file + sizeof h,
                h.sections * sizeof(itg_file_section)) != crc)
    return itg_fail(e, ITG_BAD_FILE, "checksum of the header differs; the file is damaged");
  m->isa = h.isa;
  const uint32_t missing = itg_missing_isa(h.isa);
  if (missing)
    return itg_fail(e, ITG_UNSUPPORTED,
                    "package was compiled for a CPU with %s, which this one lacks%s; compile it "
                    "again with --isa%s",
                    itg_isa_name(missing),
                    itg_cpu_isa() & missing ? " kernels for in this build" : "",
                    itg_cpu_isa() & missing ? ", or build the runtime with ISAS=all" : "");
  return ITG_OK;
}

static itg_status read_sections(itg_model *m, uint32_t flags, itg_error *e) {
  const itg_file_header *h = (const void *)m->file;
  const itg_file_section *table = (const void *)(m->file + sizeof *h);
  uint64_t plans = 0, tens = 0, quants = 0, steps = 0, args = 0, states = 0;
  uint64_t symbols = 0, axes = 0, patches = 0, terms = 0, weights = 0, plugins = 0, pads = 0;
  const section known[] = {
      {"META", 1, (const void **)&m->meta, &m->meta_size},
      {"PLAN", sizeof(itg_file_plan), (const void **)&m->plans, &plans},
      {"TENS", sizeof(itg_file_tensor), (const void **)&m->tens, &tens},
      {"QUNT", sizeof(itg_file_quant), (const void **)&m->quants, &quants},
      {"STEP", sizeof(itg_file_step), (const void **)&m->steps, &steps},
      {"ARGS", sizeof(uint32_t), (const void **)&m->args, &args},
      {"ATTR", 1, (const void **)&m->attrs, &m->attrs_size},
      {"CNST", 1, (const void **)&m->consts, &m->consts_size},
      {"CODE", 1, (const void **)&m->code, &m->code_size},
      {"NAME", 1, (const void **)&m->names, &m->names_size},
      {"ORIG", 1, (const void **)&m->origins, &m->origins_size},
      {"STAT", sizeof(itg_file_state), (const void **)&m->states, &states},
      {"SYMB", sizeof(itg_file_symbol), (const void **)&m->symbols, &symbols},
      {"AXES", sizeof(itg_file_axis), (const void **)&m->axes, &axes},
      {"PTCH", sizeof(itg_file_patch), (const void **)&m->patches, &patches},
      {"FORM", sizeof(itg_file_term), (const void **)&m->terms, &terms},
      {"WGTS", sizeof(itg_file_weights), (const void **)&m->weight_rows, &weights},
      {"PLUG", sizeof(itg_file_plugin), (const void **)&m->plugins, &plugins},
      {"PADS", sizeof(itg_file_pad), (const void **)&m->pads, &pads},
  };
  const size_t n_known = sizeof known / sizeof *known;
  for (uint32_t i = 0; i < h->sections; i++) {
    const itg_file_section *s = &table[i];
    if (s->offset % ITG_ALIGN || s->offset > m->size || s->size > m->size - s->offset)
      return itg_fail(e, ITG_BAD_FILE,
                      "section %.4s lies outside of the file, or not at a multiple of 64", s->kind);
    size_t k = 0;
    while (k < n_known && memcmp(known[k].kind, s->kind, 4)) k++;
    if (k == n_known) {
      if (s->flags & 1)
        return itg_fail(
            e, ITG_UNSUPPORTED,
            "file needs section %.4s, which this runtime does not know; update intaglio", s->kind);
      continue;
    }
    if (*known[k].data) return itg_fail(e, ITG_BAD_FILE, "file has two sections %.4s", s->kind);
    if (s->size % known[k].item ||
        s->size / known[k].item > 0x7fffffff * (known[k].item == 1 ? 0x8000ull : 1))
      return itg_fail(e, ITG_BAD_FILE, "section %.4s has %llu bytes, which is no number of records",
                      s->kind, (unsigned long long)s->size);
    if (!m->secret && !(flags & ITG_OPEN_TRUST_WEIGHTS && !memcmp(s->kind, "CNST", 4)) &&
        itg_crc32(0, m->file + s->offset, s->size) != s->crc)
      return itg_fail(e, ITG_BAD_FILE, "checksum of section %.4s differs; the file is damaged",
                      s->kind);
    *known[k].data = m->file + s->offset;
    *known[k].size = s->size / known[k].item;
  }
  for (size_t k = 0; k < n_known; k++)
    if (!*known[k].data &&
        !strstr("ORIG CODE STAT SYMB AXES PTCH FORM WGTS PLUG PADS", known[k].kind))
      return itg_fail(e, ITG_BAD_FILE, "file has no section %s", known[k].kind);
  m->n_plans = (uint32_t)plans, m->n_tensors = (uint32_t)tens, m->n_quants = (uint32_t)quants;
  m->n_steps = (uint32_t)steps, m->n_args = (uint32_t)args;
  m->n_states = (uint32_t)states, m->n_symbols = (uint32_t)symbols, m->n_axes = (uint32_t)axes;
  m->n_patches = (uint32_t)patches, m->n_terms = (uint32_t)terms;
  m->n_weights = (uint32_t)weights;
  m->n_plugins = (uint32_t)plugins;
  m->n_pads = (uint32_t)pads;
  return ITG_OK;
}

static void release_file(itg_model *m) {
  if (m->mapped) munmap((void *)m->file, (size_t)m->mapped);
  if (m->secret) itg_secret_free((void *)m->file, (size_t)m->secret);
  free(m->owned);
  m->owned = NULL;
  m->mapped = m->secret = 0;
}

// Checks the signature, if one is asked for, and replaces an encrypted file by the package in it.
static itg_status unlock(itg_model *m, const itg_open_options *o, itg_error *e) {
  void *image;
  uint64_t size;
  itg_status status =
      o->public_key ? itg_check_signature(m->file, m->size, o->public_key, e) : ITG_OK;
  if (!status) status = itg_decrypt(m->file, m->size, o, &image, &size, e);
  if (status || !image) return status;
  release_file(m);
  m->file = image;
  m->size = m->secret = size;
  return ITG_OK;
}

static itg_status open_bytes(itg_model *m, const char *path, const itg_open_options *o,
                             itg_model **out, itg_error *e) {
  itg_status status = unlock(m, o, e);
  if (!status) status = check_header(m, e);
  if (!status) status = read_sections(m, o->flags, e);
  if (!status) status = itg_open_weights(m, path, o, e);
  if (!status) status = itg_check_model(m, e);
  if (status) itg_model_close(m);
  *out = status ? NULL : m;
  return status;
}

itg_status itg_model_open(const void *data, size_t size, uint32_t flags, itg_model **out,
                          itg_error *e) {
  return itg_model_open_with(data, size, &(itg_open_options){.flags = flags}, out, e);
}

itg_status itg_model_open_with(const void *data, size_t size, const itg_open_options *options,
                               itg_model **out, itg_error *e) {
  const itg_open_options o = options ? *options : (itg_open_options){0};
  if (out) *out = NULL;
  if ((!data && size) || !out)
    return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", out ? "data" : "model");
  itg_model *m = calloc(1, sizeof *m);
  if (!m) return itg_fail(e, ITG_NO_MEMORY, "no memory for a model");
  m->file = data;
  m->size = size;
  if ((uintptr_t)data % ITG_ALIGN) {
    if (!(m->owned = aligned_alloc(ITG_ALIGN, itg_align(size)))) {
      free(m);
      return itg_fail(e, ITG_NO_MEMORY, "no memory for %zu bytes of package", size);
    }
    m->file = memcpy(m->owned, data, size);
  }
  return open_bytes(m, NULL, &o, out, e);
}

// The whole file in memory of our own, whatever happens to the file afterwards.
static itg_status read_file(itg_model *m, int fd, const char *path, itg_error *e) {
  uint8_t *to = aligned_alloc(ITG_ALIGN, (size_t)itg_align(m->size));
  m->file = m->owned = to;
  if (!to)
    return itg_fail(e, ITG_NO_MEMORY, "no memory for %llu bytes of package",
                    (unsigned long long)m->size);
  for (uint64_t at = 0; at < m->size;) {
    const ssize_t n = read(fd, to + at, (size_t)(m->size - at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return itg_fail(e, ITG_BAD_FILE, "cannot read %.160s: %s", path,
                      n ? strerror(errno) : "it became shorter while it was read");
    at += (uint64_t)n;
  }
  return ITG_OK;
}

static itg_status map_file(itg_model *m, int fd, const char *path, itg_error *e) {
  void *map = mmap(NULL, (size_t)m->size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED)
    return itg_fail(e, ITG_BAD_FILE, "cannot map %.160s: %s", path, strerror(errno));
  m->file = map;
  m->mapped = m->size;
  return ITG_OK;
}

itg_status itg_model_open_file(const char *path, uint32_t flags, itg_model **out, itg_error *e) {
  return itg_model_open_file_with(path, &(itg_open_options){.flags = flags}, out, e);
}

itg_status itg_model_open_file_with(const char *path, const itg_open_options *options,
                                    itg_model **out, itg_error *e) {
  const itg_open_options o = options ? *options : (itg_open_options){0};
  if (out) *out = NULL;
  if (!path || !out) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", out ? "path" : "model");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return itg_fail(e, ITG_BAD_FILE, "cannot open %.160s: %s", path, strerror(errno));
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(itg_file_header)) {
    close(fd);
    return itg_fail(e, ITG_BAD_FILE, "%.160s is no package file: it is empty, truncated or no file",
                    path);
  }
  itg_model *m = calloc(1, sizeof *m);
  itg_status status = ITG_OK;
  if (m) m->size = (uint64_t)st.st_size;
  if (!m || m->size > ITG_MAX_BYTES)
    status = itg_fail(e, ITG_NO_MEMORY, "no memory for a package of %llu bytes",
                      (unsigned long long)st.st_size);
  else if (o.flags & ITG_OPEN_COPY || o.public_key) status = read_file(m, fd, path, e);
  else status = map_file(m, fd, path, e);
  close(fd);
  if (!status) return open_bytes(m, path, &o, out, e);
  itg_model_close(m);
  return status;
}

void itg_model_close(itg_model *m) {
  if (!m) return;
  itg_close_weights(m);
  release_file(m);
  free(m->tensors);
  free(m->arg_tensors);
  free(m->kernels);
  free(m->plugin_ops);
  free(m->families);
  free(m->mains);
  free(m->input_slots);
  free(m->output_slots);
  free(m->input_carried);
  free(m->output_carried);
  free(m);
}

uint32_t itg_model_isa(const itg_model *m) { return m ? m->isa : 0; }
uint32_t itg_model_plans(const itg_model *m) { return m ? m->n_mains : 0; }
const void *itg_model_weights(const itg_model *m) { return m && !m->n_weights ? m->consts : NULL; }

const char *itg_model_meta(const itg_model *m, size_t *size) {
  if (size) *size = m ? (size_t)m->meta_size : 0;
  return m ? m->meta : NULL;
}

uint32_t itg_model_inputs(const itg_model *m, uint32_t plan) {
  return m && plan < m->n_mains ? m->plans[m->mains[plan]].n_inputs : 0;
}

uint32_t itg_model_outputs(const itg_model *m, uint32_t plan) {
  return m && plan < m->n_mains ? m->plans[m->mains[plan]].n_outputs : 0;
}

// The symbols of a main plan follow each other in the file.
static uint32_t first_symbol(const itg_model *m, uint32_t main) {
  uint32_t first = 0;
  while (first < m->n_symbols && m->symbols[first].plan != main) first++;
  return first;
}

static itg_status info_of(const itg_model *m, uint32_t id, itg_info *info) {
  const itg_file_tensor *t = &m->tens[id];
  *info = (itg_info){.name = itg_name(m, t->name),
                     .dtype = t->dtype,
                     .rank = t->rank,
                     .dynamic = t->dynamic,
                     .bytes = itg_bytes(&m->tensors[id]),
                     .quant_axis = -1};
  for (int a = 0; a < ITG_MAX_RANK; a++) info->symbol[a] = -1;
  memcpy(info->shape, t->shape, sizeof info->shape);
  if (t->quant != ITG_NONE) {
    const itg_file_quant *q = &m->quants[t->quant];
    info->scale = (const void *)(m->attrs + q->values);
    info->zero = (const void *)(m->attrs + q->values + 8ull * q->count);
    info->n_scale = q->count;
    info->quant_axis = q->axis;
  }
  return ITG_OK;
}

itg_status itg_model_input(const itg_model *m, uint32_t plan, uint32_t index, itg_info *info) {
  if (!info || index >= itg_model_inputs(m, plan)) return ITG_BAD_INPUT;
  const uint32_t main = m->mains[plan];
  info_of(m, m->args[m->plans[main].inputs + index], info);
  for (uint32_t i = 0; i < m->n_axes; i++)
    if (m->axes[i].plan == main && m->axes[i].input == index)
      info->symbol[m->axes[i].axis] = (int32_t)(m->axes[i].symbol - first_symbol(m, main));
  return ITG_OK;
}

itg_status itg_model_output(const itg_model *m, uint32_t plan, uint32_t index, itg_info *info) {
  if (!info || index >= itg_model_outputs(m, plan)) return ITG_BAD_INPUT;
  return info_of(m, m->args[m->plans[m->mains[plan]].outputs + index], info);
}

uint32_t itg_model_symbols(const itg_model *m, uint32_t plan) {
  uint32_t count = 0;
  for (uint32_t i = 0; m && plan < m->n_mains && i < m->n_symbols; i++)
    count += m->symbols[i].plan == m->mains[plan];
  return count;
}

itg_status itg_model_symbol(const itg_model *m, uint32_t plan, uint32_t index, itg_symbol *symbol) {
  if (!symbol || index >= itg_model_symbols(m, plan)) return ITG_BAD_INPUT;
  const itg_file_symbol *s = &m->symbols[first_symbol(m, m->mains[plan]) + index];
  *symbol = (itg_symbol){itg_name(m, s->name), s->low, s->high, s->multiple};
  return ITG_OK;
}

// The states of a main plan follow each other in the file: check.c sees to it.
const itg_file_state *itg_states_of(const itg_model *m, uint32_t main, uint32_t *count) {
  uint32_t first = 0;
  while (first < m->n_states && m->states[first].plan != main) first++;
  for (*count = 0; first + *count < m->n_states && m->states[first + *count].plan == main;)
    ++*count;
  return m->states + first;
}

uint32_t itg_model_states(const itg_model *m, uint32_t plan) {
  uint32_t count = 0;
  if (m && plan < m->n_mains) itg_states_of(m, m->mains[plan], &count);
  return count;
}

itg_status itg_model_state(const itg_model *m, uint32_t plan, uint32_t index, itg_state *state) {
  if (!state || index >= itg_model_states(m, plan)) return ITG_BAD_INPUT;
  uint32_t count;
  const itg_file_state *s = itg_states_of(m, m->mains[plan], &count) + index;
  *state =
      (itg_state){s->input, s->output,
                  s->initial == UINT64_MAX ? NULL : itg_constants_of(m, s->file).data + s->initial};
  return ITG_OK;
}
