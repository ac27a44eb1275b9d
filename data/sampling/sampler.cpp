#include "data/sampling/sampler.h"

#include "core/number/random.h"
#include "core/system/check.h"
#include "data/sampling/permutation.h"

namespace quench {

Sampler::Sampler(std::vector<std::uint64_t> row_counts, const std::vector<double>& weights,
                 const SamplerOptions& options)
    : row_counts_(std::move(row_counts)), mixture_(weights, options.seed), options_(options) {
  QUENCH_CHECK(row_counts_.size() == weights.size(), "{} sources and {} weights", row_counts_.size(), weights.size());
  for (std::size_t i = 0; i < row_counts_.size(); ++i) QUENCH_CHECK(row_counts_[i] > 0, "source {} has no rows", i);
}

Sampler::Sample Sampler::at(std::uint64_t index) const {
  const Mixture::Draw draw = mixture_.at(index);
  const std::uint64_t rows = row_counts_[draw.source];
  const std::uint64_t epoch = draw.index / rows;
  const std::uint64_t place = draw.index % rows;
  if (!options_.shuffle) return {draw.source, place, epoch};
  const std::uint64_t key = mix64(options_.seed + mix64(draw.source + 1)) + epoch;
  return {draw.source, Permutation(rows, mix64(key))(place), epoch};
}

double Sampler::epochs(std::size_t source, std::uint64_t samples) const {
  return static_cast<double>(mixture_.drawn(source, samples)) / static_cast<double>(row_counts_.at(source));
}

void BatchSplit::check() const {
  QUENCH_CHECK(world_size > 0 && rank >= 0 && rank < world_size, "rank {} of world size {}", rank, world_size);
  QUENCH_CHECK(micro_batch_size > 0 && global_batch_size > 0, "micro-batch of {} rows, global batch of {}",
               micro_batch_size, global_batch_size);
  QUENCH_CHECK(global_batch_size % micro_batch_size == 0 && global_batch_size / micro_batch_size % world_size == 0,
               "global batch size {} is not a multiple of micro-batch size {} x world size {}", global_batch_size,
               micro_batch_size, world_size);
}

}  // namespace quench
