#pragma once
// Weights of models whose head is tied to the embedding table.

#include <memory>
#include <string_view>

#include "core/json/json.h"
#include "export/formats/stored_weights.h"

namespace quench {

inline constexpr std::string_view kHeadWeight = "lm_head.weight", kEmbeddingWeight = "model.embed_tokens.weight";

// As config.json says, or by default in its family.
[[nodiscard]] bool has_tied_head(const Json& config);

// Weights of a tied model that hold lm_head.weight and no embedding table have the head as the table, as in
// Transformers 5; others are returned as they are. `config`: of the folder.
[[nodiscard]] std::unique_ptr<StoredWeights> head_as_table(std::unique_ptr<StoredWeights> weights, const Json& config);

}  // namespace quench
