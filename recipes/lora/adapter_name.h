#pragma once
// Name of an adapter in reports.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench::recipes {

// "lora r16"; a fused layer with different ranks lists each once, in order: "lora r16/r8".
template <class Piece>
[[nodiscard]] std::string adapter_name(std::string_view kind, const std::vector<Piece>& pieces) {
  std::string name(kind);
  std::vector<std::int64_t> ranks;
  for (const Piece& piece : pieces)
    if (std::ranges::find(ranks, piece.rank) == ranks.end()) ranks.push_back(piece.rank);
  for (const std::int64_t rank : ranks) name += fmt::format("{}r{}", rank == ranks.front() ? " " : "/", rank);
  return name;
}

}  // namespace quench::recipes
