// One GEMM per group, rows split into powers of two: oneDNN generates code per shape, and row counts vary.

#include <algorithm>
#include <bit>

#include "core/ops/elementwise.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/gemm.h"

namespace quench {
namespace {

constexpr std::uint64_t kLargestPiece = 4096;

// Descending powers of two that cover [begin, end).
template <class Body>
void for_pieces(std::int64_t begin, std::int64_t end, const Body& body) {
  while (begin < end) {
    const auto left = static_cast<std::uint64_t>(end - begin);
    const auto rows = static_cast<std::int64_t>(std::min(kLargestPiece, std::bit_floor(left)));
    body(begin, rows);
    begin += rows;
  }
}

// Empty groups included; returns the end of the last group.
template <class Body>
std::int64_t for_groups(const Tensor& ends, std::int64_t rows, const Body& body) {
  std::int64_t begin = 0;
  for (std::int64_t group = 0; group < ends.size(0); ++group) {
    const std::int64_t end = ends.data<std::int32_t>()[group];
    QUENCH_CHECK(end >= begin && end <= rows, "grouped gemm: group {} ends at row {}, after {}, of {}", group, end,
                 begin, rows);
    body(group, begin, end);
    begin = end;
  }
  return begin;
}

void grouped_gemm_kernel(const GroupedGemmArgs& args) {
  const std::int64_t rows = args.a.size(0);
  const std::int64_t used = for_groups(args.ends, rows, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
    for_pieces(begin, end, [&](std::int64_t first, std::int64_t count) {
      gemm({.a = args.a.narrow(0, first, count),
            .b = args.b.select(0, group),
            .c = args.c.narrow(0, first, count),
            .transpose_b = args.transpose_b});
    });
  });
  args.c.narrow(0, used, rows - used).zero();
}

void grouped_wgrad_kernel(const GroupedWgradArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  // Split sums: f32, rounded once.
  Tensor sum;
  for_groups(args.ends, args.a.size(0), [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
    Tensor c = args.c.select(0, group);
    if (begin == end) {
      if (args.beta == 0.0f) return c.zero();
      return quench::scale({.x = c, .factor = args.beta});
    }
    const auto depth = static_cast<std::uint64_t>(end - begin);
    const bool wide = c.dtype() == DType::f32 || (std::has_single_bit(depth) && depth <= kLargestPiece);
    if (!wide && !sum.defined()) sum = Tensor::empty(c.shape(), DType::f32);
    const Tensor& target = wide ? c : sum;
    float beta = args.beta;
    if (!wide && beta != 0.0f) cast({c, sum});
    for_pieces(begin, end, [&](std::int64_t first, std::int64_t count) {
      gemm({.a = args.a.narrow(0, first, count),
            .b = args.b.narrow(0, first, count),
            .c = target,
            .transpose_a = true,
            .beta = beta});
      beta = 1.0f;
    });
    if (!wide) cast({sum, c});
  });
}

QUENCH_CPU_KERNEL(grouped_gemm_slot, grouped_gemm_kernel);
QUENCH_CPU_KERNEL(grouped_wgrad_slot, grouped_wgrad_kernel);

}  // namespace
}  // namespace quench
