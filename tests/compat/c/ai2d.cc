// nncase's AI2D as K230 demos use it: four ways to prepare a picture, and what it refuses.
//
//   ai2d PICTURE.bin NV12.bin OUTPUT.bin
#include <nncase/functional/ai2d/ai2d_builder.h>
#include <nncase/runtime/interpreter.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

using namespace nncase;
using namespace nncase::runtime;
using namespace nncase::runtime::k230;
using namespace nncase::F::k230;

static std::vector<char> read(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static runtime_tensor filled(const dims_t &shape, const std::vector<char> &data) {
  auto made = host_runtime_tensor::create(typecode_t::dt_uint8, shape, hrt::pool_shared)
                  .expect("cannot create input tensor");
  auto bytes = hrt::map(made, map_access_::map_write).unwrap().buffer();
  memcpy(bytes.data(), data.data(), std::min(bytes.size(), data.size()));
  hrt::sync(made, sync_op_t::sync_write_back, true).expect("write back input failed");
  return made;
}

int main(int argc, char *argv[]) {
  if (argc != 4) return 1;
  const dims_t shape{1, 3, 24, 32}, wide{1, 3, 40, 40};
  runtime_tensor picture = filled(shape, read(argv[1]));
  runtime_tensor camera = filled({1, 1, 36, 32}, read(argv[2]));
  std::ofstream to(argv[3], std::ios::binary);
  const ai2d_datatype_t planar{ai2d_format::NCHW_FMT, ai2d_format::NCHW_FMT, picture.datatype(),
                               typecode_t::dt_uint8};
  const ai2d_datatype_t nv12{ai2d_format::YUV420_NV12, ai2d_format::NCHW_FMT, typecode_t::dt_uint8,
                             typecode_t::dt_uint8};
  ai2d_crop_param_t crop{false, 0, 0, 0, 0}, part{true, 4, 2, 20, 16};
  ai2d_shift_param_t shift{false, 0};
  ai2d_pad_param_t none{false, {{0, 0}, {0, 0}, {0, 0}, {0, 0}}, ai2d_pad_mode::constant, {0}};
  ai2d_pad_param_t border{true, {{0, 0}, {0, 0}, {5, 5}, {0, 0}}, ai2d_pad_mode::constant,
                          {114, 100, 90}};
  ai2d_resize_param_t resize{true, ai2d_interp_method::tf_bilinear, ai2d_interp_mode::half_pixel};
  ai2d_resize_param_t nearest{true, ai2d_interp_method::tf_nearest, ai2d_interp_mode::none};
  ai2d_resize_param_t off{false, ai2d_interp_method::tf_bilinear, ai2d_interp_mode::half_pixel};
  ai2d_affine_param_t flat{false, ai2d_interp_method::cv2_bilinear, 0, 0, 127, 1,
                           {0.5f, 0.1f, 0.0f, 0.1f, 0.5f, 0.0f}};
  ai2d_affine_param_t turn{true, ai2d_interp_method::cv2_bilinear, 0, 0, 127, 1,
                           {1.2f, 0.3f, 2.0f, -0.2f, 1.1f, 3.0f}};
  std::vector<ai2d_builder> builders;
  builders.emplace_back(shape, wide, planar, crop, shift, border, resize, flat);
  builders.emplace_back(shape, wide, planar, part, shift, none, nearest, flat);
  builders.emplace_back(shape, wide, planar, crop, shift, none, off, turn);
  builders.emplace_back(dims_t{1, 1, 36, 32}, wide, nv12, crop, shift, none, resize, flat);
  for (size_t i = 0; i < builders.size(); i++) {
    auto out = filled(wide, {});
    builders[i].build_schedule().expect("build_schedule failed");
    builders[i].invoke(i == 3 ? camera : picture, out).expect("error occurred in ai2d running");
    auto bytes = hrt::map(out, map_access_::map_read).unwrap().buffer();
    to.write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
  }
  auto wrong = std::make_unique<ai2d_builder>(shape, wide, planar, crop, shift, none, off, flat);
  ai2d_builder both(shape, wide, planar, crop, shift, none, resize, turn);
  auto out = filled(shape, {});
  return wrong->build_schedule().is_err() && wrong->invoke(picture, out).is_err() &&
                 both.build_schedule().is_err() && builders[0].invoke(picture, out).is_err()
             ? 0
             : 2;
}
