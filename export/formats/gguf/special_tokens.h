#pragma once
// Ids of special tokens as llama.cpp's converter writes them: the tokenizer's own count before those of config.json,
// and the other ids that end a text have keys of their own.

#include <filesystem>
#include <optional>

#include "data/tokenizer/tokenizer.h"
#include "nn/model_config.h"

namespace quench {

struct GgufSpecialTokens {
  std::optional<std::int64_t> bos, eos, pad;
  std::optional<std::int64_t> eot;  // the end of a turn
  std::optional<std::int64_t> eom;  // the end of a message after which the model continues (tool calls of Llama 3)
};

// `folder` holds the tokenizer's files and generation_config.json. Warns of an id that ends a text, has no key left and
// is not one that llama.cpp knows by its text.
[[nodiscard]] GgufSpecialTokens gguf_special_tokens(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                                    const nn::ModelConfig& config);

}  // namespace quench
