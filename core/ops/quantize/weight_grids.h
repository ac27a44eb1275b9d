#pragma once
// Grids of integer weights without zero points, by name: config key recipe.weight_grid, names of schemes.

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "core/number/affine_int.h"
#include "core/system/check.h"

namespace quench {

struct WeightGrid {
  std::string_view name;
  IntMapping mapping;
  std::string_view summary;
};

inline constexpr std::array<WeightGrid, 4> kWeightGrids = {
    {{"int", IntMapping::symmetric, "integers"},
     {"binary", IntMapping::binary, "weights -s and s"},
     {"ternary", IntMapping::ternary, "weights -s, 0 and s"},
     {"seq", IntMapping::stretched, "weights -3s, -s, s and 3s (stretched elastic quantization)"}}};

[[nodiscard]] inline std::span<const WeightGrid> few_level_grids() {
  return std::span(kWeightGrids).subspan(1);
}

[[nodiscard]] inline std::string_view grid_name(IntMapping mapping) {
  const auto* found = std::ranges::find(kWeightGrids, mapping, &WeightGrid::mapping);
  return found == kWeightGrids.end() ? "int" : found->name;
}

// Throws bad_config listing the names; `key`: option in the message.
[[nodiscard]] inline const WeightGrid& require_weight_grid(std::string_view name, std::string_view key) {
  const auto* found = std::ranges::find(kWeightGrids, name, &WeightGrid::name);
  if (found != kWeightGrids.end()) return *found;
  std::string names;
  for (const WeightGrid& grid : kWeightGrids) names += fmt::format("{}{}", names.empty() ? "" : ", ", grid.name);
  QUENCH_FAIL(ErrorCode::bad_config, "{} '{}' is unknown; known: {}", key, name, names);
}

}  // namespace quench
