// AI2D, the K230's unit that prepares pictures: crop, shift, resize or affine, pad, in this order.
// The unit rounds in fixed point, so that its pixels may differ from these by one.
#pragma once
// clang-format off: this is C++, the rules are for C
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "../../runtime/runtime_tensor.h"

namespace nncase {
struct padding {
  int32_t before = 0;
  int32_t after = 0;
  int32_t interior = 0;
};
using paddings_t = std::vector<padding>;
namespace runtime {
using runtime_paddings_t = nncase::paddings_t;  // of older programs
}
}  // namespace nncase

namespace nncase::F::k230 {
enum class ai2d_format { YUV420_NV12, YUV420_NV21, YUV420_I420, NCHW_FMT, RGB_packed, RAW16 };
enum class ai2d_interp_method { tf_nearest, tf_bilinear, cv2_nearest, cv2_bilinear };
enum class ai2d_interp_mode { none, align_corner, half_pixel };
enum class ai2d_pad_mode { constant, copy, mirror };
enum class ai2d_data_loc { ddr, sram };

struct ai2d_datatype_t {
  ai2d_format src_format;
  ai2d_format dst_format;
  datatype_t src_type;
  datatype_t dst_type;
  ai2d_data_loc src_loc = ai2d_data_loc::ddr;
  ai2d_data_loc dst_loc = ai2d_data_loc::ddr;
};
struct ai2d_crop_param_t {
  bool crop_flag = false;
  int32_t start_x = 0;
  int32_t start_y = 0;
  int32_t width = 0;
  int32_t height = 0;
};
struct ai2d_shift_param_t {
  bool shift_flag = false;
  int32_t shift_val = 0;
};
struct ai2d_pad_param_t {
  bool pad_flag = false;
  paddings_t paddings{};
  ai2d_pad_mode pad_mode = ai2d_pad_mode::constant;
  std::vector<int32_t> pad_val{};
};
struct ai2d_resize_param_t {
  bool resize_flag = false;
  ai2d_interp_method interp_method = ai2d_interp_method::tf_bilinear;
  ai2d_interp_mode interp_mode = ai2d_interp_mode::none;
};
struct ai2d_affine_param_t {
  bool affine_flag = false;
  ai2d_interp_method interp_method = ai2d_interp_method::tf_bilinear;
  uint32_t cord_round = 0;
  uint32_t bound_ind = 0;  // 1: outside are the pixels of the edge, not bound_val
  int32_t bound_val = 0;
  uint32_t bound_smooth = 0;  // pixels at the edge mix with those outside
  std::vector<float> M{};     // input to output coordinates: [a0, a1, b0, a2, a3, b1]
};

// Prepares pictures of one shape. build_schedule() checks the parameters, invoke() computes.
class ai2d_builder {
 public:
  ai2d_builder(dims_t input_shape, dims_t output_shape, ai2d_datatype_t types,
               ai2d_crop_param_t crop, ai2d_shift_param_t shift, ai2d_pad_param_t pad,
               ai2d_resize_param_t resize, ai2d_affine_param_t affine)
      : in_(std::move(input_shape)), out_(std::move(output_shape)), types_(types), crop_(crop),
        shift_(shift), pad_(std::move(pad)), resize_(resize), affine_(std::move(affine)) {}

  result<void> build_schedule() {
    ready_ = false;
    if (!extents(in_, types_.src_format, from_) || !extents(out_, types_.dst_format, to_))
      return refuse("a shape does not fit its format; NCHW is {1, c, h, w}, packed {1, h, w, c}, "
                    "YUV {1, 1, h * 3 / 2, w}");
    if (from_.c != to_.c) return refuse("input and output have different numbers of channels");
    if (!element(types_.src_type) || !element(types_.dst_type))
      return refuse("element types are dt_uint8, dt_int8, dt_uint16, dt_int16 and dt_float32");
    if (yuv(types_.dst_format) && types_.dst_format != types_.src_format)
      return refuse("only YUV becomes YUV; give NCHW_FMT as dst_format");
    long width = from_.w, height = from_.h;
    if (crop_.crop_flag) {
      if (crop_.start_x < 0 || crop_.start_y < 0 || crop_.width < 1 || crop_.height < 1 ||
          crop_.start_x + long(crop_.width) > width || crop_.start_y + long(crop_.height) > height)
        return refuse("the crop leaves the input");
      width = crop_.width, height = crop_.height;
    }
    if (shift_.shift_flag && (shift_.shift_val < 0 || shift_.shift_val > 15))
      return refuse("shift_val is 0 to 15 bits");
    sides_ = {0, 0, 0, 0};
    if (pad_.pad_flag) {
      if (pad_.paddings.size() != 4) return refuse("paddings are of four axes");
      for (size_t i = 0; i < 4; i++) {
        const auto &p = pad_.paddings[i];
        if (p.before < 0 || p.after < 0 || (i < 2 && (p.before || p.after)))
          return refuse("paddings are not negative, and 0 for the first two axes");
      }
      sides_ = {pad_.paddings[2].before, pad_.paddings[2].after, pad_.paddings[3].before,
                pad_.paddings[3].after};
      const size_t values = pad_.pad_val.size();
      if (pad_.pad_mode == ai2d_pad_mode::constant && values != 1 && values != size_t(to_.c))
        return refuse("pad_val needs a number for each channel");
    }
    inner_ = {to_.c, to_.h - sides_[0] - sides_[1], to_.w - sides_[2] - sides_[3]};
    if (inner_.h < 1 || inner_.w < 1) return refuse("the border is larger than the output");
    if (resize_.resize_flag && affine_.affine_flag)
      return refuse("resize and affine exclude each other");
    if (affine_.affine_flag) {
      if (affine_.M.size() != 6) return refuse("M has six numbers");
      const auto &m = affine_.M;
      for (float x : m)
        if (!std::isfinite(x)) return refuse("M has a number that is not finite");
      if (std::fabs(double(m[0]) * m[4] - double(m[1]) * m[3]) < 1e-12)
        return refuse("M maps everything onto a line");
    } else if (!resize_.resize_flag && (inner_.h != height || inner_.w != width)) {
      return refuse("without resize, the output has the size of the input and its border");
    }
    ready_ = true;
    return ok();
  }

