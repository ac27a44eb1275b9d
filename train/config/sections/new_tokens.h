#pragma once
// Tokens added to the vocabulary, and rows trained next to adapters.

#include <cstdint>
#include <string_view>
#include <vector>

namespace quench {

// Rows of tokens added to loaded weights: the mean of the stored rows, or random as in a new model.
enum class NewTokenInit { mean, normal };

// Value of lora.trainable_token_indices for the tokens of model.add_tokens.
inline constexpr std::string_view kNewTokens = "new";

// Rows of one module.
struct TokenIndices {
  std::vector<std::int64_t> ids;
  bool added = false;  // kNewTokens; replaced by their ids (train/check/run_tokenizer.h)

  friend bool operator==(const TokenIndices&, const TokenIndices&) = default;
};

// Rows that are trained of the embedding (and a head tied to it), and of an untied head.
struct TrainedTokens {
  TokenIndices embedding, head;

  friend bool operator==(const TrainedTokens&, const TrainedTokens&) = default;
};

}  // namespace quench
