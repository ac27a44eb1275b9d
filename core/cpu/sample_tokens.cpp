#include "core/ops/sampling/sample_tokens.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/number/sampling_weight.h"

namespace quench {
namespace {

// A row of logits, with penalties, of the allowed tokens.
class LogitRow {
 public:
  LogitRow(std::span<const float> logits, const SamplingRow& row, std::int32_t* seen, const std::int32_t* allowed)
      : logits_(logits), row_(row), seen_(row.penalty == 1.0f ? nullptr : seen), values_(logits.begin(), logits.end()) {
    for (std::size_t i = 0; seen_ != nullptr && i < values_.size(); ++i)
      if (has_bit(seen_, static_cast<int>(i))) values_[i] = penalized_logit(values_[i], row.penalty);
    for (std::size_t i = 0; allowed != nullptr && i < values_.size(); ++i)
      if (!has_bit(allowed, static_cast<int>(i))) values_[i] = kForbiddenLogit;
  }

  SampledRow sample() {
    SampledRow result{.token = 0, .first_nonfinite = -1, .logit = 0, .maximum = -INFINITY, .sum = 0};
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      if (!std::isfinite(logits_[i])) {
        result.first_nonfinite = static_cast<std::int32_t>(i);
        result.maximum = -INFINITY;
        return result;
      }
      result.maximum = std::max(result.maximum, logits_[i]);
    }
    result.maximum += 0.0f;  // the positive one of two zeros
    for (const float logit : logits_)
      result.sum += sampling_weight(logit, result.maximum, std::numbers::log2e_v<float>);
    result.token = static_cast<std::int32_t>(row_.scale == 0 ? best() : drawn());
    result.logit = logits_[static_cast<std::size_t>(result.token)];
    if (seen_ != nullptr)
      seen_[result.token / 32] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(seen_[result.token / 32]) | 1u << (result.token % 32));
    return result;
  }

 private:
  [[nodiscard]] std::size_t best() const {
    return static_cast<std::size_t>(std::ranges::max_element(values_) - values_.begin());
  }

  [[nodiscard]] std::size_t drawn() const {
    const float maximum = values_[best()];
    std::vector<std::uint64_t> weights(values_.size());
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = sampling_weight(values_[i], maximum, row_.scale);
    const std::uint64_t least = weight_share(row_.min_p, kUnitWeight);
    if (row_.top_k > 0 || row_.top_p < 1) drop_beyond(weights);
    std::uint64_t total = 0;
    for (std::uint64_t& weight : weights) total += weight = weight >= least ? weight : 0;
    std::uint64_t point = weight_point(row_.uniform, total);
    std::size_t i = 0;
    while (point >= weights[i]) point -= weights[i++];
    return i;
  }

  // Weights of tokens that top-k and top-p drop become 0.
  void drop_beyond(std::vector<std::uint64_t>& weights) const {
    std::vector<std::int32_t> order(values_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    const auto more_likely = [&](std::int32_t a, std::int32_t b) {
      const float x = values_[static_cast<std::size_t>(a)], y = values_[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
    std::size_t keep = order.size();
    if (row_.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(row_.top_k));
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(keep), more_likely);
    if (row_.top_p < 1) {
      std::uint64_t total = 0, mass = 0;
      for (std::size_t i = 0; i < keep; ++i) total += weights[static_cast<std::size_t>(order[i])];
      const std::uint64_t needed = weight_share(row_.top_p, total);
      std::size_t count = 0;
      while (count < keep && mass < needed) mass += weights[static_cast<std::size_t>(order[count++])];
      keep = count;
    }
    for (std::size_t i = keep; i < order.size(); ++i) weights[static_cast<std::size_t>(order[i])] = 0;
  }

  std::span<const float> logits_;
  const SamplingRow& row_;
  std::int32_t* seen_;
  std::vector<float> values_;
};

void sample_tokens_cpu(const SampleTokensArgs& args) {
  const std::int64_t vocabulary = args.logits.size(1);
  for (std::int64_t i = 0; i < args.logits.size(0); ++i) {
    const SamplingRow& row = reinterpret_cast<const SamplingRow*>(args.rows.raw_data())[i];
    std::int32_t* seen = args.seen.defined() ? args.seen.data<std::int32_t>() + row.to * args.seen.size(1) : nullptr;
    const std::int32_t* allowed =
        args.allowed.defined() ? args.allowed.data<std::int32_t>() + row.to * args.allowed.size(1) : nullptr;
    const SampledRow sampled =
        LogitRow({args.logits.data<float>() + i * vocabulary, static_cast<std::size_t>(vocabulary)}, row, seen, allowed)
            .sample();
    reinterpret_cast<SampledRow*>(args.sampled.raw_data())[i] = sampled;
    args.tokens.data<std::int32_t>()[row.to] = sampled.token;
  }
}

QUENCH_CPU_KERNEL(sample_tokens_slot, sample_tokens_cpu);

}  // namespace
}  // namespace quench
