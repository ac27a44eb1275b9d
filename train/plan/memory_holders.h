#pragma once
// Holders of a run's memory: weights, gradients, optimizer state, activations by part of the model, logits, workspaces.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/memory/allocator.h"

namespace quench {

struct MemoryHolder {
  std::string_view name;
  std::int64_t bytes = 0;
};

// At the peak of `stats`, largest first; none of 0 bytes. They add up to stats.peak.
[[nodiscard]] std::vector<MemoryHolder> memory_holders(const MemoryStats& stats);

}  // namespace quench
