// HTTP/1.1 POST over one kept connection, with a deadline for the whole exchange.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct addrinfo;

typedef struct http_connection {
  const struct addrinfo *address;
  int fd;  // -1: not connected
} http_connection;

typedef struct http_answer {
  int status;
  size_t json_size;  // of its Inference-Header-Content-Length, or `size`
  uint8_t *body;     // `capacity` bytes, from malloc; grows
  size_t size, capacity, most;
} http_answer;

int64_t http_now_ms(void);
// Sends the pieces and reads the answer. NULL, or what went wrong; then the connection is closed.
const char *http_exchange(http_connection *connection, struct iovec *pieces, int count,
                          int64_t deadline_ms, http_answer *answer);
void http_close(http_connection *connection);
