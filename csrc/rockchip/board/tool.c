// intaglio-rk: shows the NPU of a board, and runs .rkjob files on it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "intaglio_rk.h"

static const char USAGE[] =
    "intaglio-rk runs register commands (.rkjob files of `intaglio compile`) on Rockchip's NPU.\n"
    "\n"
    "  intaglio-rk info                           which device and driver this board has\n"
    "  intaglio-rk ports m.rkjob                  inputs and outputs of a file\n"
    "  intaglio-rk run m.rkjob --input x=x.bin    one run; outputs as NAME.bin in --out\n"
    "\n"
    "  --device PATH      /dev/accel/accel0 or /dev/dri/card1 [default: the first that opens]\n"
    "  --input NAME=FILE  bytes [channels][height][width]; inputs without a file are 0\n"
    "  --expect NAME=FILE compare an output with these bytes; a difference is exit code 1\n"
    "  --out FOLDER       write outputs there\n"
    "  --repeat N         run N times; prints the fastest and the median [default: 1]\n"
    "  --cores N          N networks at the same time, one on each core [default: 1]\n"
    "  --timeout MS       of one run [default: 5000]\n"
    "\n"
    "Exit codes: 0 done, 1 an output differs, 2 an error.\n";

enum { MOST_FILES = 64, MOST_REPEATS = 10000000 };

typedef struct given {
  const char *command, *job, *device, *out;
  const char *inputs[MOST_FILES], *expected[MOST_FILES];
  int n_inputs, n_expected, repeat, cores, timeout;
} given;

typedef struct worker {
  const given *g;
  itg_rk_network *network;
  double *ms;
  itg_rk_error error;
  int result;
} worker;

static int fail(const char *text) {
  fprintf(stderr, "intaglio-rk: %s\n", text);
  return 2;
}

static void *read_file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  char *bytes = NULL;
  size_t have = 0, room = 0;
  for (;;) {
    if (have == room) {
      char *more = realloc(bytes, room = room ? 2 * room : 1 << 16);
      if (!more) break;
      bytes = more;
    }
    const size_t got = fread(bytes + have, 1, room - have, f);
    if (!got) {
      fclose(f);
      *size = have;
      return bytes;
    }
    have += got;
  }
  free(bytes);
  fclose(f);
  return NULL;
}

// The file of a port in a list of NAME=FILE, or NULL.
static const char *file_of(const char *const *list, int count, const char *name) {
  const size_t n = strlen(name);
  for (int i = 0; i < count; i++)
    if (!strncmp(list[i], name, n) && list[i][n] == '=') return list[i] + n + 1;
  return NULL;
}

static int check_names(const itg_rk_network *network, const char *const *list, int count, int is_output) {
  for (int i = 0; i < count; i++) {
    int found = 0;
    for (uint32_t k = 0; k < itg_rk_ports(network); k++) {
      const itg_rk_port *p = itg_rk_port_at(network, k);
      const size_t n = strlen(p->name);
      found |= !!p->is_output == is_output && !strncmp(list[i], p->name, n) && list[i][n] == '=';
    }
    if (found) continue;
    fprintf(stderr, "intaglio-rk: '%s' names no %s; see `intaglio-rk ports`\n", list[i],
            is_output ? "output" : "input");
    return 2;
  }
  return 0;
}

static int set_inputs(const given *g, itg_rk_network *network) {
  for (uint32_t k = 0; k < itg_rk_ports(network); k++) {
    const itg_rk_port *p = itg_rk_port_at(network, k);
    if (p->is_output) continue;
    const char *path = file_of(g->inputs, g->n_inputs, p->name);
    size_t size = p->bytes;
    void *bytes = path ? read_file(path, &size) : calloc(1, p->bytes);
    itg_rk_error error;
    int result = 0;
    if (!bytes || size != p->bytes) {
      fprintf(stderr, "intaglio-rk: %s: %s; input '%s' has %llu bytes\n", path ? path : "input",
              bytes ? "another size" : "it cannot be read", p->name, (unsigned long long)p->bytes);
      result = 2;
    } else if (itg_rk_set(network, k, bytes, &error)) {
      result = fail(error.text);
    }
    free(bytes);
    if (result) return result;
  }
  return 0;
}

