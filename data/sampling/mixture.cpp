#include "data/sampling/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/number/random.h"
#include "core/system/check.h"
#include "data/sampling/permutation.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxBlock = 65536;

// Empty if any differs from its weight by more than rounding error.
std::vector<std::uint64_t> exact_shares(std::span<const double> weights, double total, std::uint64_t block) {
  std::vector<std::uint64_t> shares;
  std::uint64_t sum = 0;
  for (const double weight : weights) {
    const double share = weight / total * static_cast<double>(block);
    const double rounded = std::round(share);
    if (rounded < 1 || std::abs(share - rounded) > 1e-9 * static_cast<double>(block)) return {};
    shares.push_back(static_cast<std::uint64_t>(rounded));
    sum += shares.back();
  }
  return sum == block ? shares : std::vector<std::uint64_t>{};
}

// Largest remainder, largest block.
std::vector<std::uint64_t> nearest_shares(std::span<const double> weights, double total) {
  std::vector<std::uint64_t> shares;
  std::vector<double> remainders;
  std::uint64_t left = kMaxBlock;
  for (const double weight : weights) {
    const double share = weight / total * static_cast<double>(kMaxBlock);
    shares.push_back(static_cast<std::uint64_t>(share));
    remainders.push_back(share - std::floor(share));
    left -= shares.back();
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; i < left; ++i) ++shares[order[i % order.size()]];
  return shares;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights, std::uint64_t seed) : seed_(seed) {
  QUENCH_CHECK(!weights.empty() && weights.size() <= kMaxBlock, "mixture of {} sources", weights.size());
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    QUENCH_CHECK(std::isfinite(weights[i]) && weights[i] > 0, "source {}: weight {} is not a positive number", i,
                 weights[i]);
    total += weights[i];
  }
  QUENCH_CHECK(std::isfinite(total), "the weights add up to {}", total);
  std::vector<std::uint64_t> shares;
  for (std::uint64_t block = weights.size(); block <= kMaxBlock && shares.empty(); ++block)
    shares = exact_shares(weights, total, block);
  if (shares.empty()) shares = nearest_shares(weights, total);
  starts_.push_back(0);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    QUENCH_CHECK(shares[i] > 0, "source {}: weight {} is less than 1/{} of the total {}", i, weights[i], kMaxBlock,
                 total);
    starts_.push_back(starts_.back() + shares[i]);
  }
}

Mixture::Draw Mixture::at(std::uint64_t sample) const {
  const std::uint64_t block = sample / block_size();
  const Permutation order(block_size(), mix64(seed_ ^ hash64("mixture")) + block);
  const std::uint64_t slot = order(sample % block_size());
  const auto source =
      static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), slot) - starts_.begin()) - 1;
  return {source, block * (starts_[source + 1] - starts_[source]) + slot - starts_[source]};
}

std::uint64_t Mixture::drawn(std::size_t source, std::uint64_t samples) const {
  QUENCH_CHECK(source + 1 < starts_.size(), "source {} of {}", source, starts_.size() - 1);
  const std::uint64_t block = samples / block_size();
  std::uint64_t count = block * (starts_[source + 1] - starts_[source]);
  for (std::uint64_t sample = block * block_size(); sample < samples; ++sample)
    if (at(sample).source == source) ++count;
  return count;
}

}  // namespace quench
