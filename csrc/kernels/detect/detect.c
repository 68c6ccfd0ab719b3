// Non-maximum suppression and pooling of regions.
#include "infer.h"

// ---- non_max_suppression: (batch, class, box) of kept boxes -------------------------------------
itg_words itg_infer_non_max_suppression(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_attrs_non_max_suppression *attrs = call->attrs;
  const itg_tensor *boxes = call->in[0], *scores = call->in[1];
  REFUSE(!itg_is_wide_float(boxes->dtype) || scores->dtype != boxes->dtype,
         "boxes and scores must be floats of one type");
  REFUSE(boxes->rank != 3 || boxes->shape[2] != 4, "boxes must be batch x boxes x 4");
  REFUSE(scores->rank != 3 || scores->shape[0] != boxes->shape[0] ||
             scores->shape[2] != boxes->shape[1],
         "scores must be batch x classes x boxes");
  REFUSE(attrs->max_output < 0, "max_output must not be negative");
  REFUSE(!(attrs->iou_threshold >= 0 && attrs->iou_threshold <= 1),
         "iou_threshold must lie in [0, 1]");
  int64_t rows = attrs->max_output < boxes->shape[1] ? attrs->max_output : boxes->shape[1];
  REFUSE(__builtin_mul_overflow(rows, scores->shape[0], &rows) ||
             __builtin_mul_overflow(rows, scores->shape[1], &rows),
         "there are too many boxes");
  itg_set_type(out, ITG_I64, 2);
  out->shape[0] = rows;
  out->shape[1] = 3;
  return NULL;
}

typedef struct box {
  float low_x, high_x, low_y, high_y, area;
} box;

uint64_t itg_scratch_non_max_suppression(const itg_call *call, uint32_t parts) {
  const itg_tensor *scores = call->in[1];
  return itg_empty(scores)
             ? 0
             : (uint64_t)scores->shape[2] * (sizeof(int64_t) + sizeof(box) + sizeof(float));
}

static box box_of(const itg_tensor *t, int64_t i, bool center) {
  float v[4];
  for (int k = 0; k < 4; k++) v[k] = (float)itg_load_f64(t->dtype, t->data, 4 * i + k);
  box b;
  if (center) {  // x, y, width, height
    const float w = v[2] / 2, h = v[3] / 2;
    b = (box){v[0] - w, v[0] + w, v[1] - h, v[1] + h, 0};
  } else {  // two corners, y before x
    b = (box){fminf(v[1], v[3]), fmaxf(v[1], v[3]), fminf(v[0], v[2]), fmaxf(v[0], v[2]), 0};
  }
  b.area = (b.high_x - b.low_x) * (b.high_y - b.low_y);
  return b;
}

static bool overlap(const box *a, const box *b, float threshold) {
  const float w = fminf(a->high_x, b->high_x) - fmaxf(a->low_x, b->low_x);
  const float h = fminf(a->high_y, b->high_y) - fmaxf(a->low_y, b->low_y);
  if (!(w > 0 && h > 0 && a->area > 0 && b->area > 0)) return false;
  const float shared = w * h, all = a->area + b->area - shared;
  return shared > 0 && all > 0 && shared / all > threshold;
}

static bool better(const float *scores, int64_t a, int64_t b) {
  return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

static void sift_down(const float *scores, int64_t *heap, int64_t i,
                      int64_t n) {  // the best is at the root
  const int64_t moving = heap[i];
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && better(scores, heap[child + 1], heap[child])) child++;
    if (!better(scores, heap[child], moving)) break;
    heap[i] = heap[child];
  }
  heap[i] = moving;
}

