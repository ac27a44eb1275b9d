#include "core/system/choice_table.h"
#include "recipes/recipe.h"
#include "recipes/sparse.h"

namespace quench::recipes {
namespace {

const ChoiceTable<Recipe>& table() {
  static const ChoiceTable<Recipe> table("recipe", {kBf16,
                                                    kFloat8Tensorwise,
                                                    kFloat8Rowwise,
                                                    kFloat8RowwiseWithGwHp,
                                                    kFloat8Blockwise,
                                                    kMxfp8,
                                                    kInt8Rowwise,
                                                    kQatInt8DynInt4,
                                                    kQatInt4WeightOnly,
                                                    kQatInt8,
                                                    kQatFloat8,
                                                    kQatFloat8Int4,
                                                    kQatMxfp4,
                                                    kQatMxfp4WeightOnly,
                                                    kQatNvfp4,
                                                    kQatNvfp4WeightOnly,
                                                    kQatInt8DynIntx,
                                                    kQatIntxWeightOnly,
                                                    kQatGguf,
                                                    kSparse24,
                                                    kSparse24Transposable,
                                                    kQatInt4WeightOnlySparse24});
  return table;
}

}  // namespace

std::span<const Recipe> recipe_table() {
  return table().entries();
}

std::vector<std::string> default_exclusions(const Recipe& recipe) {
  if (recipe.capabilities.takes_head) return {};
  return {std::string(nn::kHeadName)};
}

const Recipe& find_recipe(std::string_view name) {
  return table().require(name);
}

}  // namespace quench::recipes
