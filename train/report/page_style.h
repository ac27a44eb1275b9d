#pragma once
// Style sheet: light and dark by user preference, no external resources.

#include <string_view>

namespace quench {

[[nodiscard]] std::string_view page_style() noexcept;

}  // namespace quench
