#include "job.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t itg_crc32(uint32_t crc, const void *data, size_t size);  // csrc/crc.c

enum { START = 0x81, ALL_BLOCKS = 0x7F, MOST_EXTENT = 1 << 16 };

int rk_error(itg_rk_error *error, const char *form, ...) {
  if (error) {
    va_list given;
    va_start(given, form);
    vsnprintf(error->text, sizeof error->text, form, given);
    va_end(given);
  }
  return -1;
}

uint64_t rkj_surface(const uint32_t shape[4]) {
  const uint64_t pixels = (uint64_t)shape[2] * shape[3];
  return pixels > 1 ? (pixels + 3) / 4 * 4 : 1;
}

int rkj_is_rk356x(const rkj_header *h) {
  return !strncmp(h->chip, "rk3566", sizeof h->chip) || !strncmp(h->chip, "rk3568", sizeof h->chip);
}

uint32_t rkj_amount(const rkj_header *h, uint32_t words) {
  const uint32_t pairs = (words - RKJ_TAIL + 1) / 2;
  if (rkj_is_rk356x(h)) return words - 1;
  const int newer =
      !strncmp(h->chip, "rk3576", sizeof h->chip) || !strncmp(h->chip, "rk3562", sizeof h->chip);
  return newer ? pairs + 1 : (pairs + 1) / 2 * 2;
}

uint32_t rkj_block(const rkj_header *h) { return rkj_is_rk356x(h) ? 8 : 16; }

// The next `size` bytes at a multiple of 64, or NULL.
static const uint8_t *part(const uint8_t *file, size_t total, uint64_t *at, uint64_t size) {
  const uint64_t start = (*at + RKJ_ALIGNMENT - 1) / RKJ_ALIGNMENT * RKJ_ALIGNMENT;
  if (start > total || size > total - start) return NULL;
  *at = start + size;
  return file + start;
}

static int check_ports(const rkj_job *job, itg_rk_error *error) {
  const rkj_header *h = job->header;
  for (uint32_t i = 0; i < h->ports; i++) {
    const rkj_port *p = &job->ports[i];
    if (p->name >= h->names || p->rank != 4 || p->shape[0] != 1)
      return rk_error(error, "rkjob: port %u has rank %u; it is [1, C, H, W]", i, p->rank);
    for (int k = 1; k < 4; k++)
      if (!p->shape[k] || p->shape[k] >= MOST_EXTENT)
        return rk_error(error, "rkjob: port %u has an extent of %u", i, p->shape[k]);
    const uint64_t channels = p->shape[1], pixels = (uint64_t)p->shape[2] * p->shape[3];
    const uint64_t block = rkj_block(h);
    const uint64_t blocks = (channels + block - 1) / block * block * rkj_surface(p->shape);
    const uint64_t needed = p->is_picture ? channels * pixels : blocks;
    if (p->offset > h->internal || p->size > h->internal - p->offset || needed > p->size)
      return rk_error(error, "rkjob: port %u has %llu bytes at %llu of %llu", i,
                      (unsigned long long)p->size, (unsigned long long)p->offset,
                      (unsigned long long)h->internal);
  }
  return 0;
}

static int check_tasks(const rkj_job *job, itg_rk_error *error) {
  const rkj_header *h = job->header;
  for (uint32_t i = 0; i < h->tasks; i++) {
    const rkj_task *t = &job->tasks[i];
    if (t->first > h->words || t->words > h->words - t->first || t->words <= RKJ_TAIL ||
        t->first % (RKJ_ALIGNMENT / 8) || t->name >= h->names)
      return rk_error(error, "rkjob: task %u has %u words from %u of %u", i, t->words, t->first,
                      h->words);
    uint64_t last;
    memcpy(&last, job->words + 8 * (uint64_t)(t->first + t->words - 1), 8);
    if (last >> 48 != START || (uint32_t)(last >> 16) != t->blocks || !t->blocks ||
        t->blocks & ~(uint32_t)ALL_BLOCKS)
      return rk_error(error, "rkjob: task %u does not start the blocks %#x", i, t->blocks);
  }
  for (uint32_t i = 0; i < h->addresses; i++) {
    const rkj_address *a = &job->addresses[i];
    const uint64_t size = a->memory == RKJ_WEIGHTS ? h->weights : h->internal;
    if (a->word >= h->words || a->memory > RKJ_INTERNAL || a->offset > size)
      return rk_error(error, "rkjob: word %u holds an address beyond its memory", a->word);
  }
  return 0;
}

int rkj_read(rkj_job *job, const void *file, size_t size, itg_rk_error *error) {
  const rkj_header *h = file;
  if ((uintptr_t)file % 8)
    return rk_error(error, "rkjob: its bytes do not begin at a multiple of 8");
  if (size < sizeof *h || memcmp(h->magic, "RKJ1", 4))
    return rk_error(error,
                    "rkjob: the file does not begin with RKJ1; write it with intaglio compile");
  if (h->version != RKJ_VERSION)
    return rk_error(error, "rkjob: version %u; version %d is known", h->version, RKJ_VERSION);
  const uint8_t *bytes = file;
  if (itg_crc32(0, bytes + sizeof *h, size - sizeof *h) != h->crc)
    return rk_error(error, "rkjob: its checksum differs; the file is damaged: copy it again");
  uint64_t at = sizeof *h;
  job->header = h;
  job->tasks = (const void *)part(bytes, size, &at, (uint64_t)h->tasks * sizeof(rkj_task));
  job->addresses =
      (const void *)part(bytes, size, &at, (uint64_t)h->addresses * sizeof(rkj_address));
  job->ports = (const void *)part(bytes, size, &at, (uint64_t)h->ports * sizeof(rkj_port));
  job->names = (const void *)part(bytes, size, &at, h->names);
  job->words = part(bytes, size, &at, (uint64_t)h->words * 8);
  job->weights = part(bytes, size, &at, h->weights);
  if (!job->tasks || !job->addresses || !job->ports || !job->names || !job->words || !job->weights)
    return rk_error(error, "rkjob: a part lies beyond the %zu bytes of the file", size);
  if (!h->tasks || !h->names || job->names[h->names - 1])
    return rk_error(error, "rkjob: it has no tasks, or its names do not end");
  if (h->weights >> 31 || h->internal >> 31)
    return rk_error(error, "rkjob: it wants more than 2 GiB; addresses of the NPU have 32 bits");
  return check_tasks(job, error) || check_ports(job, error) ? -1 : 0;
}