ITG_FN(non_max_suppression, any) {
  if (part) return NULL;
  const itg_attrs_non_max_suppression *attrs = call->attrs;
  const itg_tensor *boxes = call->in[0], *scores = call->in[1];
  const int64_t n = boxes->shape[1], classes = scores->shape[1];
  int64_t *out = call->out[0]->data, rows = 0, *heap = call->scratch;
  if (!itg_empty(call->out[0])) {
    box *all = (box *)(heap + n);
    float *score = (float *)(all + n);
    for (int64_t pair = 0; pair < scores->shape[0] * classes; pair++) {
      const int64_t batch = pair / classes, first = rows;
      int64_t waiting = 0;
      if (pair % classes == 0)
        for (int64_t i = 0; i < n; i++)
          all[i] = box_of(boxes, batch * n + i, attrs->center_point_box != 0);
      for (int64_t i = 0; i < n; i++) {
        score[i] = (float)itg_load_f64(scores->dtype, scores->data, pair * n + i);
        if (score[i] > (float)attrs->score_threshold) heap[waiting++] = i;
      }
      for (int64_t i = waiting / 2; i-- > 0;) sift_down(score, heap, i, waiting);
      while (waiting && rows - first < attrs->max_output) {
        const int64_t best = heap[0];
        heap[0] = heap[--waiting];
        if (waiting) sift_down(score, heap, 0, waiting);
        bool keep = true;
        for (int64_t k = first; k < rows && keep; k++)
          keep = !overlap(&all[out[3 * k + 2]], &all[best], (float)attrs->iou_threshold);
        if (!keep) continue;
        out[3 * rows] = batch;
        out[3 * rows + 1] = pair % classes;
        out[3 * rows++ + 2] = best;
      }
    }
  }
  call->out[0]->shape[0] = rows;
  return NULL;
}

// ---- regions ------------------------------------------------------------------------------------
static itg_words check_regions(const itg_tensor *x, const itg_tensor *rois, int64_t columns) {
  REFUSE(x->rank != 4 || !itg_is_wide_float(x->dtype), "regions are pooled from images of floats");
  REFUSE(rois->dtype != x->dtype || rois->rank != 2 || rois->shape[1] != columns,
         "rois do not belong to the images");
  REFUSE(!x->shape[1] || !x->shape[2] || !x->shape[3], "there is nothing to pool");
  return NULL;
}

enum { AVG, MAX };
enum { HALF_PIXEL, OUTPUT_HALF_PIXEL };

itg_words itg_infer_roi_align(const itg_call *call, itg_tensor *out) {
  TAKES(3, 3, 1);
  const itg_attrs_roi_align *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *rois = call->in[1], *batch = call->in[2];
  itg_words wrong = check_regions(x, rois, 4);
  if (wrong) return wrong;
  REFUSE(batch->dtype != ITG_I64 || batch->rank != 1 || batch->shape[0] != rois->shape[0],
         "batch_indices must be one i64 per region");
  REFUSE(attrs->mode != AVG && attrs->mode != MAX, "mode must be avg or max");
  REFUSE(attrs->coordinate_transformation_mode != HALF_PIXEL &&
             attrs->coordinate_transformation_mode != OUTPUT_HALF_PIXEL,
         "coordinate_transformation_mode is unknown");
  REFUSE(attrs->output_height < 1 || attrs->output_width < 1,
         "the output must have at least one bin");
  REFUSE(attrs->sampling_ratio < 0 || attrs->sampling_ratio > 1024,
         "sampling_ratio must lie in [0, 1024]");
  itg_set_type(out, x->dtype, 4);
  out->shape[0] = rois->shape[0];
  out->shape[1] = x->shape[1];
  out->shape[2] = attrs->output_height;
  out->shape[3] = attrs->output_width;
  return NULL;
}

typedef struct bins {  // along one axis of a region
  float start, step;
  int64_t count;  // samples in a bin
} bins;

typedef struct sample {  // two neighbours and their weights
  int64_t low, high;
  float down, up;
} sample;

