// Jobs of the BM1684X's simulator, compiled once per instruction set.
#include "bm1684x_windows.h"

#define COPY_EACH(type)                      \
  for (int64_t x = 0; x < width; x++) {      \
    type v;                                  \
    memcpy(&v, from + x * j->a.w, sizeof v); \
    memcpy(to + x * j->y.w, &v, sizeof v);   \
  }                                          \
  break

static int run_copy(const itg_bm_job *j) {
  static const int64_t bytes[] = {1, 1, 2, 2, 4, 4};
  const int64_t size = bytes[j->y.type];
  int64_t height = j->shape[2], width = j->shape[3];
  if (j->y.h == width * j->y.w && j->a.h == width * j->a.w) width *= height, height = 1;
  for (int64_t n = 0; n < j->shape[0]; n++) {
    for (int64_t c = 0; c < j->shape[1]; c++) {
      for (int64_t h = 0; h < height; h++) {
        const uint8_t *from = row_of(&j->a, n, c, h);
        uint8_t *to = row_of(&j->y, n, c, h);
        if (j->a.w == size && j->y.w == size) {
          memcpy(to, from, (size_t)(width * size));
          continue;
        }
        switch (size) {
          case 1: COPY_EACH(uint8_t);
          case 2: COPY_EACH(uint16_t);
          default: COPY_EACH(uint32_t);
        }
      }
    }
  }
  return 1;
}

#define NAME_(isa) itg_bm_run_jobs_##isa
#define NAME(isa) NAME_(isa)
int64_t NAME(ISA)(const itg_bm_job *jobs, int64_t count, void *scratch);

int64_t NAME(ISA)(const itg_bm_job *jobs, int64_t count, void *scratch) {
  for (int64_t i = 0; i < count; i++) {
    const itg_bm_job *j = jobs + i;
    int done;
    if (j->op < ITG_BM_COPY) done = run_rows(j);
    else if (j->op == ITG_BM_COPY) done = run_copy(j);
    else if (j->op == ITG_BM_CONV) done = run_conv(j, scratch);
    else done = run_channels(j, scratch);
    if (!done) return i;
  }
  return count;
}

#ifdef ISA_scalar
int64_t itg_bm_scratch(const itg_bm_job *job) {
  return job->op < ITG_BM_CONV ? 0 : scratch_of(job);
}
#endif
