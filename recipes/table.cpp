#include <array>

#include "core/system/check.h"
#include "recipes/recipe.h"
#include "recipes/sparse.h"

namespace quench::recipes {

std::span<const Recipe> recipe_table() {
  static const std::array table{kBf16,
                                kFloat8Tensorwise,
                                kFloat8Rowwise,
                                kFloat8RowwiseWithGwHp,
                                kMxfp8,
                                kQatInt8DynInt4,
                                kQatInt4WeightOnly,
                                kQatInt8,
                                kQatFloat8,
                                kQatFloat8Int4,
                                kQatMxfp4,
                                kQatNvfp4,
                                kQatInt8DynIntx,
                                kQatIntxWeightOnly,
                                kSparse24,
                                kSparse24Transposable,
                                kQatInt4WeightOnlySparse24};
  return table;
}

const Recipe& find_recipe(std::string_view name) {
  std::string known;
  for (const Recipe& recipe : recipe_table()) {
    if (recipe.name == name) return recipe;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", recipe.name);
  }
  QUENCH_FAIL(ErrorCode::bad_config, "recipe '{}' is unknown; known: {}", name, known);
}

}  // namespace quench::recipes
