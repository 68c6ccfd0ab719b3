// Devices and networks: buffers, addresses in commands, inputs and outputs.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "drm.h"

enum { MOST_NODES = 8, PAGE = 4096, NAME = 32, PC_BASE = 0x10, PC_AMOUNT = 0x14 };

int rk_ioctl(int fd, unsigned long request, void *given, int busy_ms) {
  const struct timespec wait = {0, 1000000};
  for (int waited = 0;;) {
    const int result = ioctl(fd, request, given);
    if (!result || (errno != EINTR && errno != EAGAIN && errno != EBUSY)) return result;
    if (errno == EBUSY) {
      if (waited++ >= busy_ms) return result;
      nanosleep(&wait, NULL);
    }
  }
}

int rk_map(int fd, rk_buffer *b, uint64_t offset, itg_rk_error *error) {
  b->bytes = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
  if (b->bytes != MAP_FAILED) return 0;
  b->bytes = NULL;
  return rk_error(error, "the buffer of %llu bytes is not mapped: %s", (unsigned long long)b->size,
                  strerror(errno));
}

// ---- devices
// -------------------------------------------------------------------------------------
static const rk_driver *driver_of(int fd) {
  char name[NAME] = {0};
  struct drm_name given = {.name_len = NAME - 1, .name = name};
  if (rk_ioctl(fd, DRM_VERSION, &given, 0)) return NULL;
  return !strcmp(name, "rocket") ? &rk_rocket : !strcmp(name, "rknpu") ? &rk_rknpu : NULL;
}

static int open_at(itg_rk_device **device, const char *path, itg_rk_error *error) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return rk_error(error, "%s: %s; is your user in the group of the file?", path, strerror(errno));
  const rk_driver *driver = driver_of(fd);
  if (!driver || driver->check(fd, error)) {
    if (!driver) rk_error(error, "%s: its driver is neither rocket nor rknpu", path);
    close(fd);
    return driver ? -2 : -1;
  }
  itg_rk_device *made = calloc(1, sizeof *made);
  if (!made) {
    close(fd);
    return rk_error(error, "no memory for a device");
  }
  made->fd = fd, made->driver = driver;
  snprintf(made->path, sizeof made->path, "%s", path);
  *device = made;
  return 0;
}

int itg_rk_open(itg_rk_device **device, const char *path, itg_rk_error *error) {
  *device = NULL;
  if (path) return open_at(device, path, error) ? -1 : 0;
  static const char *const forms[] = {"/dev/accel/accel%d", "/dev/dri/card%d",
                                      "/dev/dri/renderD%d"};
  for (int form = 0; form < 3; form++)
    for (int i = 0; i < MOST_NODES; i++) {
      char at[64];
      snprintf(at, sizeof at, forms[form], form == 2 ? 128 + i : i);
      if (access(at, F_OK)) continue;
      const int result = open_at(device, at, error);
      if (result != -1) return result ? -1 : 0;  // found, or its version is not known
    }
  return rk_error(error,
                  "no NPU: neither /dev/accel/accelN of rocket nor /dev/dri/cardN of rknpu "
                  "opens; load the driver, and join the groups render and video");
}

const char *itg_rk_driver(const itg_rk_device *device) { return device->driver->name; }

const char *itg_rk_path(const itg_rk_device *device) { return device->path; }

void itg_rk_close(itg_rk_device *device) {
  if (!device) return;
  close(device->fd);
  free(device);
}

// ---- networks
// ------------------------------------------------------------------------------------
struct itg_rk_network {
  itg_rk_device *device;
  rk_buffer commands, weights, internal, table;
  rk_task *tasks;
  itg_rk_port *ports;
  rkj_port *records;
  char *names;
  uint32_t n_tasks, n_ports, block;  // block: channels side by side in memory
  int core;
};

