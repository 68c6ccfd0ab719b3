// Rockchip's driver: the NPU follows the addresses at the end of each task.
#include <errno.h>
#include <string.h>

#include "device.h"
#include "drm.h"

enum { BUSY_MS = 2000, DPU_DONE = 0x300, PPU_DONE = 0xC00, CLEAR_ALL = 0x1FFFF, PPU = 0x20 };

static int check(int fd, itg_rk_error *error) {
  struct rknpu_action given = {.what = RKNPU_DRIVER_VERSION};
  if (rk_ioctl(fd, RKNPU_ACTION, &given, BUSY_MS))
    return rk_error(error, "rknpu: its version is not known: %s", strerror(errno));
  if (given.value < RKNPU_OLDEST || given.value > RKNPU_NEWEST)
    return rk_error(error, "rknpu: driver version %u.%u.%u; 0.9 is known: use a kernel with it",
                    given.value / 10000, given.value / 100 % 100, given.value % 100);
  return 0;
}

static void destroy(int fd, rk_buffer *b) {
  struct rknpu_destroy given = {.handle = b->handle, .object = b->object};
  if (b->handle) rk_ioctl(fd, RKNPU_DESTROY, &given, 0);
  b->handle = 0;
}

static int create(int fd, rk_buffer *b, uint64_t size, int kernel_reads, itg_rk_error *error) {
  struct rknpu_create made = {.flags = RKNPU_MEMORY | (kernel_reads ? RKNPU_KERNEL_READS : 0)};
  made.size = size;
  if (rk_ioctl(fd, RKNPU_CREATE, &made, BUSY_MS))
    return rk_error(error, "rknpu: no buffer of %llu bytes: %s; the NPU's memory is full or limited",
                    (unsigned long long)size, strerror(errno));
  *b = (rk_buffer){made.handle, made.dma_address, made.object, size, NULL};
  struct rknpu_map map = {.handle = made.handle};
  if (made.dma_address + size > UINT32_MAX)
    rk_error(error, "rknpu: a buffer lies at %#llx; commands hold addresses of 32 bits",
             (unsigned long long)made.dma_address);
  else if (rk_ioctl(fd, RKNPU_MAP, &map, 0))
    rk_error(error, "rknpu: a buffer has no place to map: %s", strerror(errno));
  else if (!rk_map(fd, b, map.offset, error)) return 0;
  destroy(fd, b);
  return -1;
}

static int synchronise(int fd, const rk_buffer *b, uint32_t flags, itg_rk_error *error) {
  struct rknpu_sync given = {.flags = flags, .object = b->object, .size = b->size};
  if (rk_ioctl(fd, RKNPU_SYNC, &given, BUSY_MS))
    return rk_error(error, "rknpu: a buffer is not synchronised: %s", strerror(errno));
  return 0;
}

static int to_device(int fd, const rk_buffer *b, itg_rk_error *error) {
  return synchronise(fd, b, RKNPU_TO_DEVICE, error);
}

static int from_device(int fd, const rk_buffer *b, itg_rk_error *error) {
  return synchronise(fd, b, RKNPU_FROM_DEVICE, error);
}

static uint64_t table_bytes(uint32_t tasks) { return (uint64_t)tasks * sizeof(struct rknpu_task); }

static void fill_table(void *bytes, const rk_task *tasks, uint32_t count) {
  struct rknpu_task *to = bytes;
  for (uint32_t i = 0; i < count; i++)
    to[i] = (struct rknpu_task){
        .operator = i,
        .blocks = tasks[i].blocks,
        .interrupts = tasks[i].blocks & PPU ? PPU_DONE : DPU_DONE,
        .clear = CLEAR_ALL,
        .words = tasks[i].words - RKJ_TAIL,
        .address = tasks[i].address,
    };
}

static int run(int fd, const rk_work *w, itg_rk_error *error) {
  for (uint32_t first = 0; first < w->count; first += RKNPU_MOST_TASKS) {
    const uint32_t left = w->count - first;
    const uint32_t count = left < RKNPU_MOST_TASKS ? left : RKNPU_MOST_TASKS;
    struct rknpu_submit given = {
        .flags = RKNPU_JOB,
        .timeout = (uint32_t)w->timeout_ms,
        .first = first,
        .count = count,
        .tasks = w->table->object,
        .core_mask = w->core < 0 ? 0 : 1u << w->core,
        .fence = -1,
    };
    for (int core = 0; core < ITG_RK_CORES; core++)
      given.of_core[core] = (struct rknpu_range){first, count};
    if (rk_ioctl(fd, RKNPU_SUBMIT, &given, w->timeout_ms)) {
      if (errno == ETIMEDOUT)
        return rk_error(error, "rknpu: the NPU did not finish in %d ms; see dmesg, or give more time",
                        w->timeout_ms);
      return rk_error(error, "rknpu: the job is refused: %s", strerror(errno));
    }
    if (given.done && given.done != count)
      return rk_error(error, "rknpu: the NPU did %u of %u tasks", given.done, count);
  }
  return 0;
}

const rk_driver rk_rknpu = {"rknpu",     check,       create,     destroy, to_device,
                            from_device, table_bytes, fill_table, run};
