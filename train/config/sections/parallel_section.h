#pragma once
// Config section parallel.

#include <cstdint>
#include <vector>

#include "core/number/dtype.h"

namespace quench {

struct ParallelSection {
  // ranks = replicate * shard * context * tensor * pipeline. Parameters of a stage, or slices of them, are sharded over
  // shard * context ranks.
  std::int64_t shard = -1;     // parts of the data in a copy of the model; -1: ranks / the other four
  std::int64_t replicate = 1;  // HSDP
  std::int64_t context = 1;    // parts of each sequence
  std::int64_t expert = 1;     // within the ranks of a copy
  std::int64_t tensor = 1;     // slices of the weights
  std::int64_t pipeline = 1;   // stages
  enum class Schedule : std::uint8_t { one_f_one_b, interleaved };
  Schedule pipeline_schedule = Schedule::one_f_one_b;
  std::int64_t pipeline_chunks = 2;           // chunks of a stage under Schedule::interleaved
  std::vector<std::int64_t> pipeline_layers;  // layers of the chunks in the order of the model; empty: balanced
  // Token rows in the expert-parallel all-to-all.
  enum class DispatchFormat : std::uint8_t { high_precision, mxfp8 };
  DispatchFormat expert_all_to_all = DispatchFormat::high_precision;
  bool reshard_after_forward = true;
  bool reduce_every_micro_batch = true;
  DType reduce_dtype = DType::f32;  // f32 or bf16
  bool float8_all_gather = true;    // cast weights of float8 layers before the all-gather

  // World size from the launcher, not a config key.
  std::int64_t ranks = 1;
  // Ranks that read different sequences.
  [[nodiscard]] std::int64_t data_ranks() const noexcept { return ranks / context / tensor / pipeline; }
  // Chunks of layers of each stage.
  [[nodiscard]] std::int64_t chunks() const noexcept {
    return pipeline_schedule == Schedule::interleaved ? pipeline_chunks : 1;
  }

  friend bool operator==(const ParallelSection&, const ParallelSection&) = default;
};

}  // namespace quench
