#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/number/random.h"
#include "core/system/check.h"

namespace quench {
namespace {

struct Candidate {
  double logit;
  std::int32_t token;
};

void apply_repetition_penalty(std::vector<Candidate>& candidates, std::span<const std::int32_t> seen, double penalty) {
  std::vector<bool> done(candidates.size(), false);
  for (const std::int32_t token : seen) {
    const auto i = static_cast<std::size_t>(token);
    if (token < 0 || i >= candidates.size() || done[i]) continue;
    done[i] = true;
    double& logit = candidates[i].logit;
    constexpr double kMost = std::numeric_limits<double>::max();
    logit = std::clamp(logit > 0 ? logit / penalty : logit * penalty, -kMost, kMost);
  }
}

// Probabilities of candidates in descending order of logits. Differences are divided: any temperature is finite.
std::vector<double> softmax(const std::vector<Candidate>& sorted, double temperature) {
  std::vector<double> p(sorted.size());
  double sum = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    sum += p[i] = std::exp((sorted[i].logit - sorted.front().logit) / temperature);
  for (double& x : p) x /= sum;
  return p;
}

}  // namespace

void check_sampling_options(const SamplingOptions& o) {
  const auto require = [](bool ok, std::string_view what) {
    if (!ok) QUENCH_FAIL(ErrorCode::bad_config, "{}", what);
  };
  require(std::isfinite(o.temperature) && o.temperature >= 0, "temperature must be 0 (greedy) or positive");
  require(o.top_k >= 0, "top-k must be 0 (all) or positive");
  require(o.top_p > 0 && o.top_p <= 1, "top-p must be in (0, 1]");
  require(o.min_p >= 0 && o.min_p <= 1, "min-p must be in [0, 1]");
  require(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0, "repetition penalty must be positive");
}

void fail_nonfinite_logit(std::int64_t token, std::int64_t position) {
  QUENCH_FAIL(ErrorCode::nonfinite,
              "the model's logits after {} tokens are not finite, the first that of token {}: its weights have NaN or "
              "infinity, or its activations overflow",
              position, token);
}

std::int32_t sample_token(std::span<const float> logits, std::span<const std::int32_t> seen,
                          const SamplingOptions& options, std::int64_t position) {
  QUENCH_CHECK(!logits.empty(), "sample_token: no logits");
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) fail_nonfinite_logit(static_cast<std::int64_t>(i), position);
    candidates[i] = {static_cast<double>(logits[i]), static_cast<std::int32_t>(i)};
  }
  if (options.repetition_penalty != 1.0) apply_repetition_penalty(candidates, seen, options.repetition_penalty);
  const auto larger = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  if (options.temperature == 0) return std::ranges::min_element(candidates, larger)->token;

  std::size_t keep = candidates.size();
  if (options.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(options.top_k));
  std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(keep), larger);
  candidates.resize(keep);
  std::vector<double> p = softmax(candidates, options.temperature);
  if (options.top_p < 1.0) {
    double mass = 0;
    std::size_t count = 0;
    while (count < p.size() && mass < options.top_p) mass += p[count++];
    p.resize(count);
  }
  while (options.min_p > 0 && p.size() > 1 && p.back() < options.min_p * p.front()) p.pop_back();
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  const auto words = random_block({options.seed, hash64("sample_token"), 0}, static_cast<std::uint64_t>(position));
  const double u = (static_cast<double>(words[0]) * 0x1.0p32 + words[1]) * 0x1.0p-64 * total;
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    sum += p[i];
    if (u < sum) return candidates[i].token;
  }
  return candidates[p.size() - 1].token;
}

}  // namespace quench
