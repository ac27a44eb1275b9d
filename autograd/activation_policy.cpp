#include "autograd/activation_policy.h"

namespace quench::autograd {

ActivationPolicy::ActivationPolicy(std::int64_t layers, std::int64_t offloaded, std::int64_t recomputed,
                                   std::int64_t attention)
    : of_layer_(static_cast<std::size_t>(layers), SavePolicy::keep), attention_(std::min(attention, layers)) {
  mark(offloaded, SavePolicy::offload);
  mark(recomputed, SavePolicy::recompute);
}

void ActivationPolicy::mark(std::int64_t wanted, SavePolicy as) {
  const std::int64_t kept = count(SavePolicy::keep);
  const bool all = wanted >= kept;
  // The last layer, here the last kept one, is marked only if all are.
  const std::int64_t choice = kept - 1;
  std::int64_t number = 0;  // index among kept layers
  for (SavePolicy& layer : of_layer_) {
    if (layer != SavePolicy::keep) continue;
    if (all || (number < choice && number * wanted % choice < wanted)) layer = as;
    ++number;
  }
}

}  // namespace quench::autograd
