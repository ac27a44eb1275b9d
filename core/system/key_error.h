#pragma once
// Error of a config key, found where the config is used.

#include <string>

#include "core/system/check.h"

namespace quench {

class KeyError : public Error {
 public:
  // key: "lora.rank"; message: "<key>: <reason>"; code: bad_config or unsupported.
  KeyError(ErrorCode code, const std::string& key, const std::string& reason,
           std::source_location where = std::source_location::current())
      : Error(code, key + ": " + reason, where), key_(key) {}

  [[nodiscard]] const std::string& key() const noexcept { return key_; }

 private:
  std::string key_;
};

}  // namespace quench

// Throws KeyError unless the condition holds; {fmt} message.
#define QUENCH_CHECK_KEY(code, key, condition, ...)                                   \
  do {                                                                                \
    if (!(condition)) [[unlikely]]                                                    \
      throw ::quench::KeyError((code), (key), ::quench::format_message(__VA_ARGS__)); \
  } while (false)
