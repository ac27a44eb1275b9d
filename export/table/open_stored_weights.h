#pragma once
// Opens the weights of a model folder by the table of quantization methods that can be read.

#include <filesystem>
#include <memory>
#include <optional>

#include "export/formats/stored_weights.h"
#include "export/table/open_stored_weights.h"

namespace quench {

// A folder below may also be a path to a GGUF file (is_gguf_path() of export/formats/gguf/reader.h): config.json is the
// one in its folder, if there is one.
// train/model_source/model_source.h decides what a path holds.
//
// The folder where it holds safetensors, else its GGUF file; empty: no weights. Throws bad_config for several GGUF
// files.
[[nodiscard]] std::filesystem::path stored_weights_path(const std::filesystem::path& folder);
// Whether the folder's weights are quantized: by `config`, its config.json, or by the blocks of its GGUF file.
[[nodiscard]] bool is_quantized(const std::filesystem::path& folder, const Json& config);
// The file that describes the model of a folder: config.json, or a GGUF file that stands alone. Empty where there is
// neither.
[[nodiscard]] std::filesystem::path stored_config_file(const std::filesystem::path& folder);
// The folder's config.json, or what the metadata of its GGUF file amount to where that stands alone. Absent where there
// is neither. Of a model that reads images too, what its text model would have (export/formats/text_model.h).
[[nodiscard]] std::optional<Json> stored_model_config(const std::filesystem::path& folder);
// By the quantization_config of `config`, the folder's config.json; without one safetensors, else a GGUF file. Throws
// unsupported for methods that are not known, not_found without weights, what the format's reader throws.
[[nodiscard]] std::unique_ptr<StoredWeights> open_stored_weights(const std::filesystem::path& folder,
                                                                 const Json& config);

}  // namespace quench
