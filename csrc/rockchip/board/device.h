// What a driver does for the runner.
#pragma once
#include "job.h"

typedef struct rk_buffer {
  uint32_t handle;
  uint64_t address;  // of the NPU
  uint64_t object;   // rknpu: the driver's name of it
  uint64_t size;
  void *bytes;  // mapped here
} rk_buffer;

typedef struct rk_task {
  uint64_t address;  // of its first word
  uint32_t words, blocks;
} rk_task;

typedef struct rk_work {  // one run of a network
  const rk_task *tasks;
  uint32_t count;
  rk_buffer *commands, *weights, *internal, *table;  // table: rknpu's records of tasks
  int core, timeout_ms;
} rk_work;

typedef struct rk_driver {
  const char *name;
  int (*check)(int fd, itg_rk_error *error);  // the version
  int (*create)(int fd, rk_buffer *buffer, uint64_t size, int kernel_reads, itg_rk_error *error);
  void (*destroy)(int fd, rk_buffer *buffer);
  int (*to_device)(int fd, const rk_buffer *buffer, itg_rk_error *error);
  int (*from_device)(int fd, const rk_buffer *buffer, itg_rk_error *error);
  uint64_t (*table_bytes)(uint32_t tasks);  // 0: none
  void (*fill_table)(void *bytes, const rk_task *tasks, uint32_t count);
  int (*run)(int fd, const rk_work *work, itg_rk_error *error);
} rk_driver;

extern const rk_driver rk_rocket, rk_rknpu;

struct itg_rk_device {
  const rk_driver *driver;
  int fd;
  char path[64];
};

// An ioctl that is repeated when a signal came, or for `busy_ms` while the driver is busy.
int rk_ioctl(int fd, unsigned long request, void *given, int busy_ms);
// Maps a buffer's bytes; `offset` is what the driver says.
int rk_map(int fd, rk_buffer *buffer, uint64_t offset, itg_rk_error *error);
