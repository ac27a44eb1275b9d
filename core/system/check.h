#pragma once
// Error type, and checks that throw it; {fmt} messages. API edges report expected and actual values; loaders use a
// distinct code per failure; only apps/ ends the process.

#if !defined(__CUDACC__)
#include <fmt/format.h>
#endif

#include <initializer_list>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace quench {

// Kind of failure. Callers may depend on it; messages are for people.
enum class ErrorCode {
  failed,
  invalid_argument,  // API contract: shape, dtype, range
  bad_config,        // config or command line: exit status 2
  not_found,         // file, key or tensor
  corrupt,           // format or hash violated
  io,                // operating system
  no_space,          // or quota
  out_of_memory,     // host or device
  unsupported,       // by this build, device or format version
  nonfinite,         // NaN or Inf
  locked,            // by another process
};

[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;

// Every failure of the libraries; std::bad_alloc of small host allocations excepted.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::source_location where = std::source_location::current())
      : std::runtime_error(message), code_(code), where_(where) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  // For debug logs.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::source_location where_;
};

// nvcc cannot compile {fmt}: CUDA sources pass variants.
using FormatValue = std::variant<long long, unsigned long long, double, std::string_view>;
// {fmt} formatting at run time.
[[nodiscard]] std::string format_values(std::string_view format, std::initializer_list<FormatValue> values);

#if defined(__CUDACC__)
template <class T>
FormatValue format_value(const T& value) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    return static_cast<long long>(value);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<unsigned long long>(value);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(value);
  else
    return std::string_view(value);
}
template <class... T>
std::string format_message(std::string_view format, const T&... values) {
  return format_values(format, {format_value(values)...});
}
#else
// {fmt} formatting, checked at compile time.
template <class... T>
std::string format_message(fmt::format_string<T...> format, T&&... values) {
  return fmt::format(format, std::forward<T>(values)...);
}
#endif

}  // namespace quench

// {fmt} message.
#define QUENCH_FAIL(code, ...) throw ::quench::Error((code), ::quench::format_message(__VA_ARGS__))

// Throws Error(invalid_argument) unless the condition holds; the message is built on failure only.
#define QUENCH_CHECK(condition, ...)                                   \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      QUENCH_FAIL(::quench::ErrorCode::invalid_argument, __VA_ARGS__); \
  } while (false)

// QUENCH_CHECK with another code.
#define QUENCH_CHECK_AS(code, condition, ...) \
  do {                                        \
    if (!(condition)) [[unlikely]]            \
      QUENCH_FAIL((code), __VA_ARGS__);       \
  } while (false)
