// nncase's interpreter over Intaglio's runtime, for C++17: link with -lintaglio.
//
//   nncase::runtime::interpreter interp;
//   std::ifstream file("model.kmodel", std::ios::binary);
//   interp.load_model(file).expect("Invalid kmodel");
//   auto x = host_runtime_tensor::create(interp.input_desc(0).datatype, interp.input_shape(0))
//                .expect("cannot create input tensor");
//   auto bytes = hrt::map(x, map_write).unwrap().buffer();      // bytes.data(), bytes.size()
//   interp.input_tensor(0, x).expect("cannot set input tensor");
//   interp.run().expect("error occurred in running model");
//   auto y = interp.output_tensor(0).expect("cannot get output tensor");
//
// Models are what Compiler.gencode_tobytes of intaglio.compat.nncase writes, or any package of
// Intaglio. Errors are results; one line on standard error says what is wrong and the remedy.
#pragma once
// clang-format off: this is C++, the rules are for C
#include <istream>
#include <iterator>

#include "intaglio.h"
#include "runtime_op_utility.h"
#include "runtime_tensor.h"

namespace nncase::runtime {
struct tensor_desc {
  typecode_t datatype;
  size_t start;  // 0: tensors have memory of their own
  size_t size;   // bytes
};

class interpreter {
 public:
  interpreter() noexcept = default;
  interpreter(const interpreter &) = delete;
  interpreter &operator=(const interpreter &) = delete;
  interpreter(interpreter &&other) noexcept { *this = std::move(other); }
  interpreter &operator=(interpreter &&other) noexcept {
    std::swap(model_, other.model_);
    std::swap(session_, other.session_);
    bytes_.swap(other.bytes_);
    inputs_.swap(other.inputs_);
    outputs_.swap(other.outputs_);
    made_.swap(other.made_);
    return *this;
  }
  ~interpreter() { close(); }

  result<void> load_model(gsl::span<const gsl::byte> buffer, bool = false) noexcept {
    close();
    if (buffer.size() >= 4 && !std::memcmp(buffer.data(), "LDMK", 4))
      return fail("load_model", std::errc::invalid_argument,
                  "the kmodel was written by nncase: it holds commands for a chip; compile the "
                  "original model with intaglio.compat.nncase");
    bytes_.assign(buffer.begin(), buffer.end());  // the caller may free it
    itg_error error = {};
    const itg_options options = [] {
      itg_options o = {};
      o.plan = ITG_ANY_PLAN;
      return o;
    }();
    itg_status status = itg_model_open(bytes_.data(), bytes_.size(), 0, &model_, &error);
    if (!status) status = itg_session_create(model_, &options, &session_, &error);
    if (status) {
      close();
      return fail("load_model", std::errc::invalid_argument, error.words);
    }
    inputs_.resize(inputs_size());
    outputs_.resize(outputs_size());
    made_.resize(outputs_size());
    return ok();
  }

