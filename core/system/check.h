#pragma once
// The one error type of the program, and the checks that raise it.
//
// Every API edge states what it expected and what it got; loaders give a distinct code per failure; nothing
// below apps/ ends the process. Messages are formatted with {fmt} so that they carry the values.

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

enum class ErrorCode {
  failed,            // an operation that should have worked did not
  invalid_argument,  // a caller broke an API contract (shape, dtype, range)
  bad_config,        // the user's config or command line is wrong: exit status 2
  not_found,         // a file, key or tensor that must exist does not
  corrupt,           // stored bytes break their format or their hash
  io,                // the operating system refused to read or write
  no_space,          // a device or quota is full
  out_of_memory,     // host or device memory
  unsupported,       // valid, but not by this build, device or format version
  nonfinite,         // a NaN or Inf where the run may not go on
  locked,            // another process holds the resource
};

[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::source_location where = std::source_location::current())
      : std::runtime_error(message), code_(code), where_(where) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  // Where in Quench the error was raised: for logs at debug level, not for users.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::source_location where_;
};

// nvcc's front end does not take {fmt}'s headers: CUDA sources hand the values of a message over by kind.
using FormatValue = std::variant<long long, unsigned long long, double, std::string_view>;
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
template <class... T>
std::string format_message(fmt::format_string<T...> format, T&&... values) {
  return fmt::format(format, std::forward<T>(values)...);
}
#endif

}  // namespace quench

// Throws Error(code, message), the message in the format of {fmt}.
#define QUENCH_FAIL(code, ...) throw ::quench::Error((code), ::quench::format_message(__VA_ARGS__))

// Throws Error(invalid_argument, message) unless the condition holds. The message is built only on failure.
#define QUENCH_CHECK(condition, ...)                                   \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      QUENCH_FAIL(::quench::ErrorCode::invalid_argument, __VA_ARGS__); \
  } while (false)

// The same with a code of the caller's choice.
#define QUENCH_CHECK_AS(code, condition, ...) \
  do {                                        \
    if (!(condition)) [[unlikely]]            \
      QUENCH_FAIL((code), __VA_ARGS__);       \
  } while (false)
