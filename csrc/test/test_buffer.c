// Buffers of file descriptors: bound in place, refused in words, and synchronised if they are
// dma-bufs. No dma-buf can be made without a device, so this program's own ioctl() plays one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "testing.h"

enum { N = 3000, BYTES = 4 * N, PAGE = 4096 };

static struct {
  bool dma;   // the descriptors are dma-bufs
  int fails;  // calls from this one on fail; 0: none
  int calls;
  uint64_t flags[64];
} fake;

ITG_API int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  uint64_t flags;
  va_start(list, request);
  memcpy(&flags, va_arg(list, void *), sizeof flags);
  va_end(list);
  CHECK(fd >= 0 && fake.calls < 64);
  fake.flags[fake.calls++] = flags;
  if (fake.dma && fake.calls == 2) {  // the caller must try again
    errno = EINTR;
    return -1;
  }
  errno = fake.dma ? EIO : ENOTTY;
  return fake.dma && (!fake.fails || fake.calls < fake.fails) ? 0 : -1;
}

static int memory_file(size_t bytes) {
  const int fd = memfd_create("buffer", MFD_CLOEXEC);
  CHECK(fd >= 0 && !ftruncate(fd, (off_t)bytes));
  return fd;
}

static itg_buffer *buffer_or_die(int fd, uint64_t offset, uint64_t size, uint32_t flags) {
  itg_buffer *buffer;
  itg_error error;
  if (itg_buffer_from_fd(fd, offset, size, flags, &buffer, &error)) {
    fprintf(stderr, "%s\n", error.words);
    exit(1);
  }
  return buffer;
}

static void check_results(const float *x, const float *y) {
  for (int64_t i = 0; i < N; i++) CHECK(y[i] == chain_at(x[i], i, N));
}

static void fill(float *x, float shift) {
  for (int i = 0; i < N; i++) x[i] = (float)(i % 100) - shift;
}

static void test_files(const itg_model *model) {
  const uint64_t at = PAGE + 64;  // not at a page
  const int in = memory_file(at + BYTES), out = memory_file(BYTES + 100);
  itg_buffer *from = buffer_or_die(in, at, BYTES, ITG_BUFFER_READ),
             *to = buffer_or_die(out, 0, BYTES + 100, 0);
  float *x = mmap(NULL, at + BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, in, 0);
  CHECK(x != MAP_FAILED && !itg_buffer_is_dma(from) && !itg_buffer_is_dma(to));
  close(in);
  close(out);
  uint64_t size;
  CHECK(itg_buffer_data(to, &size) && size == BYTES + 100);
  const itg_options every[] = {{.threads = 1}, {.threads = 2, .external_io = 1}};
  for (int k = 0; k < 2; k++) {
    itg_session *session = create_or_die(model, &every[k]);
    CHECK(itg_bind_input_buffer(session, 0, from) == ITG_OK);
    CHECK(itg_bind_output_buffer(session, 0, to) == ITG_OK);
    for (int i = 0; i < 3; i++) {
      fill(x + at / 4, (float)i);
      CHECK(itg_run(session) == ITG_OK);
      check_results(x + at / 4, itg_buffer_data(to, NULL));
    }
    CHECK(itg_bind_output_buffer(session, 0, from) == ITG_BAD_INPUT);
    CHECK(strstr(itg_session_error(session), "read-only"));
    CHECK(itg_bind_input_buffer(session, 0, NULL) == ITG_OK);  // its own memory, if it has any
    CHECK(itg_run(session) == (k ? ITG_BAD_INPUT : ITG_OK));
    float *own = malloc(BYTES);
    CHECK(itg_bind_input(session, 0, x + at / 4, BYTES) == ITG_OK);
    CHECK(itg_bind_output(session, 0, own, BYTES) == ITG_OK && itg_run(session) == ITG_OK);
    check_results(x + at / 4, own);
    free(own);
    itg_session_destroy(session);
  }
  itg_buffer_destroy(from);
  itg_buffer_destroy(to);
  munmap(x, at + BYTES);
}

static void refuse(int fd, uint64_t offset, uint64_t size, uint32_t flags, const char *words) {
  itg_buffer *buffer = (itg_buffer *)&fake;
  itg_error error;
  CHECK(itg_buffer_from_fd(fd, offset, size, flags, &buffer, &error) == ITG_BAD_INPUT && !buffer);
  if (!strstr(error.words, words)) fprintf(stderr, "%s\n", error.words);
  CHECK(strstr(error.words, words) && !strchr(error.words, '\n'));
}

