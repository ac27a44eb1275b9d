#pragma once
// `quench inspect` for training data.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// Folder of `quench tokenize`, or a file.
[[nodiscard]] bool is_token_data(const std::filesystem::path& path);

// Kind, token count; format and size of files. `verify` reads every token: throws corrupt, naming all invalid files,
// for ids outside the vocabulary or a hash mismatch of a Quench shard. Throws unsupported for a file without tokens.
[[nodiscard]] Json inspect_tokens(const std::filesystem::path& path, bool verify);

}  // namespace quench
