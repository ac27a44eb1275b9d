#pragma once
// Multiple-choice accuracy by log-likelihood, as in lm-evaluation-harness.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/decoder/causal_lm.h"
#include "train/evaluation/choice_task.h"
#include "train/evaluation/scored_text.h"

namespace quench {

// Means and standard errors (NaN for one item).
struct ChoiceReport {
  std::int64_t items = 0;
  double accuracy = 0;          // acc: the answer is the most likely choice
  double accuracy_error = 0;    // acc_stderr
  double normalized = 0;        // acc_norm: log-likelihood per character
  double normalized_error = 0;  // acc_norm_stderr
};

// Context and continuation, encoded together, then split at the length of the encoded context; the context's trailing
// white space belongs to the continuation.
[[nodiscard]] std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> encode_pair(
    const ScoredText& encoder, std::string_view context, std::string_view continuation);

// log p of each choice after context and space, per item; contexts are truncated on the left to `window` tokens. Throws
// bad_config naming the item for a choice without own tokens or longer than a window, nonfinite for NaN or infinite
// logits.
[[nodiscard]] std::vector<std::vector<double>> choice_log_likelihoods(const nn::CausalLm& model,
                                                                      const ScoredText& encoder, std::int64_t window,
                                                                      std::span<const ChoiceItem> items);

// One row per item.
[[nodiscard]] ChoiceReport choice_report(std::span<const ChoiceItem> items,
                                         std::span<const std::vector<double>> log_likelihoods);

}  // namespace quench
