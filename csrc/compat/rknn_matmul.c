// Matrix products. Sums of integers are int32; sums of floats are float32, in the order of K.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rknn_matmul_layout.h"

enum { ROWS = 16, MAX_SHAPES = 512 };  // rows of A that share one row of B

// ---- contexts -----------------------------------------------------------------------------------
static int check_shape(const char *function, const matmul *m, const rknn_matmul_shape *s) {
  const tiles t = rk_mm_tiles(&m->types);
  const int32_t k = t.b_k > t.a ? t.b_k : t.a;
  if (s->M < 1 || s->K < 1 || s->N < 1 || s->M > MAX_SIDE || s->K > MAX_SIDE || s->N > MAX_SIDE ||
      (int64_t)s->M * s->K > INT32_MAX / 4 || (int64_t)s->K * s->N > INT32_MAX / 4 ||
      (int64_t)s->M * s->N > INT32_MAX / 4)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "M is %d, K %d, N %d; each is at least 1, and a matrix has less than 2^29 "
                   "elements",
                   s->M, s->K, s->N);
  if (s->K % k || s->N % t.b_n)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "K is %d and N %d; for %s the NPU needs multiples of %d and %d; pad with zeros",
                   s->K, s->N, get_matmul_type_string(m->info.type), k, t.b_n);
  return RKNN_SUCC;
}

static int check_info(const char *function, const rknn_matmul_info *info, types *t) {
  if (!rk_mm_types(info->type, t))
    return rk_fail(RKNN_ERR_PARAM_INVALID, function, "type is %d; it is one of rknn_matmul_type",
                   (int)info->type);
  if (info->B_layout < 0 || info->B_layout > RKNN_MM_LAYOUT_TP_NORM || info->AC_layout < 0 ||
      info->AC_layout > RKNN_MM_LAYOUT_NATIVE)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "B_layout is %d, AC_layout %d; B has 0, 1 or 2, A and C have 0 or 1",
                   info->B_layout, info->AC_layout);
  if (info->B_quant_type < 0 || info->B_quant_type > RKNN_QUANT_TYPE_PER_GROUP_ASYM ||
      info->AC_quant_type < 0 || info->AC_quant_type > RKNN_QUANT_TYPE_PER_LAYER_ASYM)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "B_quant_type is %d, AC_quant_type %d; B has 0 to 5, A and C have 0 or 1 (per "
                   "layer)",
                   info->B_quant_type, info->AC_quant_type);
  if (info->B_quant_type < RKNN_QUANT_TYPE_PER_GROUP_SYM) return RKNN_SUCC;
  const bool floats = t->of[C] == RKNN_TENSOR_FLOAT32 || t->of[C] == RKNN_TENSOR_FLOAT16 ||
                      t->of[C] == RKNN_TENSOR_BFLOAT16;
  if (!floats || t->of[B] == F)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "B_quant_type is per group; that is for B of integers and C of floats");
  if (info->group_size < 32 || info->group_size % 32)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function, "group_size is %d; it is a multiple of 32",
                   info->group_size);
  return RKNN_SUCC;
}

static void destroy(matmul *m) {
  for (int w = A; w <= C; w++) {
    free(m->quant[w].scale);
    free(m->quant[w].zp);
  }
  free(m->b_float);
  free(m->b_whole);
  free(m->shapes);
  free(m);
}

