// Runs register commands (.rkjob files) on Rockchip's NPU: by the mainline driver `rocket`
// (/dev/accel/accelN) or the vendor's `rknpu` 0.9 (/dev/dri/cardN, renderDN). Linux only.
//
// Functions that can fail return 0, or -1 with a line of text in `error`. A network belongs to one
// thread at a time; several networks of one device may run at the same time, one on each core.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ITG_RK_ERROR = 256, ITG_RK_CORES = 3, ITG_RK_ANY_CORE = -1 };

typedef struct itg_rk_device itg_rk_device;
typedef struct itg_rk_network itg_rk_network;

typedef struct itg_rk_error {
  char text[ITG_RK_ERROR];
} itg_rk_error;

typedef struct itg_rk_port {
  const char *name;
  int is_output, is_unsigned;  // bytes are u8 or i8
  uint32_t shape[4];           // 1, channels, height, width
  float scale;                 // real = scale * (byte - zero)
  int32_t zero;
  uint64_t bytes;  // of the array that the functions below take and give
} itg_rk_port;

// Opens a device; NULL: the first one that is there. `driver` then says which driver it has.
int itg_rk_open(itg_rk_device **device, const char *path, itg_rk_error *error);
const char *itg_rk_driver(const itg_rk_device *device);
const char *itg_rk_path(const itg_rk_device *device);
void itg_rk_close(itg_rk_device *device);  // after its networks

// Checks a file and copies its commands and weights into buffers of the device; the file's bytes
// are not needed afterwards. `core`: 0 to 2 or ITG_RK_ANY_CORE; rocket chooses by itself.
int itg_rk_load(itg_rk_network **network, itg_rk_device *device, const void *file, size_t size,
                int core, itg_rk_error *error);
void itg_rk_unload(itg_rk_network *network);

uint32_t itg_rk_ports(const itg_rk_network *network);
uint32_t itg_rk_tasks(const itg_rk_network *network);
const itg_rk_port *itg_rk_port_at(const itg_rk_network *network, uint32_t number);

// Arrays are [channels][height][width].
int itg_rk_set(itg_rk_network *network, uint32_t port, const void *bytes, itg_rk_error *error);
int itg_rk_run(itg_rk_network *network, int timeout_ms, itg_rk_error *error);
int itg_rk_get(itg_rk_network *network, uint32_t port, void *bytes, itg_rk_error *error);

#ifdef __cplusplus
}
#endif
