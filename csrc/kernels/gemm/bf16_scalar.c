// bf16 products and depthwise convolutions for CPUs without bf16 instructions: plain loops.
#include "depthwise/depthwise.h"

// Bias, residual, bounds and activation for element `at` of the output, which lies in `column`.
static void finish(const itg_call *call, const itg_finish *end, int64_t at, int64_t column,
                   double sum) {
  const itg_tensor *residual = itg_input(call, 3), *out = call->out[0];
  const double extra = residual ? itg_load_f64(out->dtype, residual->data, at) : 0;
  float y = (float)(sum + (end->bias ? end->bias[column] : 0) + (end->add_last ? 0 : extra));
  if (y < end->lo) y = end->lo;
  if (y > end->hi) y = end->hi;
  if (end->act) itg_bend(end, &y, 1, column, 1);
  itg_store_f64(out->dtype, out->data, at, end->add_last ? y + extra : y);
}

itg_words itg_gemm_bf16_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_attrs_gemm *attrs = call->attrs;
  const itg_tensor *a = call->in[0], *b = call->in[1], *out = call->out[0];
  const int64_t k = a->shape[a->rank - 1], n = attrs->n, m = out->shape[out->rank - 2];
  const int64_t panel = k * ITG_PANEL, size = b->shape[b->rank - 3] * panel;
  const itg_finish end = itg_finish_of(call, attrs->act, attrs->act_args, attrs->add_last);
  int64_t row, to;
  itg_share(itg_count_range(out, 0, out->rank - 1), 1, part, parts, &row, &to);
  for (; row < to; row++) {
    const int64_t batch = row / m;
    const int64_t left = (itg_matrix_at(a, 2, out, out->rank - 2, batch) * m + row % m) * k;
    const int64_t right = itg_matrix_at(b, 3, out, out->rank - 2, batch) * size;
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++) {
        const int64_t weight =
            right + j / ITG_PANEL * panel + (i / 2 * ITG_PANEL + j % ITG_PANEL) * 2 + i % 2;
        sum += itg_load_f64(ITG_BF16, a->data, left + i) * itg_load_f64(ITG_BF16, b->data, weight);
      }
      finish(call, &end, row * n + j, j, sum);
    }
  }
  return NULL;
}

itg_words itg_depthwise_bf16_scalar(const itg_call *call, uint32_t part, uint32_t parts) {
  const itg_attrs_depthwise *a = call->attrs;
  itg_window w;
  itg_tensor out;
  itg_depthwise_of(call, &w, &out);
  const int64_t channels = out.shape[out.rank - 1];
  const float *weights = call->in[1]->data;
  const itg_finish end = itg_finish_of(call, a->act, a->act_args, a->add_last);
  int64_t at, to;
  itg_share(itg_count(&out), 1, part, parts, &at, &to);
  for (; at < to; at++) {
    const int64_t column = at % channels;
    int64_t place = at / channels, o[ITG_AXES], k[ITG_AXES];
    for (int i = ITG_AXES - 1; i >= 0; i--) {
      o[i] = place % w.out[i];
      place /= w.out[i];
    }
    double sum = 0;
    const float *weight = weights + column;
    for (k[0] = 0; k[0] < w.kernel[0]; k[0]++)
      for (k[1] = 0; k[1] < w.kernel[1]; k[1]++)
        for (k[2] = 0; k[2] < w.kernel[2]; k[2]++, weight += channels) {
          int64_t in = place;
          bool inside = true;
          for (int i = 0; i < ITG_AXES; i++) {
            const int64_t q = o[i] * w.stride[i] - w.before[i] + k[i] * w.dilation[i];
            inside &= q >= 0 && q < w.in[i];
            in = in * w.in[i] + q;
          }
          if (inside)
            sum += itg_load_f64(ITG_BF16, call->in[0]->data, in * channels + column) * *weight;
        }
    finish(call, &end, at, column, sum);
  }
  return NULL;
}
