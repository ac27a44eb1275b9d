#include "core/system/check.h"

#include <fmt/args.h>

namespace quench {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::failed: return "failed";
    case ErrorCode::invalid_argument: return "invalid argument";
    case ErrorCode::bad_config: return "bad config";
    case ErrorCode::not_found: return "not found";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::io: return "input/output error";
    case ErrorCode::no_space: return "no space left";
    case ErrorCode::out_of_memory: return "out of memory";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::nonfinite: return "non-finite value";
    case ErrorCode::locked: return "locked";
  }
  return "unknown";
}

std::string format_values(std::string_view format, std::initializer_list<FormatValue> values) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const FormatValue& value : values) std::visit([&store](const auto& v) { store.push_back(v); }, value);
  return fmt::vformat(format, store);
}

}  // namespace quench