  result<void> load_model(std::istream &stream) noexcept {
    const std::string all{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (all.empty())
      return fail("load_model", std::errc::no_such_file_or_directory,
                  "the stream is empty; check the path of the model");
    return load_model(
        gsl::span<const gsl::byte>(reinterpret_cast<const gsl::byte *>(all.data()), all.size()));
  }

  size_t inputs_size() const noexcept { return itg_model_inputs(model_, 0); }
  size_t outputs_size() const noexcept { return itg_model_outputs(model_, 0); }
  tensor_desc input_desc(size_t index) const noexcept { return desc(index, true); }
  tensor_desc output_desc(size_t index) const noexcept { return desc(index, false); }
  dims_t input_shape(size_t index) const noexcept { return shape(index, true); }
  dims_t output_shape(size_t index) const noexcept { return shape(index, false); }

  // The tensor that was set, or a new one of the model's shape.
  result<runtime_tensor> input_tensor(size_t index) noexcept {
    if (index >= inputs_.size()) return missing("input_tensor", index, inputs_.size());
    if (inputs_[index].empty()) {
      try_var(made, host_runtime_tensor::create(input_desc(index).datatype, input_shape(index)));
      inputs_[index] = made;
    }
    return inputs_[index];
  }
  result<void> input_tensor(size_t index, runtime_tensor tensor) noexcept {
    if (index >= inputs_.size()) return missing("input_tensor", index, inputs_.size());
    return set(inputs_[index], tensor, input_desc(index).datatype, input_shape(index).size());
  }
  // The result of the last run, in the tensor that was set or in one of its own.
  result<runtime_tensor> output_tensor(size_t index) noexcept {
    if (index >= outputs_.size()) return missing("output_tensor", index, outputs_.size());
    if (!outputs_[index].empty()) return outputs_[index];
    if (made_[index].empty())
      return fail("output_tensor", std::errc::operation_not_permitted, "call run first");
    return made_[index];
  }
  result<void> output_tensor(size_t index, runtime_tensor tensor) noexcept {
    if (index >= outputs_.size()) return missing("output_tensor", index, outputs_.size());
    return set(outputs_[index], tensor, output_desc(index).datatype, output_shape(index).size());
  }

  result<void> run() noexcept {
    if (!session_) return fail("run", std::errc::operation_not_permitted, "call load_model first");
    std::vector<int64_t> shapes(inputs_size() * ITG_MAX_RANK + 1);
    for (size_t i = 0; i < inputs_size(); i++) {
      try_var(x, input_tensor(i));
      for (size_t k = 0; k < x.shape().size(); k++)
        shapes[i * ITG_MAX_RANK + k] = int64_t(x.shape()[k]);
    }
    if (itg_set_padded_shapes(session_, reinterpret_cast<int64_t (*)[ITG_MAX_RANK]>(shapes.data())))
      return fail("run", std::errc::invalid_argument, itg_session_error(session_));
    for (size_t i = 0; i < inputs_size(); i++) {
      const auto bytes = inputs_[i].impl()->bytes();
      if (itg_set_input(session_, uint32_t(i), bytes.data(), bytes.size()))
        return fail("run", std::errc::invalid_argument, itg_session_error(session_));
    }
    if (itg_run(session_)) return fail("run", std::errc::io_error, itg_session_error(session_));
    for (size_t i = 0; i < outputs_size(); i++) try_(take(i));
    return ok();
  }

  void set_profiling(uint8_t) noexcept {}

 private:
  static typecode_t type_of(uint8_t dtype) noexcept {
    switch (dtype) {
      case ITG_F32: return dt_float32;
      case ITG_F64: return dt_float64;
      case ITG_F16: return dt_float16;
      case ITG_BF16: return dt_bfloat16;
      case ITG_I8: return dt_int8;
      case ITG_I16: return dt_int16;
      case ITG_I32: return dt_int32;
      case ITG_I64: return dt_int64;
      case ITG_U16: return dt_uint16;
      case ITG_U32: return dt_uint32;
      case ITG_U64: return dt_uint64;
      case ITG_BOOL: return dt_boolean;
      default: return dt_uint8;
    }
  }

  static std::error_condition fail(const char *function, std::errc code,
                                   const char *words) noexcept {
    std::fprintf(stderr, "nncase interpreter: %s: %s\n", function, words);
    return err(code);
  }
  static std::error_condition missing(const char *function, size_t index, size_t count) noexcept {
    return fail(
        function, std::errc::result_out_of_range,
        ("index is " + std::to_string(index) + ", the model has " + std::to_string(count)).c_str());
  }

  bool info(size_t index, bool input, itg_info *found) const noexcept {
    return !(input ? itg_model_input(model_, 0, uint32_t(index), found)
                   : itg_model_output(model_, 0, uint32_t(index), found));
  }
  tensor_desc desc(size_t index, bool input) const noexcept {
    itg_info found;
    if (!info(index, input, &found)) return {dt_uint8, 0, 0};
    return {type_of(found.dtype), 0, size_t(found.bytes)};
  }
  dims_t shape(size_t index, bool input) const noexcept {
    itg_info found;
    if (!info(index, input, &found)) return {};
    return dims_t(found.shape, found.shape + found.rank);
  }

  static result<void> set(runtime_tensor &to, const runtime_tensor &tensor, typecode_t type,
                          size_t rank) noexcept {
    if (tensor.empty() || tensor.datatype() != type || tensor.shape().size() != rank)
      return fail("tensor", std::errc::invalid_argument,
                  "the tensor is empty, or has another element type or number of axes than the "
                  "model; see input_desc and input_shape");
    to = tensor;
    return ok();
  }

  result<void> take(size_t index) noexcept {
    itg_view view;
    if (itg_get_output(session_, uint32_t(index), &view))
      return fail("run", std::errc::io_error, itg_session_error(session_));
    const dims_t extents(view.shape, view.shape + view.rank);
    runtime_tensor to = outputs_[index];
    if (to.empty()) {
      try_var(made, host_runtime_tensor::create(type_of(view.dtype), extents));
      made_[index] = to = made;
    }
    if (to.impl()->bytes().size() != view.bytes)
      return fail("run", std::errc::invalid_argument, "an output tensor has another size");
    std::memcpy(to.impl()->bytes().data(), view.data, view.bytes);
    return ok();
  }

  void close() noexcept {
    itg_session_destroy(session_);
    itg_model_close(model_);
    session_ = nullptr;
    model_ = nullptr;
    bytes_.clear();
    inputs_.clear();
    outputs_.clear();
    made_.clear();
  }

  itg_model *model_ = nullptr;
  itg_session *session_ = nullptr;
  std::vector<gsl::byte> bytes_;
  std::vector<runtime_tensor> inputs_, outputs_, made_;  // made_: outputs that nobody set
};
}  // namespace nncase::runtime
