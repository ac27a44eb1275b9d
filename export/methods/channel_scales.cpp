#include "export/methods/channel_scales.h"

#include <algorithm>
#include <map>

namespace quench {

void share_columns(const Tensor& values, const std::vector<std::int64_t>& shared) {
  std::map<std::int64_t, float> largest;
  float* v = values.data<float>();
  for (std::size_t c = 0; c < shared.size(); ++c) {
    auto [entry, fresh] = largest.try_emplace(shared[c], v[c]);
    entry->second = std::max(entry->second, v[c]);
  }
  for (std::size_t c = 0; c < shared.size(); ++c) v[c] = largest.at(shared[c]);
}

bool any_quantized(const std::vector<ScaledWeight>& weights) {
  return std::ranges::any_of(weights, [](const ScaledWeight& one) { return one.scheme != nullptr; });
}

}  // namespace quench
