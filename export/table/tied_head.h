#pragma once
// Heads in folders of tied models: other values than the embedding table, or in place of it.

#include <filesystem>
#include <memory>

#include "core/json/json.h"
#include "export/formats/stored_weights.h"

namespace quench {

// Sets tie_word_embeddings of `config` (the folder's config.json) to false, with one warning per folder, if
// lm_head.weight differs from the embedding table: Transformers loads such folders untied. No change without weights.
// Throws like the weights' reader.
void untie_other_head(const std::filesystem::path& folder, Json& config);

// Weights of a tied model that hold lm_head.weight and no embedding table have the head as the table, as in
// Transformers 5; others are returned as they are. `config`: of the folder.
[[nodiscard]] std::unique_ptr<StoredWeights> head_as_table(std::unique_ptr<StoredWeights> weights, const Json& config);

}  // namespace quench
