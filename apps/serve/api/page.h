#pragma once
// Chat page of the server.

#include <string_view>

namespace quench {

// page.html
[[nodiscard]] std::string_view chat_page() noexcept;

}  // namespace quench
