// nncase's interpreter as K230 demos use it.
//
//   interpreter MODEL INPUT.bin OUTPUT.bin
#include <nncase/runtime/interpreter.h>
#include <nncase/runtime/runtime_op_utility.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <vector>

using namespace nncase;
using namespace nncase::runtime;
using namespace nncase::runtime::detail;

static std::vector<char> read(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static bool refusals(const char *path, const std::vector<char> &kmodel) {
  interpreter interp;
  const char vendor[] = "LDMK and more";
  std::ifstream none("nothing.kmodel", std::ios::binary);
  if (interp.load_model(none).is_ok() || interp.run().is_ok()) return false;
  if (interp.load_model({reinterpret_cast<const gsl::byte *>(vendor), sizeof vendor}).is_ok())
    return false;
  if (interp.load_model({reinterpret_cast<const gsl::byte *>(path), 3}).is_ok()) return false;
  interp.load_model({reinterpret_cast<const gsl::byte *>(kmodel.data()), kmodel.size()}).unwrap();
  try {
    interp.output_tensor(0).unwrap_or_throw();
    return false;
  } catch (const std::runtime_error &) {
  }
  auto wrong = host_runtime_tensor::create(dt_float64, {1}).unwrap();
  return interp.input_tensor(9).is_err() && interp.input_tensor(0, wrong).is_err() &&
         interp.output_tensor(9).is_err() && interp.inputs_size() == 1;
}

int main(int argc, char *argv[]) {
  if (argc != 4) return 1;
  interpreter interp;
  std::ifstream ifs(argv[1], std::ios::binary);
  interp.load_model(ifs).expect("Invalid kmodel");
  auto data = read(argv[2]);
  for (size_t i = 0; i < interp.inputs_size(); i++) {
    auto desc = interp.input_desc(i);
    auto shape = interp.input_shape(i);
    auto tensor =
        host_runtime_tensor::create(desc.datatype, shape, hrt::pool_shared).expect("no tensor");
    auto buf = tensor.impl()
                   ->to_host()
                   .unwrap()
                   ->buffer()
                   .as_host()
                   .unwrap()
                   .map(map_access_::map_write)
                   .unwrap()
                   .buffer();
    if (buf.size() != data.size() || desc.size != data.size()) return 1;
    memcpy(reinterpret_cast<char *>(buf.data()), data.data(), data.size());
    hrt::sync(tensor, sync_op_t::sync_write_back, true).expect("sync write_back failed");
    interp.input_tensor(i, tensor).expect("cannot set input tensor");
  }
  auto out = host_runtime_tensor::create(interp.output_desc(0).datatype, interp.output_shape(0));
  interp.set_profiling(1);
  interp.run().expect("error occurred in running model");
  std::ofstream to(argv[3], std::ios::binary);
  for (size_t i = 0; i < interp.outputs_size(); i++) {
    auto tensor = interp.output_tensor(i).expect("cannot get output tensor");
    auto buf = hrt::map(tensor, map_access_::map_read).unwrap().buffer();
    to.write(reinterpret_cast<const char *>(buf.data()), std::streamsize(buf.size()));
    std::cout << "output " << i << ": " << buf.size() << " bytes, " << tensor.shape().size()
              << " axes\n";
  }
  // again, into a tensor of our own, with an interpreter that was moved and a copy of the input
  interpreter moved = std::move(interp);
  auto tensor = host_runtime_tensor::create(
                    moved.input_desc(0).datatype, moved.input_shape(0),
                    {reinterpret_cast<gsl::byte *>(data.data()), data.size()}, true)
                    .unwrap_or_throw();
  moved.input_tensor(0, tensor).unwrap_or_throw();
  moved.output_tensor(0, out.unwrap()).unwrap_or_throw();
  moved.run().unwrap_or_throw();
  auto span = hrt::buffer(moved.output_tensor(0).unwrap()).unwrap();
  if (hrt::map(moved.output_tensor(0).unwrap(), hrt::map_read).unwrap().buffer().data() !=
      span.data())
    return 1;
  to.write(reinterpret_cast<const char *>(span.data()), std::streamsize(span.size()));
  return refusals(argv[0], read(argv[1])) ? 0 : 2;
}
