// nncase's tensors in host memory.
#pragma once
// clang-format off: this is C++, the rules are for C
#include <cstring>
#include <memory>
#include <new>

#include "datatypes.h"
#include "result.h"

namespace nncase::runtime {
// The bytes of a tensor while they are mapped: a PC's memory always is.
class mapped_buffer {
 public:
  mapped_buffer() = default;
  explicit mapped_buffer(gsl::span<gsl::byte> bytes) : bytes_(bytes) {}
  gsl::span<gsl::byte> buffer() const noexcept { return bytes_; }
  result<void> unmap() noexcept { return ok(); }

 private:
  gsl::span<gsl::byte> bytes_;
};

class tensor_node;
using tensor = std::shared_ptr<tensor_node>;

// Where a tensor lies; the chain to_host()->buffer().as_host().map() of nncase ends here.
class host_buffer_slice {
 public:
  explicit host_buffer_slice(gsl::span<gsl::byte> bytes) : bytes_(bytes) {}
  result<host_buffer_slice> as_host() const { return *this; }
  result<mapped_buffer> map(map_access_t) const { return mapped_buffer(bytes_); }
  result<void> unmap() const { return ok(); }
  result<void> sync(sync_op_t, bool = false) const { return ok(); }
  size_t size_bytes() const noexcept { return bytes_.size(); }

 private:
  gsl::span<gsl::byte> bytes_;
};

class tensor_node : public std::enable_shared_from_this<tensor_node> {
 public:
  using deleter = std::function<void(gsl::byte *)>;
  tensor_node(typecode_t type, dims_t shape, gsl::span<gsl::byte> bytes, deleter free)
      : type_(type),
        shape_(std::move(shape)),
        strides_(get_default_strides(shape_)),
        bytes_(bytes),
        free_(std::move(free)) {}
  ~tensor_node() {
    if (free_) free_(bytes_.data());
  }
  tensor_node(const tensor_node &) = delete;
  tensor_node &operator=(const tensor_node &) = delete;

  typecode_t dtype() const noexcept { return type_; }
  const dims_t &shape() const noexcept { return shape_; }
  const strides_t &strides() const noexcept { return strides_; }
  size_t length() const noexcept { return compute_size(shape_); }
  gsl::span<gsl::byte> bytes() const noexcept { return bytes_; }
  result<tensor> to_host() { return shared_from_this(); }
  host_buffer_slice buffer() const { return host_buffer_slice(bytes_); }

 private:
  typecode_t type_;
  dims_t shape_;
  strides_t strides_;
  gsl::span<gsl::byte> bytes_;
  deleter free_;
};

class runtime_tensor {
 public:
  runtime_tensor() noexcept = default;
  explicit runtime_tensor(tensor impl) noexcept : impl_(std::move(impl)) {}
  typecode_t datatype() const noexcept { return impl_->dtype(); }
  gsl::span<const size_t> shape() const noexcept {
    return {impl_->shape().data(), impl_->shape().size()};
  }
  gsl::span<const size_t> strides() const noexcept {
    return {impl_->strides().data(), impl_->strides().size()};
  }
  bool empty() const noexcept { return !impl_; }
  bool is_host() const noexcept { return true; }
  bool is_contiguous() const noexcept { return true; }
  bool can_copy_to_without_staging(const runtime_tensor &) const noexcept { return true; }
  result<void> copy_to(runtime_tensor &to) noexcept {
    if (empty() || to.empty() || to.impl_->bytes().size() != impl_->bytes().size())
      return err(std::errc::invalid_argument);
    std::memcpy(to.impl_->bytes().data(), impl_->bytes().data(), impl_->bytes().size());
    return ok();
  }
  result<runtime_tensor> to_host() noexcept { return *this; }
  void reset() noexcept { impl_.reset(); }
  tensor impl() const noexcept { return impl_; }
  bool operator==(const runtime_tensor &other) const noexcept { return impl_ == other.impl_; }
  bool operator!=(const runtime_tensor &other) const noexcept { return impl_ != other.impl_; }

 private:
  tensor impl_;
};

namespace host_runtime_tensor {
using nncase::map_none;  // programs write hrt::map_read, hrt::sync_write_back
using nncase::map_read;
using nncase::map_read_write;
using nncase::map_write;
using nncase::sync_invalidate;
using nncase::sync_write_back;
typedef enum memory_pool_ { pool_shared_first, pool_cpu_only, pool_shared } memory_pool_t;
typedef std::function<void(gsl::byte *)> data_deleter_t;

// A tensor of zeros.
inline result<runtime_tensor> create(typecode_t type, dims_t shape,
                                     memory_pool_t = pool_shared_first) noexcept {
  const size_t bytes = get_bytes(type, shape);
  auto *data =
      static_cast<gsl::byte *>(::operator new(bytes + 1, std::align_val_t(64), std::nothrow));
  if (!data) return err(std::errc::not_enough_memory);
  std::memset(data, 0, bytes + 1);
  return runtime_tensor(std::make_shared<tensor_node>(
      type, std::move(shape), gsl::span<gsl::byte>(data, bytes),
      [](gsl::byte *p) { ::operator delete(p, std::align_val_t(64)); }));
}

// A tensor in memory of the caller, which `free` gets at the end.
inline result<runtime_tensor> create(typecode_t type, dims_t shape, gsl::span<gsl::byte> data,
                                     data_deleter_t free, memory_pool_t = pool_shared_first,
                                     uintptr_t = 0) noexcept {
  if (data.size() != get_bytes(type, shape)) return err(std::errc::invalid_argument);
  return runtime_tensor(
      std::make_shared<tensor_node>(type, std::move(shape), data, std::move(free)));
}

// A copy of the data, or a tensor in memory that the caller keeps.
inline result<runtime_tensor> create(typecode_t type, dims_t shape, gsl::span<gsl::byte> data,
                                     bool copy, memory_pool_t pool = pool_shared_first,
                                     uintptr_t address = 0) noexcept {
  if (!copy) return create(type, std::move(shape), data, data_deleter_t(), pool, address);
  if (data.size() != get_bytes(type, shape)) return err(std::errc::invalid_argument);
  try_var(made, create(type, std::move(shape), pool));
  std::memcpy(made.impl()->bytes().data(), data.data(), data.size());
  return made;
}

inline result<memory_pool_t> memory_pool(const runtime_tensor &) noexcept { return pool_shared; }

inline result<mapped_buffer> map(const runtime_tensor &t, map_access_t) noexcept {
  if (t.empty()) return err(std::errc::invalid_argument);
  return mapped_buffer(t.impl()->bytes());
}

// A PC's memory is coherent.
inline result<void> sync(const runtime_tensor &t, sync_op_t, bool = false) noexcept {
  if (t.empty()) return err(std::errc::invalid_argument);
  return ok();
}

// The bytes, as nncase 1.x calls them.
inline result<gsl::span<gsl::byte>> buffer(const runtime_tensor &t) noexcept {
  if (t.empty()) return err(std::errc::invalid_argument);
  return t.impl()->bytes();
}
}  // namespace host_runtime_tensor
namespace hrt = host_runtime_tensor;
namespace detail {}  // what programs name in `using namespace`
namespace k230 {}
}  // namespace nncase::runtime

namespace nncase {
using runtime::tensor;  // programs name it either way
}  // namespace nncase
