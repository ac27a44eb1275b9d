#include "apps/serve/api/api_error.h"

#include "core/json/json.h"

namespace quench::serve {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

Json null_if_empty(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

std::string ApiError::body() const {
  return Json(Json::Object{{"error", Json::Object{{"message", std::string(what())},
                                                  {"type", type_of(status_)},
                                                  {"param", null_if_empty(param_)},
                                                  {"code", null_if_empty(code_)}}}})
      .dump();
}

ApiError api_error(const Error& error, std::string_view param) {
  switch (error.code()) {
    case ErrorCode::bad_config:
    case ErrorCode::invalid_argument:
    case ErrorCode::corrupt:
    case ErrorCode::unsupported: return {400, "", error.what(), param};
    default: return {500, "", error.what()};
  }
}

}  // namespace quench::serve
