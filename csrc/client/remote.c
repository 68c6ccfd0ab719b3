#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../compat/rknn_json.h"
#include "http.h"
#include "intaglio_client.h"

enum {
  MAX_INPUTS = 32,
  MAX_OUTPUTS = 32,
  MAX_TEXT = 16 << 10,  // of the JSON of a request
  FIRST_RETRY_MS = 1000,
  LONGEST_RETRY_MS = 30000,
};

typedef struct output {
  char name[128];
  itg_view view;
} output;

struct itg_remote {
  http_connection connection;
  struct addrinfo *addresses;
  http_answer answer;
  char host[280], model[140], token[300];
  uint32_t timeout_ms;
  int64_t closed_until, wait_ms;
  output outputs[MAX_OUTPUTS];
  uint8_t *aligned;  // tensors of the answer, each at 64 bytes
  size_t aligned_size;
  uint32_t count;
  itg_error error;
};

static const struct {
  const char *name;
  uint8_t dtype, size;
} DATATYPES[] = {
    {"FP32", ITG_F32, 4},  {"FP16", ITG_F16, 2},   {"BF16", ITG_BF16, 2}, {"FP64", ITG_F64, 8},
    {"INT8", ITG_I8, 1},   {"UINT8", ITG_U8, 1},   {"INT16", ITG_I16, 2}, {"UINT16", ITG_U16, 2},
    {"INT32", ITG_I32, 4}, {"UINT32", ITG_U32, 4}, {"INT64", ITG_I64, 8}, {"UINT64", ITG_U64, 8},
    {"BOOL", ITG_BOOL, 1},
};
enum { N_DATATYPES = sizeof DATATYPES / sizeof *DATATYPES };

// Whether it can stand in a URL, a header and JSON without an escape.
static bool plain(const char *text, size_t most) {
  size_t n = 0;
  for (; text[n]; n++)
    if (n >= most || text[n] <= ' ' || text[n] > '~' || strchr("\"\\%?#", text[n])) return false;
  return n > 0;
}

itg_status itg_remote_create(const itg_remote_options *o, itg_remote **remote, itg_error *error) {
  itg_error ignored;
  if (!error) error = &ignored;
  if (!o || !remote || !o->host || !o->model || !plain(o->host, 255) || !plain(o->model, 128) ||
      strchr(o->model, '/') || (o->token && !plain(o->token, 255))) {
    snprintf(error->words, sizeof error->words,
             "itg_remote_create: host, model and token are plain texts of at most 255 characters");
    return ITG_BAD_INPUT;
  }
  itg_remote *r = calloc(1, sizeof *r);
  if (!r) return snprintf(error->words, sizeof error->words, "no memory"), ITG_NO_MEMORY;
  char port[8];
  snprintf(port, sizeof port, "%u", o->port ? o->port : 8000);
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  const int failed = getaddrinfo(o->host, port, &hints, &r->addresses);
  if (failed) {
    snprintf(error->words, sizeof error->words, "'%.80s' cannot be resolved: %s", o->host,
             gai_strerror(failed));
    free(r);
    return ITG_BAD_INPUT;
  }
  r->connection = (http_connection){r->addresses, -1};
  snprintf(r->host, sizeof r->host, strchr(o->host, ':') ? "[%s]:%s" : "%s:%s", o->host, port);
  snprintf(r->model, sizeof r->model, "%s", o->model);
  if (o->token) snprintf(r->token, sizeof r->token, "Authorization: Bearer %s\r\n", o->token);
  r->timeout_ms = o->timeout_ms ? o->timeout_ms : 1000;
  r->answer.most = o->max_answer ? o->max_answer : 16u << 20;
  r->wait_ms = FIRST_RETRY_MS;
  *remote = r;
  return ITG_OK;
}

void itg_remote_destroy(itg_remote *r) {
  if (!r) return;
  http_close(&r->connection);
  freeaddrinfo(r->addresses);
  free(r->answer.body);
  free(r->aligned);
  free(r);
}

uint32_t itg_remote_down(const itg_remote *r) { return r && http_now_ms() < r->closed_until; }

