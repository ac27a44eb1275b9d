#pragma once
// Descriptions by `quench inspect` of models and adapters on disk.

#include <filesystem>

#include "core/json/json.h"
#include "core/tensor/shape.h"
#include "train/model_source/model_source.h"

namespace quench {

[[nodiscard]] Json shape_json(const Shape& shape);

// Architecture, how the weights are quantized, tokenizer, chat template and files of a Hugging Face or GGUF folder;
// `tensors`: every stored tensor too. Throws what the readers of its files throw.
[[nodiscard]] Json inspect_model(const ModelSource& source, bool tensors);

// The same of one GGUF file. An architecture that cannot be computed here is described as far as its metadata go.
[[nodiscard]] Json inspect_gguf(const std::filesystem::path& file, bool tensors);

// Base, ranks, targets and sizes of a PEFT adapter folder. What its config asks for and cannot be computed here is
// named.
[[nodiscard]] Json inspect_adapter(const std::filesystem::path& folder, bool tensors);

}  // namespace quench
