#define _GNU_SOURCE  // memmem
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HEAD = 16 << 10 };

static const char LATE[] = "no answer in time", GONE[] = "the connection was closed";

int64_t http_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void http_close(http_connection *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
}

static const char *wait_for(int fd, short events, int64_t deadline) {
  for (;;) {
    const int64_t left = deadline - http_now_ms();
    if (left <= 0) return LATE;
    struct pollfd p = {fd, events, 0};
    const int n = poll(&p, 1, (int)left);
    if (n > 0) return NULL;
    if (n < 0 && errno != EINTR) return strerror(errno);
  }
}

static const char *open_connection(http_connection *c, int64_t deadline) {
  const char *why = "the name has no address";
  for (const struct addrinfo *a = c->address; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0) return strerror(errno);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    why = NULL;
    if (connect(fd, a->ai_addr, a->ai_addrlen)) {
      why = errno == EINPROGRESS ? wait_for(fd, POLLOUT, deadline) : strerror(errno);
      int failed = 0;
      socklen_t size = sizeof failed;
      if (!why && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) && failed)
        why = strerror(failed);
    }
    if (!why) {
      c->fd = fd;
      return NULL;
    }
    close(fd);
  }
  return why;
}

static const char *send_all(int fd, const struct iovec *from, int count, int64_t deadline) {
  for (int i = 0; i < count; i++) {
    const char *at = from[i].iov_base;
    size_t left = from[i].iov_len;
    while (left) {
      const ssize_t n = send(fd, at, left, MSG_NOSIGNAL);
      if (n > 0) {
        at += n;
        left -= (size_t)n;
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return GONE;
      const char *why = wait_for(fd, POLLOUT, deadline);
      if (why) return why;
    }
  }
  return NULL;
}

// At least one byte, or an error.
static const char *receive(int fd, void *to, size_t most, size_t *got, int64_t deadline) {
  for (;;) {
    const ssize_t n = recv(fd, to, most, 0);
    if (n > 0) {
      *got = (size_t)n;
      return NULL;
    }
    if (!n) return GONE;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return GONE;
    const char *why = wait_for(fd, POLLIN, deadline);
    if (why) return why;
  }
}

// The number in the header `name`; `usual` without one, -1 if it is no number.
static int64_t number_of(const char *head, const char *name, int64_t usual) {
  const size_t n = strlen(name);
  for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
    line += 2;
    if (strncasecmp(line, name, n) || line[n] != ':') continue;
    for (line += n + 1; *line == ' ' || *line == '\t';) line++;
    int64_t value = 0;
    if (*line < '0' || *line > '9') return -1;
    for (; *line >= '0' && *line <= '9'; line++) {
      if (value > INT64_MAX / 100) return -1;
      value = value * 10 + (*line - '0');
    }
    return *line == '\r' ? value : -1;
  }
  return usual;
}

static bool has_close(const char *head) {
  for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
    line += 2;
    if (!strncasecmp(line, "Connection: close\r", 18)) return true;
  }
  return false;
}

static bool grow(http_answer *a, size_t size) {
  if (size <= a->capacity) return true;
  uint8_t *made = realloc(a->body, size);
  if (!made) return false;
  a->body = made;
  a->capacity = size;
  return true;
}

static const char *read_answer(int fd, int64_t deadline, http_answer *a, bool *keep, bool *begun) {
  char head[MAX_HEAD + 1];
  size_t have = 0, got;
  char *end = NULL;
  while (!end) {
    if (have == MAX_HEAD) return "the answer's header is too long";
    const char *why = receive(fd, head + have, MAX_HEAD - have, &got, deadline);
    if (why) return why;
    *begun = true;
    have += got;
    end = memmem(head, have, "\r\n\r\n", 4);
  }
  const size_t head_size = (size_t)(end + 4 - head);
  char *body = end + 4;
  const size_t early = have - head_size;
  uint8_t first[MAX_HEAD];
  memcpy(first, body, early);
  end[2] = 0;
  if (strlen(head) < head_size - 2) return "the answer's header is no text";
  if (strncmp(head, "HTTP/1.", 7) || head_size < 14) return "the answer is no HTTP";
  a->status = atoi(head + 9);
  const int64_t size = number_of(head, "Content-Length", -1);
  if (size < 0) return "the answer has no Content-Length";
  const int64_t json = number_of(head, "Inference-Header-Content-Length", size);
  if (json < 0 || json > size) return "the answer has a wrong Inference-Header-Content-Length";
  if ((uint64_t)size > a->most) return "the answer is too large";
  if (early > (size_t)size) return "the answer is longer than it says";
  if (!grow(a, (size_t)size + 1)) return "no memory for the answer";
  memcpy(a->body, first, early);
  for (size_t at = early; at < (size_t)size; at += got) {
    const char *why = receive(fd, a->body + at, (size_t)size - at, &got, deadline);
    if (why) return why;
  }
  a->size = (size_t)size;
  a->json_size = (size_t)json;
  *keep = !has_close(head) && !strncmp(head, "HTTP/1.1", 8);
  return NULL;
}

const char *http_exchange(http_connection *c, struct iovec *pieces, int count, int64_t deadline,
                          http_answer *a) {
  for (;;) {
    const bool kept = c->fd >= 0;
    bool keep = false, begun = false;
    const char *why = kept ? NULL : open_connection(c, deadline);
    if (!why) why = send_all(c->fd, pieces, count, deadline);
    if (!why) why = read_answer(c->fd, deadline, a, &keep, &begun);
    if (why || !keep) http_close(c);
    if (!why || why != GONE || !kept || begun) return why;  // servers close idle connections: again
  }
}
