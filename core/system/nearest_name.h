#pragma once
// "Did you mean": the known name nearest to a misspelled one.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// Fewest insertions, deletions, substitutions and swaps of neighbours that turn a into b, no substring edited twice
// (the restricted distance of Damerau 1964). Compares bytes. O(|a| |b|) time.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest distance to `name`, ignoring case, if that is at most max(1, min(3, |name| / 3));
// of equals the one that shares more of its beginning with the name, then the first. Empty when none is near.
// Names longer than 256 bytes have no neighbours.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace quench
