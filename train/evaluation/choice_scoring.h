#pragma once
// Accuracy on multiple-choice tasks from the log-likelihoods of the choices, as lm-evaluation-harness computes it.

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

// Means over items with their standard errors (NaN for one item).
struct ChoiceReport {
  std::int64_t items = 0;
  double accuracy = 0;          // acc: the choice with the largest log-likelihood is the answer
  double accuracy_error = 0;    // acc_stderr
  double normalized = 0;        // acc_norm: the same by log-likelihood per character of the choice
  double normalized_error = 0;  // acc_norm_stderr
};

// Token ids of a context and of what continues it: the tokens of both together, divided after as many as the context
// has alone. White space at the end of the context counts to the continuation.
[[nodiscard]] std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> encode_pair(
    const ScoredText& encoder, std::string_view context, std::string_view continuation);

// log p of each choice behind a space behind its context, item by item: contexts that do not fit into a window of
// `window` tokens lose their beginning. Throws bad_config naming the item for a choice that has no tokens of its own or
// is longer than a window, nonfinite naming the item where the model's logits are NaN or infinite.
[[nodiscard]] std::vector<std::vector<double>> choice_log_likelihoods(const nn::CausalLm& model,
                                                                      const ScoredText& encoder, std::int64_t window,
                                                                      std::span<const ChoiceItem> items);

// `log_likelihoods` are those of `items`.
[[nodiscard]] ChoiceReport choice_report(std::span<const ChoiceItem> items,
                                         std::span<const std::vector<double>> log_likelihoods);

}  // namespace quench
