#pragma once
// Table of the keys of requests.

#include <string_view>

#include "apps/serve/api/request.h"

namespace quench::serve {

inline constexpr unsigned kOfChat = 1, kOfCompletions = 2, kOfBoth = 3;

struct RequestKey {
  std::string_view name;
  unsigned endpoints;
  // Not for null. Throws ApiError naming the key.
  void (*read)(const Json& value, const RequestKey& key, ApiRequest& request);
  const char* neutral = "";  // JSON of the value that changes nothing, of keys without effect
};

// Null: unknown.
[[nodiscard]] const RequestKey* find_request_key(std::string_view name, unsigned endpoint);

}  // namespace quench::serve
