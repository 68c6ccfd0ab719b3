// Models on a server, for programs on a device: a cascade of two models, and a model in two parts.
//
//   itg_remote *server;  itg_cascade *cascade;  itg_answer answer;
//   itg_remote_create(&(itg_remote_options){.host = "10.0.0.2", .port = 8000, .model = "large"},
//                     &server, &error);
//   itg_cascade_create(small, session, server, &(itg_cascade_options){.margin = 0.3f}, &cascade,
//                      &error);
//   itg_set_input(session, 0, pixels, pixels_size);
//   if (itg_cascade_run(cascade, &answer)) return fail(itg_cascade_error(cascade));
//   answer.output.data ...      // the device's scores, or the server's if the device was unsure
//
// The server speaks the Open Inference Protocol over HTTP: `intaglio serve`, Triton, KServe. There
// is no TLS: use a network that you trust, a tunnel, or a local proxy. An object is for one thread.
// Link with -lintaglio_client -lintaglio.
#pragma once
#include <intaglio.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- a model on a server ------------------------------------------------------------------------
typedef struct itg_remote itg_remote;

typedef struct itg_remote_options {  // zero means the default
  const char *host;                  // name or address; resolved once, when created
  uint16_t port;                     // 0: 8000
  const char *model;
  const char *token;    // NULL: none
  uint32_t timeout_ms;  // of a whole request, with connecting; 0: 1000
  uint64_t max_answer;  // bytes; 0: 16 MiB
} itg_remote_options;

typedef struct itg_named {  // an input of a request
  const char *name;
  itg_view value;
} itg_named;

// Connects when the first request is sent.
ITG_API itg_status itg_remote_create(const itg_remote_options *options, itg_remote **remote,
                                     itg_error *error);
// NULL is allowed.
ITG_API void itg_remote_destroy(itg_remote *remote);
// ITG_OK: outputs are there. ITG_RUN_ERROR: no answer in time; then requests fail at once for a
// second, then for two, four, ... up to 30. ITG_BAD_INPUT: the server refuses the inputs.
ITG_API itg_status itg_remote_run(itg_remote *remote, const itg_named *inputs, uint32_t count);
// Whether requests fail at once, because one has failed a moment ago.
ITG_API uint32_t itg_remote_down(const itg_remote *remote);
// An output of the last request, by name; NULL: the first. Valid until the next request.
ITG_API itg_status itg_remote_output(const itg_remote *remote, const char *name, itg_view *view);
// What went wrong with the last request: one line.
ITG_API const char *itg_remote_error(const itg_remote *remote);

// ---- answers of two models ----------------------------------------------------------------------
typedef struct itg_answer {
  itg_view output;       // scores; valid until the next run
  uint32_t from_server;  // 1: the server computed it
  float margin;          // of the device's answer: probability of its best class less the second
} itg_answer;

typedef struct itg_cascade itg_cascade;

typedef struct itg_cascade_options {
  float margin;     // the server is asked below it, 0 to 1
  float budget;     // share of requests that may go to the server; 0: all
  uint32_t output;  // of the device's model: f32 scores, probabilities or logits
} itg_cascade_options;

// `session` is of `model`; its inputs are sent under their names. All must outlive the cascade.
ITG_API itg_status itg_cascade_create(const itg_model *model, itg_session *session,
                                      itg_remote *remote, const itg_cascade_options *options,
                                      itg_cascade **cascade, itg_error *error);
ITG_API void itg_cascade_destroy(itg_cascade *cascade);
// Set the session's inputs first. A server that does not answer is no error: the device's answer
// stands, and itg_remote_error tells why.
ITG_API itg_status itg_cascade_run(itg_cascade *cascade, itg_answer *answer);
ITG_API const char *itg_cascade_error(const itg_cascade *cascade);

// A model in two parts, as `intaglio split -o` writes it: `edge` runs edge.itg, the server
// cloud.itg; `whole`, of whole.itg, answers while the link is down. Set the inputs of both sessions
// first.
ITG_API itg_status itg_split_run(const itg_model *edge_model, itg_session *edge, itg_session *whole,
                                 itg_remote *remote, itg_answer *answer);

#ifdef __cplusplus
}
#endif