static int give_outputs(const given *g, itg_rk_network *network) {
  int differs = 0;
  for (uint32_t k = 0; k < itg_rk_ports(network); k++) {
    const itg_rk_port *p = itg_rk_port_at(network, k);
    if (!p->is_output) continue;
    uint8_t *bytes = malloc(p->bytes);
    itg_rk_error error;
    if (!bytes || itg_rk_get(network, k, bytes, &error)) {
      free(bytes);
      return fail(bytes ? error.text : "no memory for an output");
    }
    const char *path = file_of(g->expected, g->n_expected, p->name);
    if (path) {
      size_t size = 0;
      uint8_t *want = read_file(path, &size);
      uint64_t wrong = 0;
      for (uint64_t i = 0; want && size == p->bytes && i < size; i++) wrong += bytes[i] != want[i];
      const int fits = want && size == p->bytes;
      if (fits) printf("%s: %llu of %llu bytes differ\n", p->name, (unsigned long long)wrong,
                       (unsigned long long)p->bytes);
      else
        fprintf(stderr, "intaglio-rk: %s: not %llu bytes that can be read\n", path,
                (unsigned long long)p->bytes);
      differs |= fits ? wrong != 0 : 2;
      free(want);
    }
    if (g->out) {
      char at[4096];
      snprintf(at, sizeof at, "%s/%s.bin", g->out, p->name);
      for (char *c = at + strlen(g->out) + 1; *c; c++)
        if (*c == '/') *c = '_';
      FILE *f = fopen(at, "wb");
      const int written = f && fwrite(bytes, 1, p->bytes, f) == p->bytes;
      if (f) fclose(f);
      if (!written) fprintf(stderr, "intaglio-rk: %s cannot be written\n", at);
      differs |= written ? 0 : 2;
    }
    free(bytes);
  }
  return differs > 1 ? 2 : differs;
}

static void *work(void *at) {
  worker *w = at;
  for (int i = 0; i < w->g->repeat && !w->result; i++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    w->result = itg_rk_run(w->network, w->g->timeout, &w->error);
    clock_gettime(CLOCK_MONOTONIC, &b);
    w->ms[i] = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
  }
  return NULL;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int run_all(const given *g, worker *workers) {
  pthread_t threads[ITG_RK_CORES];
  int started = 0, result = 0;
  for (; started < g->cores - 1; started++)
    if (pthread_create(&threads[started], NULL, work, &workers[started + 1])) break;
  if (started < g->cores - 1) result = fail("no more threads");
  work(&workers[0]);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i <= started && !result; i++)
    if (workers[i].result) result = fail(workers[i].error.text);
  for (int i = 0; i <= started && !result; i++) {
    qsort(workers[i].ms, (size_t)g->repeat, sizeof *workers[i].ms, by_size);
    printf("core %d: %u tasks, %d runs: fastest %.3f ms, median %.3f ms\n", i,
           itg_rk_tasks(workers[i].network), g->repeat, workers[i].ms[0],
           workers[i].ms[g->repeat / 2]);
  }
  for (int i = 0; i < g->cores && !result; i++) result = give_outputs(g, workers[i].network);
  return result;
}

