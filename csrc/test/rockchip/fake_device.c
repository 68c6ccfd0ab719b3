// A device in user space, preloaded: both drivers' ioctls, with jobs that our simulator executes.
// INTAGLIO_RK_FAKE is rocket or rknpu. INTAGLIO_RK_FAULT is KIND or KIND:N, of the N-th call.
// INTAGLIO_RK_FAKE_CHIP is the chip, RK3588 if it is not given; INTAGLIO_RK_FAKE_BOARD another
// one that the device tree names.
// INTAGLIO_RK_FAKE_LOG: a file that says at the end how many buffers are left.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../rockchip/board/drm.h"
#include "../../rockchip/machine.h"

enum { BUFFERS = 256, GAP = 1 << 16, FIRST_ADDRESS = 0x100000 };

typedef struct buffer {
  uint64_t address, size;
  uint8_t *bytes;
  int file, used, late;  // late: a job on it never ends
} buffer;

static buffer buffers[BUFFERS];
static int device = -1, calls[16], jobs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_rocket(void) {
  const char *kind = getenv("INTAGLIO_RK_FAKE");
  return kind && !strcmp(kind, "rocket");
}

// Whether this call fails by this fault; counts calls by `slot`.
static int fault(const char *kind, int slot) {
  const char *given = getenv("INTAGLIO_RK_FAULT");
  const size_t n = strlen(kind);
  const int count = ++calls[slot];
  if (!given || strncmp(given, kind, n) || (given[n] && given[n] != ':')) return 0;
  return !given[n] || atoi(given + n + 1) == count;
}

static int refuse(int why) {
  errno = why;
  return -1;
}

static uint8_t *memory(void *context, uint64_t address, uint64_t size) {
  (void)context;
  for (int i = 0; i < BUFFERS; i++) {
    const buffer *b = &buffers[i];
    if (b->used && address >= b->address && address - b->address <= b->size &&
        size <= b->size - (address - b->address))
      return b->bytes + (address - b->address);
  }
  return NULL;
}

static int create(uint64_t size, uint32_t *handle, uint64_t *address) {
  if (fault("create", 0)) return refuse(ENOMEM);
  for (int i = 0; i < BUFFERS; i++) {
    buffer *b = &buffers[i];
    if (b->used) continue;
    b->file = memfd_create("buffer", 0);
    if (b->file < 0 || ftruncate(b->file, (off_t)size)) return refuse(ENOMEM);
    b->bytes =
        (void *)syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, b->file, 0);
    b->size = size, b->used = 1, b->late = 0;
    uint64_t from = FIRST_ADDRESS;  // the lowest place beside the others
    for (int k = 0; k < BUFFERS; k++) {
      const buffer *o = &buffers[k];
      if (o == b || !o->used || from + size + GAP <= o->address ||
          o->address + o->size + GAP <= from)
        continue;
      from = o->address + o->size + GAP, k = -1;
    }
    b->address = fault("high", 1) ? UINT64_C(1) << 33 : from;
    *handle = (uint32_t)i + 1, *address = b->address;
    return 0;
  }
  return refuse(ENOMEM);
}

static int destroy(uint32_t handle) {
  if (!handle || handle > BUFFERS || !buffers[handle - 1].used) return refuse(EINVAL);
  buffer *b = &buffers[handle - 1];
  munmap(b->bytes, b->size);
  close(b->file);
  b->used = 0;
  return 0;
}

static int run_tasks(const uint64_t *addresses, const uint32_t *counts, uint32_t tasks) {
  rk_machine *m = malloc(sizeof *m);
  itg_rk_start(m, memory, NULL);
  const char *chip = getenv("INTAGLIO_RK_FAKE_CHIP");
  int result = chip ? itg_rk_choose(m, chip) : 0;
  for (uint32_t i = 0; i < tasks && !result; i++) {
    const uint8_t *words = memory(NULL, addresses[i], 8 * (uint64_t)counts[i]);
    if (!words || addresses[i] % 64) {
      fprintf(stderr, "fake device: task %u has no commands at %#llx\n", i,
              (unsigned long long)addresses[i]);
      result = -1;
    } else if (itg_rk_task(m, (const uint64_t *)(const void *)words, counts[i])) {
      fprintf(stderr, "fake device: task %u: %s\n", i, itg_rk_message(m));
      result = -1;
    }
  }
  free(m);
  return result;
}

