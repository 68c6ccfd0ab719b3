// Sends COUNT requests to a server that answers anything; prints how many were taken as answers.
// Each has a remote of its own: one that fails would wait before it asks again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intaglio_client.h"

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  itg_remote_options options = {
      .host = "127.0.0.1", .port = (uint16_t)atoi(argv[1]), .model = "m", .timeout_ms = 300};
  float x[3] = {1, 2, 3}, sum = 0;
  itg_named input = {.name = "x", .value = {.data = x, .bytes = sizeof x, .dtype = ITG_F32}};
  input.value.rank = 2;
  input.value.shape[0] = 1;
  input.value.shape[1] = 3;
  int taken = 0;
  for (int i = 0; i < atoi(argv[2]); i++) {
    itg_remote *remote;
    itg_error error;
    if (itg_remote_create(&options, &remote, &error)) return puts(error.words), 1;
    const itg_status status = itg_remote_run(remote, &input, 1);
    itg_view y;
    if (!status && !itg_remote_output(remote, NULL, &y)) {
      for (uint64_t b = 0; b < y.bytes; b++) sum += ((const uint8_t *)y.data)[b];  // ASan sees it
      taken++;
    } else if (!status || !itg_remote_error(remote)[0]) {
      taken += !status;  // no outputs
    }
    itg_remote_destroy(remote);
  }
  printf("%d %d\n", taken, sum >= 0);
  return 0;
}