  result<void> invoke(runtime::runtime_tensor &input, runtime::runtime_tensor &output) {
    if (!ready_) return refuse("call build_schedule() first");
    if (input.empty() || output.empty() ||
        input.impl()->bytes().size() != runtime::get_bytes(types_.src_type, in_) ||
        output.impl()->bytes().size() != runtime::get_bytes(types_.dst_type, out_))
      return refuse("a tensor has another size than was built");
    planes p = read(input.impl()->bytes().data());
    if (crop_.crop_flag) p = cropped(p);
    if (shift_.shift_flag)
      for (float &x : p.data) x = std::floor(x / float(1 << shift_.shift_val));
    if (resize_.resize_flag) p = resized(p);
    else if (affine_.affine_flag) p = warped(p);
    if (pad_.pad_flag) p = bordered(p);
    write(p, output.impl()->bytes().data());
    return ok();
  }

 private:
  struct extent {
    long c = 0, h = 0, w = 0;
  };
  struct planes {
    extent size;
    std::vector<float> data;
    explicit planes(extent e) : size(e), data(size_t(e.c * e.h * e.w)) {}
    float &at(long c, long y, long x) { return data[size_t((c * size.h + y) * size.w + x)]; }
    float at(long c, long y, long x) const {
      return data[size_t((c * size.h + y) * size.w + x)];
    }
  };

  static result<void> refuse(const char *why) {
    std::fprintf(stderr, "E nncase: ai2d_builder: %s\n", why);
    return err(std::errc::invalid_argument);
  }
  static bool yuv(ai2d_format f) { return f <= ai2d_format::YUV420_I420; }
  static bool element(datatype_t t) {
    return t == dt_uint8 || t == dt_int8 || t == dt_uint16 || t == dt_int16 || t == dt_float32;
  }
  static bool nearest(ai2d_interp_method m) {
    return m == ai2d_interp_method::tf_nearest || m == ai2d_interp_method::cv2_nearest;
  }
  static bool extents(const dims_t &s, ai2d_format f, extent &e) {
    if (s.size() != 4 || s[0] != 1) return false;
    for (size_t d : s)
      if (!d || d > 65536) return false;
    if (f == ai2d_format::RGB_packed) {
      e = {long(s[3]), long(s[1]), long(s[2])};
    } else if (yuv(f)) {
      if (s[1] != 1 || s[2] % 3 || s[3] % 2) return false;
      e = {3, long(s[2]) * 2 / 3, long(s[3])};
    } else {
      e = {long(s[1]), long(s[2]), long(s[3])};
    }
    return true;
  }

  template <class T>
  static float loaded(const void *data, size_t i) {
    return float(static_cast<const T *>(data)[i]);
  }
  static float load(const void *data, datatype_t t, size_t i) {
    switch (t) {
      case dt_uint8: return loaded<uint8_t>(data, i);
      case dt_int8: return loaded<int8_t>(data, i);
      case dt_uint16: return loaded<uint16_t>(data, i);
      case dt_int16: return loaded<int16_t>(data, i);
      default: return loaded<float>(data, i);
    }
  }
  template <class T>
  static void stored(void *data, size_t i, float x) {
    const float low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    static_cast<T *>(data)[i] = T(std::clamp(std::floor(x + 0.5f), low, high));
  }
  static void store(void *data, datatype_t t, size_t i, float x) {
    switch (t) {
      case dt_uint8: stored<uint8_t>(data, i, x); break;
      case dt_int8: stored<int8_t>(data, i, x); break;
      case dt_uint16: stored<uint16_t>(data, i, x); break;
      case dt_int16: stored<int16_t>(data, i, x); break;
      default: static_cast<float *>(data)[i] = x;
    }
  }

