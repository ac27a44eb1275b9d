#include "train/evaluation/choice_scoring.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/ops/loss/cross_entropy.h"
#include "data/jinja/jinja_text.h"
#include "train/evaluation/scoring.h"

namespace quench {
namespace {

constexpr std::string_view kDelimiter = " ";

// Last window + 1 tokens; only the continuation is scored.
ScoringWindow window_of(std::vector<std::int32_t> context, const std::vector<std::int32_t>& continuation,
                        std::int64_t window) {
  context.insert(context.end(), continuation.begin(), continuation.end());
  const auto limit = static_cast<std::size_t>(window) + 1;
  const std::size_t begin = context.size() > limit ? context.size() - limit : 0;
  ScoringWindow w;
  w.inputs.assign(context.begin() + static_cast<std::ptrdiff_t>(begin), context.end() - 1);
  w.targets.assign(context.begin() + static_cast<std::ptrdiff_t>(begin + 1), context.end());
  std::fill_n(w.targets.begin(), w.targets.size() - continuation.size(), kIgnoreLabel);
  w.first_target = static_cast<std::int64_t>(begin) + 1;
  return w;
}

struct Mean {
  double value = 0;
  double error = std::numeric_limits<double>::quiet_NaN();
};

// `hits` ones among `count` zeros and ones; error by the sample standard deviation.
Mean mean_of(std::int64_t hits, std::int64_t count) {
  const auto n = static_cast<double>(count);
  Mean mean{.value = static_cast<double>(hits) / n};
  if (count > 1) mean.error = std::sqrt(mean.value * (1 - mean.value) / (n - 1));
  return mean;
}

}  // namespace

std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> encode_pair(const ScoredText& encoder,
                                                                            std::string_view context,
                                                                            std::string_view continuation) {
  const std::string whole = std::string(context) + std::string(continuation);
  std::vector<std::int32_t> first = encoder.encode(jinja::strip(context, "", jinja::StripSide::right));
  const std::vector<std::int32_t> both = encoder.encode(whole);
  const auto divided = static_cast<std::ptrdiff_t>(std::min(first.size(), both.size()));
  return {std::move(first), {both.begin() + divided, both.end()}};
}

std::vector<std::vector<double>> choice_log_likelihoods(const nn::CausalLm& model, const ScoredText& encoder,
                                                        std::int64_t window, std::span<const ChoiceItem> items) {
  std::vector<std::vector<double>> likelihoods(items.size());
  WindowScorer scorer(model, "item", [&](std::int64_t item, double nll) {
    likelihoods[static_cast<std::size_t>(item)].push_back(-nll);
  });
  for (std::size_t i = 0; i < items.size(); ++i)
    for (const std::string& choice : items[i].choices) {
      auto [context, continuation] = encode_pair(encoder, items[i].context, std::string(kDelimiter) + choice);
      QUENCH_CHECK_AS(ErrorCode::bad_config, !context.empty() && !continuation.empty(),
                      "item {}: the choice \"{}\" adds no tokens to its context", i, choice);
      QUENCH_CHECK_AS(ErrorCode::bad_config, static_cast<std::int64_t>(continuation.size()) <= window,
                      "item {}: a choice of {} tokens is longer than a window of {} (--seq-len, the model's context)",
                      i, continuation.size(), window);
      scorer.add(window_of(std::move(context), continuation, window), static_cast<std::int64_t>(i));
    }
  (void)scorer.finish();
  return likelihoods;
}

ChoiceReport choice_report(std::span<const ChoiceItem> items, std::span<const std::vector<double>> log_likelihoods) {
  QUENCH_CHECK(!items.empty() && items.size() == log_likelihoods.size(),
               "choice_report: {} items, log-likelihoods of {}", items.size(), log_likelihoods.size());
  std::int64_t hits = 0, normalized_hits = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::vector<double>& likelihoods = log_likelihoods[i];
    std::vector<double> normalized;
    for (std::size_t c = 0; c < likelihoods.size(); ++c)
      normalized.push_back(likelihoods[c] / static_cast<double>(jinja::character_count(items[i].choices[c])));
    // First of the largest.
    const auto best = [](const std::vector<double>& values) {
      return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
    };
    hits += best(likelihoods) == items[i].answer ? 1 : 0;
    normalized_hits += best(normalized) == items[i].answer ? 1 : 0;
  }
  const auto count = static_cast<std::int64_t>(items.size());
  const Mean plain = mean_of(hits, count), by_length = mean_of(normalized_hits, count);
  return {count, plain.value, plain.error, by_length.value, by_length.error};
}

}  // namespace quench