void itg_rk_unload(itg_rk_network *n) {
  if (!n) return;
  rk_buffer *buffers[] = {&n->commands, &n->weights, &n->internal, &n->table};
  for (int i = 0; i < 4; i++) {
    if (buffers[i]->bytes) munmap(buffers[i]->bytes, buffers[i]->size);
    n->device->driver->destroy(n->device->fd, buffers[i]);
  }
  free(n->tasks), free(n->ports), free(n->records), free(n->names);
  free(n);
}

static uint64_t word(uint64_t target, uint64_t value, uint64_t where) {
  return target << 48 | (value & UINT32_MAX) << 16 | where;
}

// Addresses in the commands, and at each task's end where the next one begins.
static void place_commands(itg_rk_network *n, const rkj_job *job) {
  const rkj_header *h = job->header;
  uint64_t *words = n->commands.bytes;
  memcpy(words, job->words, 8 * (uint64_t)h->words);
  for (uint32_t i = 0; i < h->addresses; i++) {
    const rkj_address *a = &job->addresses[i];
    const rk_buffer *b = a->memory == RKJ_WEIGHTS ? &n->weights : &n->internal;
    const uint64_t keep = words[a->word] & UINT64_C(0xFFFF00000000FFFF);
    words[a->word] = keep | ((b->address + a->offset) & UINT32_MAX) << 16;
  }
  for (uint32_t i = 0; i < h->tasks; i++) {
    const rkj_task *t = &job->tasks[i];
    n->tasks[i] = (rk_task){n->commands.address + 8 * (uint64_t)t->first, t->words, t->blocks};
    uint64_t *tail = words + t->first + t->words - RKJ_TAIL;
    tail[0] = 0, tail[1] = word(0x101, 0, PC_AMOUNT);
    if (i + 1 == h->tasks) continue;
    const uint32_t next = job->tasks[i + 1].words;
    tail[0] = word(0x101, n->commands.address + 8 * (uint64_t)job->tasks[i + 1].first, PC_BASE);
    tail[1] = word(0x101, rkj_amount(h, next), PC_AMOUNT);
  }
}

static int copy_ports(itg_rk_network *n, const rkj_job *job, itg_rk_error *error) {
  const rkj_header *h = job->header;
  n->n_tasks = h->tasks, n->n_ports = h->ports, n->block = rkj_block(h);
  n->tasks = calloc(h->tasks, sizeof *n->tasks);
  n->ports = calloc(h->ports + 1, sizeof *n->ports);
  n->records = calloc(h->ports + 1, sizeof *n->records);
  n->names = malloc(h->names);
  if (!n->tasks || !n->ports || !n->records || !n->names)
    return rk_error(error, "no memory for a network of %u tasks", h->tasks);
  memcpy(n->names, job->names, h->names);
  for (uint32_t i = 0; i < h->ports; i++) {
    const rkj_port *p = &job->ports[i];
    n->records[i] = *p;
    itg_rk_port *to = &n->ports[i];
    *to = (itg_rk_port){.name = n->names + p->name, .is_output = p->is_output};
    to->is_unsigned = p->is_unsigned, to->scale = p->scale, to->zero = p->zero;
    memcpy(to->shape, p->shape, sizeof to->shape);
    to->bytes = (uint64_t)p->shape[1] * p->shape[2] * p->shape[3];
  }
  return 0;
}

static int make_buffers(itg_rk_network *n, const rkj_job *job, itg_rk_error *error) {
  const rk_driver *d = n->device->driver;
  const rkj_header *h = job->header;
  const uint64_t sizes[] = {8 * (uint64_t)h->words, h->weights, h->internal,
                            d->table_bytes(h->tasks)};
  rk_buffer *buffers[] = {&n->commands, &n->weights, &n->internal, &n->table};
  for (int i = 0; i < 4; i++) {
    const uint64_t size = (sizes[i] + PAGE - 1) / PAGE * PAGE;
    if (i == 3 && !size) break;
    if (d->create(n->device->fd, buffers[i], size ? size : PAGE, i == 3, error)) return -1;
  }
  memcpy(n->weights.bytes, job->weights, h->weights);
  memset(n->internal.bytes, 0, n->internal.size);
  place_commands(n, job);
  if (n->table.bytes) d->fill_table(n->table.bytes, n->tasks, n->n_tasks);
  for (int i = 0; i < 4; i++)
    if (buffers[i]->handle && d->to_device(n->device->fd, buffers[i], error)) return -1;
  return 0;
}