static int run(const given *g, itg_rk_device *device) {
  size_t size = 0;
  void *file = read_file(g->job, &size);
  if (!file) {
    fprintf(stderr, "intaglio-rk: %s cannot be read\n", g->job);
    return 2;
  }
  worker workers[ITG_RK_CORES] = {0};
  itg_rk_error error;
  int result = 0;
  for (int i = 0; i < g->cores && !result; i++) {
    workers[i].g = g;
    workers[i].ms = calloc((size_t)g->repeat, sizeof *workers[i].ms);
    const int core = g->cores > 1 ? i : ITG_RK_ANY_CORE;
    if (!workers[i].ms || itg_rk_load(&workers[i].network, device, file, size, core, &error))
      result = fail(workers[i].ms ? error.text : "no memory for times");
    if (!result) result = check_names(workers[i].network, g->inputs, g->n_inputs, 0);
    if (!result) result = check_names(workers[i].network, g->expected, g->n_expected, 1);
    if (!result && !strcmp(g->command, "run")) result = set_inputs(g, workers[i].network);
  }
  free(file);
  if (!result && !strcmp(g->command, "ports")) {
    for (uint32_t k = 0; k < itg_rk_ports(workers[0].network); k++) {
      const itg_rk_port *p = itg_rk_port_at(workers[0].network, k);
      printf("%-6s %s %s [%u, %u, %u, %u], real = %g * (byte - %d)\n", p->is_output ? "output" : "input",
             p->name, p->is_unsigned ? "u8" : "i8", p->shape[0], p->shape[1], p->shape[2], p->shape[3],
             (double)p->scale, p->zero);
    }
  } else if (!result) {
    result = run_all(g, workers);
  }
  for (int i = 0; i < ITG_RK_CORES; i++) {
    itg_rk_unload(workers[i].network);
    free(workers[i].ms);
  }
  return result;
}

static int number(const char *text, int least, int most, int *to) {
  char *end;
  const long found = strtol(text, &end, 10);
  if (*end || end == text || found < least || found > most) {
    fprintf(stderr, "intaglio-rk: '%s' is no number from %d to %d\n", text, least, most);
    return 2;
  }
  *to = (int)found;
  return 0;
}

static int option(given *g, const char *name, const char *value) {
  if (!strcmp(name, "--device")) g->device = value;
  else if (!strcmp(name, "--out")) g->out = value;
  else if (!strcmp(name, "--repeat")) return number(value, 1, MOST_REPEATS, &g->repeat);
  else if (!strcmp(name, "--cores")) return number(value, 1, ITG_RK_CORES, &g->cores);
  else if (!strcmp(name, "--timeout")) return number(value, 1, 3600000, &g->timeout);
  else if (!strcmp(name, "--input") && g->n_inputs < MOST_FILES) g->inputs[g->n_inputs++] = value;
  else if (!strcmp(name, "--expect") && g->n_expected < MOST_FILES) g->expected[g->n_expected++] = value;
  else {
    fprintf(stderr, "intaglio-rk: %s is unknown; see intaglio-rk --help\n", name);
    return 2;
  }
  return 0;
}

static int parse(given *g, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (!strncmp(argv[i], "--", 2)) {
      if (i + 1 == argc) {
        fprintf(stderr, "intaglio-rk: %s needs a value; see intaglio-rk --help\n", argv[i]);
        return 2;
      }
      const int result = option(g, argv[i], argv[i + 1]);
      if (result) return result;
      i++;
    } else if (!g->command) {
      g->command = argv[i];
    } else if (!g->job) {
      g->job = argv[i];
    } else {
      fprintf(stderr, "intaglio-rk: '%s' is one argument too many\n", argv[i]);
      return 2;
    }
  }
  const int runs = g->command && (!strcmp(g->command, "run") || !strcmp(g->command, "ports"));
  if (!runs && (!g->command || strcmp(g->command, "info")))
    return fail("give info, ports or run; see intaglio-rk --help");
  return runs && !g->job ? fail("which .rkjob? see intaglio-rk --help") : 0;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
      fputs(USAGE, stdout);
      return 0;
    }
  given g = {.repeat = 1, .cores = 1, .timeout = 5000};
  int result = parse(&g, argc, argv);
  if (result) return result;
  itg_rk_device *device;
  itg_rk_error error;
  if (itg_rk_open(&device, g.device, &error)) return fail(error.text);
  if (!strcmp(g.command, "info"))
    printf("%s: driver %s\n", itg_rk_path(device), itg_rk_driver(device));
  else
    result = run(&g, device);
  itg_rk_close(device);
  return result;
}
