#pragma once
// What `quench inspect` says of training data.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// Whether a path is a folder that `quench tokenize` wrote, or a file.
[[nodiscard]] bool is_token_data(const std::filesystem::path& path);

// Kind, tokens, and each file with its format and size. With `verify` every token is read: ids must be in the file's
// vocabulary, and Quench shards must match their hash; else throws corrupt naming all files at fault. Throws
// unsupported for a file that holds no tokens.
[[nodiscard]] Json inspect_tokens(const std::filesystem::path& path, bool verify);

}  // namespace quench