static void test_refusals(const itg_model *model) {
  const int fd = memory_file(BYTES);
  int pipes[2];
  CHECK(!pipe(pipes));
  refuse(-1, 0, 1, 0, "cannot be mapped");
  refuse(pipes[0], 0, 1, 0, "cannot be mapped");
  refuse(fd, 0, BYTES + 1, 0, "does not fit");
  refuse(fd, 1, BYTES, 0, "does not fit");
  refuse(fd, UINT64_MAX, 2, 0, "does not fit");
  refuse(fd, 2, UINT64_MAX, 0, "does not fit");
  refuse(fd, 0, 0, 0, "does not fit");
  refuse(fd, 0, BYTES, 8, "flags");
  const int read_only = open("/proc/self/exe", O_RDONLY);
  refuse(read_only, 0, 64, 0, "ITG_BUFFER_READ");
  itg_buffer_destroy(buffer_or_die(read_only, 0, 64, ITG_BUFFER_READ));
  CHECK(itg_buffer_from_fd(fd, 0, BYTES, 0, NULL, NULL) == ITG_BAD_INPUT);
  itg_session *session = create_or_die(model, NULL);
  itg_buffer *small = buffer_or_die(fd, 0, BYTES - 4, 0), *odd = buffer_or_die(fd, 2, BYTES - 2, 0);
  CHECK(itg_bind_input_buffer(session, 0, small) == ITG_BAD_INPUT);
  CHECK(strstr(itg_session_error(session), "takes 12000 bytes, the buffer has 11996"));
  CHECK(itg_bind_input_buffer(session, 0, odd) == ITG_BAD_INPUT);
  CHECK(itg_bind_input_buffer(session, 7, small) == ITG_BAD_INPUT);
  CHECK(itg_bind_input_buffer(NULL, 0, small) == ITG_BAD_INPUT);
  CHECK(!itg_buffer_data(NULL, NULL) && !itg_buffer_is_dma(NULL));
  itg_buffer_destroy(NULL);
  itg_buffer_destroy(small);
  itg_buffer_destroy(odd);
  itg_session_destroy(session);
  close(read_only), close(fd), close(pipes[0]), close(pipes[1]);
}

static void test_dma(const itg_model *model) {
  const int in = memory_file(BYTES), out = memory_file(BYTES);
  memset(&fake, 0, sizeof fake);
  fake.dma = true;
  itg_buffer *from = buffer_or_die(in, 0, BYTES, ITG_BUFFER_READ);
  CHECK(fake.calls == 3 && fake.flags[0] == 1 && fake.flags[1] == 5 && fake.flags[2] == 5);
  itg_buffer *to = buffer_or_die(out, 0, BYTES, 0);
  CHECK(itg_buffer_is_dma(from) && itg_buffer_is_dma(to));
  float x[N];
  fill(x, 3);
  CHECK(pwrite(in, x, BYTES, 0) == BYTES);
  close(in), close(out);  // the buffers keep descriptors of their own
  itg_session *session = create_or_die(model, NULL);
  CHECK(itg_bind_input_buffer(session, 0, from) == ITG_OK);
  CHECK(itg_bind_output_buffer(session, 0, to) == ITG_OK);
  fake.calls = 10;
  CHECK(itg_run(session) == ITG_OK && fake.calls == 14);
  const uint64_t want[] = {1, 3, 5, 7};  // begin to read and write, end both
  CHECK(!memcmp(fake.flags + 10, want, sizeof want));
  check_results(x, itg_buffer_data(to, NULL));
  fake.fails = 21, fake.calls = 20;
  CHECK(itg_run(session) == ITG_RUN_ERROR);
  CHECK(strstr(itg_session_error(session), "a dma-buf cannot be synchronised"));
  fake.fails = 33, fake.calls = 30;  // at the end
  CHECK(itg_run(session) == ITG_RUN_ERROR);
  itg_session_destroy(session);
  itg_buffer_destroy(from);
  itg_buffer_destroy(to);
  memset(&fake, 0, sizeof fake);
}

int main(void) {
  size_t size;
  uint8_t *file = build_chain(N, 3, &size);
  itg_model *model = open_or_die(file, size);
  test_files(model);
  test_refusals(model);
  test_dma(model);
  itg_model_close(model);
  free(file);
  return 0;
}
