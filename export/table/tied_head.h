#pragma once
// Heads in folders of tied models: other values than the embedding table, or in place of it.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// Sets tie_word_embeddings of `config` (the folder's config.json) to false, with one warning per folder, if
// lm_head.weight differs from the embedding table: Transformers loads such folders untied. No change without weights.
// Throws like the weights' reader.
void untie_other_head(const std::filesystem::path& folder, Json& config);

}  // namespace quench
