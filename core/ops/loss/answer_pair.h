#pragma once
// One pair or record of answer_loss(), for the kernels of all devices.

#include "core/ops/loss/answer_loss.h"

namespace quench {

// Pointers of AnswerLossArgs; null where a tensor is undefined.
struct AnswerLossPointers {
  AnswerLossOptions options;
  const double *logps, *reference, *divergence, *prompts;
  const std::int32_t *tokens, *pairs;
  double* derivatives;
  std::int64_t pair_count;
  double prompt_rows;
};

[[nodiscard]] inline AnswerLossPointers answer_loss_pointers(const AnswerLossArgs& args) {
  const auto values = [](const Tensor& tensor) -> const double* {
    return tensor.defined() ? tensor.data<double>() : nullptr;
  };
  return {.options = args.options,
          .logps = values(args.logps),
          .reference = values(args.reference),
          .divergence = values(args.divergence),
          .prompts = values(args.prompts),
          .tokens = args.tokens.data<std::int32_t>(),
          .pairs = args.pairs.data<std::int32_t>(),
          .derivatives = args.derivatives.data<double>(),
          .pair_count = args.pairs.size(0),
          .prompt_rows = static_cast<double>(args.prompt_rows)};
}

// Loss and metrics of a pair, before `scale`.
struct AnswerTerms {
  double loss = 0;
  double metrics[kMostAnswerMetrics] = {};
};

[[nodiscard]] QUENCH_HOST_DEVICE inline AnswerScore answer_score(const AnswerLossPointers& args, std::int32_t answer) {
  return {args.logps[answer], args.reference != nullptr ? args.reference[answer] : 0.0, args.tokens[answer]};
}

// Adds the terms of pair `index`, and writes its derivatives.
QUENCH_HOST_DEVICE inline void add_answer_pair(const AnswerLossPointers& args, std::int64_t index, AnswerTerms& terms) {
  const std::int32_t first = args.pairs[2 * index];
  const bool desirable = args.pairs[2 * index + 1] != 0;
  if (args.options.loss == AnswerLoss::kto) {
    const double kl = kto_divergence(args.divergence[0], static_cast<std::int64_t>(args.divergence[1]));
    const LabelLoss one = label_loss(args.options, answer_score(args, first), desirable, kl);
    terms.loss += one.loss;
    args.derivatives[first] = one.d_logp;
    terms.metrics[desirable ? kChosenReward : kRejectedReward] += one.reward;
    terms.metrics[desirable ? kChosenLogp : kRejectedLogp] += args.logps[first];
    const double above = one.reward - args.options.beta * kl;
    terms.metrics[kRewardAccuracy] += (desirable ? above > 0 : above < 0) ? 1 : 0;
    terms.metrics[kFirstExtra] += kl;
    terms.metrics[kSecondExtra] += desirable ? 1 : 0;
    return;
  }
  const PairLoss one = pair_loss(args.options, answer_score(args, first), answer_score(args, first + 1));
  terms.loss += one.loss;
  args.derivatives[first] = one.d_chosen;
  args.derivatives[first + 1] = one.d_rejected;
  terms.metrics[kChosenReward] += one.chosen_reward;
  terms.metrics[kRejectedReward] += one.rejected_reward;
  terms.metrics[kRewardMargin] += one.chosen_reward - one.rejected_reward;
  terms.metrics[kRewardAccuracy] += one.chosen_reward > one.rejected_reward ? 1 : 0;
  terms.metrics[kChosenLogp] += one.chosen_logp;
  terms.metrics[kRejectedLogp] += one.rejected_logp;
  if (args.options.loss == AnswerLoss::orpo) terms.metrics[kSecondExtra] += one.log_odds;
}

// Adds the mean cross-entropy of prompts and chosen answers, once a pair. `sum`: of their cross-entropies.
QUENCH_HOST_DEVICE inline void add_prompt_terms(const AnswerLossPointers& args, double sum, AnswerTerms& terms) {
  if (args.prompts == nullptr || args.prompt_rows == 0) return;
  const double share = static_cast<double>(args.pair_count) * (sum / args.prompt_rows);
  terms.loss += share;
  terms.metrics[kFirstExtra] += share;
}

}  // namespace quench
