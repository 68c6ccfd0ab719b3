#include "rknn_matmul_layout.h"

#include <stdlib.h>
#include <string.h>

bool rk_mm_types(rknn_matmul_type type, types *t) {
  static const types known[16] = {
      [RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32] = {{F, F, RKNN_TENSOR_FLOAT32}},
      [RKNN_INT8_MM_INT8_TO_INT32] = {{I8, I8, RKNN_TENSOR_INT32}},
      [RKNN_INT8_MM_INT8_TO_INT8] = {{I8, I8, I8}},
      [RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16] = {{F, F, F}},
      [RKNN_FLOAT16_MM_INT8_TO_FLOAT32] = {{F, I8, RKNN_TENSOR_FLOAT32}},
      [RKNN_FLOAT16_MM_INT8_TO_FLOAT16] = {{F, I8, F}},
      [RKNN_FLOAT16_MM_INT4_TO_FLOAT32] = {{F, I4, RKNN_TENSOR_FLOAT32}},
      [RKNN_FLOAT16_MM_INT4_TO_FLOAT16] = {{F, I4, F}},
      [RKNN_INT8_MM_INT8_TO_FLOAT32] = {{I8, I8, RKNN_TENSOR_FLOAT32}},
      [RKNN_INT4_MM_INT4_TO_INT16] = {{I4, I4, RKNN_TENSOR_INT16}},
      [RKNN_INT8_MM_INT4_TO_INT32] = {{I8, I4, RKNN_TENSOR_INT32}},
      [RKNN_FLOAT16_MM_INT4_TO_BFLOAT16] = {{F, I4, RKNN_TENSOR_BFLOAT16}},
      [RKNN_INT8_MM_INT4_TO_FLOAT16] = {{I8, I4, F}},
  };
  if ((int)type < 1 || (int)type > 15 || !known[type].of[A]) return false;
  *t = known[type];
  return true;
}

tiles rk_mm_tiles(const types *t) {
  const char *name = rk_platform_of(getenv("INTAGLIO_RKNN_PLATFORM"))->name;
  const bool small = !strcmp(name, "rk3566") || !strcmp(name, "rk3568"),
             middle = !strcmp(name, "rk3562");
  const bool half = t->of[A] == F;
  tiles made = {.a = half ? 8 : t->of[A] == I4 ? 32 : 16, .b_k = 32};
  // B of another type than A lies as B of the type that goes with C
  made.b_n = half ? 16 : t->of[A] == I4 ? 64 : 32;
  if (middle) made.b_n = half ? 8 : 16;
  if (small) {
    made.a = half ? 4 : 8;
    made.b_n = half ? 8 : 16;
    made.b_k = half ? 16 : 32;
  }
  made.c = t->of[C] == RKNN_TENSOR_INT16 ? 8 : 4;
  made.segment = !strcmp(name, "rk3576") ? 4096 : !strcmp(name, "rk3588") ? 8192 : MAX_SIDE;
  return made;
}

size_t rk_mm_b_offset(const tiles *t, int32_t K, int32_t N, int32_t k, int32_t n) {
  const int32_t begin = k / t->segment * t->segment,
                length = K - begin < t->segment ? K - begin : t->segment;
  const int32_t in = k - begin;
  return (size_t)begin * N +
         (((size_t)(n / t->b_n) * (length / t->b_k) + in / t->b_k) * t->b_n + n % t->b_n) * t->b_k +
         in % t->b_k;
}

size_t rk_mm_offset(const matmul *m, const tiles *t, int which, int32_t i, int32_t j) {
  const rknn_matmul_shape *s = &m->now;
  if (which == B) {
    if (m->info.B_layout == RKNN_MM_LAYOUT_NATIVE) return rk_mm_b_offset(t, s->K, s->N, i, j);
    return m->info.B_layout == RKNN_MM_LAYOUT_TP_NORM ? (size_t)j * s->K + i : (size_t)i * s->N + j;
  }
  const int32_t columns = which == A ? s->K : s->N, tile = which == A ? t->a : t->c;
  if (m->info.AC_layout != RKNN_MM_LAYOUT_NATIVE) return (size_t)i * columns + j;
  return ((size_t)(j / tile) * s->M + i) * tile + j % tile;
}

size_t rk_mm_bytes(rknn_tensor_type type, size_t count) {
  return type == I4 ? (count + 1) / 2 : count * rk_type_size(type);
}

void rk_mm_describe(const matmul *m, const rknn_matmul_shape *s, rknn_matmul_io_attr *io) {
  const tiles t = rk_mm_tiles(&m->types);
  rknn_matmul_tensor_attr *attr[3] = {&io->A, &io->B, &io->C};
  const int32_t sides[3][2] = {{s->M, s->K}, {s->K, s->N}, {s->M, s->N}};
  memset(io, 0, sizeof *io);
  for (int w = A; w <= C; w++) {
    const uint32_t rows = (uint32_t)sides[w][0], columns = (uint32_t)sides[w][1];
    uint32_t *d = attr[w]->dims;
    attr[w]->name[0] = "ABC"[w];
    attr[w]->type = m->types.of[w];
    attr[w]->n_dims = 2;
    d[0] = rows;
    d[1] = columns;
    if (w == B && m->info.B_layout == RKNN_MM_LAYOUT_TP_NORM) d[0] = columns, d[1] = rows;
    if (w == B && m->info.B_layout == RKNN_MM_LAYOUT_NATIVE) {
      attr[w]->n_dims = 4;
      d[0] = columns / (uint32_t)t.b_n;
      d[1] = rows / (uint32_t)t.b_k;
      d[2] = (uint32_t)t.b_n;
      d[3] = (uint32_t)t.b_k;
    }
    if (w != B && m->info.AC_layout == RKNN_MM_LAYOUT_NATIVE) {
      const uint32_t tile = (uint32_t)(w == A ? t.a : t.c);
      attr[w]->n_dims = 3;
      d[0] = columns / tile;
      d[1] = rows;
      d[2] = tile;
    }
    attr[w]->size = (uint32_t)rk_mm_bytes(attr[w]->type, (size_t)rows * columns);
  }
}
