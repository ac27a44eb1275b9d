#pragma once
// GGUF weights under Hugging Face names.

#include "export/formats/gguf/head_parser.h"
#include "export/formats/stored_weights.h"

namespace quench {

// ".gguf"
[[nodiscard]] bool is_gguf_path(const std::filesystem::path& path);
// The only one of a folder, or the file itself; or empty. Throws bad_config for several.
[[nodiscard]] std::filesystem::path find_gguf_file(const std::filesystem::path& folder);
// Throws like parse_gguf_head, io, not_found; unsupported for a split file.
[[nodiscard]] GgufHead read_gguf_head(const std::filesystem::path& file);

// Throws io.
void read_gguf_tensor(const std::filesystem::path& file, const GgufEntry& entry, const Tensor& out);

// `config`: Hugging Face; its head counts restore the row order of query and key.
[[nodiscard]] std::unique_ptr<StoredWeights> open_gguf(const std::filesystem::path& file, const Json& config);

}  // namespace quench
