#pragma once
// Suggestions for unknown scheme names.

#include <string>
#include <string_view>
#include <vector>

namespace quench {

// For an alias of vLLM, llm-compressor, TorchAO, bitsandbytes or llama.cpp, the most common first; else the nearest by
// spelling; may be empty.
[[nodiscard]] std::vector<std::string> similar_schemes(std::string_view name);

// Why a plausible scheme does not exist, or "".
[[nodiscard]] std::string missing_scheme_reason(std::string_view name);

}  // namespace quench
