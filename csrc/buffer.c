// Buffers: memory of a file descriptor, mapped, which sessions read and write in place.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

// Linux's DMA_BUF_IOCTL_SYNC, whose header is missing on some systems.
typedef struct dma_sync {
  uint64_t flags;
} dma_sync;
enum { SYNC_READ = 1, SYNC_WRITE = 2, SYNC_END = 4 };
#ifdef _IOW
#define SYNC_REQUEST _IOW('b', 0, dma_sync)
#endif

struct itg_buffer {
  uint8_t *data;
  uint64_t size;
  void *mapped;
  size_t mapped_size;
  int fd;  // of a dma-buf, else -1
  uint32_t flags;
};

// Begins or ends access by the CPU; returns 0, or errno.
static int sync_dma(int fd, uint64_t flags) {
#ifdef SYNC_REQUEST
  dma_sync sync = {flags};
  int failed;
  do failed = ioctl(fd, SYNC_REQUEST, &sync);
  while (failed && (errno == EINTR || errno == EAGAIN));
  return failed ? errno : 0;
#else
  (void)fd, (void)flags;
  return ENOTTY;
#endif
}

static uint64_t sync_flags(uint32_t flags) {
  return (flags & ITG_BUFFER_READ ? SYNC_READ : 0) | (flags & ITG_BUFFER_WRITE ? SYNC_WRITE : 0);
}

// The bytes that a descriptor has, or -1.
static int64_t size_of(int fd) {
  struct stat st;
  if (fstat(fd, &st)) return -1;
  if (st.st_size > 0 || S_ISREG(st.st_mode)) return st.st_size;
  return lseek(fd, 0, SEEK_END);  // a dma-buf of an older kernel
}

itg_status itg_buffer_from_fd(int fd, uint64_t offset, uint64_t size, uint32_t flags,
                              itg_buffer **buffer, itg_error *e) {
  if (!buffer) return itg_fail(e, ITG_BAD_INPUT, "buffer is NULL");
  *buffer = NULL;
  if (!flags) flags = ITG_BUFFER_READ | ITG_BUFFER_WRITE;
  if (flags & ~(uint32_t)(ITG_BUFFER_READ | ITG_BUFFER_WRITE))
    return itg_fail(e, ITG_BAD_INPUT, "flags of a buffer are 0x%x; use enum itg_buffer_flags",
                    flags);
  const int64_t there = size_of(fd);
  if (there < 0)
    return itg_fail(e, ITG_BAD_INPUT, "descriptor %d cannot be mapped: %s", fd, strerror(errno));
  if (!size || offset > (uint64_t)there || size > (uint64_t)there - offset)
    return itg_fail(e, ITG_BAD_INPUT,
                    "a buffer of %llu bytes at %llu does not fit descriptor %d, which has %lld",
                    (unsigned long long)size, (unsigned long long)offset, fd, (long long)there);
  const uint64_t skip = offset % (uint64_t)sysconf(_SC_PAGESIZE);
  if (size > ITG_MAX_BYTES || (uint64_t)(off_t)(offset - skip) != offset - skip)
    return itg_fail(e, ITG_BAD_INPUT, "a buffer of %llu bytes at %llu is too large for this CPU",
                    (unsigned long long)size, (unsigned long long)offset);
  itg_buffer *b = malloc(sizeof *b);
  if (!b) return itg_fail(e, ITG_NO_MEMORY, "no memory for a buffer");
  *b = (itg_buffer){.size = size, .mapped_size = (size_t)(size + skip), .fd = -1, .flags = flags};
  const int protection = PROT_READ | (flags & ITG_BUFFER_WRITE ? PROT_WRITE : 0);
  b->mapped = mmap(NULL, b->mapped_size, protection, MAP_SHARED, fd, (off_t)(offset - skip));
  if (b->mapped == MAP_FAILED) {
    const int why = errno;
    free(b);
    return itg_fail(e, ITG_BAD_INPUT, "descriptor %d cannot be mapped: %s%s", fd, strerror(why),
                    why == EACCES ? "; if it is read-only, use ITG_BUFFER_READ" : "");
  }
  b->data = (uint8_t *)b->mapped + skip;
  if (!sync_dma(fd, sync_flags(flags))) {
    sync_dma(fd, sync_flags(flags) | SYNC_END);
    if ((b->fd = dup(fd)) < 0) {
      const int why = errno;
      itg_buffer_destroy(b);
      return itg_fail(e, ITG_BAD_INPUT, "descriptor %d cannot be kept: %s", fd, strerror(why));
    }
  }
  *buffer = b;
  return ITG_OK;
}

void itg_buffer_destroy(itg_buffer *b) {
  if (!b) return;
  munmap(b->mapped, b->mapped_size);
  if (b->fd >= 0) close(b->fd);
  free(b);
}

void *itg_buffer_data(const itg_buffer *b, uint64_t *size) {
  if (size) *size = b ? b->size : 0;
  return b ? b->data : NULL;
}

uint32_t itg_buffer_is_dma(const itg_buffer *b) { return b && b->fd >= 0; }

bool itg_buffer_writable(const itg_buffer *b) { return b->flags & ITG_BUFFER_WRITE; }

// ---- runs ---------------------------------------------------------------------------------------
static itg_status check_slot(itg_session *s, bool input, uint32_t i) {
  const itg_slot *slot = &(input ? s->inputs : s->outputs)[i];
  if (!slot->buffer || slot->buffer->size >= slot->bytes) return ITG_OK;
  return itg_fail(&s->error, ITG_BAD_INPUT, "%s %u takes %llu bytes, its buffer has %llu",
                  input ? "input" : "output", i, (unsigned long long)slot->bytes,
                  (unsigned long long)slot->buffer->size);
}

itg_status itg_check_buffers(itg_session *s) {
  itg_status status = ITG_OK;
  for (uint32_t i = 0; i < s->plan->n_inputs && !status; i++) status = check_slot(s, true, i);
  for (uint32_t i = 0; i < s->plan->n_outputs && !status; i++) status = check_slot(s, false, i);
  return status;
}

static itg_status sync_slots(const itg_slot *slots, uint32_t count, uint64_t flags, itg_error *e) {
  itg_status status = ITG_OK;
  for (uint32_t i = 0; i < count; i++) {
    if (!slots[i].buffer || slots[i].buffer->fd < 0) continue;
    const int why = sync_dma(slots[i].buffer->fd, flags);
    if (why && !status)
      status = itg_fail(e, ITG_RUN_ERROR, "a dma-buf cannot be synchronised: %s", strerror(why));
  }
  return status;
}

itg_status itg_sync_buffers(itg_session *s, bool end, itg_error *e) {
  const uint64_t which = end ? SYNC_END : 0, both = SYNC_READ | SYNC_WRITE;
  itg_error ignored;
  const itg_status inputs = sync_slots(s->inputs, s->plan->n_inputs, SYNC_READ | which, e);
  const itg_status outputs =
      sync_slots(s->outputs, s->plan->n_outputs, both | which, inputs ? &ignored : e);
  return inputs ? inputs : outputs;
}
