#pragma once
// The report's style sheet: light and dark after the reader's preference, nothing loaded from anywhere.

#include <string_view>

namespace quench {

[[nodiscard]] std::string_view page_style() noexcept;

}  // namespace quench
