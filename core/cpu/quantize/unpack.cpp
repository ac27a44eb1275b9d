// Values of packed weights.

#include <vector>

#include "core/cpu/packed_rows.h"
#include "core/cpu/parallel.h"
#include "core/ops/packed_linear.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void unpack_kernel(const UnpackArgs& args) {
  const PackedMatrix& weight = args.weight;
  const PackedRows rows = rows_of(weight);
  dispatch_codes(weight.codes().dtype(), "unpack", [&]<class Codes>() {
    dispatch<float, bfloat16>(args.out.dtype(), "unpack", [&]<class T>() {
      parallel_ranges(rows.rows, rows.rows * rows.depth, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> scales(static_cast<std::size_t>(rows.groups));
        for (std::int64_t row = begin; row < end; ++row) {
          widen_scales(weight.scales(), rows.groups, row, 1, scales.data());
          unpack_row<Codes>(rows, row, scales.data(), args.out.data<T>() + row * rows.depth);
        }
      });
    });
  });
}

QUENCH_CPU_KERNEL(unpack_slot, unpack_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
