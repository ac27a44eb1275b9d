#pragma once
// Order of samples: pure function of the global index, independent of world size, micro-batch size and workers; O(1).
//
// An epoch of a source visits every row once, permuted by (seed, source, epoch). Weights count rows: seq_len tokens
// with packing, else documents (or parts). Indices continue across epochs; nothing is dropped.

#include <cstdint>
#include <vector>

#include "data/sampling/mixture.h"

namespace quench {

struct SamplerOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;  // false: file order
};

class Sampler {
 public:
  // Per source: row count (> 0), weight.
  Sampler(std::vector<std::uint64_t> row_counts, const std::vector<double>& weights, const SamplerOptions& options);

  struct Sample {
    std::size_t source = 0;
    std::uint64_t row = 0;
    std::uint64_t epoch = 0;
  };
  [[nodiscard]] Sample at(std::uint64_t index) const;
  // E.g. 1.25.
  [[nodiscard]] double epochs(std::size_t source, std::uint64_t samples) const;
  [[nodiscard]] std::size_t source_count() const noexcept { return row_counts_.size(); }
  [[nodiscard]] const Mixture& mixture() const noexcept { return mixture_; }

 private:
  std::vector<std::uint64_t> row_counts_;
  Mixture mixture_;
  SamplerOptions options_;
};

// Samples first .. first + global_batch_size - 1: rank r takes the r-th contiguous part, in micro-batches of
// consecutive samples. A step's samples do not depend on the split.
struct BatchSplit {
  std::int64_t micro_batch_size = 1;   // rows, per rank
  std::int64_t global_batch_size = 1;  // rows per optimizer step, all ranks
  std::int64_t rank = 0;
  std::int64_t world_size = 1;

  // Throws invalid_argument with the arithmetic unless global_batch_size is a multiple of micro_batch_size * world_size
  // and 0 <= rank < world_size.
  void check() const;
  // Gradient accumulation of one rank.
  [[nodiscard]] std::int64_t accumulation_steps() const { return global_batch_size / (micro_batch_size * world_size); }
  // First sample of this rank's micro-batch `micro_step`; `step_first`: first sample of the step.
  [[nodiscard]] std::uint64_t first_sample(std::uint64_t step_first, std::int64_t micro_step) const {
    return step_first + static_cast<std::uint64_t>((rank * accumulation_steps() + micro_step) * micro_batch_size);
  }
};

}  // namespace quench
