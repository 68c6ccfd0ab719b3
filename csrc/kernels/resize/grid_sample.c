// grid_sample, col2im and max_unpool: sampling at given coordinates, and scattering of windows or
// maxima.
#include "move/index.h"
#include "infer.h"
#include "window.h"

// ---- grid_sample --------------------------------------------------------------------------------
enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };

itg_words itg_infer_grid_sample(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_attrs_grid_sample *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *grid = call->in[1];
  const int axes = x->rank - 2;
  REFUSE(axes != 2 && axes != 3, "images or volumes are needed");
  REFUSE(grid->rank != x->rank || grid->shape[axes + 1] != axes,
         "the grid must hold one place per output");
  REFUSE(grid->shape[0] != x->shape[0] || !itg_is_wide_float(grid->dtype),
         "the grid does not belong to the data");
  REFUSE(attrs->mode < NEAREST || attrs->mode > CUBIC, "mode is unknown");
  REFUSE(attrs->padding_mode < ZEROS || attrs->padding_mode > REFLECTION,
         "padding_mode is unknown");
  REFUSE(attrs->mode != NEAREST && !itg_is_wide_float(x->dtype),
         "only mode nearest samples what is not float");
  for (int i = 0; i < axes; i++)
    REFUSE(!x->shape[2 + i] && !itg_empty(grid), "there is nothing to sample");
  itg_copy_type(out, x);
  for (int i = 0; i < axes; i++) out->shape[2 + i] = grid->shape[1 + i];
  return NULL;
}

typedef struct taps {  // the elements that a coordinate reads along one axis
  int n;
  int64_t at[4];
  double weight[4];
} taps;

static double reflected(double x, int64_t extent, bool align_corners) {
  const double low = align_corners ? 0 : -0.5,
               span = align_corners ? (double)(extent - 1) : (double)extent;
  if (span == 0) return 0;
  const double away = fmod(fabs(x - low), 2 * span);
  return (away > span ? 2 * span - away : away) + low;
}

static double cubic_weight(double distance) {
  const double a = -0.75, d = fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;
}

static taps taps_of(double x, int64_t extent, const itg_attrs_grid_sample *attrs) {
  const bool corners = attrs->align_corners != 0;
  const double top = (double)(extent - 1), edge = corners ? 0 : 0.5;
  if (attrs->mode == NEAREST) x = rint(x);
  if (x < -edge || x > top + edge) {
    if (attrs->padding_mode == BORDER) x = x < 0 ? 0 : x > top ? top : x;
    if (attrs->padding_mode == REFLECTION) x = reflected(x, extent, corners);
  }
  if (!(x > -8 && x < top + 8)) x = -8;  // infinite, NaN or far outside
  const double low = floor(x);
  const int first = attrs->mode == CUBIC ? -1 : 0;
  taps t = {.n = attrs->mode == NEAREST ? 1 : attrs->mode == LINEAR ? 2 : 4};
  for (int i = 0; i < t.n; i++) {
    double at = low + first + i;
    const double distance = x - at;
    t.weight[i] = attrs->mode == CUBIC    ? cubic_weight(distance)
                  : attrs->mode == LINEAR ? 1 - fabs(distance)
                                          : 1;
    if (at < 0 || at > top) {
      if (attrs->padding_mode == ZEROS) t.weight[i] = 0;
      if (attrs->padding_mode == REFLECTION) at = trunc(reflected(at, extent, corners));
      at = at < 0 ? 0 : at > top ? top : at;
    }
    t.at[i] = (int64_t)at;
  }
  return t;
}

static double pixel_of(const itg_tensor *grid, int64_t i, int64_t extent, bool align_corners) {
  const double g = itg_load_f64(grid->dtype, grid->data, i), n = (double)extent;
  if (grid->dtype == ITG_F64) return align_corners ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
  const float unit = (float)g + 1;  // f32 as in other runtimes, so that ties round the same way
  return align_corners ? unit / 2 * (float)(extent - 1) : (unit * (float)extent - 1) / 2;
}

INLINE itg_words sample(const itg_call *call, uint8_t dtype, uint32_t part, uint32_t parts) {
  const itg_attrs_grid_sample *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *grid = call->in[1], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int axes = x->rank - 2;
  const int64_t channels = x->shape[1], image = itg_count_range(x, 2, x->rank),
                item = (int64_t)itg_item(dtype);
  const int64_t points = itg_count_range(grid, 1, grid->rank - 1);
  int64_t point, end;
  itg_share(grid->shape[0] * points, 16, part, parts, &point, &end);
  for (; point < end; point++) {
    int64_t at[64] = {0};
    double weight[64] = {1};
    int n = 1;
    for (int a = 0; a < axes;
         a++) {  // the grid's last axis is (x, y, z), the tensor's axes are z, y, x
      const int64_t extent = x->shape[2 + a];
      const double pixel =
          pixel_of(grid, point * axes + axes - 1 - a, extent, attrs->align_corners != 0);
      const taps t = taps_of(pixel, extent, attrs);
      for (int i = n - 1; i >= 0; i--)
        for (int k = t.n - 1; k >= 0; k--) {
          at[i * t.n + k] = at[i] * extent + t.at[k];
          weight[i * t.n + k] = weight[i] * t.weight[k];
        }
      n *= t.n;
    }
    const int64_t batch = point / points;
    for (int64_t c = 0; c < channels; c++) {
      const int64_t from = (batch * channels + c) * image,
                    to = (batch * channels + c) * points + point % points;
      if (attrs->mode == NEAREST) {
        char *y = (char *)out->data + to * item;
        if (weight[0] != 0) itg_move(y, (const char *)x->data + (from + at[0]) * item, item);
        else memset(y, 0, (size_t)item);
        continue;
      }
      double sum = 0;
      for (int i = 0; i < n; i++) sum += itg_load_f64(dtype, x->data, from + at[i]) * weight[i];
      itg_store_f64(dtype, out->data, to, sum);
    }
  }
  return NULL;
}

