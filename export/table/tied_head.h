#pragma once
// Model folders whose config ties the head to the embedding table although their weights hold a head of its own.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// Sets tie_word_embeddings of `config`, the folder's config.json, to false where it is true and the folder's
// lm_head.weight holds other values than its embedding table, and logs a warning, once for a folder: Transformers loads
// such folders untied. Equal weights, and folders without weights, leave `config` as it is. Throws what the reader of
// the weights throws.
void untie_other_head(const std::filesystem::path& folder, Json& config);

}  // namespace quench
