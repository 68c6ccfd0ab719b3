// Memory: rknn_create_mem and its kin, and memory for weights and internal tensors.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rknn_internal.h"

enum { ALIGNMENT = 64 };

typedef struct entry {
  rknn_tensor_mem mem;  // what the caller has
  void *mapped;         // to unmap, or NULL
  size_t bytes;
  int owned_fd;  // to close, or -1
  struct entry *next;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *entries;

static entry **find(const rknn_tensor_mem *mem) {  // under the lock
  entry **at = &entries;
  while (*at && &(*at)->mem != mem) at = &(*at)->next;
  return at;
}

bool rk_mem_lives(const rknn_tensor_mem *mem) {
  pthread_mutex_lock(&lock);
  const bool lives = *find(mem) != NULL;
  pthread_mutex_unlock(&lock);
  return lives;
}

void *rk_mem_data(const rknn_tensor_mem *mem) { return (uint8_t *)mem->virt_addr + mem->offset; }

static rknn_tensor_mem *add(const entry *made, const char *function) {
  entry *e = malloc(sizeof *e);
  if (!e) {
    if (made->mapped) munmap(made->mapped, made->bytes);
    if (made->owned_fd >= 0) close(made->owned_fd);
    rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory");
    return NULL;
  }
  *e = *made;
  pthread_mutex_lock(&lock);
  e->next = entries;
  entries = e;
  pthread_mutex_unlock(&lock);
  return &e->mem;
}

static bool known(rknn_context ctx, const char *function) {
  if (rk_find(ctx, false) || rk_find(ctx, true)) return true;
  rk_fail(RKNN_ERR_CTX_INVALID, function, "no such context; call rknn_init first");
  return false;
}

// ---- making it ----------------------------------------------------------------------------------
static rknn_tensor_mem *allocate(uint64_t size, const char *function) {
  if (!size || size > UINT32_MAX) {
    rk_fail(RKNN_ERR_PARAM_INVALID, function, "size is %llu; give 1 to 2^32 - 1 bytes",
            (unsigned long long)size);
    return NULL;
  }
  entry made = {.owned_fd = memfd_create("rknn", MFD_CLOEXEC), .bytes = size};
  made.mapped = made.owned_fd < 0 || ftruncate(made.owned_fd, (off_t)size)
                    ? MAP_FAILED
                    : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, made.owned_fd, 0);
  if (made.mapped == MAP_FAILED) {
    if (made.owned_fd >= 0) close(made.owned_fd);
    rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for %llu bytes", (unsigned long long)size);
    return NULL;
  }
  made.mem = (rknn_tensor_mem){.virt_addr = made.mapped,
                               .fd = made.owned_fd,
                               .size = (uint32_t)size,
                               .flags = RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE};
  return add(&made, function);
}

RK_API rknn_tensor_mem *rknn_create_mem(rknn_context ctx, uint32_t size) {
  return known(ctx, __func__) ? allocate(size, __func__) : NULL;
}

RK_API rknn_tensor_mem *rknn_create_mem2(rknn_context ctx, uint64_t size, uint64_t alloc_flags) {
  const uint64_t flags = RKNN_FLAG_MEMORY_CACHEABLE | RKNN_FLAG_MEMORY_NON_CACHEABLE |
                         RKNN_FLAG_MEMORY_TRY_ALLOC_SRAM | RKNN_MEM_FLAG_ALLOC_NO_CONTEXT;
  if (alloc_flags & ~flags) {
    rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "alloc_flags is 0x%llx; use rknn_mem_alloc_flags",
            (unsigned long long)alloc_flags);
    return NULL;
  }
  if (!(alloc_flags & RKNN_MEM_FLAG_ALLOC_NO_CONTEXT) && !known(ctx, __func__)) return NULL;
  return allocate(size, __func__);
}

RK_API rknn_tensor_mem *rknn_create_mem_from_fd(rknn_context ctx, int32_t fd, void *virt_addr,
                                                uint32_t size, int32_t offset) {
  struct stat about;
  if (!known(ctx, __func__)) return NULL;
  if (!size || offset < 0 || fd < 0 || fstat(fd, &about)) {
    rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
            "fd is %d, size %u, offset %d; give an open descriptor, a size above 0 and an offset "
            "of at least 0",
            fd, size, offset);
    return NULL;
  }
  if (S_ISREG(about.st_mode) && about.st_size < (off_t)offset + (off_t)size) {
    rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
            "the memory of fd %d has %lld bytes; %u from %d on are past its end", fd,
            (long long)about.st_size, size, offset);
    return NULL;
  }
  entry made = {.owned_fd = -1, .bytes = (size_t)offset + size};
  if (!virt_addr) {
    made.mapped = mmap(NULL, made.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made.mapped == MAP_FAILED) {
      rk_fail(RKNN_ERR_FAIL, __func__, "fd %d cannot be mapped; give its virt_addr", fd);
      return NULL;
    }
    virt_addr = made.mapped;
  }
  made.mem = (rknn_tensor_mem){.virt_addr = virt_addr,
                               .fd = fd,
                               .offset = offset,
                               .size = size,
                               .flags = RKNN_TENSOR_MEMORY_FLAGS_FROM_FD};
  return add(&made, __func__);
}

