// How output types follow from input types: the functions that several operations share.
#include "kernel.h"

itg_words itg_infer_same(const itg_call *call, itg_tensor *out) {
  if (call->n_in != 1 || call->n_out != 1 || !call->in[0]) return "takes one input and one output";
  itg_copy_type(&out[0], call->in[0]);
  return NULL;
}
