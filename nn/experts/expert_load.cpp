#include "nn/experts/expert_load.h"

#include <algorithm>

#include "core/ops/elementwise.h"

namespace quench::nn {

ExpertLoad::ExpertLoad(std::int64_t layers, std::int64_t experts, Device device) {
  const MemoryScope scope(MemoryCategory::other);
  counts_ = Tensor::zeros({layers, experts}, DType::f32, device);
  losses_ = Tensor::zeros({layers, 3}, DType::f32, device);
  constexpr float kOne[] = {1.0f};
  one_ = Tensor::from_values<float>({1}, kOne).to(device);
}

void ExpertLoad::reset() {
  counts_.zero();
  losses_.zero();
}

void ExpertLoad::add(std::int64_t layer, const Tensor& counts, const Tensor& logits) {
  const Tensor sums = losses_.select(0, layer);
  accumulate({.x = one_, .out = sums.narrow(0, 2, 1)});
  accumulate({.x = counts, .out = counts_.select(0, layer)});
  if (!logits.defined()) return;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor losses = Tensor::empty({2}, DType::f32, logits.device());
  router_loss({.logits = logits, .counts = counts, .losses = losses});
  accumulate({.x = losses, .out = sums.narrow(0, 0, 2)});
}

double ExpertLoad::Layer::imbalance() const {
  return share.empty() ? 0 : *std::ranges::max_element(share) * static_cast<double>(share.size());
}

std::vector<ExpertLoad::Layer> ExpertLoad::read() const {
  const Tensor counts = counts_.to(Device{}), losses = losses_.to(Device{});
  const std::int64_t experts = counts.size(1);
  std::vector<Layer> result;
  for (std::int64_t layer = 0; layer < counts.size(0); ++layer) {
    const float *row = counts.data<float>() + layer * experts, *sums = losses.data<float>() + 3 * layer;
    const auto passes = static_cast<double>(sums[2]);
    if (passes == 0) continue;
    Layer one{.layer = layer, .share = {}};
    double total = 0;
    for (std::int64_t e = 0; e < experts; ++e) total += static_cast<double>(row[e]);
    for (std::int64_t e = 0; e < experts; ++e)
      one.share.push_back(total > 0 ? static_cast<double>(row[e]) / total : 0.0);
    one.balance = static_cast<double>(sums[0]) / passes;
    one.z = static_cast<double>(sums[1]) / passes;
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace quench::nn
