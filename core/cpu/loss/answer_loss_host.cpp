#include "core/ops/loss/answer_loss.h"

#include <algorithm>

#include "core/ops/loss/answer_pair.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void answer_sums(const AnswerSumsArgs& args) {
  const auto* ranges = args.rows.ranges.data<std::int32_t>();
  const auto* owners = args.rows.owners.data<std::int32_t>();
  const float* losses = args.losses.data<float>();
  auto* logps = args.logps.data<double>();
  for (std::int64_t a = 0; a < args.logps.numel(); ++a) {
    double sum = 0;
    for (std::int32_t row = ranges[2 * a]; row < ranges[2 * a + 1]; ++row)
      if (owners[row] == a) sum -= static_cast<double>(losses[row]);
    logps[a] = sum;
  }
}

void answer_loss(const AnswerLossArgs& args) {
  const AnswerLossPointers pointers = answer_loss_pointers(args);
  std::fill_n(pointers.derivatives, args.derivatives.numel(), 0.0);
  AnswerTerms terms;
  double prompts = 0;
  for (std::int64_t i = 0; i < pointers.pair_count; ++i) {
    add_answer_pair(pointers, i, terms);
    if (pointers.prompts != nullptr) prompts -= pointers.prompts[pointers.pairs[2 * i]];
  }
  add_prompt_terms(pointers, prompts, terms);
  const auto scaled = [&](double x) { return static_cast<float>(x * static_cast<double>(args.scale)); };
  *args.value.data<float>() = scaled(terms.loss);
  if (!args.metrics.defined()) return;
  for (std::int64_t i = 0; i < args.metrics.numel(); ++i) args.metrics.data<float>()[i] = scaled(terms.metrics[i]);
}

void answer_factors(const AnswerFactorsArgs& args) {
  const auto* owners = args.owners.data<std::int32_t>();
  const auto* derivatives = args.derivatives.data<double>();
  const auto* prompts = args.prompts.defined() ? args.prompts.data<std::int32_t>() : nullptr;
  auto* factors = args.factors.data<float>();
  for (std::int64_t row = 0; row < args.factors.numel(); ++row) {
    double derivative = owners[row] >= 0 ? 0.0 - derivatives[owners[row]] : 0.0;
    if (prompts != nullptr && prompts[row] >= 0) derivative += args.prompt_share;
    factors[row] = static_cast<float>(derivative * static_cast<double>(args.scale));
  }
}

void answer_divergence(const AnswerDivergenceArgs& args) {
  const auto* logps = args.logps.data<double>();
  const auto* reference = args.reference.defined() ? args.reference.data<double>() : nullptr;
  const auto* pairs = args.pairs.data<std::int32_t>();
  double sum = 0;
  for (std::int64_t i = 0; i < args.pairs.size(0); ++i) {
    const std::int32_t other = pairs[2 * i] + 1;
    sum += logps[other] - (reference != nullptr ? reference[other] : 0.0);
  }
  auto* sums = args.sums.data<double>();
  sums[0] = sum;
  sums[1] = static_cast<double>(args.pairs.size(0));
}

QUENCH_CPU_KERNEL(answer_sums_slot, answer_sums);
QUENCH_CPU_KERNEL(answer_loss_slot, answer_loss);
QUENCH_CPU_KERNEL(answer_factors_slot, answer_factors);
QUENCH_CPU_KERNEL(answer_divergence_slot, answer_divergence);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
