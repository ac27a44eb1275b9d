#pragma once
// The order of training samples: a pure function from the global sample index to a row of a source, so that a run
// resumes anywhere at once and neither world size, micro-batch size nor number of workers changes what is seen when.
//
// Each pass over a source (its epoch) visits every row once, in an order permuted by (seed, source, epoch). Sources are
// mixed by weight; weights count rows, which are seq_len tokens each when packing and documents (or parts of long ones)
// when not. Sample indices go on across epochs: nothing is dropped at an epoch's end.

#include <cstdint>
#include <vector>

#include "data/sampling/mixture.h"

namespace quench {

struct SamplerOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;  // false: the rows of each source in their order, every epoch
};

class Sampler {
 public:
  // One row count (> 0) and one weight a source.
  Sampler(std::vector<std::uint64_t> row_counts, const std::vector<double>& weights, const SamplerOptions& options);

  struct Sample {
    std::size_t source = 0;
    std::uint64_t row = 0;
    std::uint64_t epoch = 0;  // of this source
  };
  [[nodiscard]] Sample at(std::uint64_t index) const;
  // Passes over a source made by the first `samples` samples, e.g. 1.25.
  [[nodiscard]] double epochs(std::size_t source, std::uint64_t samples) const;
  [[nodiscard]] std::size_t source_count() const noexcept { return row_counts_.size(); }
  [[nodiscard]] const Mixture& mixture() const noexcept { return mixture_; }

 private:
  std::vector<std::uint64_t> row_counts_;
  Mixture mixture_;
  SamplerOptions options_;
};

// How the samples of a step are shared out: step samples first .. first + global_batch_size - 1, rank r takes the r-th
// contiguous part, in micro-batches of consecutive samples. The step's set of samples does not depend on the split.
struct BatchSplit {
  std::int64_t micro_batch_size = 1;   // rows of one forward pass of one rank
  std::int64_t global_batch_size = 1;  // rows of one optimizer step of all ranks
  std::int64_t rank = 0;
  std::int64_t world_size = 1;

  // Throws invalid_argument with the arithmetic unless global_batch_size is a multiple of micro_batch_size * world_size
  // and 0 <= rank < world_size.
  void check() const;
  // Forward passes of one rank in a step.
  [[nodiscard]] std::int64_t accumulation_steps() const { return global_batch_size / (micro_batch_size * world_size); }
  // First sample of this rank's micro-batch `micro_step` in the step that begins at sample `step_first`.
  [[nodiscard]] std::uint64_t first_sample(std::uint64_t step_first, std::int64_t micro_step) const {
    return step_first + static_cast<std::uint64_t>((rank * accumulation_steps() + micro_step) * micro_batch_size);
  }
};

}  // namespace quench
