// Types, shapes and refusals of arithmetic on quantised tensors.
#include "infer.h"

static bool is_byte(const itg_tensor *t) { return t->dtype == ITG_I8 || t->dtype == ITG_U8; }

itg_words itg_infer_lookup(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_tensor *x = call->in[0], *table = call->in[1];
  REFUSE(!is_byte(x), "the numbers of entries must be i8 or u8");
  REFUSE(table->rank != 1 || table->shape[0] != 256, "the table must have 256 entries");
  itg_copy_type(out, x);
  out->dtype = table->dtype;
  FITS(out);
  return NULL;
}
