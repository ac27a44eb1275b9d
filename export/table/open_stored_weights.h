#pragma once
// Readers of model folders' weights, by the table of supported quantization methods.

#include <filesystem>
#include <memory>
#include <optional>

#include "export/formats/stored_weights.h"
#include "export/table/open_stored_weights.h"

namespace quench {

// A `folder` may also be the path of a GGUF file (is_gguf_path() of export/formats/gguf/reader.h); config.json is then
// looked up in its folder. Path kinds: train/model_source/model_source.h.
//
// Result: the folder if it holds safetensors, else its GGUF file; empty: no weights. Throws bad_config for several GGUF
// files.
[[nodiscard]] std::filesystem::path stored_weights_path(const std::filesystem::path& folder);
// True if the weights are quantized, by `config` (the folder's config.json) or the GGUF block types.
[[nodiscard]] bool is_quantized(const std::filesystem::path& folder, const Json& config);
// File with the model's config: config.json, or a GGUF file without one. Empty if neither exists.
[[nodiscard]] std::filesystem::path stored_config_file(const std::filesystem::path& folder);
// The folder's config.json, or the equivalent of the GGUF metadata. Absent if neither exists. For multimodal models:
// that of the text model (export/formats/text_model.h).
[[nodiscard]] std::optional<Json> stored_model_config(const std::filesystem::path& folder);
// Reader by the quantization_config of `config`, the folder's config.json; without one: safetensors, else GGUF. Throws
// unsupported for unknown methods, not_found without weights, and like the format's reader.
[[nodiscard]] std::unique_ptr<StoredWeights> open_stored_weights(const std::filesystem::path& folder,
                                                                 const Json& config);

}  // namespace quench
