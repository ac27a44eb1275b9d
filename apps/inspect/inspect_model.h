#pragma once
// `quench inspect` for models and adapters.

#include <filesystem>

#include "core/json/json.h"
#include "core/tensor/shape.h"
#include "train/model_source/model_source.h"

namespace quench {

[[nodiscard]] Json shape_json(const Shape& shape);

// Architecture, quantization, tokenizer, chat template and files of a Hugging Face or GGUF folder; `tensors`: includes
// every stored tensor. Throws like the readers of its files.
[[nodiscard]] Json inspect_model(const ModelSource& source, bool tensors);

// inspect_model for one GGUF file. Unsupported architectures are described from their metadata.
[[nodiscard]] Json inspect_gguf(const std::filesystem::path& file, bool tensors);

// Base, ranks, targets and sizes of a PEFT adapter folder, with unsupported settings of its config.
[[nodiscard]] Json inspect_adapter(const std::filesystem::path& folder, bool tensors);

}  // namespace quench
