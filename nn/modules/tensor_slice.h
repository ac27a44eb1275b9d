#pragma once
// Slices of weights on the ranks of a tensor-parallel group.

#include <cstdint>

namespace quench::nn {

// Place of a rank on the tensor axis.
struct TensorPlace {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// Which axis of a weight is split among the ranks, in equal parts.
enum class TensorSplit : std::uint8_t {
  none,     // every rank has the whole; its gradient is the sum over the ranks
  rows,     // output features, of each piece: the ranks' results are parts
  columns,  // input features: the ranks' results add up
};

struct TensorSlice {
  TensorSplit split = TensorSplit::none;
  TensorPlace place{};

  // Parts of each piece's rows, and of the columns.
  [[nodiscard]] std::int64_t row_parts() const noexcept { return split == TensorSplit::rows ? place.count : 1; }
  [[nodiscard]] std::int64_t column_parts() const noexcept { return split == TensorSplit::columns ? place.count : 1; }
  [[nodiscard]] bool is_whole() const noexcept { return row_parts() * column_parts() == 1; }
  // Every rank of several has the same values.
  [[nodiscard]] bool is_shared() const noexcept { return is_whole() && place.count > 1; }
  // Values that another rank has too and counts.
  [[nodiscard]] bool is_copy() const noexcept { return is_shared() && place.index > 0; }
};

}  // namespace quench::nn
