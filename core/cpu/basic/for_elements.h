#pragma once
// Parallel loop over the elements of contiguous tensors.

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// body(i, count) for the vectors of [0, n), in parallel for large n.
template <class Body>
void for_elements(std::int64_t n, const Body& body) {
  // Multiples of an f32 page: no false sharing.
  constexpr std::int64_t kBlock = 1024;
  parallel_ranges((n + kBlock - 1) / kBlock, n, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kBlock;
    for_vectors(std::min(end * kBlock, n) - first, [&](std::int64_t i, auto count) { body(first + i, count); });
  });
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
