#pragma once
// Names the kinds of file that are most often found where a model file should be.

#include <string_view>

namespace quench {

// Completes "this is ...": the kind of file that starts with these bytes (a few hundred are enough) and what to do
// about it. Empty if it is none of those known here, which safetensors is not.
[[nodiscard]] std::string_view recognise_file(std::string_view front) noexcept;

}  // namespace quench
