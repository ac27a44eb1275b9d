#pragma once
// Merges of tokenizer.json as scores of SentencePiece.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/json/json.h"

namespace quench {

// Both texts of a merge. Throws corrupt.
[[nodiscard]] std::pair<std::string, std::string> merged_pair(const Json& merge);

// SentencePiece merges by the result's score, tokenizer.json by a list of pairs: they agree if all pairs of a token are
// adjacent in the list and complete. Into `scores`: list positions, descending; only of normal tokens, as others are
// matched before all merges. `kinds` and `scores`: by id, for all of `vocab`. Returns why the two do not agree, or "".
[[nodiscard]] std::string score_by_merges(const Json::Array& list, const Json::Object& vocab,
                                          const std::vector<std::int32_t>& kinds, std::vector<float>& scores);

}  // namespace quench