static int submit_rocket(const struct rocket_submit *s) {
  if (fault("busy", 2)) return refuse(EBUSY);
  if (fault("refused", 3) || s->job_count != 1 || s->job_size != sizeof(struct rocket_job))
    return refuse(EINVAL);
  const struct rocket_job *job = (const void *)(uintptr_t)s->jobs;
  const struct rocket_task *tasks = (const void *)(uintptr_t)job->tasks;
  if (job->task_size != sizeof *tasks || !job->task_count) return refuse(EINVAL);
  uint64_t *addresses = calloc(job->task_count, 8);
  uint32_t *counts = calloc(job->task_count, 4);
  for (uint32_t i = 0; i < job->task_count; i++)
    addresses[i] = tasks[i].commands, counts[i] = tasks[i].count;
  int late = fault("timeout", 4);
  if (!late) late = run_tasks(addresses, counts, job->task_count) || fault("lost", 5);
  const uint32_t *out = (const void *)(uintptr_t)job->out_handles;
  for (uint32_t i = 0; i < job->out_count; i++)
    if (out[i] && out[i] <= BUFFERS) buffers[out[i] - 1].late = late;
  free(addresses), free(counts);
  jobs++;
  return 0;
}

static int submit_rknpu(struct rknpu_submit *s) {
  if (fault("busy", 2)) return refuse(EBUSY);
  if (fault("refused", 3) || !(s->flags & 1) || !s->count) return refuse(EINVAL);
  if (!s->tasks || s->tasks > BUFFERS || !buffers[s->tasks - 1].used) return refuse(EINVAL);
  const struct rknpu_task *records = (const void *)buffers[s->tasks - 1].bytes;
  if ((s->first + (uint64_t)s->count) * sizeof *records > buffers[s->tasks - 1].size)
    return refuse(EINVAL);
  records += s->first;
  uint64_t *addresses = calloc(s->count, 8);
  uint32_t *counts = calloc(s->count, 4);
  int bad = 0;
  for (uint32_t i = 0; i < s->count && !bad; i++) {  // the NPU follows the ends of tasks
    addresses[i] = records[i].address, counts[i] = records[i].words + RK_TAIL;
    const uint8_t *words = memory(NULL, addresses[i], 8 * (uint64_t)counts[i]);
    if (!words || i + 1 == s->count) continue;
    uint64_t tail[2];
    memcpy(tail, words + 8 * (uint64_t)(counts[i] - RK_TAIL), sizeof tail);
    const uint32_t amount = (records[i + 1].words + 1) / 2;
    bad = (uint32_t)(tail[0] >> 16) != records[i + 1].address || tail[0] >> 48 != 0x101 ||
          (uint32_t)(tail[1] >> 16) < amount;
  }
  if (bad) fprintf(stderr, "fake device: a task does not name the next one\n");
  int late = bad || fault("timeout", 4);
  if (!late) late = run_tasks(addresses, counts, s->count) || fault("lost", 5);
  free(addresses), free(counts);
  jobs++;
  s->done = fault("short", 6) ? s->count - 1 : s->count;
  return late ? refuse(ETIMEDOUT) : 0;
}

static int version(struct drm_name *v) {
  const char *name = fault("driver", 7) ? "panthor" : is_rocket() ? "rocket" : "rknpu";
  if (v->name && v->name_len >= strlen(name)) memcpy(v->name, name, strlen(name));
  v->name_len = strlen(name);
  return 0;
}