static int create(const char *function, rknn_matmul_ctx *ctx, const rknn_matmul_info *info,
                  int count, const rknn_matmul_shape *shapes, rknn_matmul_io_attr *io) {
  types t;
  if (ctx) *ctx = 0;
  if (!ctx || !info || !io || !shapes || count < 1 || count > MAX_SHAPES)
    return rk_fail(RKNN_ERR_PARAM_INVALID, function,
                   "ctx, info, io_attr or shapes are missing; give 1 to %d shapes", MAX_SHAPES);
  int code = check_info(function, info, &t);
  if (code) return code;
  matmul *m = calloc(1, sizeof *m);
  if (!m || !(m->shapes = malloc((size_t)count * sizeof *shapes))) {
    free(m);
    return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for a context");
  }
  m->head.is_matmul = true;
  m->info = *info;
  m->types = t;
  m->n_shapes = count;
  m->now = *shapes;
  memcpy(m->shapes, shapes, (size_t)count * sizeof *shapes);
  for (int i = 0; !code && i < count; i++) {
    code = check_shape(function, m, &shapes[i]);
    if (!code && (shapes[i].K != shapes->K || shapes[i].N != shapes->N))
      code = rk_fail(RKNN_ERR_PARAM_INVALID, function,
                     "shape %d has other K or N than the first; only M may differ", i);
    if (!code) rk_mm_describe(m, &shapes[i], &io[i]);
  }
  if (!code && info->group_size && info->B_quant_type >= RKNN_QUANT_TYPE_PER_GROUP_SYM &&
      shapes->K % info->group_size)
    code = rk_fail(RKNN_ERR_PARAM_INVALID, function, "K is %d, no multiple of group_size %d",
                   shapes->K, info->group_size);
  if (code) {
    destroy(m);
    return code;
  }
  rk_add(&m->head);
  *ctx = (rknn_matmul_ctx)(uintptr_t)m;
  return RKNN_SUCC;
}

RK_API int rknn_matmul_create(rknn_matmul_ctx *ctx, rknn_matmul_info *info,
                              rknn_matmul_io_attr *io_attr) {
  rknn_matmul_shape shape = {0};
  if (info) shape = (rknn_matmul_shape){info->M, info->K, info->N};
  return create(__func__, ctx, info, 1, &shape, io_attr);
}

RK_API int rknn_matmul_create_dynamic_shape(rknn_matmul_ctx *ctx, rknn_matmul_info *info,
                                            int shape_num, rknn_matmul_shape dynamic_shapes[],
                                            rknn_matmul_io_attr io_attrs[]) {
  return create(__func__, ctx, info, shape_num, dynamic_shapes, io_attrs);
}

static matmul *found(rknn_matmul_ctx ctx, const char *function) {
  matmul *m = (matmul *)rk_find(ctx, true);
  if (!m) rk_fail(RKNN_ERR_CTX_INVALID, function, "no such context; call rknn_matmul_create first");
  return m;
}

RK_API int rknn_matmul_destroy(rknn_matmul_ctx ctx) {
  matmul *m = found(ctx, __func__);
  if (!m || !rk_remove(&m->head)) return RKNN_ERR_CTX_INVALID;
  destroy(m);
  return RKNN_SUCC;
}

RK_API int rknn_matmul_set_core_mask(rknn_matmul_ctx context, rknn_core_mask core_mask) {
  if (!found(context, __func__)) return RKNN_ERR_CTX_INVALID;
  const uint32_t mask = (uint32_t)core_mask;
  if (mask != RKNN_NPU_CORE_ALL && (mask > RKNN_NPU_CORE_0_1_2 || mask == 5 || mask == 6))
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "core_mask is 0x%x; use rknn_core_mask", mask);
  return RKNN_SUCC;  // the CPU computes it
}

RK_API int rknn_matmul_set_dynamic_shape(rknn_matmul_ctx ctx, rknn_matmul_shape *shape) {
  matmul *m = found(ctx, __func__);
  if (!m) return RKNN_ERR_CTX_INVALID;
  for (int i = 0; shape && i < m->n_shapes; i++)
    if (!memcmp(shape, &m->shapes[i], sizeof *shape)) {
      m->now = *shape;
      return RKNN_SUCC;
    }
  return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                 "the shape is none of the %d that rknn_matmul_create_dynamic_shape got",
                 m->n_shapes);
}

// ---- data ---------------------------------------------------------------------------------------
static int which(const char *name) {
  return name[0] >= 'A' && name[0] <= 'C' && !name[1] ? name[0] - 'A' : -1;
}

