#pragma once
// Errors of requests, as OpenAI's API answers them.

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/system/check.h"

namespace quench::serve {

// HTTP status and error object. Messages are for the client: no paths of this machine.
class ApiError : public std::runtime_error {
 public:
  // `param`: key of the request; `code`: for programs. Both may be empty.
  ApiError(int status, std::string_view code, const std::string& message, std::string_view param = {})
      : std::runtime_error(message), status_(status), code_(code), param_(param) {}

  [[nodiscard]] int status() const noexcept { return status_; }
  // {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
  [[nodiscard]] std::string body() const;

 private:
  int status_;
  std::string code_, param_;
};

// Status 400 for errors that the request makes (bad_config, invalid_argument, corrupt, unsupported), else 500.
[[nodiscard]] ApiError api_error(const Error& error, std::string_view param = {});

// Status 400 with a {fmt} message.
template <class... T>
[[nodiscard]] ApiError bad_request(std::string_view param, fmt::format_string<T...> format, T&&... values) {
  return {400, "", fmt::format(format, std::forward<T>(values)...), param};
}

}  // namespace quench::serve
