// The mainline driver: tasks of a job run one after another on one core, chosen by the kernel.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "drm.h"

enum { MS = 1000000, BUSY_MS = 2000 };

static int check(int fd, itg_rk_error *error) {
  (void)fd, (void)error;
  return 0;
}

static void destroy(int fd, rk_buffer *b);

static int create(int fd, rk_buffer *b, uint64_t size, int kernel_reads, itg_rk_error *error) {
  (void)kernel_reads;
  struct rocket_create made = {.size = (uint32_t)size};
  if (rk_ioctl(fd, ROCKET_CREATE, &made, BUSY_MS))
    return rk_error(error, "rocket: no buffer of %llu bytes: %s; the NPU's memory is full or limited",
                    (unsigned long long)size, strerror(errno));
  *b = (rk_buffer){.handle = made.handle, .address = made.dma_address, .size = size};
  if (made.dma_address + size > UINT32_MAX) {
    destroy(fd, b);
    return rk_error(error, "rocket: a buffer lies at %#llx; commands hold addresses of 32 bits",
                    (unsigned long long)made.dma_address);
  }
  if (rk_map(fd, b, made.offset, error)) {
    destroy(fd, b);
    return -1;
  }
  return 0;
}

static void destroy(int fd, rk_buffer *b) {
  struct drm_close given = {.handle = b->handle};
  if (b->handle) rk_ioctl(fd, DRM_CLOSE, &given, 0);
  b->handle = 0;
}

// Waits until the NPU has finished with a buffer, and hands its bytes to the CPU.
static int wait_for(int fd, uint32_t handle, int timeout_ms) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  struct rocket_prepare given = {.handle = handle};
  given.timeout_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec + (int64_t)timeout_ms * MS;
  return rk_ioctl(fd, ROCKET_PREPARE, &given, 0);
}

static int from_device(int fd, const rk_buffer *b, itg_rk_error *error) {
  if (wait_for(fd, b->handle, BUSY_MS))
    return rk_error(error, "rocket: a buffer is not ready: %s", strerror(errno));
  return 0;
}

static int to_device(int fd, const rk_buffer *b, itg_rk_error *error) {
  struct rocket_finish given = {.handle = b->handle};
  if (rk_ioctl(fd, ROCKET_FINISH, &given, 0))
    return rk_error(error, "rocket: a buffer is not handed to the NPU: %s", strerror(errno));
  return 0;
}

static uint64_t table_bytes(uint32_t tasks) {
  (void)tasks;
  return 0;
}

static int run(int fd, const rk_work *w, itg_rk_error *error) {
  struct rocket_task *tasks = calloc(w->count, sizeof *tasks);
  if (!tasks) return rk_error(error, "rocket: no memory for %u tasks", w->count);
  for (uint32_t i = 0; i < w->count; i++)
    tasks[i] = (struct rocket_task){(uint32_t)w->tasks[i].address, w->tasks[i].words};
  const uint32_t in[] = {w->commands->handle, w->weights->handle}, out[] = {w->internal->handle};
  struct rocket_job job = {
      .tasks = (uintptr_t)tasks,
      .in_handles = (uintptr_t)in,
      .out_handles = (uintptr_t)out,
      .task_count = w->count,
      .task_size = sizeof *tasks,
      .in_count = 2,
      .out_count = 1,
  };
  struct rocket_submit given = {.jobs = (uintptr_t)&job, .job_count = 1, .job_size = sizeof job};
  const int result = rk_ioctl(fd, ROCKET_SUBMIT, &given, w->timeout_ms);
  const int why = errno;
  free(tasks);
  if (result) return rk_error(error, "rocket: the job is refused: %s", strerror(why));
  if (wait_for(fd, w->internal->handle, w->timeout_ms)) {
    if (errno == ETIMEDOUT || errno == EBUSY)
      return rk_error(error, "rocket: the NPU did not finish in %d ms; see dmesg, or give more time",
                      w->timeout_ms);
    return rk_error(error, "rocket: waiting for the NPU failed: %s", strerror(errno));
  }
  return 0;
}

const rk_driver rk_rocket = {"rocket",    check,       create,  destroy, to_device,
                             from_device, table_bytes, NULL, run};
