#pragma once
// Readers by quantization method.

#include <filesystem>
#include <memory>
#include <optional>

#include "export/formats/stored_weights.h"

namespace quench {

// `folder` may be a GGUF file (is_gguf_path()); config.json is then looked up in its folder. Path kinds:
// train/model_source/model_source.h.
//
// Returns the folder with safetensors, else its GGUF file; or empty. Throws bad_config for several GGUF files.
[[nodiscard]] std::filesystem::path stored_weights_path(const std::filesystem::path& folder);
// By `config` (the folder's config.json) or the GGUF block types.
[[nodiscard]] bool is_quantized(const std::filesystem::path& folder, const Json& config);
// Codes that are decoded on load, so that the weights can be trained: no is_quantized().
[[nodiscard]] bool is_read_dense(const Json& config);
// config.json, or a GGUF file without one; or empty.
[[nodiscard]] std::filesystem::path stored_config_file(const std::filesystem::path& folder);
// config.json, or its equivalent of GGUF metadata; of the text model (export/formats/text_model.h). Absent if neither
// exists.
[[nodiscard]] std::optional<Json> stored_model_config(const std::filesystem::path& folder);
// By the quantization_config of `config` (the folder's config.json); without one: safetensors, else GGUF. Throws
// unsupported for unknown methods, not_found without weights, and like the format's reader.
[[nodiscard]] std::unique_ptr<StoredWeights> open_stored_weights(const std::filesystem::path& folder,
                                                                 const Json& config);

}  // namespace quench