static bins bins_of(double from, double to, int64_t n, int64_t ratio, bool at_least_one) {
  const float start = (float)from, length = (float)to - start;
  const float step = (at_least_one && length < 1 ? 1 : length) / (float)n;
  int64_t count = ratio;
  if (!ratio) count = step > 0 ? itg_f64_to_i64(ceilf(step)) : 0;
  return (bins){start, step, count};
}

static inline sample sample_at(const bins *b, int64_t bin, int64_t i, int64_t extent) {
  const float within = ((float)i + 0.5f) * b->step / (float)b->count;
  const float at = b->start + (float)bin * b->step + within, top = (float)(extent - 1);
  if (!(at >= -1 && at <= (float)extent)) return (sample){0, 0, 0, 0};
  const float inside = at < 0 ? 0 : at > top ? top : at;
  const int64_t low = (int64_t)inside;
  const float up = inside - (float)low;
  return (sample){low, low + 1 < extent ? low + 1 : low, 1 - up, up};
}

// Pools one bin of one channel.
INLINE double pool_bin(uint8_t dtype, const void *data, int64_t plane, int64_t height,
                       int64_t width, const bins *rows, const bins *columns, int64_t r, int64_t c,
                       bool largest) {
  double total = 0, best = -INFINITY;
  for (int64_t i = 0; i < rows->count; i++) {
    const sample y = sample_at(rows, r, i, height);
    const int64_t low = plane + y.low * width, high = plane + y.high * width;
    for (int64_t j = 0; j < columns->count; j++) {
      const sample x = sample_at(columns, c, j, width);
      const double four[4] = {
          itg_load_f64(dtype, data, low + x.low) * (double)(y.down * x.down),
          itg_load_f64(dtype, data, low + x.high) * (double)(y.down * x.up),
          itg_load_f64(dtype, data, high + x.low) * (double)(y.up * x.down),
          itg_load_f64(dtype, data, high + x.high) * (double)(y.up * x.up),
      };
      total += four[0] + four[1] + four[2] + four[3];
      for (int k = 0; k < 4 && largest; k++) best = four[k] > best ? four[k] : best;
    }
  }
  const int64_t count = rows->count * columns->count;
  return !count ? 0 : largest ? best : total / (double)count;
}

INLINE itg_words align(const itg_call *call, uint8_t dtype, uint32_t part, uint32_t parts) {
  const itg_attrs_roi_align *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *rois = call->in[1], *out = call->out[0];
  const int64_t channels = x->shape[1], height = x->shape[2], width = x->shape[3];
  const int64_t oh = out->shape[2], ow = out->shape[3];
  const bool half = attrs->coordinate_transformation_mode == HALF_PIXEL;
  int64_t i, end;
  itg_share(itg_count_range(out, 0, 2), 1, part, parts, &i, &end);
  for (; i < end; i++) {
    const int64_t roi = i / channels, batch = ((const int64_t *)call->in[2]->data)[roi];
    REFUSE(batch < 0 || batch >= x->shape[0], "a batch index lies outside of the batch");
    double corner[4];
    for (int k = 0; k < 4; k++) {
      const double at = itg_load_f64(dtype, rois->data, 4 * roi + k);
      if (dtype == ITG_F64) corner[k] = at * attrs->spatial_scale - (half ? 0.5 : 0);
      else corner[k] = (float)at * (float)attrs->spatial_scale - (half ? 0.5f : 0.f);
    }
    const bins columns = bins_of(corner[0], corner[2], ow, attrs->sampling_ratio, !half);
    const bins rows = bins_of(corner[1], corner[3], oh, attrs->sampling_ratio, !half);
    REFUSE(rows.count > 8 * height + 256 || columns.count > 8 * width + 256,
           "a region is far larger than the image");
    const int64_t plane = (batch * channels + i % channels) * height * width;
    for (int64_t r = 0; r < oh; r++)
      for (int64_t c = 0; c < ow; c++)
        itg_store_f64(dtype, out->data, (i * oh + r) * ow + c,
                      pool_bin(dtype, x->data, plane, height, width, &rows, &columns, r, c,
                               attrs->mode == MAX));
  }
  return NULL;
}

