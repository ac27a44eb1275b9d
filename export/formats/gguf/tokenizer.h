#pragma once
// The tokenizer of a model folder as GGUF metadata (tokenizer.ggml.*), which llama.cpp builds its own from.

#include <filesystem>
#include <utility>
#include <vector>

#include "export/formats/gguf/metadata.h"
#include "nn/model_config.h"

namespace quench {

// Of the files in `folder`: a byte-level BPE in tokenizer.json, a SentencePiece BPE in tokenizer.model or as
// tokenizer.json has it; padded with unused tokens to the model's vocabulary. Without one that llama.cpp has a
// counterpart of the result says so (tokenizer.ggml.model = "none"), and a warning does.
[[nodiscard]] std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const std::filesystem::path& folder,
                                                                            const nn::ModelConfig& config);

}  // namespace quench