RK_API rknn_tensor_mem *rknn_create_mem_from_phys(rknn_context ctx, uint64_t phys_addr,
                                                  void *virt_addr, uint32_t size) {
  if (!known(ctx, __func__)) return NULL;
  if (!virt_addr || !size) {
    rk_fail(virt_addr ? RKNN_ERR_PARAM_INVALID : RKNN_ERR_DEVICE_UNAVAILABLE, __func__,
            "virt_addr is %p, size %u; programs on a PC cannot reach physical addresses; give the "
            "virtual address, or use rknn_create_mem",
            virt_addr, size);
    return NULL;
  }
  const entry made = {.owned_fd = -1,
                      .mem = {.virt_addr = virt_addr,
                              .phys_addr = phys_addr,
                              .fd = -1,
                              .size = size,
                              .flags = RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS}};
  return add(&made, __func__);
}

RK_API rknn_tensor_mem *rknn_create_mem_from_mb_blk(rknn_context ctx, void *mb_blk,
                                                    int32_t offset) {
  if (known(ctx, __func__))
    rk_fail(RKNN_ERR_DEVICE_UNAVAILABLE, __func__,
            "mb_blk %p (offset %d) is memory of Rockchip's media library, which a PC lacks; use "
            "rknn_create_mem or rknn_create_mem_from_fd",
            mb_blk, offset);
  return NULL;
}

RK_API int rknn_destroy_mem(rknn_context ctx, rknn_tensor_mem *mem) {
  pthread_mutex_lock(&lock);
  entry **at = find(mem), *e = *at;
  if (e) *at = e->next;
  pthread_mutex_unlock(&lock);
  if (!e)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "mem is %s; give memory of rknn_create_mem, once", mem ? "unknown" : "NULL");
  if (e->mapped) munmap(e->mapped, e->bytes);
  if (e->owned_fd >= 0) close(e->owned_fd);
  free(e);
  return RKNN_SUCC;
}

RK_API int rknn_mem_sync(rknn_context context, rknn_tensor_mem *mem, rknn_mem_sync_mode mode) {
  if (!mem || !rk_mem_lives(mem))
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "mem is %s; give memory of rknn_create_mem",
                   mem ? "unknown" : "NULL");
  if ((int)mode < RKNN_MEMORY_SYNC_TO_DEVICE || (int)mode > RKNN_MEMORY_SYNC_BIDIRECTIONAL)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "mode is %d; it is 1, 2 or 3", (int)mode);
  return RKNN_SUCC;
}

// ---- weights and internal tensors ---------------------------------------------------------------
static int checked(rknn_context ctx, const char *function, const rknn_tensor_mem *mem,
                   uint64_t (*needed)(const itg_memory *), rk_context **found) {
  rk_context *c = *found = rk_find(ctx, false);
  if (!c) return rk_fail(RKNN_ERR_CTX_INVALID, function, "no such context; call rknn_init first");
  if (!c->session)
    return rk_fail(RKNN_ERR_FAIL, function,
                   "the context has RKNN_FLAG_COLLECT_MODEL_INFO_ONLY; leave it out");
  if (!mem || !rk_mem_lives(mem) || (uintptr_t)rk_mem_data(mem) % ALIGNMENT)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "mem is %s; give memory of rknn_create_mem, aligned to %d bytes",
                   !mem                ? "NULL"
                   : rk_mem_lives(mem) ? "not aligned"
                                       : "unknown",
                   ALIGNMENT);
  itg_memory memory;
  itg_error error;
  itg_options options = c->options;
  options.core_mask = 0;
  itg_model_memory(c->model->model, &options, &memory, &error);
  if (mem->size < needed(&memory))
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "the memory has %u bytes, %llu are needed; RKNN_QUERY_MEM_SIZE tells them",
                   mem->size, (unsigned long long)needed(&memory));
  rk_wait(c, function, 0);
  return RKNN_SUCC;
}

static uint64_t weight_bytes(const itg_memory *m) { return m->weights; }
static uint64_t internal_bytes(const itg_memory *m) { return m->internal; }

RK_API int rknn_set_weight_mem(rknn_context ctx, rknn_tensor_mem *mem) {
  rk_context *c;
  int code = checked(ctx, __func__, mem, weight_bytes, &c);
  if (code) return code;
  const void *weights = itg_model_weights(c->model->model);
  itg_memory memory;
  itg_error error;
  if (!weights || itg_model_memory(c->model->model, NULL, &memory, &error))
    return RKNN_SUCC;  // they lie in a file of their own, which is mapped once
  memcpy(rk_mem_data(mem), weights, memory.weights);
  const void *before = c->options.weights;
  c->options.weights = rk_mem_data(mem);
  if ((code = rk_rebuild(c, __func__))) c->options.weights = before;
  return code;
}

RK_API int rknn_set_internal_mem(rknn_context ctx, rknn_tensor_mem *mem) {
  rk_context *c;
  const int code = checked(ctx, __func__, mem, internal_bytes, &c);
  if (code) return code;
  const itg_status status = itg_set_internal(c->session, rk_mem_data(mem), mem->size);
  if (status) return rk_failed(status, __func__, itg_session_error(c->session));
  c->options.internal = rk_mem_data(mem);
  c->options.internal_size = mem->size;
  c->options.internal_later = 0;
  return RKNN_SUCC;
}
