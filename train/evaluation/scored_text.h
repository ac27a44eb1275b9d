#pragma once
// Encoding of texts whose likelihood is scored.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/spec/model_config.h"

namespace quench {

// Token before a text in training: the tokenizer's BOS, else EOS; without a tokenizer the model's; nullopt if unknown.
[[nodiscard]] std::optional<std::int32_t> prefix_token(const Tokenizer* tokenizer, const nn::ModelConfig& model);

// Encodes with the tokenizer's special tokens, unless a text begins with the prefix token's text
// (lm-evaluation-harness). The tokenizer must outlive it.
class ScoredText {
 public:
  // Without `special_tokens` none are added (add_bos_token=False).
  ScoredText(const Tokenizer& tokenizer, const nn::ModelConfig& model, bool special_tokens);

  // Without `parse_special`, special-token text is plain text.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool parse_special = true) const;

 private:
  const Tokenizer& tokenizer_;
  std::string prefix_text_;
  bool special_tokens_;
};

}  // namespace quench
