#pragma once
// The one error type of the program, and the checks that raise it.
//
// Every API edge states what it expected and what it got; loaders give a distinct code per failure; nothing
// below apps/ ends the process. Messages are formatted with {fmt} so that they carry the values.

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace quench

// Throws Error(code, fmt::format(...)).
#define QUENCH_FAIL(code, ...) throw ::quench::Error((code), ::fmt::format(__VA_ARGS__))

// Throws Error(invalid_argument, fmt::format(...)) unless the condition holds. The message is built only on failure.
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
