#pragma once
// In-register transpose of kLanes vectors.

#include <utility>

#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// Off-diagonal quarters of every 2 kHalf x 2 kHalf block.
template <int kHalf, std::size_t... kLane>
QUENCH_INLINE void exchange_quarters(F32& upper, F32& lower, std::index_sequence<kLane...>) {
  constexpr int half = kHalf;
  const F32 a = upper, b = lower;
  upper = __builtin_shufflevector(a, b, ((kLane & half) == 0 ? kLane : kLane - half + kLanes)...);
  lower = __builtin_shufflevector(a, b, ((kLane & half) == 0 ? kLane + half : kLane + kLanes)...);
}

template <int kHalf, std::size_t... kRow>
QUENCH_INLINE void transpose_step(F32 (&rows)[kLanes], std::index_sequence<kRow...> all) {
  (((kRow & kHalf) == 0 ? exchange_quarters<kHalf>(rows[kRow], rows[(kRow + kHalf) % kLanes], all) : void()), ...);
  if constexpr (kHalf > 1) transpose_step<kHalf / 2>(rows, all);
}

QUENCH_INLINE void transpose_lanes(F32 (&rows)[kLanes]) {
  transpose_step<kLanes / 2>(rows, std::make_index_sequence<kLanes>());
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
