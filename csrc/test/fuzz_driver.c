// Opens and runs packages that come in on standard input, each as a 64-bit size and its bytes.
// Built with sanitizers, it must survive them all: tests/fuzz_package.py sends mutated files. Says
// on standard output which file it is at. With `weights`, the weight file of each package follows
// it in the same form.
//
//   fuzz_driver [THREADS [KEY-FILE|- [PUBLIC-KEY-FILE|- [weights]]]]
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "intaglio.h"
#include "sample_plugin.h"

enum { SECONDS = 20, MEMORY = 4 << 20, STEPS = 20000, MAX_IO = 64 };

static void too_slow(int number) {
  static const char words[] = "TOO SLOW\n";
  (void)!write(2, words, sizeof words - 1);
  _exit(3);
}

static unsigned sum(
    const void *data,
    uint64_t bytes) {  // reads every byte, so that the sanitizer sees whether it may
  unsigned s = 0;
  for (uint64_t i = 0; i < bytes; i++) s = s * 31 + ((const unsigned char *)data)[i];
  return s;
}

static void fill(unsigned char *data, const itg_view *input,
                 int round) {  // small integers, or floats near one; then noise
  for (uint64_t k = 0; k < input->bytes; k++)
    data[k] = (unsigned char)(round % 2                 ? k * 37 + 11
                              : input->dtype == ITG_F32 ? (k % 4 == 3 ? 0x3f : 0x80)
                                                        : k % 8 == 0);
}

// Runs with every input and output in an allocation of its own, which ends where the tensor ends.
// At first at the present shapes, then again: a run may have cut outputs to their true shapes.
static void run_twice(itg_session *session, const itg_model *model, int round, unsigned *ran,
                      unsigned *failures) {
  const uint32_t plan = itg_session_plan(session), n_in = itg_model_inputs(model, plan),
                 n_out = itg_model_outputs(model, plan);
  itg_view views[MAX_IO];
  for (uint32_t i = 0; i < n_in; i++) itg_get_input(session, i, &views[i]);
  for (uint32_t i = 0; i < n_out; i++) itg_get_output(session, i, &views[n_in + i]);
  for (int again = 0; again < 2; again++) {
    void *kept[MAX_IO] = {0};
    int failed = 0;
    for (uint32_t i = 0; !failed && i < n_in; i++) {
      fill(kept[i] = malloc(views[i].bytes), &views[i], round + again);
      failed = itg_bind_input(session, i, kept[i], views[i].bytes) != ITG_OK;
    }
    for (uint32_t i = n_in; !failed && i < n_in + n_out; i++) {
      kept[i] = calloc(1, views[i].bytes);
      failed = itg_bind_output(session, i - n_in, kept[i], views[i].bytes) != ITG_OK;
    }
    if (!failed) failed = itg_run(session) != ITG_OK;
    for (uint32_t i = 0; !failed && i < n_out; i++) {
      itg_view view;
      itg_get_output(session, i, &view);
      sum(view.data, view.bytes);
    }
    if (failed && !*itg_session_error(session)) exit(5);  // a refusal has words
    ++*(failed ? failures : ran);
    for (int i = 0; i < MAX_IO; i++) free(kept[i]);
  }
}

// The extent of an open dimension in a round: the smallest, the largest, between, or too large.
static int64_t extent_of(const itg_symbol *s, int round) {
  const uint64_t steps = (uint64_t)(s->high - s->low) / (uint64_t)s->multiple;
  switch (round % 4) {
    case 0: return s->low;
    case 1: return s->low + (int64_t)(steps / 2) * s->multiple;
    case 2: return s->high;
    default: return s->low + (int64_t)(steps / 3) * s->multiple + (round > 4);
  }
}

// Shapes of a plan's inputs: those of a round in its open dimensions, the fixed ones elsewhere.
static itg_status reshape(itg_session *session, const itg_model *model, uint32_t plan, int round) {
  int64_t shapes[MAX_IO][ITG_MAX_RANK] = {{0}};
  itg_info info;
  itg_symbol symbol;
  for (uint32_t i = 0; i < itg_model_inputs(model, plan); i++) {
    itg_model_input(model, plan, i, &info);
    for (int a = 0; a < info.rank; a++) {
      shapes[i][a] = info.shape[a];
      if (info.symbol[a] >= 0 && !itg_model_symbol(model, plan, (uint32_t)info.symbol[a], &symbol))
        shapes[i][a] = extent_of(&symbol, round);
    }
  }
  return itg_set_shapes(session, (const int64_t (*)[ITG_MAX_RANK])shapes);
}

