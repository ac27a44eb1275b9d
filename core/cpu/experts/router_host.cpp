#include "core/ops/experts/router.h"

#include <cmath>
#include <vector>

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// In elements, for the parallel threshold.
constexpr std::int64_t kWorkPerExpert = 16;

float sigmoid_of(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

// Returns the log-sum-exp.
float softmax(const float* logits, std::int64_t n, float* p) {
  float largest = logits[0];
  for (std::int64_t e = 1; e < n; ++e) largest = std::max(largest, logits[e]);
  float sum = 0;
  for (std::int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(logits[e] - largest);
  for (std::int64_t e = 0; e < n; ++e) p[e] /= sum;
  return largest + std::log(sum);
}

void scores_of(const float* logits, std::int64_t n, RouterScoring scoring, float* scores) {
  if (scoring == RouterScoring::softmax) {
    (void)softmax(logits, n, scores);
    return;
  }
  for (std::int64_t e = 0; e < n; ++e) scores[e] = sigmoid_of(logits[e]);
}

constexpr float kOut = -INFINITY;

// First among equals, NaN as -inf.
std::int64_t best_of(const float* values, std::int64_t n) {
  std::int64_t best = -1;
  for (std::int64_t i = 0; i < n; ++i)
    if (values[i] > (best < 0 ? kOut : values[best])) best = i;
  return best;
}

// Others become kOut.
void keep_best_groups(const RouterRule& rule, std::int64_t experts, float* choice, std::vector<float>& group_scores) {
  const std::int64_t size = experts / rule.groups;
  for (std::int64_t g = 0; g < rule.groups; ++g) {
    float first = kOut, second = kOut;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (choice[e] > first) {
        second = first;
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    group_scores[static_cast<std::size_t>(g)] = size > 1 ? first + second : first;
  }
  std::vector<bool> kept(static_cast<std::size_t>(rule.groups));
  for (std::int64_t i = 0; i < rule.groups_per_token; ++i) {
    std::int64_t g = best_of(group_scores.data(), rule.groups);
    for (std::int64_t other = 0; g < 0; ++other)
      if (!kept[static_cast<std::size_t>(other)]) g = other;
    kept[static_cast<std::size_t>(g)] = true;
    group_scores[static_cast<std::size_t>(g)] = kOut;
  }
  for (std::int64_t e = 0; e < experts; ++e)
    if (!kept[static_cast<std::size_t>(e / size)]) choice[e] = kOut;
}

void router_kernel(const RouterArgs& args) {
  const std::int64_t tokens = args.logits.size(0), experts = args.logits.size(1), chosen = args.experts.size(1);
  const float* bias = args.bias.defined() ? args.bias.data<float>() : nullptr;
  const bool by_logits = chooses_by_logits(args.rule, bias != nullptr);
  parallel_ranges(tokens, tokens * experts * kWorkPerExpert, [&](std::int64_t begin, std::int64_t end) {
    const auto size = static_cast<std::size_t>(experts);
    std::vector<float> scores(size), choice(size), group_scores(static_cast<std::size_t>(args.rule.groups));
    std::vector<bool> taken(size);
    for (std::int64_t t = begin; t < end; ++t) {
      const float* logits = args.logits.data<float>() + t * experts;
      scores_of(logits, experts, args.rule.scoring, scores.data());
      for (std::size_t e = 0; e < size; ++e)
        choice[e] = by_logits ? logits[e] : scores[e] + (bias != nullptr ? bias[e] : 0.0f);
      if (args.rule.groups > 1) keep_best_groups(args.rule, experts, choice.data(), group_scores);
      std::fill(taken.begin(), taken.end(), false);
      std::int32_t* ids = args.experts.data<std::int32_t>() + t * chosen;
      float* weights = args.weights.data<float>() + t * chosen;
      float sum = 0;
      for (std::int64_t j = 0; j < chosen; ++j) {
        std::int64_t best = best_of(choice.data(), experts);
        // Only NaN left: first free expert.
        for (std::int64_t e = 0; best < 0; ++e)
          if (!taken[static_cast<std::size_t>(e)]) best = e;
        taken[static_cast<std::size_t>(best)] = true;
        choice[static_cast<std::size_t>(best)] = kOut;
        ids[j] = static_cast<std::int32_t>(best);
        sum += weights[j] = scores[static_cast<std::size_t>(best)];
      }
      const float factor = args.rule.normalize ? args.rule.factor / (sum + kRouterEpsilon) : args.rule.factor;
      for (std::int64_t j = 0; j < chosen; ++j) weights[j] *= factor;
    }
  });
}

void router_backward_kernel(const RouterBackwardArgs& args) {
  const std::int64_t tokens = args.logits.size(0), experts = args.logits.size(1), chosen = args.experts.size(1);
  const RouterRule& rule = args.rule;
  const float* counts = args.terms.balance != 0.0f ? args.counts.data<float>() : nullptr;
  const auto n = static_cast<float>(tokens);
  // d(balance loss) / d p[t,e] = balance * E * counts[e] / N^2
  const float balance = args.terms.balance * static_cast<float>(experts) / n / n;
  parallel_ranges(tokens, tokens * experts * kWorkPerExpert, [&](std::int64_t begin, std::int64_t end) {
    const auto size = static_cast<std::size_t>(experts);
    std::vector<float> p(size), scores(size), dscores(size), dp(size);
    for (std::int64_t t = begin; t < end; ++t) {
      const float* logits = args.logits.data<float>() + t * experts;
      const std::int32_t* ids = args.experts.data<std::int32_t>() + t * chosen;
      const float* dweights = args.dweights.data<float>() + t * chosen;
      float* dlogits = args.dlogits.data<float>() + t * experts;
      const bool needs_p = rule.scoring == RouterScoring::softmax || args.terms.wanted();
      const float lse = needs_p ? softmax(logits, experts, p.data()) : 0.0f;
      scores_of(logits, experts, rule.scoring, scores.data());
      std::fill(dscores.begin(), dscores.end(), 0.0f);
      float sum = kRouterEpsilon, product = 0;
      for (std::int64_t j = 0; j < chosen; ++j) {
        sum += scores[static_cast<std::size_t>(ids[j])];
        product += dweights[j] * scores[static_cast<std::size_t>(ids[j])];
      }
      for (std::int64_t j = 0; j < chosen; ++j)
        dscores[static_cast<std::size_t>(ids[j])] =
            rule.normalize ? rule.factor * (dweights[j] - product / sum) / sum : rule.factor * dweights[j];
      std::fill(dp.begin(), dp.end(), 0.0f);
      if (rule.scoring == RouterScoring::sigmoid) {
        for (std::size_t e = 0; e < size; ++e) dlogits[e] = dscores[e] * scores[e] * (1.0f - scores[e]);
      } else {
        std::fill(dlogits, dlogits + experts, 0.0f);
        dp = dscores;
      }
      if (!needs_p) continue;
      if (counts != nullptr)
        for (std::size_t e = 0; e < size; ++e) dp[e] += balance * counts[e];
      float mean = 0;
      for (std::size_t e = 0; e < size; ++e) mean += p[e] * dp[e];
      const float z = args.terms.z * 2.0f * lse / n;
      for (std::size_t e = 0; e < size; ++e) dlogits[e] += p[e] * (dp[e] - mean + z);
    }
  });
}

void router_loss_kernel(const RouterLossArgs& args) {
  const std::int64_t tokens = args.logits.size(0), experts = args.logits.size(1);
  const RowParts parts(tokens);
  const auto width = static_cast<std::size_t>(experts + 1);
  // Per part: p_e, then squared log-sum-exp (z-loss).
  std::vector<double> sums(static_cast<std::size_t>(parts.count) * width);
  parallel_items(parts.count, tokens * experts * kWorkPerExpert, [&](std::int64_t part, int) {
    std::vector<float> p(static_cast<std::size_t>(experts));
    double* mine = sums.data() + static_cast<std::size_t>(part) * width;
    for (std::int64_t t = part * parts.rows; t < std::min(tokens, (part + 1) * parts.rows); ++t) {
      const double lse = softmax(args.logits.data<float>() + t * experts, experts, p.data());
      for (std::size_t e = 0; e + 1 < width; ++e) mine[e] += p[e];
      mine[width - 1] += lse * lse;
    }
  });
  for (std::size_t part = 1; part < static_cast<std::size_t>(parts.count); ++part)
    for (std::size_t e = 0; e < width; ++e) sums[e] += sums[part * width + e];
  const auto n = static_cast<double>(tokens);
  double balance = 0;
  for (std::size_t e = 0; e + 1 < width; ++e)
    balance += static_cast<double>(args.counts.data<float>()[e]) / n * sums[e] / n;
  args.losses.data<float>()[0] = static_cast<float>(balance * static_cast<double>(experts));
  args.losses.data<float>()[1] = static_cast<float>(sums[width - 1] / n);
}

QUENCH_CPU_KERNEL(router_slot, router_kernel);
QUENCH_CPU_KERNEL(router_backward_slot, router_backward_kernel);
QUENCH_CPU_KERNEL(router_loss_slot, router_loss_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