int itg_rk_load(itg_rk_network **network, itg_rk_device *device, const void *file, size_t size,
                int core, itg_rk_error *error) {
  rkj_job job;
  *network = NULL;
  if (core < ITG_RK_ANY_CORE || core >= ITG_RK_CORES)
    return rk_error(error, "core %d; the NPU has cores 0 to %d", core, ITG_RK_CORES - 1);
  if (rkj_read(&job, file, size, error) || rkj_check_chip(job.header, error)) return -1;
  itg_rk_network *n = calloc(1, sizeof *n);
  if (!n) return rk_error(error, "no memory for a network");
  n->device = device, n->core = core;
  if (copy_ports(n, &job, error) || make_buffers(n, &job, error)) {
    itg_rk_unload(n);
    return -1;
  }
  *network = n;
  return 0;
}

uint32_t itg_rk_ports(const itg_rk_network *n) { return n->n_ports; }

uint32_t itg_rk_tasks(const itg_rk_network *n) { return n->n_tasks; }

const itg_rk_port *itg_rk_port_at(const itg_rk_network *n, uint32_t number) {
  return number < n->n_ports ? &n->ports[number] : NULL;
}

// Calls `each` for every byte: its place in memory, and in the array.
static void walk(const rkj_port *p, uint64_t atom, uint8_t *memory, uint8_t *array, int to_memory) {
  const uint64_t channels = p->shape[1], pixels = (uint64_t)p->shape[2] * p->shape[3];
  const uint64_t surface = rkj_surface(p->shape);
  const uint8_t turn = p->is_unsigned ? 0x80 : 0;
  for (uint64_t c = 0; c < channels; c++)
    for (uint64_t i = 0; i < pixels; i++) {
      const uint64_t block = (c / atom * surface + i) * atom + c % atom;
      uint8_t *at = memory + (p->is_picture ? i * channels + c : block);
      uint8_t *of = array + c * pixels + i;
      if (to_memory) *at = *of ^ turn;
      else *of = *at ^ turn;
    }
}

int itg_rk_set(itg_rk_network *n, uint32_t port, const void *bytes, itg_rk_error *error) {
  if (port >= n->n_ports || n->ports[port].is_output)
    return rk_error(error, "port %u is no input; there are %u ports", port, n->n_ports);
  const rkj_port *p = &n->records[port];
  walk(p, n->block, (uint8_t *)n->internal.bytes + p->offset, (uint8_t *)(uintptr_t)bytes, 1);
  return 0;
}

int itg_rk_run(itg_rk_network *n, int timeout_ms, itg_rk_error *error) {
  const rk_driver *d = n->device->driver;
  if (timeout_ms < 1) return rk_error(error, "a time of %d ms; at least 1 is needed", timeout_ms);
  if (d->to_device(n->device->fd, &n->internal, error)) return -1;
  const rk_work work = {n->tasks,     n->n_tasks, &n->commands, &n->weights,
                        &n->internal, &n->table,  n->core,      timeout_ms};
  if (d->run(n->device->fd, &work, error)) return -1;
  return d->from_device(n->device->fd, &n->internal, error);
}

int itg_rk_get(itg_rk_network *n, uint32_t port, void *bytes, itg_rk_error *error) {
  if (port >= n->n_ports || !n->ports[port].is_output)
    return rk_error(error, "port %u is no output; there are %u ports", port, n->n_ports);
  const rkj_port *p = &n->records[port];
  walk(p, n->block, (uint8_t *)n->internal.bytes + p->offset, bytes, 0);
  return 0;
}
