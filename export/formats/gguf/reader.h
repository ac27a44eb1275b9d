#pragma once
// Weights of a GGUF file under Hugging Face's names.

#include "export/formats/gguf/head_parser.h"
#include "export/formats/stored_weights.h"

namespace quench {

// Whether the path is a file whose name ends in ".gguf".
[[nodiscard]] bool is_gguf_path(const std::filesystem::path& path);
// The folder's only file of that kind, or the file itself; empty where there is none. Throws bad_config for several.
[[nodiscard]] std::filesystem::path find_gguf_file(const std::filesystem::path& folder);
// Throws what parse_gguf_head throws, io, not_found; unsupported for one part of several.
[[nodiscard]] GgufHead read_gguf_head(const std::filesystem::path& file);

// The bytes of a tensor as stored. Throws io.
void read_gguf_tensor(const std::filesystem::path& file, const GgufEntry& entry, const Tensor& out);

// `config` is a Hugging Face config.json: heads, whose rows are put back into its order.
[[nodiscard]] std::unique_ptr<StoredWeights> open_gguf(const std::filesystem::path& file, const Json& config);

}  // namespace quench
