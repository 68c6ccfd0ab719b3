// nncase's result<T>: a value, or an error.
#pragma once
// clang-format off: this is C++, the rules are for C
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace nncase {
[[noreturn]] inline void fail_fast(const char *message) {
  std::fprintf(stderr, "terminate: %s\n", message);
  std::terminate();
}

struct ok_unit {};

template <class T>
class [[nodiscard]] result {
 public:
  using value_type = T;
  result(T value) : value_(std::move(value)) {}
  result(std::error_condition error) : error_(error) {}

  bool is_ok() const noexcept { return value_.has_value(); }
  bool is_err() const noexcept { return !is_ok(); }
  std::error_condition &unwrap_err() noexcept { return error_; }

  // The value; without one, the program ends with a message.
  T &unwrap() & { return require(nullptr); }
  T &&unwrap() && { return std::move(require(nullptr)); }
  T &expect(const char *message) & { return require(message); }
  T &&expect(const char *message) && { return std::move(require(message)); }
  // The value; without one, std::runtime_error.
  T &unwrap_or_throw() & { return is_err() ? throw std::runtime_error(error_.message()) : *value_; }
  T &&unwrap_or_throw() && {
    if (is_err()) throw std::runtime_error(error_.message());
    return std::move(*value_);
  }

 private:
  T &require(const char *message) {
    if (is_err()) fail_fast(message ? message : error_.message().c_str());
    return *value_;
  }
  std::optional<T> value_;
  std::error_condition error_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  using value_type = void;
  result(ok_unit) {}
  result(std::error_condition error) : error_(error), failed_(true) {}

  bool is_ok() const noexcept { return !failed_; }
  bool is_err() const noexcept { return failed_; }
  std::error_condition &unwrap_err() noexcept { return error_; }
  void unwrap() const {
    if (failed_) fail_fast(error_.message().c_str());
  }
  void expect(const char *message) const {
    if (failed_) fail_fast(message);
  }
  void unwrap_or_throw() const {
    if (failed_) throw std::runtime_error(error_.message());
  }

 private:
  std::error_condition error_;
  bool failed_ = false;
};

inline result<void> ok() { return ok_unit{}; }
template <class T>
result<std::decay_t<T>> ok(T &&value) {
  return std::decay_t<T>(std::forward<T>(value));
}
inline std::error_condition err(std::errc code) { return std::make_error_condition(code); }
inline std::error_condition err(std::error_condition code) { return code; }
}  // namespace nncase

#define try_(x)                                           \
  {                                                       \
    auto v_ = (x);                                        \
    if (!v_.is_ok()) return nncase::err(v_.unwrap_err()); \
  }
#define try_var(name, x)                                                        \
  auto name##_result_ = (x);                                                    \
  if (!name##_result_.is_ok()) return nncase::err(name##_result_.unwrap_err()); \
  auto name = std::move(name##_result_.unwrap());