  // Where a pixel's U and V are in YUV420 of h rows.
  static std::array<size_t, 2> chroma(ai2d_format f, extent e, long y, long x) {
    const size_t first = size_t(e.h * e.w), i = size_t((y / 2) * (e.w / 2) + x / 2);
    if (f == ai2d_format::YUV420_I420) return {first + i, first + i + first / 4};
    if (f == ai2d_format::YUV420_NV12) return {first + 2 * i, first + 2 * i + 1};
    return {first + 2 * i + 1, first + 2 * i};
  }

  planes read(const void *data) const {
    const ai2d_format f = types_.src_format;
    planes p(from_);
    const extent e = from_;
    for (long y = 0; y < e.h; y++)
      for (long x = 0; x < e.w; x++) {
        if (!yuv(f)) {
          for (long c = 0; c < e.c; c++)
            p.at(c, y, x) = load(data, types_.src_type,
                                 f == ai2d_format::RGB_packed ? size_t((y * e.w + x) * e.c + c)
                                                              : size_t((c * e.h + y) * e.w + x));
          continue;
        }
        const auto uv = chroma(f, e, y, x);
        const float luma = load(data, types_.src_type, size_t(y * e.w + x));
        const float u = load(data, types_.src_type, uv[0]) - 128;
        const float v = load(data, types_.src_type, uv[1]) - 128;
        const float rgb[] = {luma + 1.402f * v, luma - 0.344136f * u - 0.714136f * v,
                             luma + 1.772f * u};
        for (long c = 0; c < 3; c++)
          p.at(c, y, x) = std::clamp(std::floor(rgb[c] + 0.5f), 0.f, 255.f);
      }
    return p;
  }

  void write(const planes &p, void *data) const {
    const ai2d_format f = types_.dst_format;
    const extent e = p.size;
    if (!yuv(f)) {
      for (long c = 0; c < e.c; c++)
        for (long y = 0; y < e.h; y++)
          for (long x = 0; x < e.w; x++)
            store(data, types_.dst_type,
                  f == ai2d_format::RGB_packed ? size_t((y * e.w + x) * e.c + c)
                                               : size_t((c * e.h + y) * e.w + x),
                  p.at(c, y, x));
      return;
    }
    std::vector<float> sums(size_t(e.h * e.w / 2));  // of four pixels each
    const size_t first = size_t(e.h * e.w);
    for (long y = 0; y < e.h; y++)
      for (long x = 0; x < e.w; x++) {
        const float r = p.at(0, y, x), g = p.at(1, y, x), b = p.at(2, y, x);
        const float luma = 0.299f * r + 0.587f * g + 0.114f * b;
        store(data, types_.dst_type, size_t(y * e.w + x), luma);
        const auto uv = chroma(f, e, y, x);
        sums[uv[0] - first] += (b - luma) / 1.772f;
        sums[uv[1] - first] += (r - luma) / 1.402f;
      }
    for (size_t i = 0; i < sums.size(); i++)
      store(data, types_.dst_type, first + i, sums[i] / 4 + 128);
  }

  planes cropped(const planes &p) const {
    planes q({p.size.c, crop_.height, crop_.width});
    for (long c = 0; c < q.size.c; c++)
      for (long y = 0; y < q.size.h; y++)
        for (long x = 0; x < q.size.w; x++)
          q.at(c, y, x) = p.at(c, y + crop_.start_y, x + crop_.start_x);
    return q;
  }

  // The coordinate in the input of an output pixel along one axis.
  double place(long i, long extent, long out) const {
    const bool near = nearest(resize_.interp_method);
    double at = double(i) * (double(extent) / double(out));
    if (resize_.interp_mode == ai2d_interp_mode::align_corner) {
      at = double(i) * (double(extent - 1) / double(std::max(out - 1, 1L)));
      if (near) at = std::floor(at + 0.5);
    } else if (resize_.interp_mode == ai2d_interp_mode::half_pixel ||
               resize_.interp_method == ai2d_interp_method::cv2_bilinear) {
      at = (double(i) + 0.5) * (double(extent) / double(out)) - (near ? 0 : 0.5);
    }
    return std::clamp(near ? std::floor(at) : at, 0.0, double(extent - 1));
  }

