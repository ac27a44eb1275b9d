#pragma once
// How the processes of a run share its work and its memory.

#include <cstdint>

#include "core/number/dtype.h"

namespace quench {

struct ParallelSection {
  std::int64_t shard = -1;     // ranks that share one copy of the model; -1: as many as replicate leaves
  std::int64_t replicate = 1;  // copies
  std::int64_t expert = 1;     // ranks of those that share the experts of a copy out
  // How rows travel to their experts and back.
  enum class DispatchFormat : std::uint8_t { high_precision, mxfp8 };
  DispatchFormat expert_all_to_all = DispatchFormat::high_precision;
  bool reshard_after_forward = true;
  bool reduce_every_micro_batch = true;
  DType reduce_dtype = DType::f32;  // f32 or bf16: gradients on their way
  bool float8_all_gather = true;    // weights of float8 layers are cast before they are gathered

  // Processes of the run: no key, what starts the run says. 1 for whoever only reads the config.
  std::int64_t ranks = 1;

  friend bool operator==(const ParallelSection&, const ParallelSection&) = default;
};

}  // namespace quench