ITG_FN(roi_align, any) { return align(call, call->in[0]->dtype, part, parts); }
ITG_FN(roi_align, f32) { return align(call, ITG_F32, part, parts); }

// ---- max_roi_pool -------------------------------------------------------------------------------
itg_words itg_infer_max_roi_pool(const itg_call *call, itg_tensor *out) {
  TAKES(2, 2, 1);
  const itg_attrs_max_roi_pool *attrs = call->attrs;
  itg_words wrong = check_regions(call->in[0], call->in[1], 5);
  if (wrong) return wrong;
  REFUSE(attrs->n_pooled_shape != 2 || attrs->pooled_shape[0] < 1 || attrs->pooled_shape[1] < 1,
         "pooled_shape must be a height and a width above 0");
  itg_set_type(out, call->in[0]->dtype, 4);
  out->shape[0] = call->in[1]->shape[0];
  out->shape[1] = call->in[0]->shape[1];
  out->shape[2] = attrs->pooled_shape[0];
  out->shape[3] = attrs->pooled_shape[1];
  return NULL;
}

// The pixels [*from, *to) of bin i, if pixels start to end are split into n bins.
static void bin_of(int64_t start, int64_t end, int64_t n, int64_t i, int64_t extent, int64_t *from,
                   int64_t *to) {
  const float size = (float)(end - start + 1 > 1 ? end - start + 1 : 1) / (float)n;
  const int64_t low = itg_f64_to_i64(floorf((float)i * size)) + start;
  const int64_t high = itg_f64_to_i64(ceilf((float)(i + 1) * size)) + start;
  *from = low < 0 ? 0 : low > extent ? extent : low;
  *to = high < 0 ? 0 : high > extent ? extent : high;
}

ITG_FN(max_roi_pool, any) {
  const itg_attrs_max_roi_pool *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *rois = call->in[1], *out = call->out[0];
  const int64_t channels = x->shape[1], height = x->shape[2], width = x->shape[3];
  const int64_t oh = out->shape[2], ow = out->shape[3];
  const int64_t limit = INT64_C(1) << 40;
  int64_t i, end;
  itg_share(itg_count_range(out, 0, 2), 1, part, parts, &i, &end);
  for (; i < end; i++) {
    int64_t corner[4];
    const double batch = itg_load_f64(x->dtype, rois->data, 5 * (i / channels));
    REFUSE(!(batch > -1 && batch < (double)x->shape[0]), "a batch index lies outside of the batch");
    for (int k = 0; k < 4; k++) {
      double at = itg_load_f64(x->dtype, rois->data, 5 * (i / channels) + 1 + k);
      if (x->dtype == ITG_F64)
        at = at * attrs->spatial_scale + copysign(0.5, at * attrs->spatial_scale);
      else
        at = (float)at * (float)attrs->spatial_scale +
             copysignf(0.5f, (float)at * (float)attrs->spatial_scale);
      REFUSE(!(fabs(at) < (double)limit), "a region is not sane");
      corner[k] = (int64_t)at;
    }
    const int64_t plane = ((int64_t)batch * channels + i % channels) * height * width;
    for (int64_t r = 0; r < oh; r++)
      for (int64_t c = 0; c < ow; c++) {
        int64_t top, bottom, left, right;
        bin_of(corner[1], corner[3], oh, r, height, &top, &bottom);
        bin_of(corner[0], corner[2], ow, c, width, &left, &right);
        double best = top < bottom && left < right ? -INFINITY : 0;
        for (int64_t row = top; row < bottom; row++)
          for (int64_t column = left; column < right; column++) {
            const double v = itg_load_f64(x->dtype, x->data, plane + row * width + column);
            best = v > best || v != v ? v : best;
          }
        itg_store_f64(out->dtype, out->data, (i * oh + r) * ow + c, best);
      }
  }
  return NULL;
}
