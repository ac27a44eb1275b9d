#pragma once
// Special token ids as by llama.cpp's converter: the tokenizer's, else config.json's; additional end-of-text ids have
// own keys.

#include <filesystem>
#include <optional>

#include "data/tokenizer/tokenizer.h"
#include "nn/spec/model_config.h"

namespace quench {

struct GgufSpecialTokens {
  std::optional<std::int64_t> bos, eos, pad;
  std::optional<std::int64_t> eot;  // end of turn
  std::optional<std::int64_t> eom;  // end of message with continuation (tool calls, Llama 3)
};

// `folder`: tokenizer files and generation_config.json. Warns of an end-of-text id without a key and with a text
// unknown to llama.cpp.
[[nodiscard]] GgufSpecialTokens gguf_special_tokens(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                                    const nn::ModelConfig& config);

}  // namespace quench
