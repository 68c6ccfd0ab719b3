#include "rknn_json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_NUMBER = 64 };

typedef struct reader {
  const char *at, *end;
} reader;

static rk_json *value(reader *r, int depth);

static void skip(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
    r->at++;
}

static bool take(reader *r, char c) {
  skip(r);
  if (r->at >= r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool word(reader *r, const char *text) {
  const size_t n = strlen(text);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n)) return false;
  r->at += n;
  return true;
}

static int hex4(reader *r) {
  int code = 0;
  if (r->end - r->at < 4) return -1;
  for (int i = 0; i < 4; i++, r->at++) {
    const char c = *r->at;
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    code = code * 16 + digit;
  }
  return code;
}

static char *put_utf8(char *to, uint32_t c) {
  if (c < 0x80) *to++ = (char)c;
  else {
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *to++ = (char)((0xf00 >> more) | (c >> (6 * more)));
    for (int i = more; i-- > 0;) *to++ = (char)(0x80 | (c >> (6 * i) & 0x3f));
  }
  return to;
}

// The characters of a text whose opening quote was taken; NULL if it does not end. Each escape is
// longer than what it stands for.
static char *text(reader *r) {
  char *made = malloc((size_t)(r->end - r->at) + 1), *to = made;
  while (made && r->at < r->end && *r->at != '"') {
    if (*r->at != '\\') {
      *to++ = *r->at++;
      continue;
    }
    if (r->end - ++r->at < 1) break;
    const char c = *r->at++;
    static const char from[] = "\"\\/bfnrt", as[] = "\"\\/\b\f\n\r\t";
    const char *found = c ? strchr(from, c) : NULL;
    if (found) {
      *to++ = as[found - from];
      continue;
    }
    int code = c == 'u' ? hex4(r) : -1;
    if (code < 0) break;
    if (code >= 0xd800 && code < 0xdc00 && word(r, "\\u")) {
      const int low = hex4(r);
      if (low < 0xdc00 || low > 0xdfff) break;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    to = put_utf8(to, (uint32_t)code);
  }
  if (made && r->at < r->end && *r->at == '"') {
    r->at++;
    *to = 0;
    return made;
  }
  free(made);
  return NULL;
}

static bool number(reader *r, rk_json *v) {
  char digits[MAX_NUMBER + 1];
  size_t n = 0;
  v->whole = true;
  while (r->at < r->end && n < MAX_NUMBER && *r->at && strchr("+-.0123456789eE", *r->at)) {
    v->whole &= !strchr(".eE", *r->at);
    digits[n++] = *r->at++;
  }
  digits[n] = 0;
  char *end;
  v->kind = RK_NUMBER;
  v->number = strtod(digits, &end);
  return n && !*end;
}

// The members of a list or an object, up to its closing bracket.
static bool members(reader *r, rk_json *v, char close, int depth) {
  rk_json **to = &v->first;
  if (take(r, close)) return true;
  do {
    char *key = NULL;
    if (v->kind == RK_OBJECT && (!take(r, '"') || !(key = text(r)) || !take(r, ':'))) {
      free(key);
      return false;
    }
    if (!(*to = value(r, depth + 1))) {
      free(key);
      return false;
    }
    (*to)->key = key;
    to = &(*to)->next;
  } while (take(r, ','));
  return take(r, close);
}

static rk_json *value(reader *r, int depth) {
  rk_json *v = calloc(1, sizeof *v);
  bool good = v && depth < MAX_DEPTH;
  if (!good) {
  } else if (take(r, '{')) {
    v->kind = RK_OBJECT;
    good = members(r, v, '}', depth);
  } else if (take(r, '[')) {
    v->kind = RK_LIST;
    good = members(r, v, ']', depth);
  } else if (take(r, '"')) {
    v->kind = RK_TEXT;
    good = (v->text = text(r)) != NULL;
  } else if (word(r, "null")) {
    v->kind = RK_NULL;
  } else if (word(r, "true") || word(r, "false")) {
    v->kind = RK_BOOL;
    v->number = r->at[-2] == 'u';
  } else if (word(r, "NaN") || word(r, "Infinity") || word(r, "-Infinity")) {
    v->kind = RK_NULL;
  } else {
    good = number(r, v);
  }
  if (good) return v;
  rk_json_free(v);
  return NULL;
}

rk_json *rk_json_parse(const char *from, size_t size) {
  reader r = {from, from + size};
  rk_json *v = value(&r, 0);
  skip(&r);
  if (r.at == r.end) return v;
  rk_json_free(v);
  return NULL;
}

void rk_json_free(rk_json *v) {
  for (rk_json *next; v; v = next) {
    next = v->next;
    rk_json_free(v->first);
    free(v->text);
    free(v->key);
    free(v);
  }
}

const rk_json *rk_json_get(const rk_json *v, const char *key) {
  if (!v || v->kind != RK_OBJECT) return NULL;
  for (v = v->first; v; v = v->next)
    if (!strcmp(v->key, key)) return v;
  return NULL;
}

const char *rk_json_text(const rk_json *v, const char *key) {
  const rk_json *found = rk_json_get(v, key);
  return found && found->kind == RK_TEXT ? found->text : NULL;
}

unsigned rk_json_count(const rk_json *v) {
  unsigned n = 0;
  for (v = v ? v->first : NULL; v; v = v->next) n++;
  return n;
}
