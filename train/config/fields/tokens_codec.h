#pragma once
// model.add_tokens: ["<think>", {"text": "</think>", "special": false}]; lora.trainable_token_indices: [5, 7], "new",
// {"embed_tokens": [5], "lm_head": "new"}.

#include "data/tokenizer/tokenizer.h"
#include "train/config/sections/new_tokens.h"
#include "train/config/value_codec.h"

namespace quench {

template <>
struct Codec<std::vector<NewToken>> {
  static constexpr ValueKind kind = ValueKind::text_list;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::vector<NewToken>& target);
  static Json write(const std::vector<NewToken>& value, const ValueRule& rule);
};

template <>
struct Codec<TrainedTokens> {
  static constexpr ValueKind kind = ValueKind::number_list;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, TrainedTokens& target);
  static Json write(const TrainedTokens& value, const ValueRule& rule);
};

}  // namespace quench
