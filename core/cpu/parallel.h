#pragma once
// Parallel loops; results do not depend on the thread count.

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// Memory-bound work below it is serial.
inline constexpr std::int64_t kParallelElements = 16 * 1024;

// body(begin, end) on disjoint ranges of [0, n); parallel if `elements` exceed the threshold.
template <class Body>
void parallel_ranges(std::int64_t n, std::int64_t elements, const Body& body) {
  if (elements < kParallelElements || n < 2 || omp_in_parallel() != 0 || omp_get_max_threads() == 1) {
    if (n > 0) body(std::int64_t{0}, n);
    return;
  }
#pragma omp parallel
  {
    const std::int64_t count = omp_get_num_threads(), index = omp_get_thread_num();
    const std::int64_t begin = n * index / count, end = n * (index + 1) / count;
    if (begin < end) body(begin, end);
  }
}

// Dynamic schedule, for unequal costs. body(item, thread), thread < omp_get_max_threads().
template <class Body>
void parallel_items(std::int64_t n, std::int64_t elements, const Body& body) {
  if (elements < kParallelElements || n < 2 || omp_in_parallel() != 0 || omp_get_max_threads() == 1) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t i = 0; i < n; ++i) body(i, omp_get_thread_num());
}

// Part count by n only.
struct RowParts {
  std::int64_t rows = 0;
  std::int64_t count = 0;
  explicit RowParts(std::int64_t n, std::int64_t min_rows = 32, std::int64_t max_parts = 32)
      : rows(std::max(min_rows, (n + max_parts - 1) / max_parts)), count((n + rows - 1) / rows) {}
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
