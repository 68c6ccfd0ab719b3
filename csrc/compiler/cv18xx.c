#include "cv18xx.h"

#include "cv18xx_machine.h"

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
  for (int64_t i = 0; i < count; i++) {
    int done = is_tiu[i] ? execute_tiu(machine, tiu++) : itg_cv18xx_copy(machine, tdma++);
    if (!done) return i;
  }
  return count;
}
