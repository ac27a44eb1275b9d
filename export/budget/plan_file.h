#pragma once
// Files of scheme plans: the choice by a budget, to be applied again and to be trained for.
//
// {"scheme": that of most weights, "layers": {"model.layers.0.mlp.down_proj": "q4_k", ...}}; null: high precision.
// "model.embed_tokens" is the embedding table. Other keys (bit_budget.h: to_json()) are not read; "rules" are the same
// layers as values of export.rules and recipe.rules.

#include <filesystem>

#include "export/budget/bit_budget.h"

namespace quench {

// Replaces the file as a whole, or throws io leaving it as it was.
void write_plan(const SchemePlan& plan, const std::filesystem::path& file);

// Sets `mixed`, `planned`, `scheme`, and `embeddings` unless set. Throws bad_config naming `key`, file and layer for
// another form, unknown schemes, mixes, and a plan of high precision alone.
void read_plan(const std::filesystem::path& file, std::string_view key, QuantizationRules& rules);

}  // namespace quench
