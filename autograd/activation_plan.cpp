#include "autograd/activation_plan.h"

namespace quench::autograd {

ActivationPlan::ActivationPlan(std::int64_t layers, std::int64_t offloaded, std::int64_t recomputed)
    : of_layer_(static_cast<std::size_t>(layers), LargestActivation::kept) {
  mark(offloaded, LargestActivation::offloaded);
  mark(recomputed, LargestActivation::recomputed);
}

void ActivationPlan::mark(std::int64_t wanted, LargestActivation as) {
  const std::int64_t kept = count(LargestActivation::kept);
  const bool all = wanted >= kept;
  // The last layer is kept until all are marked: it is the last of the kept ones here.
  const std::int64_t choice = kept - 1;
  std::int64_t number = 0;  // among the kept ones
  for (LargestActivation& layer : of_layer_) {
    if (layer != LargestActivation::kept) continue;
    if (all || (number < choice && number * wanted % choice < wanted)) layer = as;
    ++number;
  }
}

}  // namespace quench::autograd
