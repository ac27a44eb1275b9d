#pragma once
// Detection of files commonly mistaken for model files.

#include <string_view>

namespace quench {

// Completes "this is ...": kind of a file from its first few hundred bytes, with advice. Empty if unknown; safetensors
// is not detected.
[[nodiscard]] std::string_view recognise_file(std::string_view front) noexcept;

}  // namespace quench