const char *itg_remote_error(const itg_remote *r) { return r ? r->error.words : "no remote"; }

static itg_status refuse(itg_remote *r, itg_status status, const char *words) {
  snprintf(r->error.words, sizeof r->error.words, "%.240s", words);
  return status;
}

// No request is sent for a while: a link that is down costs its timeout once.
static itg_status unreachable(itg_remote *r, const char *words) {
  http_close(&r->connection);
  r->closed_until = http_now_ms() + r->wait_ms;
  r->wait_ms = r->wait_ms * 2 < LONGEST_RETRY_MS ? r->wait_ms * 2 : LONGEST_RETRY_MS;
  snprintf(r->error.words, sizeof r->error.words, "%.80s does not answer: %.120s", r->host, words);
  return ITG_RUN_ERROR;
}

// The JSON part of a request; 0 if it cannot be written.
static size_t describe(const itg_named *inputs, uint32_t count, char *to) {
  size_t n =
      (size_t)snprintf(to, MAX_TEXT, "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[");
  for (uint32_t i = 0; i < count; i++) {
    const itg_view *v = &inputs[i].value;
    const char *datatype = NULL;
    for (int d = 0; d < N_DATATYPES; d++)
      if (DATATYPES[d].dtype == v->dtype) datatype = DATATYPES[d].name;
    if (!datatype || !inputs[i].name || !plain(inputs[i].name, 128) || v->rank > ITG_MAX_RANK)
      return 0;
    n +=
        (size_t)snprintf(to + n, MAX_TEXT - n, "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[",
                         i ? "," : "", inputs[i].name, datatype);
    for (int a = 0; a < v->rank && n < MAX_TEXT; a++)
      n += (size_t)snprintf(to + n, MAX_TEXT - n, "%s%lld", a ? "," : "", (long long)v->shape[a]);
    if (n < MAX_TEXT)
      n += (size_t)snprintf(to + n, MAX_TEXT - n, "],\"parameters\":{\"binary_data_size\":%llu}}",
                            (unsigned long long)v->bytes);
    if (n >= MAX_TEXT) return 0;
  }
  n += (size_t)snprintf(to + n, MAX_TEXT - n, "]}");
  return n < MAX_TEXT ? n : 0;
}

// One output of an answer; its bytes begin at `at`.
static const char *take(itg_remote *r, const rk_json *json, size_t *at, size_t *aligned_at) {
  output *o = &r->outputs[r->count];
  const char *name = rk_json_text(json, "name"), *type = rk_json_text(json, "datatype");
  const rk_json *shape = rk_json_get(json, "shape");
  const rk_json *size = rk_json_get(rk_json_get(json, "parameters"), "binary_data_size");
  if (!name || strlen(name) >= sizeof o->name || !type || !shape || shape->kind != RK_LIST)
    return "an output lacks its name, type or shape";
  if (!size || size->kind != RK_NUMBER) return "an output is not binary";
  *o = (output){0};
  snprintf(o->name, sizeof o->name, "%s", name);
  uint64_t bytes = 0;
  for (int d = 0; d < N_DATATYPES; d++)
    if (!strcmp(DATATYPES[d].name, type))
      o->view.dtype = DATATYPES[d].dtype, bytes = DATATYPES[d].size;
  if (!bytes) return "an output has an unknown type";
  for (const rk_json *n = shape->first; n; n = n->next) {
    if (o->view.rank == ITG_MAX_RANK || n->kind != RK_NUMBER || !n->whole || n->number < 0 ||
        n->number > 1e12)
      return "an output has a wrong shape";
    o->view.shape[o->view.rank++] = (int64_t)n->number;
    if (n->number > 0 && bytes > r->answer.size / (uint64_t)n->number && bytes)
      return "an output is larger than the answer";
    bytes *= (uint64_t)n->number;
  }
  if (size->number != (double)bytes || bytes > r->answer.size - *at)
    return "an output has other bytes than its shape";
  memcpy(r->aligned + *aligned_at, r->answer.body + *at, bytes);
  o->view.data = r->aligned + *aligned_at;
  o->view.bytes = bytes;
  *at += bytes;
  *aligned_at += (bytes + 63) / 64 * 64;
  r->count++;
  return NULL;
}