static int answer(unsigned long request, void *at) {
  if (request == DRM_VERSION) return version(at);
  if (fault("signal", 8) && calls[8] % 2) return refuse(EINTR);
  if (is_rocket()) {
    if (request == ROCKET_CREATE) {
      struct rocket_create *c = at;
      if (create(c->size, &c->handle, &c->dma_address)) return -1;
      c->offset = (uint64_t)c->handle << 32;
      return 0;
    }
    if (request == ROCKET_SUBMIT) return submit_rocket(at);
    if (request == ROCKET_FINISH) return fault("sync", 9) ? refuse(EIO) : 0;
    if (request == ROCKET_PREPARE) {
      const struct rocket_prepare *p = at;
      if (!p->handle || p->handle > BUFFERS || !buffers[p->handle - 1].used) return refuse(ENOENT);
      return buffers[p->handle - 1].late ? refuse(ETIMEDOUT) : 0;
    }
    if (request == DRM_CLOSE) return destroy(((struct drm_close *)at)->handle);
    return refuse(ENOTTY);
  }
  if (request == RKNPU_ACTION) {
    ((struct rknpu_action *)at)->value = fault("version", 10) ? 702 : 908;
    return 0;
  }
  if (request == RKNPU_CREATE) {
    struct rknpu_create *c = at;
    if (create(c->size, &c->handle, &c->dma_address)) return -1;
    c->object = c->handle;
    return 0;
  }
  if (request == RKNPU_MAP) {
    struct rknpu_map *m = at;
    if (fault("place", 11)) return refuse(EINVAL);
    m->offset = (uint64_t)m->handle << 32;
    return 0;
  }
  if (request == RKNPU_SUBMIT) return submit_rknpu(at);
  if (request == RKNPU_SYNC) return fault("sync", 9) ? refuse(EIO) : 0;
  if (request == RKNPU_DESTROY) return destroy(((struct rknpu_destroy *)at)->handle);
  return refuse(ENOTTY);
}

// ---- what the program calls
// ----------------------------------------------------------------------
#pragma GCC visibility push(default)
static const char *node(void) { return is_rocket() ? "/dev/accel/accel0" : "/dev/dri/card1"; }

int access(const char *path, int mode) {
  if (getenv("INTAGLIO_RK_FAKE") && !strncmp(path, "/dev/", 5))
    return strcmp(path, node()) ? refuse(ENOENT) : 0;
  return faccessat(AT_FDCWD, path, mode, 0);
}

// The names of a board with this chip.
static int device_tree(void) {
  const char *chip = getenv("INTAGLIO_RK_FAKE_BOARD");
  if (!chip) chip = getenv("INTAGLIO_RK_FAKE_CHIP");
  char names[64];
  const int size =
      snprintf(names, sizeof names, "some,board%crockchip,%s", 0, chip ? chip : "rk3588");
  const int file = memfd_create("compatible", 0);
  if (file >= 0 && (write(file, names, (size_t)size + 1) < 0 || lseek(file, 0, SEEK_SET) < 0))
    return refuse(EIO);
  return file;
}

int open(const char *path, int flags, ...) {
  if (getenv("INTAGLIO_RK_FAKE") && !strcmp(path, "/proc/device-tree/compatible"))
    return device_tree();
  if (getenv("INTAGLIO_RK_FAKE") && !strcmp(path, node())) {
    if (fault("denied", 12)) return refuse(EACCES);
    return device = memfd_create("npu", 0);
  }
  va_list given;
  va_start(given, flags);
  const int mode = flags & O_CREAT ? va_arg(given, int) : 0;
  va_end(given);
  return openat(AT_FDCWD, path, flags, mode);
}

int ioctl(int fd, unsigned long request, ...) {
  va_list given;
  va_start(given, request);
  void *at = va_arg(given, void *);
  va_end(given);
  if (fd != device || fd < 0) return (int)syscall(SYS_ioctl, fd, request, at);
  pthread_mutex_lock(&lock);
  const int result = answer(request, at);
  const int why = errno;
  pthread_mutex_unlock(&lock);
  errno = why;
  return result;
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  if (fd < 0 || fd != device)
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
  const uint64_t handle = (uint64_t)offset >> 32;
  if (fault("map", 13) || !handle || handle > BUFFERS || !buffers[handle - 1].used) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void *)syscall(SYS_mmap, at, size, protection, flags, buffers[handle - 1].file, 0);
}

#pragma GCC visibility pop

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("INTAGLIO_RK_FAKE_LOG");
  if (!path) return;
  int left = 0;
  for (int i = 0; i < BUFFERS; i++) left += buffers[i].used;
  FILE *f = fopen(path, "w");
  if (!f) return;
  fprintf(f, "%d buffers left, %d jobs\n", left, jobs);
  fclose(f);
}
