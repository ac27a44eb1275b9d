#pragma once
// Losses of whole answers on the device: sums of log-probabilities, the loss of pairs or labels with its derivative in
// closed form (answer_loss_terms.h), and the factors by which the rows' gradients are scaled. Arithmetic in f64; sums
// in a fixed order.

#include "core/device/kernel_slot.h"
#include "core/ops/loss/answer_loss_terms.h"
#include "core/tensor/tensor.h"

namespace quench {

// Rows of a batch by answer. Rows of an answer lie in one range, which may hold other rows too.
struct AnswerRows {
  Tensor ranges;  // i32 [A,2], contiguous: first row of each answer, and the row after its last
  Tensor owners;  // i32 [R], contiguous: the answer whose target the row is; -1: none
};

struct AnswerSumsArgs {
  AnswerRows rows;
  Tensor losses;  // f32 [R]: cross-entropies
  Tensor logps;   // out, f64 [A]: minus the sum of the answer's losses
};

// Order of the metrics; extra ones follow.
enum AnswerMetric : int {
  kChosenReward,
  kRejectedReward,
  kRewardMargin,
  kRewardAccuracy,
  kChosenLogp,
  kRejectedLogp,
  kFirstExtra,   // orpo: mean cross-entropy of prompts and chosen answers; kto: divergence
  kSecondExtra,  // orpo: log odds; kto: share of desirable records
  kMostAnswerMetrics,
};
[[nodiscard]] constexpr int answer_metrics(AnswerLoss loss) noexcept {
  return loss == AnswerLoss::orpo || loss == AnswerLoss::kto ? kMostAnswerMetrics : kFirstExtra;
}

struct AnswerLossArgs {
  AnswerLossOptions options;
  Tensor logps;         // f64 [A]
  Tensor reference{};   // f64 [A]; undefined: zeros
  Tensor tokens;        // i32 [A], more than 0
  Tensor pairs;         // i32 [P,2], contiguous: chosen (kto: the record's) answer, before the other, and its label
  Tensor divergence{};  // kto: f64 [2], sum of logp - reference over others, and their number
  Tensor prompts{};     // orpo: f64 [A], minus the sums of cross-entropies of prompts and chosen answers
  std::int64_t prompt_rows = 0;  // orpo: their number, of all chosen answers
  float scale = 1.0f;
  Tensor value;        // out, f32 [1]: scale * sum of losses
  Tensor metrics{};    // out, optional, f32 [answer_metrics()]: scale * sums
  Tensor derivatives;  // out, f64 [A]: of the sum of losses by the answers' log-probabilities; 0 without a pair
};

struct AnswerFactorsArgs {
  Tensor owners;       // i32 [R], as in AnswerRows
  Tensor derivatives;  // f64 [A]
  Tensor prompts{};    // orpo: i32 [R], not negative: rows that also have the derivative prompt_share
  double prompt_share = 0;
  float scale = 1.0f;
  Tensor factors;  // out, f32 [R]: scale * derivative by the row's cross-entropy
};

struct AnswerDivergenceArgs {
  Tensor logps;        // f64 [A]
  Tensor reference{};  // f64 [A]; undefined: zeros
  Tensor pairs;        // as in AnswerLossArgs
  Tensor sums;         // out, f64 [2]: of logp - reference over the answers after those of `pairs`, and their number
};

extern constinit KernelSlot<AnswerSumsArgs> answer_sums_slot;
extern constinit KernelSlot<AnswerLossArgs> answer_loss_slot;
extern constinit KernelSlot<AnswerFactorsArgs> answer_factors_slot;
extern constinit KernelSlot<AnswerDivergenceArgs> answer_divergence_slot;

void answer_sums(const AnswerSumsArgs& args);
void answer_loss(const AnswerLossArgs& args);
void answer_factors(const AnswerFactorsArgs& args);
void answer_divergence(const AnswerDivergenceArgs& args);

}  // namespace quench
