// The ioctls of both drivers, as Linux and Rockchip's kernels declare them.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

enum { DRM_OWN = 0x40 };  // first number of a driver's own ioctls

struct drm_name {  // DRM_IOCTL_VERSION
  int major, minor, patch;
  size_t name_len;
  char *name;
  size_t date_len;
  char *date;
  size_t desc_len;
  char *desc;
};

struct drm_close {
  uint32_t handle, pad;
};

// ---- rocket (include/uapi/drm/rocket_accel.h of Linux 6.18) --------------------------------------
struct rocket_create {
  uint32_t size, handle;
  uint64_t dma_address, offset;
};
struct rocket_prepare {
  uint32_t handle, reserved;
  int64_t timeout_ns;  // a time of CLOCK_MONOTONIC
};
struct rocket_finish {
  uint32_t handle, reserved;
};
struct rocket_task {
  uint32_t commands, count;
};
struct rocket_job {
  uint64_t tasks, in_handles, out_handles;
  uint32_t task_count, task_size, in_count, out_count;
};
struct rocket_submit {
  uint64_t jobs;
  uint32_t job_count, job_size;
  uint64_t reserved;
};

// ---- rknpu 0.9 (drivers/rknpu/include/rknpu_ioctl.h of Rockchip's 5.10 and 6.1 kernels) ----------
struct rknpu_action {
  uint32_t what, value;
};
struct rknpu_create {
  uint32_t handle, flags;
  uint64_t size, object, dma_address, sram_size;
  int32_t domain;
  uint32_t core_mask;
};
struct rknpu_map {
  uint32_t handle, reserved;
  uint64_t offset;
};
struct rknpu_destroy {
  uint32_t handle, reserved;
  uint64_t object;
};
struct rknpu_sync {
  uint32_t flags, reserved;
  uint64_t object, offset, size;
};
struct rknpu_task {
  uint32_t flags, operator, blocks, interrupts, clear, status, words, offset;
  uint64_t address;
} __attribute__((packed));
struct rknpu_range {
  uint32_t first, count;
};
struct rknpu_submit {  // 0.9.6 and 0.9.8 name two fields differently; both are 0 here
  uint32_t flags, timeout, first, count, done;
  int32_t priority;
  uint64_t tasks, domain, base, elapsed;
  uint32_t core_mask;
  int32_t fence;
  struct rknpu_range of_core[5];
};

#define DRM_VERSION _IOWR('d', 0x00, struct drm_name)
#define DRM_CLOSE _IOW('d', 0x09, struct drm_close)
#define ROCKET_CREATE _IOWR('d', DRM_OWN + 0, struct rocket_create)
#define ROCKET_SUBMIT _IOW('d', DRM_OWN + 1, struct rocket_submit)
#define ROCKET_PREPARE _IOW('d', DRM_OWN + 2, struct rocket_prepare)
#define ROCKET_FINISH _IOW('d', DRM_OWN + 3, struct rocket_finish)
#define RKNPU_ACTION _IOWR('d', DRM_OWN + 0, struct rknpu_action)
#define RKNPU_SUBMIT _IOWR('d', DRM_OWN + 1, struct rknpu_submit)
#define RKNPU_CREATE _IOWR('d', DRM_OWN + 2, struct rknpu_create)
#define RKNPU_MAP _IOWR('d', DRM_OWN + 3, struct rknpu_map)
#define RKNPU_DESTROY _IOWR('d', DRM_OWN + 4, struct rknpu_destroy)
#define RKNPU_SYNC _IOWR('d', DRM_OWN + 5, struct rknpu_sync)

enum {
  RKNPU_DRIVER_VERSION = 1,  // an action
  RKNPU_OLDEST = 900,        // 0.9.0
  RKNPU_NEWEST = 999,
  RKNPU_MEMORY = 1 | 1 << 1 | 1 << 10,  // pages that are not in a row, cached, 32-bit addresses
  RKNPU_KERNEL_READS = 1 << 3,
  RKNPU_TO_DEVICE = 1,
  RKNPU_FROM_DEVICE = 2,
  RKNPU_JOB = 1 | 1 << 2,  // the NPU reads commands itself, registers of two tasks in turn
  RKNPU_MOST_TASKS = 4095,
};
