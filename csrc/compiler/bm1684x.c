// Chooses the instruction set of the BM1684X's simulator.
#include "bm1684x.h"

#include "built.h"

#define FORM(isa) int64_t itg_bm_run_jobs_##isa(const itg_bm_job *jobs, int64_t n, void *scratch);
FORM(scalar)
FORM(avx2)
FORM(avx512)
FORM(avx512vnni)

int64_t itg_bm_run_jobs(const itg_bm_job *jobs, int64_t count, void *scratch, uint32_t isa) {
  int64_t (*run)(const itg_bm_job *, int64_t, void *) = NULL;
  if (isa & ITG_ISA_avx512vnni) run = ITG_BUILT(avx512vnni, itg_bm_run_jobs_avx512vnni);
  if (!run && isa & ITG_ISA_avx512) run = ITG_BUILT(avx512, itg_bm_run_jobs_avx512);
  if (!run && isa & ITG_ISA_avx2) run = ITG_BUILT(avx2, itg_bm_run_jobs_avx2);
  if (!run) run = itg_bm_run_jobs_scalar;
  return run(jobs, count, scratch);
}
