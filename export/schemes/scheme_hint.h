#pragma once
// "Did you mean" for names of schemes: other programs' names, and misspelled ones.

#include <string>
#include <string_view>
#include <vector>

namespace quench {

// Names of scheme_table() that are meant by a name of vLLM, llm-compressor, TorchAO, bitsandbytes or llama.cpp, the
// usual one first; else the nearest by spelling; empty where none is near.
[[nodiscard]] std::vector<std::string> similar_schemes(std::string_view name);

// Why there is no scheme of a name that the pattern of names suggests, or "".
[[nodiscard]] std::string missing_scheme_reason(std::string_view name);

}  // namespace quench
