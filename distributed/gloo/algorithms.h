#pragma once
// Collective operations over messages (gloo/exchange.h). Sums are made in the order of ranks, so that every element's
// bits depend on the values and the number of ranks alone: not on sizes, on where it lies in a tensor, or on time.

#include "distributed/collective.h"
#include "distributed/gloo/exchange.h"

namespace quench::distributed {

// Slots of one operation are `base`, base + 1, ...: less than kSlotsPerOperation.
inline constexpr int kSlotBits = 24;
inline constexpr std::uint64_t kSlotsPerOperation = std::uint64_t{1} << kSlotBits;

// Runs it; returns when it is done on this rank.
void run_collective(Exchange& exchange, const Collective& collective, std::uint64_t base);

// Every rank tells every other what it was asked for. Throws failed, naming both operations, where they do not fit. It
// is a barrier as well. Uses the slot `base`.
void compare_collectives(Exchange& exchange, const Collective& collective, std::uint64_t base);

}  // namespace quench::distributed