ITG_FN(grid_sample, any) { return sample(call, call->in[0]->dtype, part, parts); }
ITG_FN(grid_sample, f32) { return sample(call, ITG_F32, part, parts); }

// ---- max_unpool: every share owns a range of the output -----------------------------------------
itg_words itg_infer_max_unpool(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_attrs_max_unpool *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *indices = call->in[1];
  REFUSE(indices->dtype != ITG_I64 || !itg_same_shape(x, indices),
         "indices must be i64, one for each element");
  REFUSE(attrs->n_shape != x->rank, "shape must have the rank of the data");
  itg_set_type(out, x->dtype, x->rank);
  for (int i = 0; i < x->rank; i++) {
    REFUSE(attrs->shape[i] < 0, "shape must not be negative");
    out->shape[i] = attrs->shape[i];
  }
  return NULL;
}

ITG_FN(max_unpool, any) {
  const itg_tensor *x = call->in[0], *out = call->out[0];
  const int64_t *index = call->in[1]->data, n = itg_empty(x) ? 0 : itg_count(x);
  const int64_t size = itg_empty(out) ? 0 : itg_count(out), item = (int64_t)itg_item(x->dtype);
  char *to = out->data;
  int64_t begin, end;
  itg_share(size, 1, part, parts, &begin, &end);
  if (end > begin) memset(to + begin * item, 0, (size_t)((end - begin) * item));
  for (int64_t i = 0; i < n; i++) {
    REFUSE(index[i] < 0 || index[i] >= size, "an index lies outside of the output");
    if (index[i] >= begin && index[i] < end)
      itg_move(to + index[i] * item, (const char *)x->data + i * item, item);
  }
  return NULL;
}

// ---- col2im: a pixel is the sum over all windows that contain it --------------------------------
itg_words itg_infer_col2im(const itg_call *call, itg_tensor *out) {
  TAKES(1, 1, 1);
  const itg_attrs_col2im *attrs = call->attrs;
  const itg_tensor *x = call->in[0];
  const int64_t n = attrs->n_image;
  REFUSE(x->rank != 3, "the data must be batch x channels*block x windows");
  REFUSE(n < 1 || n > 6 || attrs->n_block != n, "image and block must have one to six axes");
  int64_t counts[6], windows = 1, block = 1;
  for (int i = 0; i < n; i++) REFUSE(attrs->image[i] < 0, "image must not be negative");
  itg_words wrong = itg_window_shape((int)n, attrs->image, attrs->block, attrs->stride, attrs->pad,
                                     attrs->dilation, counts);
  if (wrong) return wrong;
  for (int i = 0; i < n; i++)
    REFUSE(__builtin_mul_overflow(windows, counts[i], &windows) ||
               __builtin_mul_overflow(block, attrs->block[i], &block),
           "there are too many windows");
  REFUSE(x->shape[1] % block || x->shape[2] != windows,
         "the data does not hold the windows of that image");
  itg_set_type(out, x->dtype, (int)n + 2);
  out->shape[0] = x->shape[0];
  out->shape[1] = x->shape[1] / block;
  for (int i = 0; i < n; i++) out->shape[2 + i] = attrs->image[i];
  return NULL;
}

ITG_FN(col2im, any) {
  const itg_attrs_col2im *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *out = call->out[0];
  if (itg_empty(out)) return NULL;
  const int axes = (int)attrs->n_image;
  const bool real = itg_is_float(x->dtype);
  int64_t counts[6], block = 1, i, end;
  itg_window_shape(axes, attrs->image, attrs->block, attrs->stride, attrs->pad, attrs->dilation,
                   counts);
  for (int a = 0; a < axes; a++) block *= attrs->block[a];
  const int64_t image = itg_count_range(out, 2, out->rank), windows = x->shape[2];
  itg_share(itg_count(out), 64, part, parts, &i, &end);
  for (; i < end; i++) {
    double sum = 0;
    int64_t whole = 0;
    for (int64_t k = 0; k < block;
         k++) {  // the window whose place k lies on this pixel, if there is one
      int64_t pixel = i % image, place = k, window = 0, step = 1;
      for (int a = axes - 1; a >= 0 && window >= 0; a--) {
        const int64_t at =
            pixel % attrs->image[a] + attrs->pad[a] - place % attrs->block[a] * attrs->dilation[a];
        if (at < 0 || at % attrs->stride[a] || at / attrs->stride[a] >= counts[a]) window = -1;
        else window += at / attrs->stride[a] * step;
        step *= counts[a];
        pixel /= attrs->image[a];
        place /= attrs->block[a];
      }
      if (window < 0) continue;
      const int64_t from = (i / image * block + k) * windows + window;
      if (real) sum += itg_load_f64(x->dtype, x->data, from);
      else whole = (int64_t)((uint64_t)whole + (uint64_t)itg_load_i64(x->dtype, x->data, from));
    }
    if (real) itg_store_f64(x->dtype, out->data, i, sum);
    else itg_store_i64(x->dtype, out->data, i, whole);
  }
  return NULL;
}
