#pragma once
// GGUF weights under Hugging Face names.

#include "export/formats/gguf/head_parser.h"
#include "export/formats/stored_weights.h"

namespace quench {

// ".gguf"
[[nodiscard]] bool is_gguf_path(const std::filesystem::path& path);
// The file itself, or the only model of a folder, of a split one its first part (parts.h); or empty. Files with
// "mmproj" in their name, llama.cpp's encoders of images and sound, are passed over, which is logged. Throws bad_config
// for several models.
[[nodiscard]] std::filesystem::path find_gguf_file(const std::filesystem::path& folder);
// With the tensors of all parts of a split model. Throws like parse_gguf_head and add_gguf_parts, io, not_found.
[[nodiscard]] GgufHead read_gguf_head(const std::filesystem::path& file);

// `file`: of read_gguf_head(). Throws io.
void read_gguf_tensor(const std::filesystem::path& file, const GgufEntry& entry, const Tensor& out);

// `config`: Hugging Face; its head counts restore the row order of query and key.
[[nodiscard]] std::unique_ptr<StoredWeights> open_gguf(const std::filesystem::path& file, const Json& config);

}  // namespace quench
