// Keys from files and environment variables. What is read lies in secret memory, and is wiped.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crypto/crypto.h"
#include "runtime.h"

#define FORMS "32 bytes, 64 hexadecimal digits or base64 of 32 bytes"

enum { MOST = 1024 };  // bytes of a key file

typedef struct {
  size_t size;
  uint8_t data[MOST + 1];
} text;

static int hex_digit(uint8_t c) {
  const uint8_t lower = c | 32;
  if (c >= '0' && c <= '9') return c - '0';
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static int base64_digit(uint8_t c) {
  const uint8_t lower = c | 32;
  if (lower >= 'a' && lower <= 'z') return lower - 'a' + (c & 32 ? 26 : 0);
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  return c == '/' || c == '_' ? 63 : -1;
}

static bool from_hex(const uint8_t *t, size_t size, uint8_t key[32]) {
  if (size != 64) return false;
  for (int i = 0; i < 32; i++) {
    const int high = hex_digit(t[2 * i]), low = hex_digit(t[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    key[i] = (uint8_t)(high << 4 | low);
  }
  return true;
}

// Exactly `bytes` bytes, with or without the padding; line breaks are skipped.
static bool from_base64(const uint8_t *t, size_t size, uint8_t *to, size_t bytes) {
  uint32_t bits = 0;
  size_t n = 0, digits = 0;
  while (size && t[size - 1] == '=') size--;
  for (size_t i = 0; i < size; i++) {
    if (t[i] == '\n' || t[i] == '\r') continue;
    const int digit = base64_digit(t[i]);
    if (digit < 0) return false;
    bits = bits << 6 | (uint32_t)digit;
    if (digits++ % 4 == 0) continue;
    if (n == bytes) return false;
    to[n++] = (uint8_t)(bits >> (6 - 2 * ((digits - 1) % 4)));
  }
  return n == bytes;
}

// `-----BEGIN PUBLIC KEY-----`, base64, `-----END PUBLIC KEY-----` (RFC 8410)
static bool from_pem(const uint8_t *t, size_t size, uint8_t key[32]) {
  static const char begin[] = "-----BEGIN PUBLIC KEY-----", end[] = "-----END PUBLIC KEY-----";
  static const uint8_t ed25519[12] = {0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0};
  const size_t n = strlen(begin), m = strlen(end);
  uint8_t der[sizeof ed25519 + 32];
  if (size < n + m || memcmp(t, begin, n) || memcmp(t + size - m, end, m)) return false;
  size -= n + m;
  while (size && (t[n + size - 1] == '\n' || t[n + size - 1] == '\r')) size--;
  if (!from_base64(t + n, size, der, sizeof der) || memcmp(der, ed25519, sizeof ed25519))
    return false;
  memcpy(key, der + sizeof ed25519, 32);
  return true;
}

static bool parse(const text *t, uint8_t key[32], bool binary, bool pem) {
  const uint8_t *start = t->data;
  size_t size = t->size;
  if (binary && size == 32) {
    memcpy(key, start, 32);
    return true;
  }
  while (size && strchr(" \t\r\n", start[size - 1])) size--;
  while (size && strchr(" \t\r\n", *start)) start++, size--;
  return from_hex(start, size, key) || from_base64(start, size, key, 32) ||
         (pem && from_pem(start, size, key));
}

// The name in a message; somebody may have given the key itself.
static const char *shown(const char *name) {
  uint8_t key[32];
  const size_t size = strlen(name);
  const bool is_key = from_hex((const void *)name, size, key) ||
                      from_base64((const void *)name, size, key, sizeof key);
  itg_wipe(key, sizeof key);
  return is_key ? "(the name is a key itself, which is not shown)" : name;
}

static itg_status read_file(const char *path, text *t, itg_error *e) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return itg_fail(e, ITG_BAD_KEY, "cannot read key file %.120s: %s", shown(path),
                    strerror(errno));
  ssize_t n = 1;
  while (t->size <= MOST && n) {
    n = read(fd, t->data + t->size, sizeof t->data - t->size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    t->size += (size_t)n;
  }
  const int why = errno;
  close(fd);
  return n < 0 ? itg_fail(e, ITG_BAD_KEY, "cannot read key file %.120s: %s", shown(path),
                          strerror(why))
               : ITG_OK;
}

static itg_status key_of_file(const char *path, uint8_t key[32], bool pem, itg_error *e) {
  if (!path || !key) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", path ? "key" : "path");
  text *t = itg_secret_alloc(sizeof *t);
  if (!t) return itg_fail(e, ITG_NO_MEMORY, "no memory to read a key");
  itg_status status = read_file(path, t, e);
  if (!status && !parse(t, key, true, pem))
    status =
        itg_fail(e, ITG_BAD_KEY,
                 "key file %.100s has %zu bytes that are no key; a %s; `intaglio keygen` makes "
                 "one",
                 path, t->size, pem ? "public key is PEM of Ed25519, " FORMS : "key is " FORMS);
  itg_secret_free(t, sizeof *t);
  return status;
}

itg_status itg_key_from_file(void *path, uint8_t key[32], itg_error *e) {
  return key_of_file(path, key, false, e);
}

itg_status itg_public_key_from_file(const char *path, uint8_t key[32], itg_error *e) {
  return key_of_file(path, key, true, e);
}

itg_status itg_key_from_env(void *name, uint8_t key[32], itg_error *e) {
  if (!name || !key) return itg_fail(e, ITG_BAD_INPUT, "%s is NULL", name ? "key" : "name");
  const char *value = getenv(name);
  if (!value)
    return itg_fail(e, ITG_BAD_KEY, "environment variable %.100s is not set; it holds the key",
                    shown(name));
  text *t = itg_secret_alloc(sizeof *t);
  if (!t) return itg_fail(e, ITG_NO_MEMORY, "no memory to read a key");
  t->size = strnlen(value, sizeof t->data);
  memcpy(t->data, value, t->size);
  const bool good = t->size <= MOST && parse(t, key, false, false);
  itg_secret_free(t, sizeof *t);
  return good ? ITG_OK
              : itg_fail(
                    e, ITG_BAD_KEY,
                    "environment variable %.100s holds no key; a key is 64 hexadecimal digits or "
                    "base64 of 32 bytes",
                    shown(name));
}
