#include "core/ops/experts/expert_bias.h"

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void expert_bias_kernel(const ExpertBiasArgs& args) {
  const std::int64_t experts = args.counts.size(0);
  const float* counts = args.counts.data<float>();
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += static_cast<double>(counts[e]);
  const double mean = sum / static_cast<double>(experts);
  float* bias = args.bias.data<float>();
  for (std::int64_t i = 0; i < args.bias.size(0); ++i) {
    const auto count = static_cast<double>(counts[args.first + i]);
    if (count != mean) bias[i] += count < mean ? args.speed : -args.speed;
  }
}

QUENCH_CPU_KERNEL(expert_bias_slot, expert_bias_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
