#pragma once

#include <string_view>

namespace quench {

// Kind of a file by its first few hundred bytes, with advice, to complete "this is ...". Empty if unknown, and for
// safetensors.
[[nodiscard]] std::string_view recognise_file(std::string_view front) noexcept;

}  // namespace quench
