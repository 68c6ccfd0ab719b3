// Types of nncase's C++ runtime API: element types, shapes, spans and access to memory.
#pragma once
// clang-format off: this is C++, the rules are for C
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <type_traits>
#include <vector>

#ifndef gsl_lite_MAJOR  // gsl-lite, which programs may bring along; include it first then
namespace gsl {
using byte = std::byte;

// A pointer and the number of elements there.
template <class T>
class span {
 public:
  using value_type = std::remove_cv_t<T>;
  constexpr span() noexcept = default;
  constexpr span(T *data, size_t size) noexcept : data_(data), size_(size) {}
  constexpr span(T *first, T *last) noexcept : data_(first), size_(size_t(last - first)) {}
  template <class C,
            class = std::enable_if_t<std::is_convertible_v<
                std::remove_pointer_t<decltype(std::declval<C &>().data())> (*)[], T (*)[]>>>
  constexpr span(C &&container) noexcept : data_(container.data()), size_(container.size()) {}
  constexpr T *data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }
  constexpr size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return !size_; }
  constexpr T *begin() const noexcept { return data_; }
  constexpr T *end() const noexcept { return data_ + size_; }
  constexpr T &operator[](size_t i) const noexcept { return data_[i]; }
  constexpr span subspan(size_t from, size_t count = size_t(-1)) const noexcept {
    return {data_ + from, count == size_t(-1) ? size_ - from : count};
  }
  template <class U>
  span<U> as_span() const noexcept {
    return {reinterpret_cast<U *>(data_), size_bytes() / sizeof(U)};
  }

 private:
  T *data_ = nullptr;
  size_t size_ = 0;
};

template <class T>
span<T> make_span(T *data, size_t size) noexcept {
  return {data, size};
}
template <class T>
span<T> make_span(std::vector<T> &v) noexcept {
  return {v.data(), v.size()};
}
template <class T>
span<const T> make_span(const std::vector<T> &v) noexcept {
  return {v.data(), v.size()};
}
template <class T>
span<const byte> as_bytes(span<T> from) noexcept {
  return {reinterpret_cast<const byte *>(from.data()), from.size_bytes()};
}
template <class T>
span<byte> as_writable_bytes(span<T> from) noexcept {
  return {reinterpret_cast<byte *>(from.data()), from.size_bytes()};
}
}  // namespace gsl
#endif

namespace nncase {
typedef enum typecode_ : uint8_t {
  dt_boolean = 0,
  dt_utf8char = 1,
  dt_int8 = 2,
  dt_int16 = 3,
  dt_int32 = 4,
  dt_int64 = 5,
  dt_uint8 = 6,
  dt_uint16 = 7,
  dt_uint32 = 8,
  dt_uint64 = 9,
  dt_float16 = 10,
  dt_float32 = 11,
  dt_float64 = 12,
  dt_bfloat16 = 13
} typecode_t;
using datatype_t = typecode_t;

using dims_t = std::vector<size_t>;
using strides_t = std::vector<size_t>;
using runtime_shape_t = dims_t;  // of nncase 1.x

typedef enum map_access_ {
  map_none = 0,
  map_read = 1,
  map_write = 2,
  map_read_write = 3
} map_access_t;
typedef enum sync_op_ { sync_invalidate, sync_write_back } sync_op_t;

inline constexpr size_t typecode_bytes(typecode_t type) {
  switch (type) {
    case dt_boolean:
    case dt_utf8char:
    case dt_int8:
    case dt_uint8: return 1;
    case dt_int16:
    case dt_uint16:
    case dt_float16:
    case dt_bfloat16: return 2;
    case dt_int32:
    case dt_uint32:
    case dt_float32: return 4;
    default: return 8;
  }
}

namespace runtime {
using nncase::map_access_t;
using nncase::sync_op_t;
inline size_t get_bytes(typecode_t type) { return typecode_bytes(type); }
template <class Shape>
size_t compute_size(const Shape &shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t(1), std::multiplies<size_t>());
}
template <class Shape>
size_t get_bytes(typecode_t type, const Shape &shape) {
  return compute_size(shape) * typecode_bytes(type);
}
template <class Shape>
strides_t get_default_strides(const Shape &shape) {
  strides_t strides(shape.size());
  size_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i]) strides[i] = step;
  return strides;
}
}  // namespace runtime
}  // namespace nncase
