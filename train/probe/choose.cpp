#include "train/probe/choose.h"

#include <algorithm>

namespace quench {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::ranges::find(list, value) != list.end();
}

// True if the recipe converts layers of this kind under these exclusions.
bool remains(const LayerTimes& layer, std::string_view recipe, const std::vector<std::string>& exclude) {
  const RecipeTime* time = layer.find(recipe);
  return time != nullptr && time->skipped_because.empty() && !contains(exclude, layer.kind.pattern());
}

}  // namespace

const RecipeTime* LayerTimes::find(std::string_view recipe) const noexcept {
  const auto at = std::ranges::find(recipes, recipe, &RecipeTime::recipe);
  return at == recipes.end() ? nullptr : &*at;
}

bool ErrorBound::allows(const ProductErrors& errors) const noexcept {
  return errors.y <= output && errors.dx <= gradient() && errors.dw <= gradient();
}

std::vector<Exclusion> exclusions(std::string_view recipe, const std::vector<LayerTimes>& layers,
                                  const std::vector<LayerError>& errors, const ErrorBound& bound, bool sampled) {
  std::vector<Exclusion> result;
  for (const LayerTimes& layer : layers) {
    if (!remains(layer, recipe, {})) continue;
    std::size_t measured = 0;
    std::vector<std::string> beyond;
    for (const LayerError& error : errors) {
      if (error.recipe != recipe || last_component(error.layer) != layer.kind.name) continue;
      ++measured;
      if (!bound.allows(error.errors)) beyond.push_back(error.layer);
    }
    if (2 * beyond.size() > measured || (sampled && !beyond.empty())) beyond = {layer.kind.pattern()};
    for (const std::string& pattern : beyond) result.push_back({pattern, Excluded::by_error});
  }
  for (const LayerTimes& layer : layers) {
    const RecipeTime* time = layer.find(recipe);
    const bool already = std::ranges::find(result, layer.kind.pattern(), &Exclusion::pattern) != result.end();
    if (remains(layer, recipe, {}) && !already && time->milliseconds >= layer.high_precision)
      result.push_back({layer.kind.pattern(), Excluded::by_time});
  }
  return result;
}

std::vector<Candidate> make_candidates(const std::vector<std::string>& recipes, const std::vector<LayerTimes>& layers,
                                       const std::vector<LayerError>& errors, const ErrorBound& bound, bool sampled) {
  std::vector<Candidate> candidates{{"bf16", {}}};
  const auto add = [&](const std::string& recipe, const std::vector<std::string>& exclude) {
    if (std::ranges::any_of(layers, [&](const LayerTimes& layer) { return remains(layer, recipe, exclude); }))
      candidates.push_back({recipe, exclude});
  };
  for (const std::string& recipe : recipes) {
    std::vector<std::string> needed, all;
    for (const Exclusion& exclusion : exclusions(recipe, layers, errors, bound, sampled)) {
      if (exclusion.why == Excluded::by_error) needed.push_back(exclusion.pattern);
      all.push_back(exclusion.pattern);
    }
    add(recipe, needed);
    if (all.size() > needed.size()) add(recipe, all);
  }
  return candidates;
}

const Candidate& fastest(const std::vector<Candidate>& candidates) {
  QUENCH_CHECK(!candidates.empty(), "fastest: no candidates");
  const auto best = std::ranges::min_element(candidates, {}, &Candidate::milliseconds);
  return best->milliseconds <= candidates.front().milliseconds * (1 - kLeastGain) ? *best : candidates.front();
}

RecipeChoice choose(const std::vector<Candidate>& candidates) {
  const Candidate& best = fastest(candidates);
  const double bf16 = candidates.front().milliseconds;
  if (&best == &candidates.front()) {
    const auto rival = std::min_element(candidates.begin() + 1, candidates.end(),
                                        [](const auto& a, const auto& b) { return a.milliseconds < b.milliseconds; });
    if (rival == candidates.end()) return {"bf16", {}, "no recipe may convert any layer within the error bound"};
    return {"bf16",
            {},
            fmt::format("{}, the fastest of the others, runs at {:.2f} of its speed", rival->recipe,
                        bf16 / rival->milliseconds)};
  }
  RecipeChoice choice{best.recipe, {"lm_head"}, fmt::format("{:.2f} times as fast as bf16", bf16 / best.milliseconds)};
  for (const std::string& pattern : best.exclude)
    if (!contains(choice.exclude, pattern)) choice.exclude.push_back(pattern);
  return choice;
}

}  // namespace quench
