#pragma once
// Losses of log-probabilities of whole answers, one pair or one label at a time, as TRL defines them (trl 0.24:
// DPOTrainer, CPOTrainer, ORPOTrainer, KTOTrainer). Arithmetic in f64.

#include <cmath>
#include <cstdint>

#include "core/number/float_types.h"

namespace quench {

enum class AnswerLoss : std::uint8_t {
  dpo,    // Rafailov et al., 2023 (https://arxiv.org/abs/2305.18290)
  ipo,    // Azar et al., 2023 (https://arxiv.org/abs/2310.12036)
  simpo,  // Meng et al., 2024 (https://arxiv.org/abs/2405.14734)
  orpo,   // Hong et al., 2024 (https://arxiv.org/abs/2403.07691)
  kto,    // Ethayarajh et al., 2024 (https://arxiv.org/abs/2402.01306)
};

struct AnswerLossOptions {
  AnswerLoss loss = AnswerLoss::dpo;
  double beta = 0.1;
  double label_smoothing = 0;         // dpo, simpo: probability that a pair's labels are exchanged, below 0.5
  bool length_normalization = false;  // dpo: mean over tokens; always for ipo, simpo and orpo
  double simpo_margin = 0.5;          // gamma
  double desirable_weight = 1;        // kto
  double undesirable_weight = 1;      // kto
};

[[nodiscard]] QUENCH_HOST_DEVICE constexpr bool needs_reference(AnswerLoss loss) noexcept {
  return loss != AnswerLoss::simpo && loss != AnswerLoss::orpo;
}
// Log-probabilities are means over tokens.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bool averages_tokens(const AnswerLossOptions& options) noexcept {
  return options.loss == AnswerLoss::ipo || options.loss == AnswerLoss::simpo || options.loss == AnswerLoss::orpo ||
         (options.loss == AnswerLoss::dpo && options.length_normalization);
}

// An answer: sums of log-probabilities over its tokens, more than 0.
struct AnswerScore {
  double logp = 0;
  double reference = 0;  // 0 without a reference
  std::int64_t tokens = 1;
};

struct PairLoss {
  double loss = 0;                      // orpo: the odds ratio's term; the mean cross-entropy is added by the caller
  double d_chosen = 0, d_rejected = 0;  // d loss / d sum of log-probabilities
  double chosen_reward = 0, rejected_reward = 0;
  double chosen_logp = 0, rejected_logp = 0;  // as the loss has them: sums, or means over tokens
  double log_odds = 0;                        // orpo
};

struct LabelLoss {
  double loss = 0;
  double d_logp = 0;
  double reward = 0;
};

namespace answers {

QUENCH_HOST_DEVICE inline double log_sigmoid(double x) {
  return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

QUENCH_HOST_DEVICE inline double sigmoid(double x) {
  return exp(log_sigmoid(x));
}

// Loss of a margin, and its derivative.
struct MarginLoss {
  double loss, derivative;
};

// -log sigmoid(beta * x), with labels exchanged with probability `smoothing`.
QUENCH_HOST_DEVICE inline MarginLoss smoothed_log_loss(double x, double beta, double smoothing) {
  return {-log_sigmoid(beta * x) * (1 - smoothing) - log_sigmoid(-beta * x) * smoothing,
          beta * (smoothing * sigmoid(beta * x) - (1 - smoothing) * sigmoid(-beta * x))};
}

// log(p / (1 - p)) of log p, and its derivative 1 / (1 - p). p = 1 has infinite odds.
QUENCH_HOST_DEVICE inline MarginLoss log_odds_of(double log_p) {
  const double rest = -expm1(log_p);
  return {log_p - log(rest), 1 / rest};
}

}  // namespace answers

// dpo, ipo, simpo, orpo; zeros for kto.
[[nodiscard]] QUENCH_HOST_DEVICE inline PairLoss pair_loss(const AnswerLossOptions& options, const AnswerScore& chosen,
                                                           const AnswerScore& rejected) {
  const bool mean = averages_tokens(options);
  const double chosen_count = mean ? static_cast<double>(chosen.tokens) : 1;
  const double rejected_count = mean ? static_cast<double>(rejected.tokens) : 1;
  const double beta = options.beta;
  PairLoss result;
  result.chosen_logp = chosen.logp / chosen_count;
  result.rejected_logp = rejected.logp / rejected_count;
  const double chosen_ratio = result.chosen_logp - chosen.reference / chosen_count;
  const double rejected_ratio = result.rejected_logp - rejected.reference / rejected_count;
  result.chosen_reward = beta * chosen_ratio;
  result.rejected_reward = beta * rejected_ratio;
  const double margin = chosen_ratio - rejected_ratio;
  double d_chosen = 0, d_rejected = 0;  // with respect to chosen_logp and rejected_logp
  switch (options.loss) {
    case AnswerLoss::dpo: {
      const answers::MarginLoss loss = answers::smoothed_log_loss(margin, beta, options.label_smoothing);
      result.loss = loss.loss;
      d_chosen = loss.derivative;
      d_rejected = -loss.derivative;
      break;
    }
    case AnswerLoss::ipo: {
      const double distance = margin - 1 / (2 * beta);
      result.loss = distance * distance;
      d_chosen = 2 * distance;
      d_rejected = -2 * distance;
      break;
    }
    case AnswerLoss::simpo: {
      const answers::MarginLoss loss =
          answers::smoothed_log_loss(margin - options.simpo_margin / beta, beta, options.label_smoothing);
      result.loss = loss.loss;
      d_chosen = loss.derivative;
      d_rejected = -loss.derivative;
      break;
    }
    case AnswerLoss::orpo: {
      const answers::MarginLoss good = answers::log_odds_of(result.chosen_logp),
                                bad = answers::log_odds_of(result.rejected_logp);
      result.log_odds = good.loss - bad.loss;
      result.loss = -beta * answers::log_sigmoid(result.log_odds);
      const double derivative = -beta * answers::sigmoid(-result.log_odds);
      d_chosen = derivative * good.derivative;
      d_rejected = -derivative * bad.derivative;
      break;
    }
    case AnswerLoss::kto: break;  // label_loss()
  }
  result.d_chosen = d_chosen / chosen_count;
  result.d_rejected = d_rejected / rejected_count;
  return result;
}

// kto. `divergence`: kto_divergence() of the batch, a constant in the gradient.
[[nodiscard]] QUENCH_HOST_DEVICE inline LabelLoss label_loss(const AnswerLossOptions& options,
                                                             const AnswerScore& answer, bool desirable,
                                                             double divergence) {
  const double beta = options.beta, ratio = answer.logp - answer.reference;
  const double sign = desirable ? 1 : -1;
  const double weight = desirable ? options.desirable_weight : options.undesirable_weight;
  const double p = answers::sigmoid(sign * beta * (ratio - divergence));
  const double rest = answers::sigmoid(-sign * beta * (ratio - divergence));
  return {weight * rest, -sign * weight * beta * p * rest, beta * ratio};
}

// Divergence from the mean of logp - reference over answers to other prompts: at least 0.
[[nodiscard]] QUENCH_HOST_DEVICE inline double kto_divergence(double sum, std::int64_t count) {
  return count > 0 ? fmax(0.0, sum / static_cast<double>(count)) : 0.0;
}

}  // namespace quench