static int read_b(matmul *m, const char *function) {
  const tiles t = rk_mm_tiles(&m->types);
  const int32_t K = m->now.K, N = m->now.N;
  const size_t count = (size_t)K * N;
  const void *data = rk_mem_data(m->mem[B]);
  const bool half = m->types.of[B] == F;
  if (half && !m->b_float) m->b_float = malloc(count * sizeof(float));
  if (!half && !m->b_whole) m->b_whole = malloc(count);
  if (half ? !m->b_float : !m->b_whole)
    return rk_fail(RKNN_ERR_MALLOC_FAIL, function, "no memory for B");
  for (int32_t k = 0; k < K; k++)
    for (int32_t n = 0; n < N; n++) {
      const size_t at = rk_mm_offset(m, &t, B, k, n), to = (size_t)k * N + n;
      if (half) m->b_float[to] = half_at(data, at);
      else m->b_whole[to] = whole(data, m->types.of[B], at);
    }
  return RKNN_SUCC;
}

RK_API int rknn_matmul_set_io_mem(rknn_matmul_ctx ctx, rknn_tensor_mem *mem,
                                  rknn_matmul_tensor_attr *attr) {
  matmul *m = found(ctx, __func__);
  if (!m) return RKNN_ERR_CTX_INVALID;
  const int w = attr ? which(attr->name) : -1;
  if (w < 0 || !mem || !rk_mem_lives(mem))
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "%s; give memory of rknn_create_mem and an attribute of rknn_matmul_create",
                   w < 0 ? "attr is no A, B or C"
                   : mem ? "mem was destroyed"
                         : "mem is NULL");
  rknn_matmul_io_attr io;
  rk_mm_describe(m, &m->now, &io);
  const uint32_t needed = (w == A ? &io.A : w == B ? &io.B : &io.C)->size;
  if (mem->size < needed)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "%s: the memory has %u bytes, %u are needed",
                   attr->name, mem->size, needed);
  m->mem[w] = mem;
  return w == B ? read_b(m, __func__) : RKNN_SUCC;
}

RK_API int rknn_matmul_set_quant_params(rknn_matmul_ctx context, rknn_quant_params *params) {
  matmul *m = found(context, __func__);
  if (!m) return RKNN_ERR_CTX_INVALID;
  const int w = params ? which(params->name) : -1;
  if (w < 0)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "params->name is not \"A\", \"B\" or \"C\"");
  if (m->types.of[w] != I4 && m->types.of[w] != I8)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "%s is no matrix of quantised integers",
                   params->name);
  const int16_t type = w == B ? m->info.B_quant_type : m->info.AC_quant_type;
  const int32_t count = type < RKNN_QUANT_TYPE_PER_CHANNEL_SYM ? 1
                        : type < RKNN_QUANT_TYPE_PER_GROUP_SYM
                            ? m->now.N
                            : m->now.N * (m->now.K / m->info.group_size);
  const int32_t zps = type % 2 ? count : params->zp_len;
  if (!params->scale || params->scale_len != count || zps != (params->zp_len ? count : 0) ||
      (params->zp_len && !params->zp))
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "%s: scale_len is %d, zp_len %d; quantisation %d needs %d of each", params->name,
                   params->scale_len, params->zp_len, type, count);
  quant made = {.n_scale = count, .n_zp = params->zp_len};
  made.scale = malloc((size_t)count * sizeof *made.scale);
  made.zp = calloc((size_t)count, sizeof *made.zp);
  if (!made.scale || !made.zp) {
    free(made.scale);
    free(made.zp);
    return rk_fail(RKNN_ERR_MALLOC_FAIL, __func__, "no memory for %d scales", count);
  }
  memcpy(made.scale, params->scale, (size_t)count * sizeof *made.scale);
  if (params->zp_len) memcpy(made.zp, params->zp, (size_t)count * sizeof *made.zp);
  free(m->quant[w].scale);
  free(m->quant[w].zp);
  m->quant[w] = made;
  return RKNN_SUCC;
}

RK_API int rknn_matmul_get_quant_params(rknn_matmul_ctx ctx, rknn_quant_params *params,
                                        float *scale) {
  matmul *m = found(ctx, __func__);
  if (!m) return RKNN_ERR_CTX_INVALID;
  const int w = params ? which(params->name) : -1;
  if (w < 0 || !m->quant[w].scale)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                   "%s; set params->name and call rknn_matmul_set_quant_params before",
                   w < 0 ? "params->name is not \"A\", \"B\" or \"C\"" : "it has no parameters");
  params->scale = m->quant[w].scale;
  params->scale_len = m->quant[w].n_scale;
  params->zp = m->quant[w].zp;
  params->zp_len = m->quant[w].n_zp;
  if (scale) *scale = *m->quant[w].scale;
  return RKNN_SUCC;
}

