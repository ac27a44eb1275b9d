#pragma once
// Rows of weighted sources in training order.

#include <memory>
#include <string>
#include <vector>

#include "data/sampling/packing.h"
#include "data/sampling/sampler.h"

namespace quench {

// Range of a source's stream.
struct SourcePart {
  std::string name;  // path or pattern, as given
  std::uint64_t begin = 0, tokens = 0;
};

struct WeightedRows {
  std::shared_ptr<const PackedRows> rows;
  double weight = 1;                // relative, in rows (sampler.h)
  std::vector<SourcePart> parts{};  // in order; may be empty
};

class Dataset {
 public:
  // Nonempty, of equal seq_len.
  Dataset(std::vector<WeightedRows> sources, const SamplerOptions& options);

  [[nodiscard]] std::int64_t seq_len() const { return sources_.front().rows->seq_len(); }
  [[nodiscard]] std::uint64_t row_count() const noexcept { return row_count_; }
  [[nodiscard]] const std::vector<WeightedRows>& sources() const noexcept { return sources_; }
  [[nodiscard]] const Sampler& sampler() const noexcept { return sampler_; }

  // By global index (PackedRows::read). Errors name source, row and epoch.
  std::int64_t read(std::uint64_t sample, const RowView& out, std::int64_t first_token,
                    std::vector<SequenceRange>& sequences, const PairList& pairs = {}) const;

  // Throws invalid_argument, with the arithmetic, if a global batch exceeds the rows.
  void check_batch(const BatchSplit& geometry) const;

 private:
  std::vector<WeightedRows> sources_;
  Sampler sampler_;
  std::uint64_t row_count_ = 0;
};

}  // namespace quench
