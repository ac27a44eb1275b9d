#pragma once
// "Did you mean": nearest known name of a misspelling.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// Restricted Damerau-Levenshtein distance (insertions, deletions, substitutions, transpositions; Damerau 1964) of
// bytes, O(|a| |b|) time.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// Candidate with the smallest case-insensitive distance, at most max(1, min(3, |name| / 3)); ties: longer common
// prefix, then first. Empty if none, or for names over 256 bytes.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace quench
