
#include <algorithm>

#include "core/ops/quantize/transpose_codes.h"

namespace quench {
namespace {

constexpr std::int64_t kSquare = 64;
constexpr std::int64_t kParallelBytes = std::int64_t{1} << 15;

void transpose_codes_host(const TransposeCodesArgs& args) {
  const std::int64_t rows = args.from.size(0), columns = args.from.size(1);
  const auto* from = static_cast<const std::uint8_t*>(args.from.raw_data());
  auto* to = static_cast<std::uint8_t*>(args.to.raw_data());
#pragma omp parallel for collapse(2) schedule(static) if (rows * columns >= kParallelBytes)
  for (std::int64_t column = 0; column < columns; column += kSquare)
    for (std::int64_t row = 0; row < rows; row += kSquare)
      for (std::int64_t c = column; c < std::min(columns, column + kSquare); ++c)
        for (std::int64_t r = row; r < std::min(rows, row + kSquare); ++r) to[c * rows + r] = from[r * columns + c];
}

QUENCH_CPU_KERNEL(transpose_codes_slot, transpose_codes_host);

}  // namespace
}  // namespace quench
