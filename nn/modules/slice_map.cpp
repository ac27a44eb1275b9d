#include "nn/modules/slice_map.h"

#include <algorithm>

#include "core/ops/elementwise.h"

namespace quench::nn {
namespace {

constexpr std::int64_t kBlockElements = std::int64_t{1} << 24;

}  // namespace

Shape whole_shape(const Parameter& parameter) {
  Shape shape = parameter.global_shape;
  if (shape.rank() > 0) shape[0] *= parameter.slice.row_parts();
  if (shape.rank() > 1) shape[1] *= parameter.slice.column_parts();
  return shape;
}

std::vector<SliceRows> slice_rows(const Parameter& parameter, const ShardSpec& local, std::int64_t place) {
  const std::int64_t parts = parameter.slice.row_parts(), end = local.row_begin + local.rows;
  if (parts == 1) return {{local.row_begin, local.row_begin, local.rows}};
  std::vector<SliceRows> all;
  for (const ParameterPiece& piece : parameter.pieces) {
    const std::int64_t from = std::max(piece.row_begin, local.row_begin),
                       to = std::min(piece.row_begin + piece.rows, end);
    if (from >= to) continue;
    all.push_back({from, piece.row_begin * parts + place * piece.rows + (from - piece.row_begin), to - from});
  }
  return all;
}

std::vector<SliceRows> own_rows_of(const Parameter& parameter) {
  return slice_rows(parameter, parameter.shard, parameter.slice.place.index);
}

std::int64_t first_row_of(const Parameter& parameter, const ParameterPiece& piece) {
  return parameter.slice.row_parts() == 1 ? 0 : parameter.slice.place.index * piece.rows;
}

Tensor join_slices(const Parameter& parameter, const Tensor& slices) {
  const TensorSlice& slice = parameter.slice;
  if (slice.is_whole()) return slices;
  const std::int64_t parts = slice.place.count, rows = slices.size(0) / parts;
  const Tensor whole = Tensor::empty(whole_shape(parameter), slices.dtype(), slices.device());
  const std::int64_t width = whole.rank() == 1 ? 1 : whole.size(1);
  const Tensor matrix = whole.view({whole.size(0), width}),
               from = slices.view({slices.size(0), slices.numel() / slices.size(0)});
  for (std::int64_t part = 0; part < parts; ++part)
    for (const SliceRows& run : slice_rows(parameter, {0, rows}, part)) {
      const Tensor own = from.narrow(0, part * rows + run.row, run.rows),
                   to = matrix.narrow(0, run.whole_row, run.rows);
      copy_rows({.from = own,
                 .to = slice.split == TensorSplit::columns ? to.narrow(1, part * own.size(1), own.size(1)) : to});
    }
  return whole;
}

void fill_columns(const Parameter& parameter, const Tensor& rows,
                  const std::function<void(const Tensor& whole, std::int64_t first)>& fill) {
  const std::int64_t count = rows.size(0), width = rows.size(1), whole_width = width * parameter.slice.column_parts();
  const std::int64_t block = std::clamp<std::int64_t>(kBlockElements / std::max<std::int64_t>(whole_width, 1), 1,
                                                      std::max<std::int64_t>(count, 1));
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor whole = Tensor::empty({block, whole_width}, rows.dtype(), rows.device());
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t some = std::min(block, count - first);
    const Tensor part = whole.narrow(0, 0, some);
    fill(part, first);
    copy_rows({.from = part.narrow(1, parameter.slice.place.index * width, width), .to = rows.narrow(0, first, some)});
  }
}

}  // namespace quench::nn
