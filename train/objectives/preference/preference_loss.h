#pragma once
// Losses of preference training on log-probabilities of whole answers, as TRL defines them (trl 0.24: DPOTrainer,
// CPOTrainer, ORPOTrainer, KTOTrainer). Arithmetic in f64.

#include <cstdint>
#include <string_view>

#include "core/system/enum_names.h"

namespace quench {

enum class PreferenceLoss : std::uint8_t {
  dpo,    // Rafailov et al., 2023 (https://arxiv.org/abs/2305.18290)
  ipo,    // Azar et al., 2023 (https://arxiv.org/abs/2310.12036)
  simpo,  // Meng et al., 2024 (https://arxiv.org/abs/2405.14734)
  orpo,   // Hong et al., 2024 (https://arxiv.org/abs/2403.07691)
  kto,    // Ethayarajh et al., 2024 (https://arxiv.org/abs/2402.01306)
};
template <>
struct EnumNames<PreferenceLoss> {
  using E = PreferenceLoss;
  static constexpr EnumTable<E, 5> values = {
      {{E::dpo, "dpo"}, {E::ipo, "ipo"}, {E::simpo, "simpo"}, {E::orpo, "orpo"}, {E::kto, "kto"}}};
};

struct PreferenceLossOptions {
  PreferenceLoss loss = PreferenceLoss::dpo;
  double beta = 0.1;
  double label_smoothing = 0;         // dpo, simpo: probability that a pair's labels are exchanged, below 0.5
  bool length_normalization = false;  // dpo: mean over tokens; always for ipo, simpo and orpo
  double simpo_margin = 0.5;          // gamma
  double desirable_weight = 1;        // kto
  double undesirable_weight = 1;      // kto
};

[[nodiscard]] constexpr bool needs_reference(PreferenceLoss loss) noexcept {
  return loss != PreferenceLoss::simpo && loss != PreferenceLoss::orpo;
}
// Log-probabilities are means over tokens.
[[nodiscard]] constexpr bool averages_tokens(const PreferenceLossOptions& options) noexcept {
  return options.loss == PreferenceLoss::ipo || options.loss == PreferenceLoss::simpo ||
         options.loss == PreferenceLoss::orpo || (options.loss == PreferenceLoss::dpo && options.length_normalization);
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
  double chosen_logp = 0, rejected_logp = 0;  // log-probabilities in the loss: sums, or means over tokens
  double log_odds = 0;                        // orpo
};

// dpo, ipo, simpo, orpo.
[[nodiscard]] PairLoss pair_loss(const PreferenceLossOptions& options, const AnswerScore& chosen,
                                 const AnswerScore& rejected);

struct LabelLoss {
  double loss = 0;
  double d_logp = 0;
  double reward = 0;
};

// kto. `divergence`: kto_divergence() of the batch, a constant in the gradient.
[[nodiscard]] LabelLoss label_loss(const PreferenceLossOptions& options, const AnswerScore& answer, bool desirable,
                                   double divergence);
// Mean of logp - reference over answers to other prompts, or 0 if it is negative.
[[nodiscard]] double kto_divergence(double sum, std::int64_t count);

}  // namespace quench
