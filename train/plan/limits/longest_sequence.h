#pragma once
// Longest sequence of a run: the largest data.seq_len whose estimate (train/plan/estimate.h) fits device and host
// memory, everything else of the config unchanged.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/plan/estimate.h"

namespace quench {

// A holder of memory (train/plan/memory_holders.h), and what a further token of a sequence adds to it.
struct HolderGrowth {
  std::string_view name;
  std::int64_t bytes = 0;      // at the longest sequence
  double bytes_per_token = 0;  // mean over the second half of that length
};

// Length, and the runs at it and one unit beyond.
struct LongestSequence {
  std::int64_t tokens = 0;
  std::int64_t unit = 0;              // lengths are multiples of this
  std::int64_t model_positions = 0;   // context length of the model; a longer run has to extend it
  RunEstimate estimate;               // the run with `tokens`
  std::optional<RunEstimate> next;    // with one unit more, which does not fit; nullopt: a pass can count no more
  std::vector<HolderGrowth> holders;  // fastest growing first
};

// Multiples of 1,024 tokens, or of 64 where those do not fit; both of what parallel.context divides. Throws bad_config
// if the memory is unknown, out_of_memory with the table if the shortest sequence does not fit.
[[nodiscard]] LongestSequence longest_sequence(const RunConfig& config, Device target, const Cluster& cluster = {});

// Length, growth by holder and the run's estimate.
[[nodiscard]] std::string to_string(const LongestSequence& longest);
// With the estimate under "estimate".
[[nodiscard]] Json to_json(const LongestSequence& longest);

}  // namespace quench
