// The file of a job: src/intaglio/npu/chips/rockchip/job.py declares the same records.
#pragma once
#include "intaglio_rk.h"

enum {
  RKJ_VERSION = 1,
  RKJ_ALIGNMENT = 64,
  RKJ_TAIL = 4,  // words that end a task: the next one's address, its amount, a barrier, start
  RKJ_WEIGHTS = 0,
  RKJ_INTERNAL = 1,
};

typedef struct rkj_header {
  char magic[4];
  uint32_t version;
  char chip[16];
  uint32_t crc;  // of all bytes behind the header
  uint32_t tasks, addresses, ports, words, names;
  uint64_t weights, internal;  // bytes
} rkj_header;

typedef struct rkj_task {
  uint32_t first, words, blocks, name;
} rkj_task;

typedef struct rkj_address {
  uint32_t word, memory;
  uint64_t offset;
} rkj_address;

typedef struct rkj_port {
  uint32_t name;
  uint8_t is_output, is_unsigned, is_picture, rank;
  uint32_t shape[4];
  float scale;
  int32_t zero;
  uint64_t offset, size;
} rkj_port;

typedef struct rkj_job {  // points into the file
  const rkj_header *header;
  const rkj_task *tasks;
  const rkj_address *addresses;
  const rkj_port *ports;
  const char *names;
  const uint8_t *words, *weights;
} rkj_job;

// Checks every size, offset and number.
int rkj_read(rkj_job *job, const void *file, size_t size, itg_rk_error *error);
int rk_error(itg_rk_error *error, const char *form, ...) __attribute__((format(printf, 2, 3)));
// Pixels from one block of channels to the next.
uint64_t rkj_surface(const uint32_t shape[4]);
// Whether its chip is an RK3566 or RK3568: blocks of 8 channels, and commands counted one by one.
int rkj_is_rk356x(const rkj_header *header);
// What the end of a task says of the next one's words: all but one, or pairs of them.
uint32_t rkj_amount(const rkj_header *header, uint32_t words);
uint32_t rkj_block(const rkj_header *header);  // channels of a block
// -1 if the board's device tree names another chip.
int rkj_check_chip(const rkj_header *header, itg_rk_error *error);
