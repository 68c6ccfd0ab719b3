// Deformable convolution over `real`: the taps of up to ITG_DEFORM_ROWS outputs are sampled into
// rows, then multiplied with the weights. Included once for float and once for double; the includer
// defines real, dots, load and store.
typedef struct places {  // sampling coordinates of one output and one offset group
  const itg_tensor *x, *offset, *mask;
  const itg_attrs_deform_conv *attrs;
  int64_t kh, kw, oh, ow;
} places;

static real bilinear(const itg_tensor *x, int64_t plane, double y, double z) {
  const int64_t height = x->shape[2], width = x->shape[3];
  if (!(y > -1 && y < (double)height && z > -1 && z < (double)width)) return 0;
  const double low_y = floor(y), low_x = floor(z);
  real sum = 0;
  for (int dy = 0; dy < 2; dy++)
    for (int dx = 0; dx < 2; dx++) {
      const double row = low_y + dy, column = low_x + dx;
      if (row < 0 || row >= (double)height || column < 0 || column >= (double)width) continue;
      const double weight = (1 - fabs(y - row)) * (1 - fabs(z - column));
      sum += (real)weight * load(x, plane + (int64_t)row * width + (int64_t)column);
    }
  return sum;
}

// Samples all channels and taps of output number `at` of image n.
static void sample_row(const places *p, int64_t n, int64_t at, real *row) {
  const int64_t channels = p->x->shape[1], image = p->x->shape[2] * p->x->shape[3];
  const int64_t taps = p->kh * p->kw, groups = p->attrs->offset_groups, outputs = p->oh * p->ow;
  for (int64_t c = 0; c < channels; c++) {
    const int64_t group = n * groups + c / (channels / groups);
    for (int64_t t = 0; t < taps; t++) {
      const int64_t first = (group * taps + t) * 2 * outputs + at;
      const double y = (double)load(p->offset, first) +
                       (double)(at / p->ow * p->attrs->stride[0] - p->attrs->pad[0] +
                                t / p->kw * p->attrs->dilation[0]);
      const double z = (double)load(p->offset, first + outputs) +
                       (double)(at % p->ow * p->attrs->stride[1] - p->attrs->pad[1] +
                                t % p->kw * p->attrs->dilation[1]);
      const real v = bilinear(p->x, (n * channels + c) * image, y, z);
      row[c * taps + t] = p->mask ? v * load(p->mask, (group * taps + t) * outputs + at) : v;
    }
  }
}

static itg_words deform(const itg_call *call, const real *weights, real *scratch, uint32_t part,
                        uint32_t parts) {
  const itg_attrs_deform_conv *attrs = call->attrs;
  const itg_tensor *x = call->in[0], *w = call->in[1], *bias = itg_input(call, 3),
                   *out = call->out[0];
  const places p = {x,           call->in[2], itg_input(call, 4), attrs,
                    w->shape[2], w->shape[3], out->shape[2],      out->shape[3]};
  const int64_t outputs = p.oh * p.ow, channels = w->shape[0], each = channels / attrs->groups;
  const int64_t depth = itg_count_range(w, 1, 4),
                row = depth * attrs->groups;  // all taps of one output
  real *sampled = scratch, *sums = scratch + ITG_DEFORM_ROWS * row;
  int64_t at, end;
  itg_share(x->shape[0] * outputs, 1, part, parts, &at, &end);
  while (at < end) {
    const int64_t n = at / outputs, left = (n + 1) * outputs - at,
                  most = end - at < left ? end - at : left;
    const int64_t m = most < ITG_DEFORM_ROWS ? most : ITG_DEFORM_ROWS;
    for (int64_t i = 0; i < m; i++) {
      sample_row(&p, n, at % outputs + i, sampled + i * row);
      for (int64_t k = 0; k < channels; k++) sums[i * channels + k] = bias ? load(bias, k) : 0;
    }
    for (int64_t g = 0; g < attrs->groups; g++) {
      const real *rows[ITG_DEFORM_ROWS];
      real *results[ITG_DEFORM_ROWS];
      for (int64_t i = 0; i < m; i++) {
        rows[i] = sampled + i * row + g * depth;
        results[i] = sums + i * channels + g * each;
      }
      dots(rows, m, weights + g * each * depth, each, depth, results);
    }
    for (int64_t k = 0; k < channels; k++)
      for (int64_t i = 0; i < m; i++)
        store(out, (n * channels + k) * outputs + at % outputs + i, sums[i * channels + k]);
    at += m;
  }
  return NULL;
}
