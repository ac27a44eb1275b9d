#include "train/evaluation/scored_text.h"

namespace quench {

std::optional<std::int32_t> prefix_token(const Tokenizer* tokenizer, const nn::ModelConfig& model) {
  if (tokenizer != nullptr) return tokenizer->bos_id() ? tokenizer->bos_id() : tokenizer->eos_id();
  if (model.bos_token_id) return static_cast<std::int32_t>(*model.bos_token_id);
  if (!model.eos_token_ids.empty()) return static_cast<std::int32_t>(model.eos_token_ids.front());
  return std::nullopt;
}

ScoredText::ScoredText(const Tokenizer& tokenizer, const nn::ModelConfig& model, bool special_tokens)
    : tokenizer_(tokenizer), special_tokens_(special_tokens) {
  const std::optional<std::int32_t> prefix = prefix_token(&tokenizer, model);
  if (prefix) prefix_text_ = tokenizer.token_text(*prefix);
}

std::vector<std::int32_t> ScoredText::encode(std::string_view text, bool parse_special) const {
  const bool has_prefix = parse_special && !prefix_text_.empty() && text.starts_with(prefix_text_);
  return tokenizer_.encode(text,
                           {.add_special_tokens = special_tokens_ && !has_prefix, .parse_special = parse_special});
}

}  // namespace quench