// ---- products -----------------------------------------------------------------------------------
static float scale_of(const quant *q, int64_t i) {
  return q->scale ? q->scale[q->n_scale == 1 ? 0 : i] : 1.0f;
}
static int32_t zp_of(const quant *q, int64_t i) {
  return q->zp ? q->zp[q->n_scale == 1 ? 0 : i] : 0;
}

// Row k of B in floats; integers are dequantised.
static void float_row(const matmul *m, int32_t k, float *row) {
  const int32_t N = m->now.N, groups = m->info.B_quant_type >= RKNN_QUANT_TYPE_PER_GROUP_SYM
                                           ? m->now.K / m->info.group_size
                                           : 1;
  if (m->b_float) {
    memcpy(row, m->b_float + (size_t)k * N, (size_t)N * sizeof *row);
    return;
  }
  for (int32_t n = 0; n < N; n++) {
    const int64_t q = groups > 1 ? (int64_t)n * groups + k / m->info.group_size : n;
    row[n] =
        (float)(m->b_whole[(size_t)k * N + n] - zp_of(&m->quant[B], q)) * scale_of(&m->quant[B], q);
  }
}

static void store(const matmul *m, const tiles *t, int32_t i, const float *sums,
                  const int32_t *wholes) {
  uint8_t *data = rk_mem_data(m->mem[C]);
  const quant *qc = &m->quant[C];
  for (int32_t n = 0; n < m->now.N; n++) {
    const size_t at = rk_mm_offset(m, t, C, i, n);
    const float scale =
        wholes ? scale_of(&m->quant[A], 0) * scale_of(&m->quant[B], n) : scale_of(&m->quant[A], 0);
    const float value = wholes ? (float)wholes[n] * scale : sums[n] * scale;
    switch ((int)m->types.of[C]) {
      case RKNN_TENSOR_FLOAT32: ((float *)data)[at] = value; break;
      case RKNN_TENSOR_FLOAT16: ((uint16_t *)data)[at] = rk_float_to_half(value); break;
      case RKNN_TENSOR_BFLOAT16: ((uint16_t *)data)[at] = rk_float_to_bf16(value); break;
      case RKNN_TENSOR_INT32: ((int32_t *)data)[at] = wholes[n]; break;
      case RKNN_TENSOR_INT16:
        ((int16_t *)data)[at] = (int16_t)(wholes[n] > 32767    ? 32767
                                          : wholes[n] < -32768 ? -32768
                                                               : wholes[n]);
        break;
      default: {
        const double q = rint((double)value / scale_of(qc, 0)) + zp_of(qc, 0);
        ((int8_t *)data)[at] = (int8_t)(q > 127 ? 127 : q >= -128 ? q : -128);
      }
    }
  }
}

static void multiply_floats(const matmul *m, const tiles *t, int32_t from, int32_t rows,
                            float *sums, float *row) {
  const int32_t K = m->now.K, N = m->now.N, za = zp_of(&m->quant[A], 0);
  const void *a = rk_mem_data(m->mem[A]);
  memset(sums, 0, (size_t)rows * N * sizeof *sums);
  for (int32_t k = 0; k < K; k++) {
    float_row(m, k, row);
    for (int32_t i = 0; i < rows; i++) {
      const size_t at = rk_mm_offset(m, t, A, from + i, k);
      const float x =
          m->types.of[A] == F ? half_at(a, at) : (float)(whole(a, m->types.of[A], at) - za);
      float *restrict to = sums + (size_t)i * N;
      for (int32_t n = 0; n < N; n++) to[n] += x * row[n];
    }
  }
  for (int32_t i = 0; i < rows; i++) store(m, t, from + i, sums + (size_t)i * N, NULL);
}

