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

bool ActivationPolicy::keeps_attention(std::int64_t layer) const noexcept {
  if (layer < 0 || layer >= layers()) return false;
  // Layers of the same kind, offloaded or not, and how many of these keep.
  const bool away = of(layer) == SavePolicy::offload;
  const std::int64_t offloaded = count(SavePolicy::offload), first = std::min(attention_, offloaded);
  const std::int64_t kind = away ? offloaded : layers() - offloaded, kept = away ? first : attention_ - first;
  std::int64_t number = 0;  // index within the kind
  for (std::int64_t i = 0; i < layer; ++i) number += (of(i) == SavePolicy::offload) == away ? 1 : 0;
  return number * kept % kind < kept;
}

}  // namespace quench::autograd
