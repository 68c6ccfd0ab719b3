// Inputs in another layout than the model declares: y = |transposed x| + 1, where the transposed
// tensor is only read, changed in place, or read by another step as it is.
#include <stdbool.h>

#include "testing.h"

enum { C = 2, H = 3, W = 5, N = C * H * W };
enum kind { ONLY_READ, IN_PLACE, ALSO_DECLARED };

static void four_axes(builder *b, uint32_t tensor, int64_t c, int64_t h, int64_t w) {
  const int64_t shape[] = {1, c, h, w};
  b->tensors[tensor].rank = 4;
  memcpy(b->tensors[tensor].shape, shape, sizeof shape);
}

static itg_model *model_of(enum kind kind, uint8_t **file) {
  builder *b = calloc(1, sizeof *b);
  b->n_names = 1;
  const uint32_t x = add_tensor(b, "x", ITG_INPUT, 0, 0, N),
                 y = add_tensor(b, "y", ITG_OUTPUT, 0, 0, N),
                 more = add_tensor(b, "z", ITG_OUTPUT, 1, 0, N),
                 turned = add_tensor(b, "", ITG_ARENA, 0, 0, N),
                 last = add_tensor(b, "", ITG_ARENA, 0, kind == IN_PLACE ? 0 : 256, N);
  const float one = 1;
  const uint32_t weights = add_const(b, &one, 1);
  const int64_t perm[8] = {0, 2, 3, 1};
  memcpy(b->attrs, perm, sizeof perm);
  b->n_attrs = sizeof perm;
  b->plan.n_inputs = 1;
  b->plan.n_outputs = 2;
  b->plan.outputs = 1;
  b->plan.arena = 512;
  add_args(b, 3, x, y, more);
  four_axes(b, x, C, H, W);
  four_axes(b, y, H, W, C);
  four_axes(b, turned, H, W, C);
  four_axes(b, last, H, W, C);
  add_step(b, "transpose", 1, x, 0, turned);
  b->steps[0].attrs_size = sizeof perm;
  add_step(b, "abs", 1, turned, 0, last);
  add_step(b, "add", 2, last, weights, y);
  four_axes(b, more, kind == ALSO_DECLARED ? C : H, kind == ALSO_DECLARED ? H : W,
            kind == ALSO_DECLARED ? W : C);
  add_step(b, "neg", 1, kind == ALSO_DECLARED ? x : last, 0, more);
  size_t size;
  *file = build(b, &size);
  free(b);
  return open_or_die(*file, size);
}

static void check(const float *nhwc, itg_session *session) {
  itg_view y;
  CHECK(itg_get_output(session, 0, &y) == ITG_OK);
  for (int i = 0; i < N; i++) CHECK(((const float *)y.data)[i] == fabsf(nhwc[i]) + 1);
}

static void test_kind(enum kind kind, bool later) {
  uint8_t *file;
  itg_model *model = model_of(kind, &file);
  const itg_options options = {.internal_later = later};
  itg_session *session = create_or_die(model, &options);
  float nchw[N], nhwc[N], copy[N];
  _Alignas(64) uint8_t internal[2][2048];
  uint32_t layout = 9;
  for (int c = 0; c < C; c++)
    for (int p = 0; p < H * W; p++)
      nchw[c * H * W + p] = nhwc[p * C + c] = (float)(c * 100 + p) * (p % 2 ? 1 : -1);
  memcpy(copy, nhwc, sizeof copy);
  if (later) CHECK(itg_set_internal(session, internal[0], sizeof internal[0]) == ITG_OK);
  CHECK(itg_set_input(session, 0, nchw, sizeof nchw) == ITG_OK && itg_run(session) == ITG_OK);
  check(nhwc, session);
  CHECK(itg_input_layout(session, 0, &layout) == ITG_OK);
  CHECK(layout == (kind == ALSO_DECLARED ? ITG_AS_DECLARED : ITG_NHWC));
  if (kind == ALSO_DECLARED) {
    CHECK(itg_set_input_layout(session, 0, ITG_NHWC) == ITG_BAD_INPUT);
    CHECK(strstr(itg_session_error(session), "'x' cannot be NHWC: its first steps read it as the"));
  } else {
    itg_view x;
    CHECK(itg_set_input_layout(session, 0, ITG_NHWC) == ITG_OK);
    CHECK(itg_get_input(session, 0, &x) == ITG_OK);
    CHECK(x.shape[1] == H && x.shape[2] == W && x.shape[3] == C);
    CHECK(itg_bind_input(session, 0, nhwc, sizeof nhwc) == ITG_OK);
    for (int i = 0; i < 3; i++) {
      if (later) CHECK(itg_set_internal(session, internal[i % 2], sizeof internal[0]) == ITG_OK);
      CHECK(itg_run(session) == ITG_OK);
      check(nhwc, session);
      CHECK(!memcmp(nhwc, copy, sizeof copy));  // nothing is computed in the caller's memory
    }
    CHECK(itg_set_input(session, 0, nhwc, sizeof nhwc) == ITG_OK && itg_run(session) == ITG_OK);
    check(nhwc, session);
    CHECK(itg_set_input_layout(session, 0, ITG_NCHW) == ITG_BAD_INPUT);
    CHECK(itg_set_input_layout(session, 0, 7) == ITG_BAD_INPUT);
    CHECK(itg_set_input_layout(session, 3, ITG_NHWC) == ITG_BAD_INPUT);
    CHECK(itg_set_input_layout(session, 0, ITG_NHWC) == ITG_OK);  // changes nothing
    CHECK(itg_set_input_layout(session, 0, ITG_AS_DECLARED) == ITG_OK);
  }
  CHECK(itg_set_input(session, 0, nchw, sizeof nchw) == ITG_OK && itg_run(session) == ITG_OK);
  check(nhwc, session);
  CHECK(itg_input_layout(session, 5, &layout) == ITG_BAD_INPUT);
  CHECK(itg_input_layout(session, 0, NULL) == ITG_BAD_INPUT);
  CHECK(itg_input_layout(NULL, 0, &layout) == ITG_BAD_INPUT);
  CHECK(itg_set_input_layout(NULL, 0, 0) == ITG_BAD_INPUT);
  itg_session_destroy(session);
  itg_model_close(model);
  free(file);
}

int main(void) {
  for (int later = 0; later < 2; later++)
    for (int kind = ONLY_READ; kind <= ALSO_DECLARED; kind++) test_kind((enum kind)kind, later);
  return 0;
}
