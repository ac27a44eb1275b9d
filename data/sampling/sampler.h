#pragma once
// Order of training samples: pure function of the global sample index. Resuming is O(1), and the order is independent
// of world size, micro-batch size and workers.
//
// Each epoch of a source visits every row once, permuted by (seed, source, epoch). Weights count rows: seq_len tokens
// with packing, otherwise documents (or parts of long ones). Sample indices continue across epochs; nothing is dropped.

#include <cstdint>
#include <vector>

#include "data/sampling/mixture.h"

namespace quench {

struct SamplerOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;  // false: rows of each source in file order, every epoch
};

class Sampler {
 public:
  // One row count (> 0) and one weight per source.
  Sampler(std::vector<std::uint64_t> row_counts, const std::vector<double>& weights, const SamplerOptions& options);

  struct Sample {
    std::size_t source = 0;
    std::uint64_t row = 0;
    std::uint64_t epoch = 0;
  };
  [[nodiscard]] Sample at(std::uint64_t index) const;
  // Epochs in the first `samples` samples, e.g. 1.25.
  [[nodiscard]] double epochs(std::size_t source, std::uint64_t samples) const;
  [[nodiscard]] std::size_t source_count() const noexcept { return row_counts_.size(); }
  [[nodiscard]] const Mixture& mixture() const noexcept { return mixture_; }

 private:
  std::vector<std::uint64_t> row_counts_;
  Mixture mixture_;
  SamplerOptions options_;
};

// Split of a step's global batch: samples first .. first + global_batch_size - 1; rank r takes the r-th contiguous
// part, in micro-batches of consecutive samples. The set of samples of a step does not depend on the split.
struct BatchSplit {
  std::int64_t micro_batch_size = 1;   // rows per forward pass of one rank
  std::int64_t global_batch_size = 1;  // rows per optimizer step over all ranks
  std::int64_t rank = 0;
  std::int64_t world_size = 1;

  // Throws invalid_argument with the arithmetic unless global_batch_size is a multiple of micro_batch_size * world_size
  // and 0 <= rank < world_size.
  void check() const;
  // Gradient accumulation: micro-batches of one rank per step.
  [[nodiscard]] std::int64_t accumulation_steps() const { return global_batch_size / (micro_batch_size * world_size); }
  // First sample of this rank's micro-batch `micro_step` in the step with first sample `step_first`.
  [[nodiscard]] std::uint64_t first_sample(std::uint64_t step_first, std::int64_t micro_step) const {
    return step_first + static_cast<std::uint64_t>((rank * accumulation_steps() + micro_step) * micro_batch_size);
  }
};

}  // namespace quench