  planes resized(const planes &p) const {
    planes q(inner_);
    const long lasty = p.size.h - 1, lastx = p.size.w - 1;
    std::vector<double> columns(size_t(inner_.w));
    for (long x = 0; x < inner_.w; x++) columns[size_t(x)] = place(x, p.size.w, inner_.w);
    for (long y = 0; y < inner_.h; y++) {
      const double sy = place(y, p.size.h, inner_.h);
      const long y0 = long(sy), y1 = std::min(y0 + 1, lasty);
      const float v = float(sy - double(y0));
      for (long x = 0; x < inner_.w; x++) {
        const double sx = columns[size_t(x)];
        const long x0 = long(sx), x1 = std::min(x0 + 1, lastx);
        const float u = float(sx - double(x0));
        for (long c = 0; c < p.size.c; c++) {
          const float a = p.at(c, y0, x0) + (p.at(c, y1, x0) - p.at(c, y0, x0)) * v;
          const float b = p.at(c, y0, x1) + (p.at(c, y1, x1) - p.at(c, y0, x1)) * v;
          q.at(c, y, x) = a + (b - a) * u;
        }
      }
    }
    return q;
  }

  planes warped(const planes &p) const {
    planes q(inner_);
    const auto &m = affine_.M;
    const double det = double(m[0]) * m[4] - double(m[1]) * m[3];
    const bool near = nearest(affine_.interp_method), edge = affine_.bound_ind != 0;
    const double half =
        affine_.cord_round || affine_.interp_method == ai2d_interp_method::cv2_nearest ? 0.5 : 0;
    auto pixel = [&](long c, long y, long x) {
      const bool inside = y >= 0 && y < p.size.h && x >= 0 && x < p.size.w;
      if (!inside && !edge) return float(affine_.bound_val);
      return p.at(c, std::clamp(y, 0L, p.size.h - 1), std::clamp(x, 0L, p.size.w - 1));
    };
    for (long y = 0; y < inner_.h; y++)
      for (long x = 0; x < inner_.w; x++) {
        const double dx = double(x) - m[2], dy = double(y) - m[5];
        const double sx = std::clamp((m[4] * dx - m[1] * dy) / det, -1e9, 1e9);
        const double sy = std::clamp((m[0] * dy - m[3] * dx) / det, -1e9, 1e9);
        if (near) {
          const long row = long(std::floor(sy + half)), column = long(std::floor(sx + half));
          for (long c = 0; c < p.size.c; c++) q.at(c, y, x) = pixel(c, row, column);
          continue;
        }
        const long row = long(std::floor(sy)), column = long(std::floor(sx));
        const float v = float(sy - double(row)), u = float(sx - double(column));
        const bool inside = sy >= 0 && sy <= double(p.size.h - 1) && sx >= 0 &&
                            sx <= double(p.size.w - 1);
        for (long c = 0; c < p.size.c; c++) {
          const float top = pixel(c, row, column) * (1 - u) + pixel(c, row, column + 1) * u;
          const float low = pixel(c, row + 1, column) * (1 - u) + pixel(c, row + 1, column + 1) * u;
          q.at(c, y, x) = inside || edge || affine_.bound_smooth ? top * (1 - v) + low * v
                                                                 : float(affine_.bound_val);
        }
      }
    return q;
  }

  static long mirrored(long i, long extent) {
    if (extent == 1) return 0;
    const long period = 2 * (extent - 1), at = ((i % period) + period) % period;
    return at < extent ? at : period - at;
  }

  planes bordered(const planes &p) const {
    planes q(to_);
    for (long c = 0; c < to_.c; c++)
      for (long y = 0; y < to_.h; y++)
        for (long x = 0; x < to_.w; x++) {
          long row = y - sides_[0], column = x - sides_[2];
          const bool inside = row >= 0 && row < p.size.h && column >= 0 && column < p.size.w;
          if (!inside && pad_.pad_mode == ai2d_pad_mode::constant) {
            q.at(c, y, x) = float(pad_.pad_val[pad_.pad_val.size() == 1 ? 0 : size_t(c)]);
            continue;
          }
          if (pad_.pad_mode == ai2d_pad_mode::mirror) {
            row = mirrored(row, p.size.h), column = mirrored(column, p.size.w);
          }
          q.at(c, y, x) = p.at(c, std::clamp(row, 0L, p.size.h - 1),
                               std::clamp(column, 0L, p.size.w - 1));
        }
    return q;
  }

  dims_t in_, out_;
  ai2d_datatype_t types_;
  ai2d_crop_param_t crop_;
  ai2d_shift_param_t shift_;
  ai2d_pad_param_t pad_;
  ai2d_resize_param_t resize_;
  ai2d_affine_param_t affine_;
  extent from_, to_, inner_;
  std::array<long, 4> sides_{};  // top, bottom, left, right
  bool ready_ = false;
};
}  // namespace nncase::F::k230
