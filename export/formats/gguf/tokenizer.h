#pragma once
// tokenizer.ggml.* of a model folder.

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "export/formats/gguf/metadata.h"
#include "nn/spec/model_config.h"

namespace quench {

// Byte-level BPE of tokenizer.json, SentencePiece BPE of tokenizer.model or tokenizer.json, padded with unused tokens
// to the model's vocabulary. Without a llama.cpp equivalent: tokenizer.ggml.model = "none", with a warning that says
// why.
[[nodiscard]] std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const std::filesystem::path& folder,
                                                                            const nn::ModelConfig& config);
// Bytes of these in a file, at least.
[[nodiscard]] std::int64_t gguf_tokenizer_bytes(const std::filesystem::path& folder, const nn::ModelConfig& config);

}  // namespace quench
