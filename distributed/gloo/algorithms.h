#pragma once
// Collective algorithms over messages (gloo/exchange.h). Reductions add in rank order: bits depend on inputs and number
// of ranks only.

#include "distributed/collective.h"
#include "distributed/gloo/exchange.h"

namespace quench::distributed {

// Slots of one operation: `base`, base + 1, ...; fewer than kSlotsPerOperation.
inline constexpr int kSlotBits = 24;
inline constexpr std::uint64_t kSlotsPerOperation = std::uint64_t{1} << kSlotBits;

// Blocks until complete on this rank.
void run_collective(Exchange& exchange, const Collective& collective, std::uint64_t base);

// Compares the operation of all ranks; a barrier as well. Throws failed, naming both operations, on a mismatch. Uses
// slot `base`.
void compare_collectives(Exchange& exchange, const Collective& collective, std::uint64_t base);

}  // namespace quench::distributed
