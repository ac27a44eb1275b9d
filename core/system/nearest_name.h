#pragma once
// Nearest known name of a misspelling.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// Restricted Damerau-Levenshtein distance of bytes (Damerau 1964), O(|a| |b|).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// Smallest case-insensitive distance, at most max(1, min(3, |name| / 3)); ties: longer common prefix, then first. Empty
// if none, or for names over 256 bytes.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// Candidate that shares most words with the name, words being separated by underscores; one counts as shared by a
// beginning of three letters ("seq", "sequence") or at distance one. Two thirds of both names' words at least; ties:
// first. Empty if there is none, or for names over 256 bytes.
[[nodiscard]] std::string nearest_by_words(std::string_view name, std::span<const std::string> candidates);

}  // namespace quench