static const char *read_outputs(itg_remote *r) {
  const size_t need = r->answer.size + 64 * (MAX_OUTPUTS + 1);
  if (need > r->aligned_size) {
    free(r->aligned);
    r->aligned = aligned_alloc(64, (need + 63) / 64 * 64);
    r->aligned_size = r->aligned ? need : 0;
    if (!r->aligned) return "no memory for the answer";
  }
  rk_json *json = rk_json_parse((const char *)r->answer.body, r->answer.json_size);
  const rk_json *list = rk_json_get(json, "outputs");
  const char *why = list && list->kind == RK_LIST ? NULL : "the answer has no outputs";
  size_t at = r->answer.json_size, aligned_at = 0;
  for (const rk_json *o = list ? list->first : NULL; o && !why; o = o->next)
    why = r->count < MAX_OUTPUTS ? take(r, o, &at, &aligned_at) : "the answer has too many outputs";
  rk_json_free(json);
  if (why) r->count = 0;
  return why;
}

static itg_status refused(itg_remote *r) {
  rk_json *json = rk_json_parse((const char *)r->answer.body, r->answer.json_size);
  const char *words = rk_json_text(json, "error");
  char text[300];
  snprintf(text, sizeof text, "%.60s answers %d: %.160s", r->host, r->answer.status,
           words ? words : "");
  rk_json_free(json);
  const int s = r->answer.status;
  if (s == 429 || s == 502 || s == 503 || s == 504) {
    unreachable(r, text);
    return ITG_RUN_ERROR;
  }
  return refuse(r, ITG_BAD_INPUT, text);
}

itg_status itg_remote_run(itg_remote *r, const itg_named *inputs, uint32_t count) {
  if (!r || (count && !inputs)) return ITG_BAD_INPUT;
  r->count = 0;
  if (!count || count > MAX_INPUTS) return refuse(r, ITG_BAD_INPUT, "give 1 to 32 inputs");
  if (itg_remote_down(r)) return refuse(r, ITG_RUN_ERROR, "the server did not answer a moment ago");
  char *text = malloc(MAX_TEXT), head[1024];
  const size_t json = text ? describe(inputs, count, text) : 0;
  if (!json) {
    free(text);
    return refuse(r, ITG_BAD_INPUT, "an input has a name or type that cannot be sent");
  }
  struct iovec pieces[MAX_INPUTS + 2] = {{head, 0}, {text, json}};
  unsigned long long total = json;
  for (uint32_t i = 0; i < count; i++) {
    const itg_view *v = &inputs[i].value;
    pieces[i + 2] = (struct iovec){(void *)v->data, v->bytes};
    total += v->bytes;
  }
  const int n = snprintf(head, sizeof head,
                         "POST /v2/models/%s/infer HTTP/1.1\r\nHost: %s\r\n%s"
                         "Content-Type: application/octet-stream\r\nContent-Length: %llu\r\n"
                         "Inference-Header-Content-Length: %zu\r\n\r\n",
                         r->model, r->host, r->token, total, json);
  if (n <= 0 || n >= (int)sizeof head) {
    free(text);
    return refuse(r, ITG_BAD_INPUT, "host, model and token are too long");
  }
  pieces[0].iov_len = (size_t)n;
  const int64_t deadline = http_now_ms() + r->timeout_ms;
  const char *why = http_exchange(&r->connection, pieces, (int)count + 2, deadline, &r->answer);
  free(text);
  if (why) return unreachable(r, why);
  if (r->answer.status != 200) return refused(r);
  if ((why = read_outputs(r))) return unreachable(r, why);
  r->wait_ms = FIRST_RETRY_MS;
  r->error.words[0] = 0;
  return ITG_OK;
}

itg_status itg_remote_output(const itg_remote *r, const char *name, itg_view *view) {
  if (!r || !view) return ITG_BAD_INPUT;
  for (uint32_t i = 0; i < r->count; i++)
    if (!name || !strcmp(r->outputs[i].name, name)) return *view = r->outputs[i].view, ITG_OK;
  return ITG_BAD_INPUT;
}
