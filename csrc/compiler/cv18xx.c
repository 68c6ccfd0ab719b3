#include "cv18xx.h"

#include <stdlib.h>

#include "cv18xx_machine.h"

void *itg_cv18xx_scratch(itg_cv18xx *m, int64_t bytes) {
  if (bytes <= m->scratch_bytes) return m->scratch;
  free(m->scratch);
  m->scratch = malloc((size_t)bytes);
  m->scratch_bytes = m->scratch ? bytes : 0;
  if (!m->scratch) refuse(m, "no memory");
  return m->scratch;
}

static int execute_tiu(itg_cv18xx *m, const itg_cv18xx_tiu *t) {
  switch (t->tsk_typ) {
    case 0: return itg_cv18xx_conv(m, t);
    case 1: return itg_cv18xx_windows(m, t);
    case 2: return itg_cv18xx_matmul(m, t);
    case 3: return itg_cv18xx_eltwise(m, t);
    default: return refuse(m, "the kind of command is not known");
  }
}

int64_t itg_cv18xx_run(itg_cv18xx *machine, const uint8_t *is_tiu, int64_t count,
                       const itg_cv18xx_tiu *tiu, const itg_cv18xx_tdma *tdma) {
  int64_t i = 0;
  for (int done = 1; done && i < count; i += done)
    done = is_tiu[i] ? execute_tiu(machine, tiu++) : itg_cv18xx_copy(machine, tdma++);
  free(machine->scratch);
  machine->scratch = NULL;
  machine->scratch_bytes = 0;
  free(machine->kept);
  machine->kept = NULL;
  machine->kept_bytes = 0;
  return i;
}