static void multiply_wholes(const matmul *m, const tiles *t, int32_t from, int32_t rows,
                            int32_t *sums, int32_t *row) {
  const int32_t K = m->now.K, N = m->now.N, za = zp_of(&m->quant[A], 0);
  const void *a = rk_mem_data(m->mem[A]);
  memset(sums, 0, (size_t)rows * N * sizeof *sums);
  for (int32_t k = 0; k < K; k++) {
    for (int32_t n = 0; n < N; n++) row[n] = m->b_whole[(size_t)k * N + n] - zp_of(&m->quant[B], n);
    for (int32_t i = 0; i < rows; i++) {
      const int32_t x = whole(a, m->types.of[A], rk_mm_offset(m, t, A, from + i, k)) - za;
      int32_t *restrict to = sums + (size_t)i * N;
      for (int32_t n = 0; n < N; n++) to[n] += x * row[n];
    }
  }
  for (int32_t i = 0; i < rows; i++) store(m, t, from + i, NULL, sums + (size_t)i * N);
}

RK_API int rknn_matmul_run(rknn_matmul_ctx ctx) {
  matmul *m = found(ctx, __func__);
  if (!m) return RKNN_ERR_CTX_INVALID;
  rknn_matmul_io_attr io;
  rk_mm_describe(m, &m->now, &io);
  const uint32_t sizes[3] = {io.A.size, io.B.size, io.C.size};
  for (int w = A; w <= C; w++)
    if (!m->mem[w] || !rk_mem_lives(m->mem[w]) || m->mem[w]->size < sizes[w])
      return rk_fail(RKNN_ERR_PARAM_INVALID, __func__,
                     "%c has no memory of %u bytes; call rknn_matmul_set_io_mem for it", "ABC"[w],
                     sizes[w]);
  const tiles t = rk_mm_tiles(&m->types);
  void *sums = malloc(((size_t)ROWS + 1) * m->now.N * 4);  // and one row of B
  if (!sums) return rk_fail(RKNN_ERR_MALLOC_FAIL, __func__, "no memory for sums");
  for (int32_t i = 0; i < m->now.M; i += ROWS) {
    const int32_t rows = m->now.M - i < ROWS ? m->now.M - i : ROWS;
    if (m->types.of[A] == F || m->info.B_quant_type >= RKNN_QUANT_TYPE_PER_GROUP_SYM)
      multiply_floats(m, &t, i, rows, sums, (float *)sums + (size_t)ROWS * m->now.N);
    else multiply_wholes(m, &t, i, rows, sums, (int32_t *)sums + (size_t)ROWS * m->now.N);
  }
  free(sums);
  return RKNN_SUCC;
}

RK_API int rknn_B_normal_layout_to_native_layout(void *B_input, void *B_output, int K, int N,
                                                 rknn_matmul_info *info) {
  matmul m = {.now = {1, K, N}};
  if (!B_input || !B_output || !info)
    return rk_fail(RKNN_ERR_PARAM_INVALID, __func__, "B_input, B_output or info is NULL");
  m.info = *info;
  int code = check_info(__func__, info, &m.types);
  if (!code) code = check_shape(__func__, &m, &m.now);
  if (code) return code;
  const tiles t = rk_mm_tiles(&m.types);
  const rknn_tensor_type type = m.types.of[B];
  const size_t size = rk_type_size(type);
  if (type == I4) memset(B_output, 0, rk_mm_bytes(type, (size_t)K * (size_t)N));
  for (int32_t k = 0; k < K; k++)
    for (int32_t n = 0; n < N; n++) {
      const size_t from = info->B_layout == RKNN_MM_LAYOUT_TP_NORM
                              ? (size_t)n * (size_t)K + (size_t)k
                              : (size_t)k * (size_t)N + (size_t)n,
                   to = rk_mm_b_offset(&t, K, N, k, n);
      if (type == I4)
        ((uint8_t *)B_output)[to / 2] |=
            (uint8_t)((nibble(B_input, from) & 15) << (to % 2 ? 4 : 0));
      else memcpy((uint8_t *)B_output + to * size, (const uint8_t *)B_input + from * size, size);
    }
  return RKNN_SUCC;
}