// Is every plan small enough to run?
static int small(const itg_model *model, uint32_t plan) {
  itg_info info;
  uint64_t io = 0;
  if (itg_model_inputs(model, plan) + itg_model_outputs(model, plan) > MAX_IO) return 0;
  for (uint32_t i = 0; i < itg_model_inputs(model, plan); i++)
    itg_model_input(model, plan, i, &info), io += info.bytes;
  for (uint32_t i = 0; i < itg_model_outputs(model, plan); i++)
    itg_model_output(model, plan, i, &info), io += info.bytes;
  return io <= MEMORY;
}

// Runs one plan, or with ITG_ANY_PLAN all of them at several shapes in one session.
static void run_plan(const itg_model *model, uint32_t plan, uint32_t threads, unsigned *ran,
                     unsigned *failures) {
  itg_error error;
  itg_memory memory;
  itg_session *session;
  itg_options options = {
      .plan = plan, .threads = threads, .max_steps = STEPS, .profile = 1, .external_io = 1};
  if (itg_model_memory(model, &options, &memory, &error) || memory.session > MEMORY) return;
  const uint32_t plans = itg_model_plans(model), first = plan == ITG_ANY_PLAN ? 0 : plan,
                 last = plan == ITG_ANY_PLAN ? plans : plan + 1;
  for (uint32_t p = first; p < last; p++)
    if (!small(model, p)) return;
  void *weights = NULL;  // a copy that ends where the weights end, unless they lie in a weight file
  if (itg_model_weights(model)) {
    if (posix_memalign(&weights, 64, memory.weights)) exit(4);
    options.weights = memcpy(weights, itg_model_weights(model), memory.weights);
  }
  if (itg_session_create(model, &options, &session, &error)) exit(4);
  run_twice(session, model, 0, ran, failures);
  for (int round = 0; plan == ITG_ANY_PLAN && round < 8; round++)
    for (uint32_t p = first; p < last; p++) {
      if (round && !itg_model_symbols(model, p)) continue;  // it has one shape
      if (reshape(session, model, p, round)) ++*failures;
      else run_twice(session, model, round, ran, failures);
    }
  for (uint32_t i = 0; i < itg_session_steps(session); i++) {
    itg_profile profile;
    itg_get_profile(session, i, &profile);
    sum(profile.op, strlen(profile.op));
    sum(profile.origin, strlen(profile.origin));
  }
  itg_session_destroy(session);
  free(weights);
}

static void run_model(const itg_model *model, uint32_t threads, unsigned *ran, unsigned *failures) {
  uint32_t symbols = 0;
  for (uint32_t plan = 0; plan < itg_model_plans(model); plan++) {
    run_plan(model, plan, threads, ran, failures);
    symbols += itg_model_symbols(model, plan);
  }
  if (symbols || itg_model_plans(model) > 1) run_plan(model, ITG_ANY_PLAN, threads, ran, failures);
}

// A file from standard input in memory that ends where it ends, `shift` bytes after a multiple
// of 64.
static char *read_file(uint64_t *size, unsigned shift) {
  void *block = NULL;
  if (fread(size, sizeof *size, 1, stdin) != 1) return NULL;
  if (posix_memalign(&block, 64, *size + shift)) exit(4);
  if (fread((char *)block + shift, 1, *size, stdin) != *size) exit(4);
  return block;
}

int main(int argc, char **argv) {
  const uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 0;  // 0: now and then two
  uint8_t public_key[32];
  itg_open_options options = {0};
  itg_error error;
  if (itg_register_plugin(&itg_sample_plugin, &error)) return 4;
  if (argc > 2 && strcmp(argv[2], "-"))
    options.key_from = itg_key_from_file, options.key_context = argv[2];
  if (argc > 3 && strcmp(argv[3], "-")) {
    if (itg_public_key_from_file(argv[3], public_key, &error)) return 4;
    options.public_key = public_key;
  }
  const int with_weights = argc > 4 && !strcmp(argv[4], "weights");
  signal(SIGALRM, too_slow);
  uint64_t size, count = 0;
  unsigned refused = 0, ran = 0, failures = 0;
  for (;;) {
    const unsigned shift = count % 8 == 7;  // not aligned, and so copied by open
    char *block = read_file(&size, shift), *weights = NULL;
    if (!block) break;
    if (with_weights) options.weights_data = weights = read_file(&options.weights_size, 0);
    printf("%llu\n", (unsigned long long)count);
    fflush(stdout);
    alarm(SECONDS);
    itg_model *model;
    if (itg_model_open_with(block + shift, size, &options, &model, &error)) {
      refused++;
      if (!*error.words) return 5;
    } else {
      run_model(model, threads ? threads : count % 16 == 15 ? 2 : 1, &ran, &failures);
      itg_model_close(model);
    }
    alarm(0);
    free(block);
    free(weights);
    count++;
  }
  printf("files %llu refused %u runs %u failed %u\n", (unsigned long long)count, refused, ran,
         failures);
  return 0;
}
