#pragma once
// Multiple-choice accuracy from log-likelihoods, as in lm-evaluation-harness.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/causal_lm.h"
#include "train/evaluation/choice_task.h"
#include "train/evaluation/scored_text.h"

namespace quench {

// Means over items with standard errors (NaN for one item).
struct ChoiceReport {
  std::int64_t items = 0;
  double accuracy = 0;          // acc: fraction of items with the answer as the most likely choice
  double accuracy_error = 0;    // acc_stderr
  double normalized = 0;        // acc_norm: log-likelihood normalized by characters of the choice
  double normalized_error = 0;  // acc_norm_stderr
};

// Token ids of context and continuation: both are encoded together, then split at the length of the encoded context.
// Trailing white space of the context belongs to the continuation.
[[nodiscard]] std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> encode_pair(
    const ScoredText& encoder, std::string_view context, std::string_view continuation);

// log p of each choice after its context and a space, per item; contexts are truncated on the left to fit `window`
// tokens. Throws bad_config naming the item for a choice without own tokens or longer than a window, nonfinite naming
// the item for NaN or infinite logits.
[[nodiscard]] std::vector<std::vector<double>> choice_log_likelihoods(const nn::CausalLm& model,
                                                                      const ScoredText& encoder, std::int64_t window,
                                                                      std::span<const ChoiceItem> items);

// `log_likelihoods`: one row per item.
[[nodiscard]] ChoiceReport choice_report(std::span<const ChoiceItem> items,
                                         std::span<const std::vector<double>> log_likelihoods);

}  // namespace quench
