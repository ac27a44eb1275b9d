#pragma once
// Where the rows and columns of a tensor-parallel slice are in the whole parameter.

#include <functional>
#include <vector>

#include "nn/modules/parameter.h"

namespace quench::nn {

// Consecutive rows of a slice that are consecutive in the whole, too.
struct SliceRows {
  std::int64_t row = 0;        // within the slice
  std::int64_t whole_row = 0;  // within the whole parameter
  std::int64_t rows = 0;
};

// Shape of the whole parameter.
[[nodiscard]] Shape whole_shape(const Parameter& parameter);

// The rows [begin, begin + rows) of the slice on rank `place` of the tensor axis, in order. Of a parameter that is not
// split by rows: one range, where it is.
[[nodiscard]] std::vector<SliceRows> slice_rows(const Parameter& parameter, const ShardSpec& local, std::int64_t place);
// The same for this rank's slice and shard.
[[nodiscard]] std::vector<SliceRows> own_rows_of(const Parameter& parameter);

// First row of this rank's part of a piece, within the whole piece.
[[nodiscard]] std::int64_t first_row_of(const Parameter& parameter, const ParameterPiece& piece);

// Whole parameter of the slices [parts * rows, columns] of all ranks of the tensor axis, in their order.
[[nodiscard]] Tensor join_slices(const Parameter& parameter, const Tensor& slices);

// Fills the columns of `rows` [N,C] from whole rows, in blocks: `fill(whole, first)` writes the whole rows [n, C *
// column_parts] from row `first` of the N.
void fill_columns(const Parameter& parameter, const Tensor& rows,
                  const std::function<void(const Tensor& whole, std::int64_t first)>& fill);

}  // namespace quench::nn
