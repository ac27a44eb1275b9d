#include "data/sampling/dataset.h"

namespace quench {
namespace {

Sampler make_sampler(const std::vector<WeightedRows>& sources, const SamplerOptions& options) {
  QUENCH_CHECK(!sources.empty(), "a dataset without sources");
  std::vector<std::uint64_t> counts;
  std::vector<double> weights;
  for (const WeightedRows& source : sources) {
    QUENCH_CHECK(source.rows->seq_len() == sources.front().rows->seq_len(), "sources of {} and {} tokens a row",
                 sources.front().rows->seq_len(), source.rows->seq_len());
    counts.push_back(source.rows->size());
    weights.push_back(source.weight);
  }
  return {std::move(counts), weights, options};
}

}  // namespace

Dataset::Dataset(std::vector<WeightedRows> sources, const SamplerOptions& options)
    : sources_(std::move(sources)), sampler_(make_sampler(sources_, options)) {
  for (const WeightedRows& source : sources_) row_count_ += source.rows->size();
}

std::int64_t Dataset::read(std::uint64_t sample, const RowView& out, std::int64_t first_token,
                           std::vector<SequenceRange>& sequences, const PairList& pairs) const {
  const Sampler::Sample place = sampler_.at(sample);
  try {
    const std::size_t before = pairs.pairs != nullptr ? pairs.pairs->size() : 0;
    const std::int64_t valid = sources_[place.source].rows->read(place.row, out, first_token, sequences, pairs);
    for (std::size_t i = before; pairs.pairs != nullptr && i < pairs.pairs->size(); ++i)
      (*pairs.pairs)[i].source = place.source;
    return valid;
  } catch (const Error& error) {
    QUENCH_FAIL(error.code(), "sample {} (source {}, row {}, epoch {}): {}", sample, place.source, place.row,
                place.epoch, error.what());
  }
}

void Dataset::check_batch(const BatchSplit& geometry) const {
  geometry.check();
  QUENCH_CHECK(
      static_cast<std::uint64_t>(geometry.global_batch_size) <= row_count_,
      "the data has {} rows of {} tokens, one global batch needs {} ({} rows x {} accumulation steps x {} ranks); "
      "add data, or lower global_batch_size or seq_len",
      row_count_, seq_len(), geometry.global_batch_size, geometry.micro_batch_size, geometry.accumulation_steps(),
      geometry.world_size);
}

}  // namespace quench
