#pragma once
// Base64 of RFC 4648, with padding.

#include <string>
#include <string_view>

namespace quench::hub {

[[nodiscard]] std::string base64(std::string_view bytes);

}  // namespace quench::hub
