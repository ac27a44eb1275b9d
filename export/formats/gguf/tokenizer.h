#pragma once
// GGUF tokenizer metadata (tokenizer.ggml.*) from a model folder.

#include <filesystem>
#include <utility>
#include <vector>

#include "export/formats/gguf/metadata.h"
#include "nn/model_config.h"

namespace quench {

// Source files in `folder`: byte-level BPE in tokenizer.json, SentencePiece BPE in tokenizer.model or tokenizer.json.
// Padded with unused tokens to the model's vocabulary. Without a llama.cpp equivalent: tokenizer.ggml.model = "none",
// with a warning.
[[nodiscard]] std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const std::filesystem::path& folder,
                                                                            const nn::ModelConfig& config);

}  // namespace quench
