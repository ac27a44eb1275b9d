#pragma once
// Tokenized evaluation documents.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/model_config.h"

namespace quench {

// Token before a text in training: BOS, else EOS of the tokenizer; without a tokenizer those of the model; nullopt if
// unknown.
[[nodiscard]] std::optional<std::int32_t> prefix_token(const Tokenizer* tokenizer, const nn::ModelConfig& model);

// Encodes texts with the tokenizer's special tokens, except texts that already begin with the prefix token's text (as
// lm-evaluation-harness). The tokenizer must outlive it.
class ScoredText {
 public:
  // Without `special_tokens` no tokens are added (add_bos_token=False in lm-evaluation-harness).
  ScoredText(const Tokenizer& tokenizer, const nn::ModelConfig& model, bool special_tokens);

  // Without `parse_special`, special-token text is encoded as plain text.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool parse_special = true) const;

 private:
  const Tokenizer& tokenizer_;
  std::string prefix_text_;
  bool special_tokens_;
};

}  // namespace quench
