#pragma once
// Operands of the ops of core/ops/loss/answer_loss.h over random answers.

#include <random>
#include <vector>

#include "core/ops/loss/answer_loss.h"
#include "core/ops/loss/answer_loss_names.h"

namespace quench::testing {

struct AnswerBatch {
  Tensor ranges, owners, prompts, tokens, pairs, losses, reference;
  std::int64_t prompt_rows = 0;

  // Pairs of answers of 1 to `longest` targets after prompts of up to 5 rows without one; a row without a target also
  // within some answers. Labels alternate.
  static AnswerBatch random(std::int64_t pair_count, std::int32_t longest, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<std::int32_t> ranges, owners, prompts, tokens, pairs;
    std::vector<float> losses;
    std::vector<double> reference;
    AnswerBatch batch;
    for (std::int32_t answer = 0; answer < 2 * pair_count; ++answer) {
      const auto begin = static_cast<std::int32_t>(owners.size());
      const auto prompt = static_cast<std::int32_t>(generator() % 6),
                 targets = 1 + static_cast<std::int32_t>(generator() % static_cast<unsigned>(longest));
      for (std::int32_t row = 0; row < prompt + targets; ++row) {
        const bool is_target = row >= prompt && (row == prompt || row % 7 != 3);
        owners.push_back(is_target ? answer : -1);
        prompts.push_back(answer % 2 == 0 ? answer : -1);
        losses.push_back(0.25f + static_cast<float>(generator() % 1000) / 300.0f);
      }
      ranges.insert(ranges.end(), {begin, static_cast<std::int32_t>(owners.size())});
      std::int32_t count = 0;
      for (std::size_t row = static_cast<std::size_t>(begin); row < owners.size(); ++row)
        count += owners[row] == answer ? 1 : 0;
      tokens.push_back(count);
      reference.push_back(-1.5 * count - static_cast<double>(generator() % 100) / 70.0);
      if (answer % 2 == 0) batch.prompt_rows += prompt + targets;
    }
    for (std::int32_t pair = 0; pair < pair_count; ++pair) pairs.insert(pairs.end(), {2 * pair, pair % 3 == 0 ? 0 : 1});
    const auto numbers = [](const Shape& shape, const std::vector<std::int32_t>& values) {
      return Tensor::from_values<std::int32_t>(shape, values);
    };
    const auto rows = static_cast<std::int64_t>(owners.size());
    batch.ranges = numbers({2 * pair_count, 2}, ranges);
    batch.owners = numbers({rows}, owners);
    batch.prompts = numbers({rows}, prompts);
    batch.tokens = numbers({2 * pair_count}, tokens);
    batch.pairs = numbers({pair_count, 2}, pairs);
    batch.losses = Tensor::from_values<float>({rows}, losses);
    batch.reference = Tensor::from_values<double>({2 * pair_count}, reference);
    return batch;
  }

  [[nodiscard]] AnswerBatch to(Device device) const {
    return {ranges.to(device), owners.to(device), prompts.to(device),   tokens.to(device),
            pairs.to(device),  losses.to(device), reference.to(device), prompt_rows};
  }
};

struct AnswerResults {
  Tensor value, metrics, derivatives, factors;
};

// All ops in turn, as a training step calls them.
inline AnswerResults run_answers(const AnswerBatch& batch, const AnswerLossOptions& options, float scale) {
  const Device device = batch.losses.device();
  const std::int64_t answers = batch.tokens.numel();
  AnswerResults out{Tensor::empty({1}, DType::f32, device),
                    Tensor::empty({answer_metrics(options.loss)}, DType::f32, device),
                    Tensor::empty({answers}, DType::f64, device), Tensor::empty_like(batch.losses)};
  const bool with_prompts = options.loss == AnswerLoss::orpo;
  const auto sums = [&](const Tensor& owners) {
    const Tensor logps = Tensor::empty({answers}, DType::f64, device);
    answer_sums({.rows = {batch.ranges, owners}, .losses = batch.losses, .logps = logps});
    return logps;
  };
  AnswerLossArgs args{.options = options,
                      .logps = sums(batch.owners),
                      .reference = needs_reference(options.loss) ? batch.reference : Tensor(),
                      .tokens = batch.tokens,
                      .pairs = batch.pairs,
                      .scale = scale,
                      .value = out.value,
                      .metrics = out.metrics,
                      .derivatives = out.derivatives};
  if (options.loss == AnswerLoss::kto) {
    args.divergence = Tensor::empty({2}, DType::f64, device);
    answer_divergence(
        {.logps = args.logps, .reference = args.reference, .pairs = batch.pairs, .sums = args.divergence});
  }
  if (with_prompts) {
    args.prompts = sums(batch.prompts);
    args.prompt_rows = batch.prompt_rows;
  }
  answer_loss(args);
  answer_factors(
      {.owners = batch.owners,
       .derivatives = out.derivatives,
       .prompts = with_prompts ? batch.prompts : Tensor(),
       .prompt_share =
           with_prompts ? static_cast<double>(batch.pairs.size(0)) / static_cast<double>(batch.prompt_rows) : 0.0,
       .scale = scale,
       .factors = out.factors});
  return out;
}

inline const AnswerLossOptions kAnswerLosses[] = {
    {.loss = AnswerLoss::dpo, .beta = 0.1, .label_smoothing = 0.1},
    {.loss = AnswerLoss::dpo, .beta = 0.3, .length_normalization = true},
    {.loss = AnswerLoss::ipo, .beta = 0.2},
    {.loss = AnswerLoss::simpo, .beta = 2},
    {.loss = AnswerLoss::orpo, .beta = 0.1},
    {.loss = AnswerLoss::kto, .beta = 0.1, .desirable_weight = 1.3, .undesirable_weight = 0.7},
};

}  // namespace quench::testing
