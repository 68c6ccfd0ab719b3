// Types, shapes and refusals of rotary position embedding and gated activations.
#include "infer.h"

itg_words itg_infer_rotary_embedding(const itg_call *call, itg_tensor *out) {
  const itg_attrs_rotary_embedding *a = call->attrs;
  TAKES(3, 3, 1);
  const itg_tensor *x = call->in[0], *cosine = call->in[1], *sine = call->in[2];
  REFUSE(x->dtype != ITG_F32 || cosine->dtype != ITG_F32 || sine->dtype != ITG_F32, "takes f32");
  REFUSE(!x->rank || !cosine->rank || !itg_same_shape(cosine, sine),
         "cosines and sines must be alike");
  REFUSE(a->interleaved != 0 && a->interleaved != 1, "interleaved must be 0 or 1");
  const int64_t n = cosine->shape[cosine->rank - 1], size = x->shape[x->rank - 1];
  REFUSE(n > size / 2, "there are more angles than pairs");
  itg_tensor half = *x, both;
  half.shape[x->rank - 1] = n;
  REFUSE(!itg_broadcast_shapes(cosine, &half, &both) || !itg_same_shape(&both, &half),
         "the angles do not broadcast to the rows");
  itg_copy_type(out, x);
  return NULL;
}

itg_words itg_infer_glu(const itg_call *call, itg_tensor *out) {
  const itg_attrs_glu *a = call->attrs;
  TAKES(1, 1, 1);
  const itg_tensor *x = call->in[0];
  REFUSE(x->dtype != ITG_F32, "takes f32");
  const int axis = itg_axis(a->axis, x->rank);
  REFUSE(axis < 0, "there is no such axis");
  REFUSE(x->shape[axis] % 2, "the axis cannot be halved");
  REFUSE(a->act < 0 || a->act > 5, "the activation is unknown");
  REFUSE(a->gate_first != 0 && a->gate_first != 1, "gate_first must be 0 or 1");
  itg_copy_type(out, x);
  out->shape[axis] /= 2;
  return NULL;
}
