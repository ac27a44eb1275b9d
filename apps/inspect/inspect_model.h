#pragma once
// `quench inspect` for models and adapters.

#include <filesystem>

#include "core/json/json.h"
#include "core/tensor/shape.h"
#include "train/model_source/model_source.h"

namespace quench {

[[nodiscard]] Json shape_json(const Shape& shape);

// Architecture, quantization, tokenizer, chat template, files; `tensors`: every stored tensor. Throws like the files'
// readers.
[[nodiscard]] Json inspect_model(const ModelSource& source, bool tensors);

// For one GGUF file; unsupported architectures by their metadata.
[[nodiscard]] Json inspect_gguf(const std::filesystem::path& file, bool tensors);

// Base, ranks, targets, sizes, unsupported settings.
[[nodiscard]] Json inspect_adapter(const std::filesystem::path& folder, bool tensors);

}  // namespace quench
