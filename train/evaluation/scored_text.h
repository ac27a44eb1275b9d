#pragma once
// Texts as the tokens that an evaluation scores.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/model_config.h"

namespace quench {

// What a tokenizer's model has seen in front of a text: the beginning-of-sequence token, else the end-of-sequence
// token; without a tokenizer the model's; nullopt where none of them is known.
[[nodiscard]] std::optional<std::int32_t> prefix_token(const Tokenizer* tokenizer, const nn::ModelConfig& model);

// Encodes texts with what the tokenizer puts around one, unless a text begins with the prefix token's text already:
// what lm-evaluation-harness does. The tokenizer must outlive it.
class ScoredText {
 public:
  // Without `special_tokens` nothing is put around texts (add_bos_token=False there).
  ScoredText(const Tokenizer& tokenizer, const nn::ModelConfig& model, bool special_tokens);

  // Without `parse_special` the text of special tokens in a text stays text.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool parse_special = true) const;

 private:
  const Tokenizer& tokenizer_;
  std::string prefix_text_;
  bool special_tokens_;
};

}  // namespace quench
